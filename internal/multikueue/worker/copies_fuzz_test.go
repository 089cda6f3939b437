package worker

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/reconcile"
)

// FuzzCopy: any Workload of a worker cluster is kept within bounds, found again, and gone after its deletion.
func FuzzCopy(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"a","name":"b","uid":"u","resourceVersion":"7"},"spec":{"podSets":[{"name":"main","count":1}]}}`))
	f.Add([]byte(`{"metadata":{"resourceVersion":"-1"},"status":{"conditions":[{"type":"Finished","status":"True"}],"admission":{"podSetAssignments":[{}]}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := &kueue.Workload{}
		if json.Unmarshal(body, w) != nil {
			return
		}
		embeddedtest.Bounded(t, len(body), func() {
			s := &Store{gvk: WorkloadKind, compact: reconcile.CompactWorkloads(), objects: map[types.NamespacedName]client.Object{}}
			s.event(watch.Added, w)
			if s.Get(client.ObjectKeyFromObject(w)) == nil {
				t.Error("it is not kept")
			}
			s.event(watch.Modified, w.DeepCopy())
			s.event(watch.Deleted, w.DeepCopy())
			if s.Get(client.ObjectKeyFromObject(w)) != nil {
				t.Error("it is kept after its deletion")
			}
		})
	})
}
