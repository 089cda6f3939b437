package visibility

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const activities = "/apis/visibility.berth.dev/v1alpha1/queueactivities"

// happened is a Workload of the LocalQueue red/q with conditions that became true so long ago.
func happened(ago time.Duration, reason string, conditions ...string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red"}, Spec: kueue.WorkloadSpec{QueueName: "q"}}
	for _, kind := range conditions {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago)),
		})
	}
	return w
}

// admittedBy is a Workload with quota of a ClusterQueue.
func admittedBy(queue string, w *kueue.Workload) *kueue.Workload {
	w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue)}
	return w
}

// The answer counts what happened in each ClusterQueue, also of Workloads that hold no quota of it any more, and is kept for a while.
func TestQueueActivities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, visits := world(rules{"list visibility.berth.dev/queueactivities/ /"}), 0
		all := []*kueue.Workload{
			happened(0, ""),
			happened(time.Minute, "Preempted", kueue.WorkloadEvicted),
			happened(time.Minute, "JobFinished", kueue.WorkloadEvicted, kueue.WorkloadFinished),
			happened(59*time.Minute, kueue.ReasonFailedToStart, kueue.WorkloadFinished),
			happened(time.Hour, "Preempted", kueue.WorkloadEvicted),
			admittedBy("cq", happened(2*time.Hour, "Admitted", kueue.WorkloadAdmitted)),
			admittedBy("other", happened(time.Second, "Admitted", kueue.WorkloadAdmitted)),
			admittedBy("cq", happened(time.Second, "Admitted", kueue.WorkloadAdmitted)),
			admittedBy("cq", happened(0, kueue.ReasonFailed, kueue.WorkloadAdmitted, kueue.WorkloadFinished)),
		}
		nowhere := happened(time.Minute, "Preempted", kueue.WorkloadEvicted)
		nowhere.Spec.QueueName = "none"
		all = append(all, nowhere)
		s.Visit = func(visit func(*kueue.Workload)) {
			visits++
			for _, w := range all {
				visit(w)
			}
		}
		ask := func() string {
			t.Helper()
			got := get(s, activities)
			var out berthv1alpha1.QueueActivityList
			if err := json.Unmarshal(got.Body.Bytes(), &out); err != nil || got.Code != 200 || out.Kind != "QueueActivityList" {
				t.Fatalf("%d %s: %v", got.Code, got.Body, err)
			}
			var lines []string
			for _, q := range out.Items {
				lines = append(lines, fmt.Sprintf("%s %+v", q.Name, q.LastHour))
			}
			return strings.Join(lines, "\n")
		}
		first := "cq {Admitted:2 Finished:1 Failed:2 Evicted:1}\nother {Admitted:1 Finished:0 Failed:0 Evicted:0}"
		if got := ask(); got != first {
			t.Errorf("%s", got)
		}
		all = nil
		if time.Sleep(recentFor - time.Nanosecond); ask() != first || visits != 1 {
			t.Errorf("it was computed %d times in less than %s", visits, recentFor)
		}
		time.Sleep(time.Nanosecond)
		if after, again := ask(), ask(); after+again != "" || visits != 2 {
			t.Errorf("it was computed %d times: %s, then %s", visits, after, again)
		}
	})
}

// The list has one path and one verb.
func TestQueueActivitiesPaths(t *testing.T) {
	s := world(rules{"everything"})
	for path, code := range map[string]int{activities: 200, activities + "/cq": 404, activities + "?watch=true": 405, strings.Replace(activities, "queue", "namespaces/red/queue", 1): 404} {
		if got := get(s, path); got.Code != code {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	if got := get(s, activities); !strings.Contains(got.Body.String(), `"items":[]`) {
		t.Errorf("where nothing happened: %s", got.Body)
	}
	if got := get(world(nil), activities); got.Code != 403 || !strings.Contains(got.Body.String(), `cannot list resource \"queueactivities\"`) {
		t.Errorf("without a right: %d %s", got.Code, got.Body)
	}
}

// BenchmarkQueueActivities is one answer about 100,000 Workloads in 100 ClusterQueues, of which a tenth changed in the last hour.
func BenchmarkQueueActivities(b *testing.B) {
	s := world(nil)
	all := make([]*kueue.Workload, 100_000)
	for i := range all {
		all[i] = admittedBy(fmt.Sprint("q", i%100), happened(time.Duration(i%10)*time.Hour, "Done", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadFinished))
	}
	s.Visit = func(visit func(*kueue.Workload)) {
		for _, w := range all {
			visit(w)
		}
	}
	for b.Loop() {
		if n := len(s.activities(time.Now())); n != 10 {
			b.Fatal(n)
		}
	}
}
