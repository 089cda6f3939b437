package leaderworkerset_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
)

// TestScale is that the copy on a worker gets the groups that the local one has: no more than to the one whose Workload the worker has
// admitted, and no more than there are at once.
func TestScale(t *testing.T) {
	d := leaderworkerset.Descriptor()
	object := func(replicas string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(d.GVK)
		o.SetUID("uid")
		o.SetAnnotations(map[string]string{kueue.MultiKueueOriginUIDAnnotation: "uid"})
		o.Object["spec"] = map[string]any{"leaderWorkerTemplate": map[string]any{"size": int64(2)}}
		if replicas != "" {
			var n int64
			if _, err := fmt.Sscan(replicas, &n); err != nil {
				t.Fatal(err)
			}
			_ = unstructured.SetNestedField(o.Object, n, "spec", "replicas")
		}
		return o
	}
	for name, tc := range map[string]struct{ local, remote, index, want string }{
		"as many":                    {"3", "3", "2", ""},
		"one more":                   {"4", "3", "3", "4"},
		"two more, the second first": {"5", "3", "4", "5"},
		"two more, one of them":      {"5", "3", "3", "4"},
		"two more, none of them yet": {"5", "3", "2", ""},
		"fewer":                      {"1", "3", "0", "1"},
		"one that is not told of":    {"", "3", "0", "1"},
		"more than it says":          {"2", "", "7", "2"},
		"a workload without a place": {"4", "3", "", ""},
		"one that is to go":          {"2", "3", "2", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.ComponentWorkloadIndexAnnotation: tc.index}}}
			remote := object(tc.remote)
			before := remote.DeepCopy()
			step, err := (&multikueueplan.Config{}).SyncJob(d, object(tc.local), remote, w, nil, true)
			if err != nil || step.Do != multikueueplan.NoJob {
				t.Fatalf("%+v, %v", step, err)
			}
			got := ""
			if step.Resized != nil {
				n, _, _ := unstructured.NestedInt64(step.Resized.Object, "spec", "replicas")
				got = fmt.Sprint(n)
				if size, _, _ := unstructured.NestedInt64(step.Resized.Object, "spec", "leaderWorkerTemplate", "size"); size != 2 {
					t.Errorf("the rest became %v", step.Resized.Object)
				}
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if !equal(before, remote) {
				t.Errorf("the object that was read became %v", remote.Object)
			}
		})
	}
}

func equal(a, b *unstructured.Unstructured) bool { return fmt.Sprint(a.Object) == fmt.Sprint(b.Object) }
