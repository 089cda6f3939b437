package job

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/podset"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// Sets tells how the pods of a kind that serves are queued: in groups, each with a Workload that is made before its pods
// are. What becomes of the pods of a group is decided like that of any other (spec: 30 §4.9, StatefulSet and
// LeaderWorkerSet).
type Sets struct {
	// Owner names the object that a pod of the kind belongs to, or is empty.
	Owner func(*corev1.Pod) string
	// Parts are the groups that the object wants.
	Parts func(owner Object, in *Setting) ([]Part, error)
	// Place says which group a pod is in, by the name of the part, and as what. An empty name: it is not known yet.
	Place func(owner Object, pod *corev1.Pod) (part, role string)
	// Fast groups are admitted before all pods are there, and Index is the label that numbers their pods.
	Fast  bool
	Index string
	// Frees opens the gates of pods whose object is gone, or the StatefulSet that they belong to.
	Frees bool
}

// Part is one group of an object.
type Part struct {
	// Name is that by which its Workload is named.
	Name string
	// Number is its place among several, nil if there is but one.
	Number *int32
	// PodSets are those of its Workload, and Total how many pods it has. None: it asks not to run. Parts may share them.
	PodSets []kueue.PodSet
	Total   int32
}

// ObservedSets is the world around an object with groups. Prebuilt and Objects are not used.
type ObservedSets struct {
	Observed
	// Pods are those of the object, in the order of their names.
	Pods []*corev1.Pod
	// StatefulSets are those that control pods; nil for one that does not exist.
	StatefulSets map[string]*appsv1.StatefulSet
}

// DecideSets finds the next write for an object with groups: one for a Workload, or some pods to be patched to be as
// returned.
func DecideSets(cfg *Config, d *Descriptor, o *ObservedSets) (Action, []*corev1.Pod) {
	s := &setsDecider{decider: decider{cfg: cfg, d: d, o: &o.Observed, job: o.Job, in: &Setting{Config: cfg}}, pods: o.Pods, sets: o.StatefulSets}
	if o.Job == nil || o.Job.GetDeletionTimestamp() != nil {
		if freed := s.free(); len(freed) > 0 {
			return Action{}, freed
		}
		return s.finalize(), nil
	}
	switch o.Verdict.Reach {
	case Unmanaged:
		return s.letGo(), nil
	case Managed:
		return s.serve()
	case Undecided:
		return s.undecided(), nil
	default:
		return Action{}, nil
	}
}

// setsDecider is one decision being made about an object with groups.
type setsDecider struct {
	decider
	pods []*corev1.Pod
	sets map[string]*appsv1.StatefulSet
}

// serve brings the Workloads in step with the object, then its pods.
func (s *setsDecider) serve() (Action, []*corev1.Pod) {
	parts, err := s.d.Sets.Parts(s.job, s.in)
	if err != nil {
		return notComposed(err), nil
	}
	names, index := make([]string, len(parts)), map[string]int{}
	for i := range parts {
		names[i] = s.name(&parts[i])
		index[names[i]] = i
	}
	if len(parts) == 1 { // older versions named it without the UID
		index[s.cfg.WorkloadName(s.d.GVK, parts[0].Name, "")] = 0
	}
	found := make([]*kueue.Workload, len(parts))
	var rest []*kueue.Workload
	for _, w := range s.o.Workloads {
		switch at, ok := index[w.Name]; {
		case !ok:
			rest = append(rest, w)
		case found[at] == nil || found[at].Name != names[at]: // the older name counts if only that exists
			found[at] = w
		}
	}
	for _, w := range rest {
		if s.isUnused(w) {
			return orNothing(s.discard(w)), nil
		}
		if a, ok := s.orphan(w); ok && w.Annotations[kueue.JobOwnerGVKAnnotation] != "" {
			return a, nil // that of an earlier object of the name
		}
	}
	for i := range parts {
		if a := s.part(&parts[i], found[i]); a != nil {
			return *a, nil
		}
		if found[i] != nil {
			names[i] = found[i].Name
		}
	}
	return Action{}, s.keep(parts, names, found)
}

// name is that of the Workload of a part. On a worker cluster it is that of the manager.
func (s *setsDecider) name(p *Part) string {
	uid := s.job.GetUID()
	if s.isRemote() {
		if prebuilt := s.cfg.PrebuiltName(s.job); prebuilt != "" && p.Number == nil {
			return prebuilt
		}
		if origin := s.job.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation]; origin != "" {
			uid = types.UID(origin)
		}
	}
	return s.cfg.WorkloadName(s.d.GVK, p.Name, uid)
}

func (s *setsDecider) isRemote() bool { return s.job.GetLabels()[kueue.MultiKueueOriginLabel] != "" }

// isUnused says whether a Workload that is for no part was made for this object.
func (s *setsDecider) isUnused(w *kueue.Workload) bool {
	return slices.ContainsFunc(w.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == s.job.GetUID() }) &&
		(w.DeletionTimestamp == nil || hasFinalizer(w))
}

