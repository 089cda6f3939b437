package controller

import (
	"context"
	"fmt"
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
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

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
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobsetv1alpha2.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
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
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(foreign).WithInterceptorFuncs(interceptor.Funcs{Create: create}).Build()
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
