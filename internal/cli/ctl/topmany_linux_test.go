package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
)

// manyQueues is an API server with 1,000 ClusterQueues and a manager, as far as the page asks it. It counts the requests.
type manyQueues struct {
	mu     sync.Mutex
	counts map[string]int
	broken int    // the status of all answers; 0 is a proper one
	silent bool   // no answer at all
	denied string // the last part of the path that the user may not read
}

// Names that an API server would refuse, and a message that it would not.
const (
	hostileName    = "evil\x1b[2J\x1b[1;1H\nqueue-日本語-\u202e" // as long as it is wide
	hostileMessage = "\x1b]0;title\x07 \x1b[31m日本 e\u0301\u0301\u0301\u0301\u0301"
)

func (m *manyQueues) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	m.counts[name]++
	broken, silent := m.broken, m.silent
	if name == m.denied {
		broken = http.StatusForbidden
	}
	m.mu.Unlock()
	if silent {
		<-r.Context().Done()
		return
	}
	if broken != 0 {
		http.Error(w, "out of order", broken)
		return
	}
	answer := m.answer(r.URL.Path, r.URL.Query().Get("fieldSelector"))
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (m *manyQueues) answer(path, selected string) any {
	const queueing = "/apis/kueue.x-k8s.io/v1beta2"
	waits := condition("QuotaReserved", "False", "WaitingForQuota", hostileMessage)
	switch path {
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}}
	case "/apis":
		version := metav1.GroupVersionForDiscovery{GroupVersion: "kueue.x-k8s.io/v1beta2", Version: "v1beta2"}
		group := metav1.APIGroup{Name: "kueue.x-k8s.io", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{group}}
	case queueing:
		return served("kueue.x-k8s.io/v1beta2", "clusterqueues/ClusterQueue", "localqueues/LocalQueue", "cohorts/Cohort", "workloads/Workload")
	case "/apis/" + berthv1alpha1.GroupVersion.String():
		return served(berthv1alpha1.GroupVersion.String())
	case "/apis/" + berthv1alpha1.GroupVersion.String() + "/queueactivities":
		return berthv1alpha1.QueueActivityList{Items: []berthv1alpha1.QueueActivity{
			{ObjectMeta: meta("", "team-001"), LastHour: berthv1alpha1.Activity{Admitted: 40, Evicted: 3}},
			{ObjectMeta: meta("", "team-002"), LastHour: berthv1alpha1.Activity{Admitted: 2, Finished: 7, Failed: 1}},
		}}
	case queueing + "/clusterqueues":
		list := kueue.ClusterQueueList{TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "ClusterQueueList"}}
		for i := range 1000 {
			q := kueue.ClusterQueue{ObjectMeta: meta("", fmt.Sprintf("team-%03d", i)), Spec: kueue.ClusterQueueSpec{ResourceGroups: groupOf(quota("any", "cpu", "10"))}}
			q.Status.Conditions = []metav1.Condition{condition("Active", "True", "Ready", "Ready")}
			if i == 7 {
				q.Name, q.Status.PendingWorkloads = hostileName, 1
			}
			list.Items = append(list.Items, q)
		}
		return list
	case queueing + "/cohorts":
		return kueue.CohortList{TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "CohortList"}}
	case queueing + "/localqueues":
		return kueue.LocalQueueList{
			TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "LocalQueueList"},
			Items:    []kueue.LocalQueue{{ObjectMeta: meta("red", "main"), Spec: kueue.LocalQueueSpec{ClusterQueue: hostileName}}},
		}
	case queueing + "/workloads":
		list := kueue.WorkloadList{TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "WorkloadList"}}
		if selected == "status.admission.clusterQueue=" {
			list.Items = []kueue.Workload{*workload("red", "job-train", "main", waits)}
			list.Items[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-3 * time.Hour))
		}
		return list
	}
	if strings.HasSuffix(path, "/pendingworkloads") {
		return visibilityv1beta2.PendingWorkloadsSummary{Items: []visibilityv1beta2.PendingWorkload{{
			ObjectMeta: meta("red", "job-train"), LocalQueueName: "main", Priority: 7, Reason: "WaitingForQuota", Message: hostileMessage,
			ExpectedStart: &berthv1alpha1.ExpectedStart{Unknown: "no run times"},
		}}}
	}
	return nil
}

