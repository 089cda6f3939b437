package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

func schemeOfJobSets(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobsetv1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// TestWindows: Jobs are created in windows that double. One that the API server refuses ends them, a name that is taken does not, and a pass
// creates no more than plan.Window, after which the JobSet is decided upon again.
func TestWindows(t *testing.T) {
	for name, test := range map[string]struct {
		replicas     int32
		refuse, take string // a Job
		tried        int
		more, fails  bool
	}{
		"few":             {replicas: 6, tried: 6},
		"the first":       {replicas: 2_000_000_000, refuse: "ring-oar-0", tried: 1, fails: true},
		"the third":       {replicas: 2_000_000_000, refuse: "ring-oar-2", tried: 3, fails: true},
		"the fourth":      {replicas: 2_000_000_000, refuse: "ring-oar-3", tried: 7, fails: true},
		"taken":           {replicas: 20, take: "ring-oar-0", tried: 20, fails: true},
		"a pass":          {replicas: plan.Window, tried: plan.Window},
		"more than a one": {replicas: 2_000_000_000, tried: plan.Window, more: true},
	} {
		t.Run(name, func(t *testing.T) {
			js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "ring", UID: "u"}}
			js.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{{Name: "oar", Replicas: &test.replicas}}
			plan.Default(js)
			var mu sync.Mutex
			tried := 0
			create := func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				mu.Lock()
				defer mu.Unlock()
				tried++
				o.SetUID(types.UID(o.GetName()))
				switch o.GetName() {
				case test.refuse:
					return apierrors.NewForbidden(batchv1.Resource("jobs"), o.GetName(), fmt.Errorf("exceeded quota"))
				case test.take:
					return apierrors.NewAlreadyExists(batchv1.Resource("jobs"), o.GetName())
				}
				return nil
			}
			foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "ring-oar-0"}}
			c := fake.NewClientBuilder().WithScheme(schemeOfJobSets(t)).WithObjects(foreign).WithInterceptorFuncs(interceptor.Funcs{Create: create}).Build()
			r := &reconciler{client: c, live: c, recorder: events.NewFakeRecorder(10), written: newWritten(time.Now), turns: newTurns()}
			p := plan.Config{MaxJobs: 2_000_000_000}.Decide(&plan.Observed{JobSet: js, Now: time.Now()})
			more, err := r.create(t.Context(), js, p.Create)
			if tried != test.tried || more != test.more || (err != nil) != test.fails {
				t.Errorf("%d Jobs were tried, want %d; more %v, want %v; error %v", tried, test.tried, more, test.more, err)
			}
			if test.take != "" && !strings.Contains(fmt.Sprint(err), "exists that does not belong to this JobSet") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestManyChangesAreRefused: a JobSet that holds quota fails once the API server has refused to change its Jobs for long, however many they
// are. Each attempt emits one event.
func TestManyChangesAreRefused(t *testing.T) {
	const jobs = 200
	js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "ring", UID: "u"}}
	js.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{{Name: "oar", Replicas: new(int32(jobs))}}
	js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = map[string]string{kueue.PodSetLabel: "oar"}
	plan.Default(js)
	c := fake.NewClientBuilder().WithScheme(schemeOfJobSets(t)).WithObjects(js).WithStatusSubresource(js).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			denied := apierrors.NewForbidden(batchv1.Resource("jobs"), o.GetName(), nil)
			denied.ErrStatus.Message = `admission webhook "lock.example.com" denied the request: ` + strings.Repeat("frozen ", 20) + "frozen"
			return denied
		},
	}).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(js), js); err != nil {
		t.Fatal(err)
	}
	metrics, err := registerMetrics()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	recorder := events.NewFakeRecorder(10)
	r := &reconciler{
		client: c, live: c, recorder: recorder, written: newWritten(time.Now), turns: newTurns(), metrics: metrics,
		now: time.Now, refusals: reconcile.NewRefusals(0, func() time.Time { return now }),
	}
	event := func(begins string) {
		t.Helper()
		select {
		case e := <-recorder.Events:
			if !strings.HasPrefix(e, begins) {
				t.Errorf("event %q", e)
			}
		default:
			t.Errorf("no event %q", begins)
		}
	}
	p := &plan.Plan{}
	for i := range jobs {
		p.Patches = append(p.Patches, plan.Patch{Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: plan.JobName("ring", "oar", i)}}, Data: []byte(`{}`)})
	}
	for i, fails := range []bool{false, true} {
		err := r.carryOut(t.Context(), &plan.Observed{JobSet: js, Now: now}, p).Err()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(js), js); err != nil {
			t.Fatal(err)
		}
		failed := plan.FinishedCondition(js)
		if (err == nil) != fails || (failed != nil) != fails {
			t.Fatalf("attempt %d: error %v, failed %+v", i, err, failed)
		}
		if fails && (len(failed.Message) > 1000 || !strings.Contains(failed.Message, "frozen (and 199 more)")) {
			t.Errorf("message %q", failed.Message)
		}
		event("Warning JobChangeFailed changing Job lab/ring-oar-0: admission webhook")
		now = now.Add(reconcile.Patience)
	}
	event("Warning JobCreationFailed changing Job")
}

// TestExpiredBesideActiveJobs: the active Jobs of a finished JobSet are deleted before the JobSet, also if its time to live is over at once. A
// failure of one deletion does not stop the others. spec: 60 §4.12.
func TestExpiredBesideActiveJobs(t *testing.T) {
	for name, refused := range map[string]string{"all deletions succeed": "", "one is refused": "ring-oar-0"} {
		js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "ring", UID: "u"}}
		js.Spec.TTLSecondsAfterFinished = new(int32(0))
		js.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{{Name: "oar", Replicas: new(int32(2))}}
		js.Status.Conditions = []metav1.Condition{{Type: string(jobsetv1alpha2.ConditionFailed), Status: metav1.ConditionTrue}}
		plan.Default(js)
		o := &plan.Observed{JobSet: js, Now: time.Unix(1000, 0)}
		for i := range 2 {
			o.Jobs = append(o.Jobs, plan.NewJob(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Namespace: "lab", Name: plan.JobName("ring", "oar", i), UID: types.UID(fmt.Sprint(i)),
				Labels: map[string]string{
					jobsetv1alpha2.ReplicatedJobNameKey: "oar", jobsetv1alpha2.JobIndexKey: fmt.Sprint(i), jobsetv1alpha2.RestartAttemptKey: "0",
				},
			}}))
		}
		var mu sync.Mutex
		var deleted []string
		c := fake.NewClientBuilder().WithScheme(schemeOfJobSets(t)).WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
				mu.Lock()
				defer mu.Unlock()
				deleted = append(deleted, object.GetName())
				if object.GetName() == refused {
					return apierrors.NewForbidden(batchv1.Resource("jobs"), refused, nil)
				}
				return nil
			},
		}).Build()
		r := &reconciler{client: c, recorder: events.NewFakeRecorder(10), written: newWritten(time.Now), turns: newTurns(), now: time.Now}
		p := r.plan.Decide(o)
		p.Status = nil // this is about the deletions
		err := r.carryOut(t.Context(), o, &p).Err()
		slices.Sort(deleted[:max(0, len(deleted)-1)]) // Jobs are deleted at once
		if want := []string{"ring-oar-0", "ring-oar-1", "ring"}; !slices.Equal(deleted, want) || (err != nil) != (refused != "") {
			t.Errorf("%s: %v, deleted %v, want %v", name, err, deleted, want)
		}
	}
}
