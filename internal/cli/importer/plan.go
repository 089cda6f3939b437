package importer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// world has all objects besides the pod that a plan depends on.
type world struct {
	localQueues   map[types.NamespacedName]*kueue.LocalQueue
	clusterQueues map[kueue.ClusterQueueReference]*kueue.ClusterQueue
	flavors       job.Flavors
	classes       job.Classes
}

// plan is the import of one pod.
type plan struct {
	skip         bool
	queue        string
	clusterQueue kueue.ClusterQueueReference
	labels       map[string]string // new and changed labels of the pod
	observed     *job.Observed     // with the pod after the import
	workload     *kueue.Workload
	admission    *kueue.Admission
	checks       []kueue.AdmissionCheckReference
}

// line is the report about a pod.
func (p *plan) line(pod *corev1.Pod, said string) string {
	if p.skip {
		return fmt.Sprintf("%s/%s: skipped", pod.Namespace, pod.Name)
	}
	return fmt.Sprintf("%s/%s: %s into LocalQueue %s as Workload %s", pod.Namespace, pod.Name, said, p.queue, p.workload.Name)
}

var (
	descriptor = pod.Descriptor()
	// settings are the defaults of a manager: only the flags matter for the Workload of a pod.
	settings = func() *job.Config {
		o := options.Default()
		return lookup.NewConfig(&o)
	}()
)

// plan does the checks of spec 70 §4.11 in their order; the error is the first failure. It writes nothing, and modifies neither the pod
// nor the world.
func (i *Import) plan(w *world, original *corev1.Pod) (*plan, error) {
	target, err := i.Rules.Of(original)
	if err != nil {
		return nil, err
	}
	if target.Skip {
		return &plan{skip: true}, nil
	}
	cq, err := w.clusterQueue(original, target.Queue)
	if err != nil {
		return nil, err
	}
	p := &plan{queue: target.Queue, clusterQueue: kueue.ClusterQueueReference(cq.Name), labels: map[string]string{}}
	after := original.DeepCopy()
	if after.Labels == nil {
		after.Labels = map[string]string{}
	}
	wanted := maps.Clone(i.AddLabels)
	if wanted == nil {
		wanted = map[string]string{}
	}
	wanted[kueue.QueueNameLabel], wanted[kueue.ManagedLabel] = target.Queue, "true"
	for key, value := range wanted {
		if have, ok := after.Labels[key]; !ok || have != value {
			p.labels[key], after.Labels[key] = value, value
		}
	}
	p.observed = &job.Observed{Job: after, Verdict: job.Verdict{Mode: job.Managed}, Classes: w.classes, Flavors: w.flavors}
	var noClass *job.MissingClassError
	p.workload, err = compose(p.observed, i.AddLabels)
	if err != nil && !errors.As(err, &noClass) {
		return nil, fmt.Errorf("no Workload can be made of it: %w", err)
	}
	if p.admission, err = i.admission(cq, after); err != nil {
		return nil, err
	}
	if noClass != nil {
		return nil, noClass
	}
	p.checks = lifecycle.RequiredChecks(cq, p.admission)
	return p, nil
}

// clusterQueue returns the ClusterQueue of a LocalQueue in the pod's namespace, if it is fit for an import.
func (w *world) clusterQueue(p *corev1.Pod, queue string) (*kueue.ClusterQueue, error) {
	lq := w.localQueues[types.NamespacedName{Namespace: p.Namespace, Name: queue}]
	if lq == nil {
		return nil, fmt.Errorf("LocalQueue %s/%s does not exist", p.Namespace, queue)
	}
	cq := w.clusterQueues[lq.Spec.ClusterQueue]
	if cq == nil {
		return nil, fmt.Errorf("ClusterQueue %s, which LocalQueue %s/%s names, does not exist", lq.Spec.ClusterQueue, p.Namespace, queue)
	}
	if has := job.QueueName(p); has != "" && has != queue {
		return nil, fmt.Errorf("its label %s is %s already, and not %s", kueue.QueueNameLabel, has, queue)
	}
	if len(cq.Spec.ResourceGroups) == 0 {
		return nil, fmt.Errorf("ClusterQueue %s has no resource groups", cq.Name)
	}
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			if w.flavors[f.Name] == nil {
				return nil, fmt.Errorf("ResourceFlavor %s of ClusterQueue %s does not exist", f.Name, cq.Name)
			}
		}
	}
	return cq, nil
}

// compose makes the Workload of a pod as the pod integration does, and adds labels to it.
func compose(o *job.Observed, labels map[string]string) (*kueue.Workload, error) {
	if group := settings.GroupName(o.Job); group != "" {
		return nil, fmt.Errorf("it belongs to the pod group %s, and only pods on their own can be imported", group)
	}
	w, err := decide.Compose(settings, descriptor, o)
	if err != nil {
		return nil, err
	}
	for key, value := range labels {
		if _, has := w.Labels[key]; !has {
			w.Labels[key] = value
		}
	}
	return w, nil
}

// admission assigns to each requested resource the first flavor of the group that covers it. A ClusterQueue that covers pods is charged
// one, as by the scheduler.
func (i *Import) admission(cq *kueue.ClusterQueue, p *corev1.Pod) (*kueue.Admission, error) {
	a := kueue.PodSetAssignment{
		Name: "main", Count: new(int32(1)),
		Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}, ResourceUsage: corev1.ResourceList{},
	}
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		q := requests[name]
		if q.IsZero() || i.isExcluded(name) {
			continue
		}
		flavor := firstFlavor(cq, name)
		if flavor == "" {
			return nil, fmt.Errorf("no resource group of ClusterQueue %s covers %s", cq.Name, name)
		}
		a.Flavors[name], a.ResourceUsage[name] = flavor, q
	}
	if flavor := firstFlavor(cq, corev1.ResourcePods); flavor != "" {
		a.Flavors[corev1.ResourcePods], a.ResourceUsage[corev1.ResourcePods] = flavor, resource.MustParse("1")
	}
	return &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(cq.Name), PodSetAssignments: []kueue.PodSetAssignment{a}}, nil
}

func (i *Import) isExcluded(name corev1.ResourceName) bool {
	return slices.ContainsFunc(i.ExcludePrefixes, func(prefix string) bool { return strings.HasPrefix(string(name), prefix) })
}

// firstFlavor returns the first flavor of the group that covers a resource, empty if there is none.
func firstFlavor(cq *kueue.ClusterQueue, name corev1.ResourceName) kueue.ResourceFlavorReference {
	for _, group := range cq.Spec.ResourceGroups {
		if slices.Contains(group.CoveredResources, name) && len(group.Flavors) > 0 {
			return group.Flavors[0].Name
		}
	}
	return ""
}