// served is the discovery of a group and version with some PLURAL/KIND.
func served(version string, kinds ...string) metav1.APIResourceList {
	out := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: version}
	for _, each := range kinds {
		plural, kind, _ := strings.Cut(each, "/")
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: plural, Kind: kind, Namespaced: kind == "LocalQueue" || kind == "Workload", Verbs: metav1.Verbs{"list", "get"}})
	}
	return out
}

// deny refuses what has this last part of its path, "" for nothing.
func (m *manyQueues) deny(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.denied = name
}

// reset begins to count anew.
func (m *manyQueues) reset(broken int, silent bool) (before map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = maps.Clone(m.counts)
	clear(m.counts)
	m.broken, m.silent = broken, silent
	return before
}

// TestManyQueues: with 1,000 queues a refresh reads each kind once, hostile text changes nothing on the screen but its own cells, and
// figures stay when the API server fails.
func TestManyQueues(t *testing.T) {
	m := &manyQueues{counts: map[string]int{}}
	server := httptest.NewServer(m)
	defer server.Close()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	d := newDisplay(t, 80, 24)
	berth := d.runs([]string{"NO_COLOR=1"}, "top --watch --interval 300ms -s "+server.URL)
	d.shows("1000 queues, 1 pending", "42 started, 7 finished, 1 failed, 3 evicted", "1-17 of 1000", "evil?[2J?[1;1H …", "3h", "WaitingForQuota")
	d.isPage(true)
	m.deny("queueactivities")
	d.shows("last hour  unknown", "the last hour is unknown: you may not: it takes the right to list queueacti")
	m.deny("")
	d.shows("42 started")
	d.types("\x1b[F") // End
	d.shows("984-1000 of 1000", "team-998", "team-999")
	d.types("\x1b[H") // Home: the queue in which a Workload waits is on the page
	resize(t, d.user, 140, 24)
	d.shows("STARTS", "?       WaitingForQuota")
	resize(t, d.user, 80, 24)
	d.shows("!STARTS")
	m.reset(0, false)
	d.types("s/-日\r\r") // by name; then the hostile queue
	d.shows("Workloads in line of ClusterQueue evil?[2J?[1;1H queue-日本語-?", "red/job-train", "WaitingForQuota", "3h")
	if text := d.text(); strings.ContainsAny(text, "\x07\u202e") || strings.Count(text, "\n") != 23 {
		t.Errorf("%q", text)
	}
	counts := m.reset(0, false)
	refreshes := counts["clusterqueues"]
	for _, kind := range []string{"cohorts", "localqueues", "workloads", "queueactivities"} { // counting began and ended within a refresh
		if n := counts[kind]; n > refreshes+1 || n < refreshes-1 || refreshes == 0 {
			t.Errorf("%d lists of %s and %d of ClusterQueues", n, kind, refreshes)
		}
	}
	if n := counts["pendingworkloads"]; n == 0 || n > refreshes+1 { // of the queue that is opened, and only of that
		t.Errorf("%d questions to the manager in %d refreshes", n, refreshes)
	}
	m.reset(http.StatusInternalServerError, false)
	d.shows("stale since ", ", trying again: an error on the server", "red/job-train")
	m.reset(0, false)
	d.shows("!stale", "red/job-train")
	m.reset(0, true)
	d.shows("stale since ", "still waiting for http", "red/job-train")
	d.types("\x03")
	d.ends(berth, 0)
	if d.hasColors() {
		t.Error("there are colors in spite of NO_COLOR")
	}
}
