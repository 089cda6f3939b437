package training

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
)

var measuring = flag.Bool("measure", false, "take the figures of 1,000 TrainJobs; minutes")

// ledger keeps the manager's writes for TrainJobs named many-0, many-1 and so on: everything but the children of a JobSet, the JobSet's
// own status, the counters of queues, events and dry runs.
type ledger struct {
	mu     sync.Mutex
	writes []write
}

type write struct {
	job, what string
	at        time.Time
}

var jobName = regexp.MustCompile(`many-\d+`)

func (l *ledger) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		body := ""
		if r.Method == http.MethodPost && r.GetBody != nil { // the path has no name
			if b, err := r.GetBody(); err == nil {
				data, _ := io.ReadAll(b)
				body = string(data)
			}
		}
		response, err := next.RoundTrip(r)
		if err != nil || response.StatusCode >= 300 || r.Method == http.MethodGet || r.URL.Query().Has("dryRun") {
			return response, err
		}
		_, path, found := strings.Cut(r.URL.Path, "/namespaces/lab/")
		parts := strings.Split(path, "/")
		if job := jobName.FindString(path + body); found && job != "" {
			what := r.Method + " " + parts[0]
			if len(parts) > 2 {
				what += "/" + parts[2]
			}
			switch parts[0] + strings.Join(parts[min(2, len(parts)):], "/") {
			case "events", "jobs", "services", "jobsetsstatus":
			default:
				l.mu.Lock()
				l.writes = append(l.writes, write{job, what, time.Now()})
				l.mu.Unlock()
			}
		}
		return response, err
	})
}

// runs watches when all pods of each TrainJob were first seen to run.
func (k *cluster) runs(jobs int) (at map[string]time.Time) {
	k.t.Helper()
	watching, err := client.NewWithWatch(k.admin, client.Options{Scheme: install.Scheme()})
	k.must(err)
	at = map[string]time.Time{}
	for deadline := time.After(20 * time.Minute); ; { // it measures
		w, err := watching.Watch(k.ctx, &corev1.PodList{}, client.InNamespace("lab"))
		k.must(err)
		for open := true; open; {
			var e watch.Event
			select {
			case e, open = <-w.ResultChan():
			case <-deadline:
				k.t.Fatalf("%d of %d TrainJobs run", len(at), jobs)
			}
			pod, ok := e.Object.(*corev1.Pod)
			if !ok || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			name := pod.Labels["jobset.sigs.k8s.io/jobset-name"]
			if _, seen := at[name]; !seen {
				at[name] = time.Now()
			}
			if len(at) == jobs {
				w.Stop()
				return at
			}
		}
	}
}

// moreNodes adds copies of a simulated node of the first zone.
func (k *cluster) moreNodes(n int) {
	k.t.Helper()
	var nodes corev1.NodeList
	k.must(k.c.List(k.ctx, &nodes, client.MatchingLabels{"zone": "a"}))
	for i := range n {
		node := nodes.Items[0].DeepCopy()
		node.Name, node.ResourceVersion, node.UID = fmt.Sprintf("more-%d", i), "", ""
		node.Spec.PodCIDR, node.Spec.PodCIDRs = "", nil
		status := node.Status
		k.create(node)
		embeddedtest.EditStatus(k.t, k.c, node, func(n *corev1.Node) { n.Status = status })
	}
}

// manyJobs lets a queue start TrainJobs that are created at once, and returns when the pods of each run.
func (k *cluster) manyJobs(n, running int) (created time.Time, ran map[string]time.Time) {
	k.t.Helper()
	k.queues()
	k.moreNodes(n / 100)
	embeddedtest.Edit(k.t, k.c, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "train"}}, func(q *kueue.ClusterQueue) {
		for i := range q.Spec.ResourceGroups[0].Flavors {
			q.Spec.ResourceGroups[0].Flavors[i].Resources[0].NominalQuota.Set(1000)
		}
	})
	created = time.Now()
	done := make(chan error, 8)
	for part := range cap(done) {
		go func() {
			var err error
			for i := part; i < n && err == nil; i += cap(done) {
				err = k.c.Create(k.ctx, newJob(fmt.Sprintf("many-%d", i), "train", "{runtimeRef: {name: torch-distributed}, trainer: {resourcesPerNode: {requests: {cpu: 10m}}}, runtimePatches: ["+
					seconds(map[string]string{"node": fmt.Sprint(running)})+"]}"))
			}
			done <- err
		}()
	}
	ran = k.runs(n)
	for range cap(done) {
		k.must(<-done)
	}
	return created, ran
}