// part brings one Workload in step.
func (s *setsDecider) part(p *Part, w *kueue.Workload) *Action {
	switch {
	case w == nil:
		return s.createPart(p)
	case w.DeletionTimestamp != nil:
		if hasFinalizer(w) && len(s.members(w.Name)) == 0 {
			return &Action{Verb: UpdateWorkload, Workload: withoutFinalizer(w)}
		}
		return nil // its pods are stopped first
	case lifecycle.IsFinished(w):
		return nil
	case len(p.PodSets) == 0:
		return s.holdPart(w)
	case lifecycle.IsLeaving(w) && len(s.members(w.Name)) == 0: // there is no group to give it back
		next := w.DeepCopy()
		s.cfg.Lifecycle.Release(next, false, s.o.Now)
		return &Action{Verb: WriteStatus, Workload: next}
	}
	if a := s.claim(p, w); a != nil {
		return a
	}
	if a := s.resume(p, w); a != nil {
		return a
	}
	return s.syncPart(w)
}

// members are the pods that were put into the group of a Workload.
func (s *setsDecider) members(name string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.pods {
		if s.cfg.GroupName(p) == name {
			out = append(out, p)
		}
	}
	return out
}

// createPart makes a Workload. On a worker cluster it comes from the manager.
func (s *setsDecider) createPart(p *Part) *Action {
	if len(p.PodSets) == 0 || s.isRemote() {
		return nil
	}
	priority, err := resolvePriority(s.d, s.job, p.PodSets, s.o.Classes)
	if err != nil {
		return new(classMissing(err))
	}
	w := s.cfg.NewWorkload(s.job, podset.Copy(p.PodSets), priority)
	w.Name = s.name(p)
	w.Spec.MaximumExecutionTimeSeconds = nil // what serves has no end
	s.mark(p, w)
	for _, key := range s.cfg.LabelKeysToCopy {
		if value, ok := s.job.GetLabels()[key]; ok {
			w.Labels[key] = value
		}
	}
	return &Action{Verb: CreateWorkload, Workload: w, Events: normal(eventCreatedWorkload, "Created workload "+w.Namespace+"/"+w.Name)}
}

// mark says on a Workload whose it is.
func (s *setsDecider) mark(p *Part, w *kueue.Workload) {
	labelUID(w, s.job)
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Annotations[kueue.IsGroupWorkloadAnnotation] = "true"
	w.Annotations[kueue.JobOwnerGVKAnnotation] = s.d.GVK.String()
	w.Annotations[kueue.JobOwnerNameAnnotation] = s.job.GetName()
	if p.Number != nil {
		w.Annotations[kueue.ComponentWorkloadIndexAnnotation] = strconv.Itoa(int(*p.Number))
	}
	if !slices.ContainsFunc(w.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == s.job.GetUID() }) {
		w.OwnerReferences = append(w.OwnerReferences, s.d.ownerRef(s.job))
	}
}

// claim marks a Workload that was made by another version, or that lost its owner.
func (s *setsDecider) claim(p *Part, w *kueue.Workload) *Action {
	next := w.DeepCopy()
	s.mark(p, next)
	if len(next.OwnerReferences) == len(w.OwnerReferences) && maps.Equal(next.Annotations, w.Annotations) {
		return nil
	}
	return &Action{Verb: UpdateWorkload, Workload: next}
}

// holdPart takes a Workload whose group asks not to run out of the queue, and frees its quota at once.
func (s *setsDecider) holdPart(w *kueue.Workload) *Action {
	blocked := !lifecycle.IsActive(w) || (s.cfg.AdmissionGatedBy && len(lifecycle.SplitGates(w.Annotations[kueue.AdmissionGatedByAnnotation])) > 0)
	if lifecycle.IsOnHold(w) || (blocked && !lifecycle.IsReserved(w)) {
		return nil // it is out of the queue, and says why
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonOnHold, "It has no replicas", s.o.Now)
	return &Action{Verb: WriteStatus, Workload: next}
}

// resume puts a Workload back into its queue, with the pods that are wanted now. Without quota its count follows anyway.
func (s *setsDecider) resume(p *Part, w *kueue.Workload) *Action {
	held := lifecycle.IsOnHold(w)
	if lifecycle.IsReserved(w) {
		return nil
	}
	resized := !slices.EqualFunc(p.PodSets, w.Spec.PodSets, func(a, b kueue.PodSet) bool { return a.Name == b.Name && a.Count == b.Count })
	if resized || (held && !podset.SameSets(p.PodSets, w.Spec.PodSets, false, true)) {
		next := w.DeepCopy()
		next.Spec.PodSets = podset.Copy(p.PodSets)
		return &Action{Verb: UpdateWorkload, Workload: next, Events: s.updated(w, "its size or its pods changed while it did not run")}
	}
	if !held {
		return nil
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonPendingEvaluation, "It has replicas again", s.o.Now)
	return &Action{Verb: WriteStatus, Workload: next}
}

