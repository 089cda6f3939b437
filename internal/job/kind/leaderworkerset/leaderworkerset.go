// Package leaderworkerset is the integration of LeaderWorkerSet: one descriptor.
// Each replica is a group of pods, a leader and its workers, with a Workload of
// its own.
//
// The kind's Go types are not ours, so it is read as a tree, and only fields that
// Berth sets are written.
package leaderworkerset

import (
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

const (
	// framework is the name of the kind in the configuration and on pods.
	framework = "leaderworkerset.x-k8s.io/leaderworkerset"

	domain          = "leaderworkerset.sigs.k8s.io/"
	nameLabel       = domain + "name"
	groupLabel      = domain + "group-index"
	workerLabel     = domain + "worker-index"
	leaderNameLabel = domain + "leader-name"

	leader, worker, alone = "leader", "worker", "main"
)

var (
	gvk          = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}
	templatePath = field.NewPath("spec", "leaderWorkerTemplate")
	replicasPath = field.NewPath("spec", "replicas")
)

// Descriptors returns LeaderWorkerSet for a manager with the given configuration; nil is the default configuration.
func Descriptors(o *options.Options) []*plan.Descriptor {
	d := Descriptor()
	if o != nil && !o.Gates.On(feature.LWSImmutableGroupSize) {
		d.Validate = validate
	}
	return []*plan.Descriptor{d}
}

// Descriptor describes LeaderWorkerSet, whose groups keep their size while they are queued (spec: 30 §4.9).
func Descriptor() *plan.Descriptor {
	return &plan.Descriptor{
		Framework: framework,
		GVK:       gvk,
		Resource:  "leaderworkersets",
		Listing:   plan.Listing{Rules: []rbacv1.PolicyRule{plan.Allow(gvk.Group, []string{"leaderworkersets"}, "delete")}},
		New: func() plan.Object {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(gvk)
			return o
		},
		NewList: func() runtime.Object {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			return l
		},
		IsSuspended: func(o plan.Object) bool { return view.Int(view.Of(o).Object, 0, "status", "readyReplicas") == 0 },
		Suspend:     func(plan.Object) {}, // its pods are gated instead
		Owns:        []plan.Child{{GVK: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), Relayed: true, Made: madeSet}},
		Serving:     true,
		Open:        &plan.Open{Templates: []string{"spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"}},
		Default:     mark,
		Validate:    validateFixed,
		Sizes:       sizes,
		Sets:        &plan.Sets{Owner: owner, Parts: parts, Place: place, Frees: true, Makers: podgroup.StatefulSets},
		Remote:      &plan.Remote{Gated: true, Silent: true, OriginUID: true, Workloads: replicas, Scale: scale},
	}
}

// template reads one of the pod templates; nil if there is none.
func template(o plan.Object, name string) (*corev1.PodTemplateSpec, error) {
	tree := view.Map(view.Of(o).Object, "spec", "leaderWorkerTemplate", name)
	if tree == nil {
		return nil, nil
	}
	out := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, out); err != nil {
		return nil, fmt.Errorf("%s is no pod template: %w", templatePath.Child(name), err)
	}
	return out, nil
}

// templates reads both templates; the leader's may be nil.
func templates(o plan.Object) (ofLeader, ofWorker *corev1.PodTemplateSpec, err error) {
	if ofLeader, err = template(o, "leaderTemplate"); err != nil {
		return nil, nil, err
	}
	if ofWorker, err = template(o, "workerTemplate"); err == nil && ofWorker == nil {
		err = fmt.Errorf("%s is missing", templatePath.Child("workerTemplate"))
	}
	return ofLeader, ofWorker, err
}

// scale sets the number of groups.
func scale(o plan.Object, n int32) { view.Set(view.Of(o).Object, int64(n), "spec", "replicas") }

func replicas(o plan.Object) int32 { return view.Int(view.Of(o).Object, 1, "spec", "replicas") }
func size(o plan.Object) int32 {
	return view.Int(view.Of(o).Object, 1, "spec", "leaderWorkerTemplate", "size")
}