// upTo counts, for each TrainJob, the writes until it ran, and all writes by their kind.
func (l *ledger) upTo(ran map[string]time.Time) (each map[string]int, kinds map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	each, kinds = map[string]int{}, map[string]int{}
	for _, w := range l.writes {
		if w.at.Before(ran[w.job]) {
			each[w.job]++
			kinds[w.what]++
		}
	}
	return each, kinds
}

// figure is a line of the measurement.
func figure(name string, value float64) { fmt.Printf("%s: %.2f\n", name, value) }

// TestWritesOfAQueue counts the manager's writes for TrainJobs from their creation to their running, and to their end.
func TestWritesOfAQueue(t *testing.T) {
	k := start(t)
	const jobs = 50
	_, ran := k.manyJobs(jobs, 6)
	for i := range jobs {
		k.completes(fmt.Sprintf("many-%d", i))
	}
	wait.Quiet(t, 2*time.Second, func() int { // delayed writes, and the end of the Workload
		k.ledger.mu.Lock()
		defer k.ledger.mu.Unlock()
		return len(k.ledger.writes)
	})
	each, kinds := k.ledger.upTo(ran)
	total := 0
	for _, what := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%s: %.2f a TrainJob", what, float64(kinds[what])/jobs)
		total += kinds[what]
	}
	t.Logf("%.2f writes a TrainJob until it runs, %d at most", float64(total)/jobs, slices.Max(slices.Collect(maps.Values(each))))
	if total > 8*jobs {
		t.Errorf("%d writes for %d TrainJobs until they run", total, jobs)
	}
	k.ledger.mu.Lock()
	defer k.ledger.mu.Unlock()
	kinds = map[string]int{}
	for _, w := range k.ledger.writes {
		kinds[w.what]++
	}
	t.Logf("until it completes: %v", kinds)
	all := float64(len(k.ledger.writes)) / jobs
	t.Logf("%.2f writes a TrainJob until it completes", all)
	if all > 14 {
		t.Errorf("%.2f writes a TrainJob until it completes", all)
	}
}

// TestMeasureTrainJobs prints the figures of 1,000 TrainJobs that a queue starts at once: run it with `make
// measure-trainjobs`. The Job controller and the scheduler run on the same cores; nodes are simulated.
func TestMeasureTrainJobs(t *testing.T) {
	if !*measuring {
		t.Skip("-measure takes minutes")
	}
	k := startAlone(t)
	const jobs = 1000
	created, ran := k.manyJobs(jobs, 3600)
	each, kinds := k.ledger.upTo(ran)
	total := 0
	for _, what := range slices.Sorted(maps.Keys(kinds)) {
		figure("trainjobs.1000.writes_until_running."+strings.ToLower(strings.ReplaceAll(what, " ", "_")), float64(kinds[what])/jobs)
		total += kinds[what]
	}
	figure("trainjobs.1000.writes_until_running.each", float64(total)/jobs)
	figure("trainjobs.1000.writes_until_running.most", float64(slices.Max(slices.Collect(maps.Values(each)))))
	last := created
	for _, at := range ran {
		if at.After(last) {
			last = at
		}
	}
	figure("trainjobs.1000.seconds_until_all_run", last.Sub(created).Seconds())
	if total > 8*jobs {
		t.Errorf("%.2f writes a TrainJob until it runs, more than 8", float64(total)/jobs)
	}
}
