package capacity

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	plan "github.com/berth-project/berth/internal/placement/plan/capacity"
)

// podStore is the store of a reflector that keeps the usage of pods instead of the pods.
type podStore struct {
	set func(node string, used plan.Amounts)

	mu     sync.Mutex
	pods   plan.Pods
	filled bool
}

var _ toolscache.TransformingStore = (*podStore)(nil)

// podUse is a pod of the first list, as little of it as is needed.
type podUse struct {
	metav1.ObjectMeta // its name and namespace
	use               plan.Use
	counts            bool
}

// Transformer returns the function by which the reflector reduces the pods of a list while they come in.
func (s *podStore) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return object, nil
		}
		out := &podUse{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
		out.use, out.counts = plan.UseOf(pod)
		return out, nil
	}
}

// Add notes a new pod.
func (s *podStore) Add(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T among pods", object)
	}
	s.change(func() []string { return s.pods.Set(pod) })
	return nil
}

// Update notes a change of a pod.
func (s *podStore) Update(object any) error { return s.Add(object) }

// Delete notes that a pod is gone, or over.
func (s *podStore) Delete(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T among pods", object)
	}
	s.change(func() []string { return s.pods.Remove(pod.UID) })
	return nil
}

// Replace notes that the pods are exactly these, at the start and after the watch was interrupted.
func (s *podStore) Replace(list []any, _ string) error {
	uses := make([]plan.Use, 0, len(list))
	for _, object := range list {
		switch o := object.(type) {
		case *podUse:
			if o.counts {
				uses = append(uses, o.use)
			}
		case *corev1.Pod:
			if use, counts := plan.UseOf(o); counts {
				uses = append(uses, use)
			}
		default:
			return fmt.Errorf("a %T among pods", object)
		}
	}
	s.change(func() []string {
		s.filled = true
		return s.pods.Replace(uses)
	})
	return nil
}

// Resync does nothing: there is nothing to repeat.
func (*podStore) Resync() error { return nil }

// isFilled reports whether the pods that existed at the start are noted and reported.
func (s *podStore) isFilled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filled
}

// change makes a change and reports the usage of every node that it affects. The lock keeps reports in the order of the changes.
func (s *podStore) change(apply func() []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range apply() {
		s.set(node, s.pods.Usage(node))
	}
}