// groups is the number of replicas that exist or may exist: more while a roll-out surges.
func groups(o plan.Object) int32 {
	tree, n := view.Of(o).Object, replicas(o)
	surge := view.Int(tree, 0, "spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
	if surge > 0 && view.Int(tree, 0, "status", "updatedReplicas") < n {
		n = max(n, view.Int(tree, 0, "status", "replicas"))
	}
	return n
}

// mark makes the pods of a managed LeaderWorkerSet wait.
func mark(o plan.Object, managed bool, in *plan.Setting) {
	if !managed {
		return
	}
	ofLeader, ofWorker, err := templates(o)
	if err != nil {
		return // the schema of the kind refuses it
	}
	for _, t := range []*corev1.PodTemplateSpec{ofLeader, ofWorker} {
		if t == nil {
			continue
		}
		name := "workerTemplate"
		if t == ofLeader {
			name = "leaderTemplate"
		}
		podgroup.SetQueue(t, o.GetLabels())
		podgroup.SetParent(t, framework)
		podgroup.SetAnnotation(t, kueue.PodGroupServingAnnotation, "true")
		if _, together := t.Annotations[kueue.PodSetGroupNameAnnotation]; t == ofWorker && ofLeader != nil && in.Topology && !together {
			podgroup.SetAnnotation(t, kueue.PodIndexOffsetAnnotation, "1")
		}
		tree := view.Map(view.Of(o).Object, "spec", "leaderWorkerTemplate", name)
		view.Set(tree, view.Texts(t.Labels), "metadata", "labels")
		view.Set(tree, view.Texts(t.Annotations), "metadata", "annotations")
	}
}

// owner is the LeaderWorkerSet of a pod or a pod template.
func owner(pod *corev1.Pod) string {
	if pod.Annotations[kueue.PodSuspendingParentAnnotation] != framework {
		return ""
	}
	return pod.Labels[nameLabel]
}

// partName is the name of a group, an input of the name of its Workload.
func partName(o plan.Object, index string) string { return o.GetName() + "-" + index }

func parts(o plan.Object, in *plan.Setting) ([]plan.Part, error) {
	ofLeader, ofWorker, err := templates(o)
	if err != nil {
		return nil, err
	}
	var sets []kueue.PodSet
	add := func(name string, count int32, t *corev1.PodTemplateSpec, ranks plan.Ranks) {
		strip(t)
		sets = append(sets, kueue.PodSet{
			Name: kueue.PodSetReference(name), Count: count, Template: *t, TopologyRequest: in.TopologyRequest(&t.ObjectMeta, ranks),
		})
	}
	n := size(o)
	if ofLeader != nil {
		add(leader, 1, ofLeader, plan.Ranks{})
		add(worker, n-1, ofWorker, plan.Ranks{PodIndex: workerLabel})
	} else {
		add(alone, n, ofWorker, plan.Ranks{PodIndex: workerLabel})
	}
	wanted, most := groups(o), max(in.MaxChildren, plan.DefaultMaxChildren)
	if wanted > most { // by /scale, which calls no webhook, or by its status
		return nil, podset.Permanent("%s: %s", replicasPath, plan.TooMany(int64(wanted), "groups", most))
	}
	out := make([]plan.Part, max(wanted, 0))
	for i := range out {
		number := int32(i)
		out[i] = plan.Part{Name: partName(o, fmt.Sprint(number)), Number: &number, PodSets: sets, Total: n}
	}
	return out, nil
}

// strip removes the metadata that LeaderWorkerSet writes on its templates, except its name.
func strip(t *corev1.PodTemplateSpec) {
	foreign := func(key, _ string) bool { return strings.HasPrefix(key, domain) && key != nameLabel }
	maps.DeleteFunc(t.Labels, foreign)
	maps.DeleteFunc(t.Annotations, foreign)
}

// place is known once the pod has the label with the number of its group.
func place(o plan.Object, pod *corev1.Pod) (part, role string) {
	index := pod.Labels[groupLabel]
	if index == "" {
		return "", ""
	}
	role = alone
	if view.Map(view.Of(o).Object, "spec", "leaderWorkerTemplate", "leaderTemplate") != nil {
		role = worker
		if pod.Annotations[leaderNameLabel] == "" {
			role = leader
		}
	}
	return partName(o, index), role
}

// sizes are the pods of all groups.
func sizes(o plan.Object, _ *plan.Setting) []plan.Size {
	n, each := replicas(o), size(o)
	path := replicasPath
	if each > n {
		path = templatePath.Child("size")
	}
	return []plan.Size{{Path: path, What: "pods", N: plan.Times(max(n, 0), max(each, 0))}}
}

// validate checks the templates, and refuses to change the shape of a queued LeaderWorkerSet.
func validate(o, old plan.Object, in *plan.Setting) field.ErrorList {
	var errs field.ErrorList
	if n := replicas(o); n < 0 {
		errs = append(errs, field.Invalid(replicasPath, n, "must not be negative"))
	}
	ofLeader, ofWorker, err := templates(o)
	if err != nil {
		return append(errs, field.Invalid(templatePath, nil, err.Error()))
	}
	errs = append(errs, validateTopology(ofLeader, ofWorker, size(o), in)...)
	if old == nil {
		return append(errs, longNames(o, ofWorker, in)...)
	}
	if podgroup.Parent(ofWorker) != framework || !in.IsQueued(o) {
		return errs
	}
	leaderBefore, workerBefore, err := templates(old)
	if err != nil {
		return errs
	}
	switch {
	case (ofLeader == nil) != (leaderBefore == nil):
		errs = append(errs, field.Forbidden(templatePath.Child("leaderTemplate"), "cannot be added or removed while its pods are queued together"))
	case ofLeader != nil:
		errs = append(errs, podgroup.SameShape(ofLeader, leaderBefore, templatePath.Child("leaderTemplate"))...)
	}
	errs = append(errs, podgroup.SameShape(ofWorker, workerBefore, templatePath.Child("workerTemplate"))...)
	return errs
}

// validateFixed also refuses to change the size of its groups.
func validateFixed(o, old plan.Object, in *plan.Setting) field.ErrorList {
	errs := validate(o, old, in)
	_, ofWorker, err := templates(o)
	if old == nil || err != nil || podgroup.Parent(ofWorker) != framework || !in.IsQueued(o) || size(o) == size(old) {
		return errs
	}
	if _, _, err := templates(old); err != nil {
		return errs
	}
	return append(errs, field.Forbidden(templatePath.Child("size"), "cannot change while its pods are queued together"))
}

// longNames refuses a new LeaderWorkerSet whose pods could never be made: its leaders, or the workers of its last group.
func longNames(o plan.Object, ofWorker *corev1.PodTemplateSpec, in *plan.Setting) field.ErrorList {
	if podgroup.Parent(ofWorker) != framework || !in.IsQueued(o) {
		return nil
	}
	name, n := plan.ExpectedName(o), max(1, replicas(o))
	if errs := podgroup.LongNames(o, name, n); len(errs) > 0 || size(o) < 2 {
		return errs
	}
	return podgroup.LongNames(o, fmt.Sprintf("%s-%d", name, n-1), size(o))
}

// validateTopology checks the annotations of both templates. Leader and workers are placed together only if both have them.
func validateTopology(ofLeader, ofWorker *corev1.PodTemplateSpec, size int32, in *plan.Setting) field.ErrorList {
	var errs field.ErrorList
	workers, path := size, templatePath.Child("workerTemplate", "metadata")
	if ofLeader != nil {
		workers--
		errs = append(errs, in.ValidateTopology(&ofLeader.ObjectMeta, templatePath.Child("leaderTemplate", "metadata"), 1)...)
	}
	errs = append(errs, in.ValidateTopology(&ofWorker.ObjectMeta, path, workers)...)
	if !in.Topology {
		return errs
	}
	name, together := ofWorker.Annotations[kueue.PodSetGroupNameAnnotation]
	at := path.Child("annotations").Key(kueue.PodSetGroupNameAnnotation)
	switch {
	case ofLeader == nil && together:
		errs = append(errs, field.Forbidden(at, "needs "+templatePath.Child("leaderTemplate").String()))
	case ofLeader == nil:
	case ofLeader.Annotations[kueue.PodSetGroupNameAnnotation] != name:
		errs = append(errs, field.Invalid(at, name, "must be the same on both templates"))
	case together && wish(ofLeader) != wish(ofWorker):
		errs = append(errs, field.Invalid(at, name, "the two must require or prefer the same topology"))
	}
	return errs
}

func wish(t *corev1.PodTemplateSpec) [2]string {
	return [2]string{t.Annotations[kueue.PodSetRequiredTopologyAnnotation], t.Annotations[kueue.PodSetPreferredTopologyAnnotation]}
}
