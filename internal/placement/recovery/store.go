package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	plan "github.com/berth-project/berth/internal/placement/plan/recovery"
)

// podStore is the store of a reflector that keeps the names and nodes of the pods that may hang, and drops everything else.
type podStore struct {
	// found is called for each pod that may hang, when it becomes one or changes. It is set before the reflector runs.
	found func(types.NamespacedName)

	mu    sync.Mutex
	nodes map[types.NamespacedName]string
}

var _ toolscache.TransformingStore = (*podStore)(nil)

func newPodStore() *podStore { return &podStore{nodes: map[types.NamespacedName]string{}} }

// listed is a pod of the list at the start. node is empty unless it may hang.
type listed struct {
	metav1.ObjectMeta // its name, namespace and version
	node              string
}

func nodeIfHanging(pod *corev1.Pod) string {
	if plan.MayHang(pod) {
		return pod.Spec.NodeName
	}
	return ""
}

// Transformer returns the function by which the reflector reduces the pods of a list while they come in.
func (*podStore) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return object, nil
		}
		meta := metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
		return &listed{meta, nodeIfHanging(pod)}, nil
	}
}

// Add notes a new pod.
func (s *podStore) Add(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T among pods", object)
	}
	s.set(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, nodeIfHanging(pod))
	return nil
}

func (s *podStore) set(key types.NamespacedName, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node == "" {
		delete(s.nodes, key)
		return
	}
	s.nodes[key] = node
	s.found(key)
}

// Update notes a change of a pod.
func (s *podStore) Update(object any) error { return s.Add(object) }

// Delete notes that a pod is gone.
func (s *podStore) Delete(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T among pods", object)
	}
	s.set(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, "")
	return nil
}

// Replace notes that the pods are exactly these, at the start and after the watch was interrupted.
func (s *podStore) Replace(list []any, _ string) error {
	s.mu.Lock()
	clear(s.nodes)
	s.mu.Unlock()
	for _, object := range list {
		switch o := object.(type) {
		case *listed:
			s.set(types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, o.node)
		case *corev1.Pod:
			if err := s.Add(o); err != nil {
				return err
			}
		default:
			return fmt.Errorf("a %T among pods", object)
		}
	}
	return nil
}

// Resync does nothing: there is nothing to repeat.
func (*podStore) Resync() error { return nil }

// nodeOf returns the node of a pod that may hang, and false for any other pod.
func (s *podStore) nodeOf(key types.NamespacedName) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, known := s.nodes[key]
	return node, known
}

// onNode returns the pods of a node that may hang, sorted.
func (s *podStore) onNode(node string) (out []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, of := range s.nodes { //berth:unordered sorted below
		if of == node {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