// syncPart lets a Workload follow queue, gates and priority class. The queue of one that has quota cannot change.
func (s *setsDecider) syncPart(w *kueue.Workload) *Action {
	next := w.DeepCopy()
	if queue := kueue.LocalQueueName(QueueName(s.job)); !lifecycle.IsReserved(w) {
		next.Spec.QueueName = queue
	}
	changed := s.syncGates(next)
	ok, err := s.syncPriority(next)
	if err != nil {
		return new(classMissing(err))
	}
	switch {
	case changed || ok:
		return &Action{Verb: UpdateWorkload, Workload: next, Events: s.updated(w, "its owner changed its admission gates or its priority")}
	case next.Spec.QueueName != w.Spec.QueueName:
		return &Action{Verb: UpdateWorkload, Workload: next}
	default:
		return nil
	}
}

// keep are the pods that are to be changed: put into their groups, kept in their queue, or let through.
func (s *setsDecider) keep(parts []Part, names []string, workloads []*kueue.Workload) []*corev1.Pod {
	byName := map[string]int{}
	for i := range parts {
		byName[parts[i].Name] = i
	}
	out := s.free()
	for _, pod := range s.pods {
		if PodIsOver(pod) || pod.DeletionTimestamp != nil || slices.ContainsFunc(out, func(p *corev1.Pod) bool { return p.UID == pod.UID }) {
			continue
		}
		next := pod.DeepCopy()
		part, role := s.d.Sets.Place(s.job, pod)
		if at, ok := byName[part]; ok && (workloads[at] == nil || workloads[at].DeletionTimestamp == nil) {
			s.stamp(next, names[at], role, parts[at].Total)
		}
		switch {
		case !same(next.ObjectMeta, pod.ObjectMeta):
			out = append(out, next)
		case PodIsGated(pod) && s.isOutdated(pod): // one after the other: what waits may get a queue, what runs may not
			OpenGates(next, false)
			out = append(out, next)
		}
	}
	return out
}

// stamp puts a pod into its group, once; its queue is kept in line while it waits.
func (s *setsDecider) stamp(pod *corev1.Pod, group, role string, total int32) {
	gated := PodIsGated(pod)
	queue := QueueName(s.job)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if gated && queue != "" {
		pod.Labels[kueue.QueueNameLabel] = queue
	}
	if s.cfg.GroupName(pod) != "" {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Labels[kueue.ManagedLabel] = "true"
	if class := s.job.GetLabels()[kueue.PriorityClassLabel]; class != "" && gated {
		pod.Labels[kueue.PriorityClassLabel] = class
	}
	s.cfg.writeIdentifier(pod, kueue.PrebuiltWorkloadLabel, group)
	s.cfg.writeIdentifier(pod, kueue.PodGroupNameLabel, group)
	pod.Annotations[kueue.PodGroupTotalCountAnnotation] = strconv.Itoa(int(total))
	pod.Annotations[kueue.PodGroupServingAnnotation] = "true"
	pod.Annotations[kueue.RoleHashAnnotation] = role
	if s.d.Sets.Fast {
		pod.Annotations[kueue.PodGroupFastAdmissionAnnotation] = "true"
	}
	if s.d.Sets.Index != "" {
		pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation] = s.d.Sets.Index
	}
}

// writeIdentifier writes a name as it is read: see identifier.
func (c *Config) writeIdentifier(object metav1.Object, key, name string) {
	if c.AnnotationIdentifiers || len(name) > maxLabel {
		object.GetAnnotations()[key] = name
		return
	}
	object.GetLabels()[key] = name
}

// isOutdated says whether a pod is of a revision that is being replaced. It is let through whatever its group waits for:
// its controller replaces it only when it runs, and would wait for ever.
func (s *setsDecider) isOutdated(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOf(pod)
	if ref == nil || s.sets[ref.Name] == nil || s.sets[ref.Name].UID != ref.UID {
		return false
	}
	current, update := s.sets[ref.Name].Status.CurrentRevision, s.sets[ref.Name].Status.UpdateRevision
	return current != "" && update != "" && current != update && pod.Labels[appsv1.StatefulSetRevisionLabel] == current
}

// free lets pods through that nobody is going to admit: their object is gone, or the StatefulSet that they belong to.
func (s *setsDecider) free() []*corev1.Pod {
	if !s.d.Sets.Frees {
		return nil
	}
	var out []*corev1.Pod
	for _, pod := range s.pods {
		ref := metav1.GetControllerOf(pod)
		orphan := s.job == nil || (ref != nil && ref.Kind == "StatefulSet" && s.sets[ref.Name] == nil)
		if !orphan || PodIsOver(pod) || pod.DeletionTimestamp != nil || !PodIsGated(pod) {
			continue
		}
		next := pod.DeepCopy()
		OpenGates(next, false)
		out = append(out, next)
	}
	return out
}

// WorkloadNames are what the Workload of an object may be called, whatever the configuration.
func WorkloadNames(gvk schema.GroupVersionKind, object Object) []string {
	var out []string
	for _, cfg := range []*Config{{}, {ShortNames: true}} {
		if name := cfg.WorkloadName(gvk, object.GetName(), object.GetUID()); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
