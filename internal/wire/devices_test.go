package wire

import (
	"fmt"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

// TestRecounts: the follower learns of each template. Where it does not listen, as on a standby, one event for all stands for any number.
func TestRecounts(t *testing.T) {
	d := &deviceCounts{recount: make(chan event.GenericEvent, recounts)}
	of := func(n int) plan.Changed {
		return plan.Changed{Templates: sets.New(types.NamespacedName{Namespace: "n", Name: fmt.Sprint("t", n)})}
	}
	d.requeue(of(0))
	if e := <-d.recount; e.Object.(*resourcev1.ResourceClaimTemplate).Name != "t0" {
		t.Errorf("%v", e.Object)
	}
	for i := range recounts + 1 {
		d.requeue(of(i))
	}
	d.requeue(plan.Changed{All: true})
	if e := <-d.recount; len(d.recount) != 0 {
		t.Errorf("%v and %d more", e.Object, len(d.recount))
	} else if _, all := e.Object.(*kueue.Workload); !all {
		t.Errorf("%v", e.Object)
	}
}
