package lookup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Dependents are the children, pods and Workloads of a job with ManagedChildren.
type Dependents struct {
	Children  []job.Object
	Pods      []*corev1.Pod
	Workloads []*kueue.Workload
}

// Into sets the dependents of a setting.
func (f *Dependents) Into(in *job.Setting) {
	in.Children, in.Pods, in.Workloads = f.Children, f.Pods, f.Workloads
}

// Source is where dependents are read from.
type Source struct {
	Children  client.Reader
	Pods      Pods // nil: none are read
	Workloads func(ctx context.Context, of metav1.Object) ([]*kueue.Workload, error)

	pages int64 // objects of a page, 0 for a cache, which has none
}

// livePage is the number of objects that are read at once from the API server. A namespace may have any number of others.
const livePage = 250

// Live reads dependents from the API server.
func Live(reader client.Reader) Source {
	workloads := func(ctx context.Context, of metav1.Object) ([]*kueue.Workload, error) {
		return WorkloadsOf(ctx, reader, of)
	}
	return Source{Children: reader, Pods: LivePods(reader), Workloads: workloads, pages: livePage}
}

// eachPage lists by so many objects at once, 0 for all. Objects that are kept are copied: they hold their page otherwise.
func eachPage[L client.ObjectList](ctx context.Context, reader client.Reader, pages int64, empty func() L, keep func(L), of ...client.ListOption) error {
	for next := ""; ; {
		page := empty()
		if err := reader.List(ctx, page, append(of, client.UnsafeDisableDeepCopy, client.Limit(pages), client.Continue(next))...); err != nil {
			return err
		}
		keep(page)
		if next = page.GetContinue(); next == "" || pages == 0 { // a cache returns a token that it does not accept
			return nil
		}
	}
}

// ReadDependents reads the children of a job, their pods, and the pods of deleted children, which name the slice chain of the job's
// Workloads. Workloads that are nil are read.
func ReadDependents(ctx context.Context, from Source, d *job.Descriptor, of metav1.Object, workloads []*kueue.Workload) (*Dependents, error) {
	f := &Dependents{Workloads: workloads}
	names := []string{of.GetName()}
	controllers := map[types.UID]bool{} // whether the job controls each child
	err := eachPage(ctx, from.Children, from.pages, func() *unstructured.UnstructuredList {
		return view.NewList(d.ManagedChildren.Child)
	}, func(list *unstructured.UnstructuredList) {
		for i := range list.Items {
			child := &list.Items[i]
			if controllers[child.GetUID()] = metav1.IsControlledBy(child, of); controllers[child.GetUID()] {
				f.Children = append(f.Children, child.DeepCopy())
				names = append(names, child.GetName())
			}
		}
	}, client.InNamespace(of.GetNamespace()))
	if err != nil && !apimeta.IsNoMatchError(err) { // no kind, no children
		return nil, fmt.Errorf("listing %s of %s/%s: %w", d.ManagedChildren.Child.Kind, of.GetNamespace(), of.GetName(), err)
	}
	slices.SortFunc(f.Children, func(a, b job.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	if f.Workloads == nil {
		if f.Workloads, err = from.Workloads(ctx, of); err != nil {
			return nil, err
		}
	}
	chains := map[string]bool{}
	for _, w := range f.Workloads {
		chains[chain.Chain(w)] = true
	}
	if from.Pods == nil {
		return f, nil
	}
	pods, err := from.Pods(ctx, d.ManagedChildren.PodLabel, of.GetNamespace(), names, slices.Collect(maps.Keys(chains)))
	if err != nil {
		return nil, fmt.Errorf("listing pods of %s/%s: %w", of.GetNamespace(), of.GetName(), err)
	}
	for _, pod := range pods {
		if controls(d, of, controllers, pod) || (pod.Labels[kueue.PodSetLabel] != "" && chains[pod.Annotations[kueue.WorkloadSliceNameAnnotation]]) {
			f.Pods = append(f.Pods, pod.DeepCopy())
		}
	}
	return f, nil
}

// controls reports whether a pod is of a child of the job, or by its name of a deleted child.
func controls(d *job.Descriptor, of metav1.Object, controllers map[types.UID]bool, pod *corev1.Pod) bool {
	ref := metav1.GetControllerOf(pod)
	if ref == nil || ref.Kind != d.ManagedChildren.Child.Kind {
		return false
	}
	ours, exists := controllers[ref.UID]
	return ours || (!exists && WasOf(ref.Name, of.GetName()))
}

// WasOf reports whether an object of this name may have been made for a job: KubeRay appends a random word to the job's name, before 1.4
// also "raycluster-" before that word. A longer rest is the name of another job, and its word.
func WasOf(object, job string) bool { return slices.Contains(JobsOf(object), job) }

// JobsOf returns the names of the jobs that an object of this name may have been made for, see WasOf.
func JobsOf(object string) (jobs []string) {
	if word := strings.LastIndexByte(object, '-'); word >= 0 {
		jobs = append(jobs, object[:word])
		if before, infix := strings.CutSuffix(object[:word], "-raycluster"); infix {
			jobs = append(jobs, before)
		}
	}
	return jobs
}

// WorkloadsOf lists the Workloads that a job controls. Each has the label with its UID: others of the namespace are not read.
func WorkloadsOf(ctx context.Context, reader client.Reader, job metav1.Object) ([]*kueue.Workload, error) {
	return controlled(ctx, reader, job, string(job.GetUID()))
}

// controlled lists the Workloads with the label of a job, possibly of none, that an object controls.
func controlled(ctx context.Context, reader client.Reader, of metav1.Object, job string) ([]*kueue.Workload, error) {
	var all kueue.WorkloadList
	options := []client.ListOption{client.InNamespace(of.GetNamespace()), client.UnsafeDisableDeepCopy}
	if job != "" {
		options = append(options, client.MatchingLabels{kueue.JobUIDLabel: job})
	}
	if err := reader.List(ctx, &all, options...); err != nil {
		return nil, fmt.Errorf("listing workloads of %s/%s: %w", of.GetNamespace(), of.GetName(), err)
	}
	var out []*kueue.Workload
	for i := range all.Items {
		if w := &all.Items[i]; metav1.IsControlledBy(w, of) {
			out = append(out, w.DeepCopy())
		}
	}
	return out, nil
}

// ControllerUID is the index of objects by the UID of their controller.
func ControllerUID(o client.Object) []string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}
