package provisioning

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// Reasons of events about the Workload (spec: 20 §5.2).
const (
	ReasonCreated      = "ProvisioningRequestCreated"
	ReasonFailedCreate = "FailedCreate"
)

// parameters returns the parameters of a request: of the configuration, and of annotations of the Workload, which count more.
func (f *Facts) parameters(config *kueue.ProvisioningRequestConfig) map[string]string {
	out := map[string]string{}
	for name, value := range config.Spec.Parameters { //berth:unordered a map
		out[name] = string(value)
	}
	for key, value := range f.Workload.Annotations { //berth:unordered a map
		if name, is := strings.CutPrefix(key, kueue.ProvisioningRequestParameterPrefix); is && name != "" {
			out[name] = value
		}
	}
	return out
}

// inSync reports whether a request asks for what the configuration asks for: its class and its parameters. Further parameters do no harm.
func (f *Facts) inSync(r *Request, config *kueue.ProvisioningRequestConfig) bool {
	if r.Spec.ProvisioningClassName != config.Spec.ProvisioningClassName {
		return false
	}
	want := f.parameters(config)
	for name := range config.Spec.Parameters { //berth:unordered all are checked
		if value, has := r.Spec.Parameters[name]; !has || value != want[name] {
			return false
		}
	}
	return true
}

// create returns the writes that lead to a request of an attempt, as far as they can be made now: PodTemplates of that name which another
// attempt left behind are deleted first.
func (f *Facts) create(c *Checked, attempt int, sets []group) ([]plan.Write, error) {
	name := RequestName(f.Workload.Name, c.Check.Name, attempt)
	if slices.ContainsFunc(f.Requests, func(r *Request) bool { return r.Name == name }) {
		return nil, nil // it is being deleted
	}
	r := &Request{fields: fields{ObjectMeta: f.meta(name)}}
	r.Labels[AttemptLabel] = strconv.Itoa(attempt)
	r.Annotations = map[string]string{CheckAnnotation: c.Check.Name, EvictionsAnnotation: evictions(f.Workload)}
	r.Spec.ProvisioningClassName, r.Spec.Parameters = c.Config.Spec.ProvisioningClassName, f.parameters(c.Config)
	var writes []plan.Write
	waits := false
	for i := range sets {
		t, err := f.template(name, &sets[i])
		if err != nil {
			return nil, err
		}
		switch there := f.templateNamed(t.Name); {
		case there == nil:
			writes = append(writes, plan.Write{Verb: plan.Create, Object: t, Failed: failed(t.Name)})
		case there.DeletionTimestamp != nil:
			waits = true
		case !metav1.IsControlledBy(there, f.Workload) || there.Annotations[HashAnnotation] != t.Annotations[HashAnnotation]:
			writes, waits = append(writes, plan.Write{Verb: plan.Delete, Object: there}), true
		}
		set := RequestPodSet{Count: sets[i].count}
		set.PodTemplateRef.Name = t.Name
		r.Spec.PodSets = append(r.Spec.PodSets, set)
	}
	if waits {
		return writes, nil
	}
	return append(writes, plan.Write{
		Verb: plan.Create, Object: r.object(f.Version), Failed: failed(name),
		Event: plan.Event{Reason: ReasonCreated, Note: fmt.Sprintf("Created ProvisioningRequest %s, attempt %d", name, attempt)},
	}), nil
}

func failed(name string) plan.Event {
	return plan.Event{Warning: true, Reason: ReasonFailedCreate, Note: "Cannot create " + name}
}

func (f *Facts) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: f.Workload.Namespace, Name: name, Labels: map[string]string{kueue.ManagedLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.Workload, kueue.GroupVersion.WithKind("Workload"))},
	}
}

// template returns the PodTemplate of a pod set: the pods as they will be started, without the updates of checks. spec: 20 §4.18.2.
func (f *Facts) template(request string, g *group) (*corev1.PodTemplate, error) {
	out := &corev1.PodTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PodTemplate"},
		ObjectMeta: f.meta(TemplateName(request, string(g.first.Name))), Template: *g.first.Template.DeepCopy(),
	}
	spec := &out.Template.Spec
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			requestLimits(&list[i].Resources)
		}
	}
	if spec.Resources != nil {
		requestLimits(spec.Resources)
	}
	pods := podset.Info{Name: g.first.Name, NodeSelector: map[string]string{}}
	err := pods.AddFlavors(g.assigned, f.Flavors)
	if err == nil {
		err = pods.MergeInto(&out.Template)
	}
	if err != nil {
		return nil, fmt.Errorf("pod set %s: %w", g.first.Name, err)
	}
	raw, err := json.Marshal(out.Template)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	out.Annotations = map[string]string{
		WorkloadUIDAnnotation: string(f.Workload.UID), RequestAnnotation: request, HashAnnotation: hex.EncodeToString(sum[:8]),
	}
	return out, nil
}

// requestLimits makes limits the requests that are missing, as the API server does with pods.
func requestLimits(r *corev1.ResourceRequirements) {
	missing := maps.Clone(r.Limits)
	maps.DeleteFunc(missing, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, has := r.Requests[name]
		return has
	})
	if len(missing) > 0 {
		maps.Copy(missing, r.Requests)
		r.Requests = missing
	}
}

// transfers returns the writes that make a stored request the owner of its PodTemplates.
func (f *Facts) transfers(r *Request) (out []plan.Write) {
	for _, t := range f.Templates {
		if t.DeletionTimestamp != nil || !r.has(t.Name) || !metav1.IsControlledBy(t, f.Workload) {
			continue
		}
		next := t.DeepCopy()
		next.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r, r.GroupVersionKind())}
		out = append(out, plan.Write{Verb: plan.Patch, Base: t, Object: next})
	}
	return out
}

func (f *Facts) templateNamed(name string) *metav1.PartialObjectMetadata {
	for _, t := range f.Templates {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// evictions returns how often a Workload was evicted.
func evictions(w *kueue.Workload) string {
	n := int64(0)
	if s := w.Status.SchedulingStats; s != nil {
		for _, e := range s.Evictions {
			n += int64(e.Count)
		}
	}
	return strconv.FormatInt(n, 10)
}
