package lookup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Pods finds pods with a label in a namespace: at least the pods whose controller has one of the names, or may have been made for a job with one of
// the names (see WasOf), and the pods of the slice chains. They must not be modified.
type Pods func(ctx context.Context, label, namespace string, names, chains []string) ([]*corev1.Pod, error)

// LivePods lists the pods with the label page by page.
func LivePods(reader client.Reader) Pods {
	return func(ctx context.Context, label, namespace string, names, chains []string) (out []*corev1.Pod, _ error) {
		wanted := sets.New[string]()
		for _, name := range names {
			wanted.Insert(ownerKey(name))
		}
		for _, name := range chains {
			wanted.Insert(chainKey(name))
		}
		err := eachPage(ctx, reader, livePage, func() *corev1.PodList { return &corev1.PodList{} }, func(page *corev1.PodList) {
			for i := range page.Items {
				if wanted.HasAny(dependencies(&page.Items[i])...) {
					out = append(out, page.Items[i].DeepCopy())
				}
			}
		}, client.InNamespace(namespace), client.HasLabels{label})
		return out, err
	}
}

// byDependency is the index of IndexPods.
const byDependency = "berth.dependency"

// IndexPods adds the index of CachedPods to a cache of pods.
func IndexPods(ctx context.Context, pods client.FieldIndexer) error {
	if err := pods.IndexField(ctx, &corev1.Pod{}, byDependency, dependencies); err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	return nil
}

// CachedPods finds the pods in a cache with IndexPods, all of which have the label: a namespace may have 100,000 of other jobs.
func CachedPods(cache client.Reader) Pods {
	return func(ctx context.Context, _, namespace string, names, chains []string) (out []*corev1.Pod, _ error) {
		seen := map[types.UID]bool{}
		for i, name := range append(names, chains...) {
			key := ownerKey(name)
			if i >= len(names) {
				key = chainKey(name)
			}
			found, err := listPods(ctx, cache, client.InNamespace(namespace), client.MatchingFields{byDependency: key})
			if err != nil {
				return nil, err
			}
			for _, pod := range found {
				if !seen[pod.UID] {
					seen[pod.UID] = true
					out = append(out, pod)
				}
			}
		}
		return out, nil
	}
}

func listPods(ctx context.Context, reader client.Reader, of ...client.ListOption) (out []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := reader.List(ctx, &list, append(of, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

func ownerKey(name string) string { return "owner/" + name }

func chainKey(name string) string { return "chain/" + name }

// dependencies are the keys of a pod in the index.
func dependencies(pod client.Object) (keys []string) {
	if ref := metav1.GetControllerOf(pod); ref != nil {
		for _, name := range append(JobsOf(ref.Name), ref.Name) {
			keys = append(keys, ownerKey(name))
		}
	}
	if name := pod.GetAnnotations()[kueue.WorkloadSliceNameAnnotation]; name != "" {
		keys = append(keys, chainKey(name))
	}
	return keys
}
