package decide

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// ObservedSets is the observation of an object with groups. Prebuilt and Objects are not used.
type ObservedSets struct {
	job.Observed
	// Pods are the pods of the object, by name.
	Pods []*corev1.Pod
	// Alive are the groups of Workloads whose object may be gone, with pods that have not ended, whatever controls these.
	Alive map[string]bool
	// Makers are the objects of the kind's Makers that control pods; nil for one that does not exist.
	Makers map[string]job.Object
}

// Sets returns the next write for an object with groups: an action, or pods to be patched to be as returned.
func Sets(cfg *job.Config, d *job.Descriptor, o *ObservedSets) (job.Action, []*corev1.Pod) {
	s := &setsDecider{decider: decider{cfg: cfg, d: d, o: &o.Observed, job: o.Job, in: &job.Setting{Config: cfg}}, pods: o.Pods, alive: o.Alive, makers: o.Makers}
	if o.Job == nil || o.Job.GetDeletionTimestamp() != nil {
		if freed := s.ungateOrphans(); len(freed) > 0 {
			return job.Action{}, freed
		}
		for _, w := range s.o.Workloads {
			if a, ok := s.abandoned(w); ok {
				return a, nil
			}
		}
		return s.finalizeJob(), nil
	}
	switch o.Verdict.Mode {
	case job.Unmanaged:
		return s.leaveManagement(), nil
	case job.Managed:
		return s.serve()
	case job.Undecided:
		return s.undecided(), nil
	default:
		return s.abandonEarlier(), nil
	}
}

// abandonEarlier releases the Workloads of earlier objects of the name, once their pods are gone. The object itself has none.
func (s *setsDecider) abandonEarlier() job.Action {
	for _, w := range s.o.Workloads {
		isMarked := w.Annotations[kueue.JobOwnerGVKAnnotation] != "" && !job.IsRemote(w)
		if !isMarked || s.isOwner(w) || !s.isEmpty(w) {
			continue
		}
		if a, ok := s.abandoned(w); ok {
			return a
		}
	}
	return job.Action{}
}

// setsDecider is one decision being made about an object with groups.
type setsDecider struct {
	decider
	pods   []*corev1.Pod
	alive  map[string]bool
	makers map[string]job.Object
	// groups are the groups that have pods, filled by hasMembers.
	groups map[string]bool
}

// serve synchronizes the Workloads with the object, then its pods.
func (s *setsDecider) serve() (job.Action, []*corev1.Pod) {
	parts, err := s.d.Sets.Parts(s.job, s.in)
	if err != nil {
		return s.notComposed(err), s.changedPods(nil, nil, nil)
	}
	names, found, rest := s.findByName(parts)
	for _, w := range s.takeOver(parts, found, rest) {
		if s.isUnused(w) {
			return orNothing(s.discard(w)), nil
		}
		if a, ok := s.abandoned(w); ok && w.Annotations[kueue.JobOwnerGVKAnnotation] != "" {
			return a, nil // the Workload of an earlier object of the name
		}
	}
	a := s.bring(parts, found)
	if a.Verb > job.Stall {
		return a, nil
	}
	if rest, ok := s.expire(parts, found); ok && rest == 0 {
		return s.deleteExpired(), nil
	} else if a.Verb == job.Nothing {
		a.After = rest
	}
	for i := range found {
		if found[i] != nil {
			names[i] = found[i].Name
		}
	}
	return a, s.changedPods(parts, names, found) // also after a failure: some pods need no Workload
}

// findByName returns the names of the Workloads of the parts, the Workloads that have them, and the other ones.
func (s *setsDecider) findByName(parts []job.Part) (names []string, found, rest []*kueue.Workload) {
	names, index := make([]string, len(parts)), map[string]int{}
	for i := range parts {
		names[i] = s.name(&parts[i])
		index[names[i]] = i
	}
	if len(parts) == 1 { // older versions omitted the UID
		index[s.cfg.WorkloadName(s.d.GVK, parts[0].Name, "")] = 0
	}
	found = make([]*kueue.Workload, len(parts))
	for _, w := range s.o.Workloads {
		switch at, ok := index[w.Name]; {
		case !ok:
			rest = append(rest, w)
		case found[at] == nil || found[at].Name != names[at]: // the older name counts if only that exists
			found[at] = w
		}
	}
	return names, found, rest
}

// takeOver puts into found the Workloads of an earlier object of the name whose pods this object has adopted, and returns the other ones of rest.
// The earlier object was deleted with the propagation policy Orphan, and its UID is in the names of its Workloads. These hold the quota of the
// pods, so Workloads of this object without pods give way. A Workload of another size or shape holds no quota for the pods to come.
func (s *setsDecider) takeOver(parts []job.Part, found, rest []*kueue.Workload) []*kueue.Workload {
	if len(rest) == 0 || s.isRemote() {
		return rest
	}
	numbers := make(map[string]int, len(parts))
	for i := range parts {
		numbers[number(&parts[i])] = i
	}
	var left []*kueue.Workload
	for _, w := range rest {
		at, ok := numbers[w.Annotations[kueue.ComponentWorkloadIndexAnnotation]]
		switch {
		case ok && found[at] == nil && s.isOwner(w) && (w.DeletionTimestamp == nil || s.hasMembers(w.Name)): // taken over before
			found[at] = w
		case !ok || !s.mayTakeOver(&parts[at], w):
			left = append(left, w)
		case found[at] == nil:
			found[at] = w
		case !s.hasMembers(found[at].Name):
			left = append(left, found[at])
			found[at] = w
		default:
			left = append(left, w)
		}
	}
	return left
}

// mayTakeOver reports whether a Workload of an earlier object holds quota, or waits for it, for the pods of a part.
func (s *setsDecider) mayTakeOver(p *job.Part, w *kueue.Workload) bool {
	return w.DeletionTimestamp == nil && !lifecycle.IsFinished(w) && s.isFor(w) && fits(p, w) && s.hasAdopted(w)
}

// isFor reports whether a Workload was made here for an object of this kind and name. The manager of another cluster finds its Workloads by
// the UID of its object.
func (s *setsDecider) isFor(w *kueue.Workload) bool {
	return w.Annotations[kueue.JobOwnerGVKAnnotation] == s.d.GVK.String() && w.Annotations[kueue.JobOwnerNameAnnotation] == s.job.GetName() &&
		!job.IsRemote(w) && !s.isDelegated(w)
}

// fits reports whether a Workload has pod sets of a part's names and sizes, whose pods have the same requirements. The pods of a queued object keep
// these as long as they run (spec: 30 §4.9). A part without replicas has no pod sets: the earlier pods keep their quota until they are gone.
func fits(p *job.Part, w *kueue.Workload) bool {
	return slices.EqualFunc(p.PodSets, w.Spec.PodSets, func(a, b kueue.PodSet) bool {
		return a.Name == b.Name && a.Count == b.Count && same(a.TopologyRequest, b.TopologyRequest) && len(podgroup.SameShape(&a.Template, &b.Template, nil)) == 0
	})
}

// hasAdopted reports whether a pod in the group of a Workload is controlled by the object, or by what the object controls.
func (s *setsDecider) hasAdopted(w *kueue.Workload) bool {
	return slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool {
		ref := s.d.Sets.Makers.Of(p)
		if ref == nil || s.cfg.GroupName(p) != w.Name {
			return false
		}
		maker := s.makers[ref.Name]
		return ref.UID == s.job.GetUID() || (maker != nil && maker.GetUID() == ref.UID && metav1.IsControlledBy(maker, s.job))
	})
}

// number is the number of a part in the annotation of its Workload; empty for the only one.
func number(p *job.Part) string {
	if p.Number == nil {
		return ""
	}
	return strconv.Itoa(int(*p.Number))
}

// bring returns the next write that synchronizes the Workloads, or else the failure of one of them.
func (s *setsDecider) bring(parts []job.Part, workloads []*kueue.Workload) (failed job.Action) {
	for i := range parts {
		if a := s.part(&parts[i], workloads[i]); a != nil && a.Verb > job.Stall {
			return *a
		} else if a != nil {
			failed = *a
		}
	}
	return failed
}

// expire is expires for an object with groups: it is deleted with the last of them.
func (s *setsDecider) expire(parts []job.Part, workloads []*kueue.Workload) (rest time.Duration, ok bool) {
	if s.cfg.DeleteDeactivatedAfter == nil {
		return 0, false
	}
	for i := range parts {
		if len(parts[i].PodSets) == 0 {
			continue
		}
		if workloads[i] == nil {
			return 0, false
		}
		after, expires := s.expires(workloads[i])
		if !expires {
			return 0, false
		}
		rest, ok = max(rest, after), true
	}
	return rest, ok
}

// abandoned releases the Workload of a deleted object. The object needs no pods: a group on hold has none (spec: 30 §4.3 step 2,
// which leaves such a Workload to garbage collection). Pods that outlive the object keep the quota.
func (s *setsDecider) abandoned(w *kueue.Workload) (job.Action, bool) {
	return s.orphaned(w, metav1.GetControllerOf(w) != nil || (w.Annotations[kueue.JobOwnerGVKAnnotation] != "" && s.isEmpty(w)))
}

func (s *setsDecider) isEmpty(w *kueue.Workload) bool {
	return !s.hasMembers(w.Name) && !s.alive[w.Name]
}

// name is the name of the Workload of a part. On a worker cluster it is the manager's name.
func (s *setsDecider) name(p *job.Part) string {
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

func (s *setsDecider) isRemote() bool { return job.IsRemote(s.job) }

// NamesOfParts are the names of the Workloads of an object with groups. The Workloads of a remote object are made by its manager,
// and only their names refer to the object until it exists.
func NamesOfParts(cfg *job.Config, d *job.Descriptor, o job.Object) []string {
	s := &setsDecider{decider: decider{cfg: cfg, d: d, o: &job.Observed{}, job: o, in: &job.Setting{Config: cfg}}}
	parts, err := d.Sets.Parts(o, s.in)
	if err != nil {
		return nil // the plan reports the error
	}
	out := make([]string, len(parts))
	for i := range parts {
		out[i] = s.name(&parts[i])
	}
	return out
}

// isUnused reports whether a Workload without a part was made for this object.
func (s *setsDecider) isUnused(w *kueue.Workload) bool {
	return s.isOwner(w) && (w.DeletionTimestamp == nil || lifecycle.HasFinalizer(w))
}

func (s *setsDecider) isOwner(w *kueue.Workload) bool {
	return slices.ContainsFunc(w.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == s.job.GetUID() })
}

// part synchronizes one Workload.
func (s *setsDecider) part(p *job.Part, w *kueue.Workload) *job.Action {
	switch {
	case w == nil:
		return s.createPart(p)
	case w.DeletionTimestamp != nil:
		if lifecycle.HasFinalizer(w) && !s.hasMembers(w.Name) {
			return &job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
		}
		return nil // its pods are stopped first
	case s.hasLeft(w) && !s.isRemote(): // its pods are stopped, since they have no Workload or one without quota
		return s.discard(w)
	case lifecycle.IsFinished(w):
		return nil
	case len(p.PodSets) == 0:
		return s.holdPart(w)
	case lifecycle.IsLeaving(w) && !s.hasMembers(w.Name) && !s.runsOnWorker(w): // there is no group to release it
		next := w.DeepCopy()
		s.cfg.Lifecycle.Release(next, false, s.o.Now)
		return &job.Action{Verb: job.WriteStatus, Workload: next}
	}
	if a := s.claim(p, w); a != nil {
		return a
	}
	synced := s.syncPart(w) // before it can be admitted again
	if synced != nil && synced.Verb > job.Stall {
		return synced
	}
	return cmp.Or(s.resume(p, w), synced)
}

// hasMembers reports whether the group of a Workload has pods.
func (s *setsDecider) hasMembers(name string) bool {
	if s.groups == nil {
		s.groups = map[string]bool{}
		for _, p := range s.pods {
			s.groups[s.cfg.GroupName(p)] = true
		}
	}
	return s.groups[name]
}

// createPart creates a Workload. On a worker cluster the manager does.
func (s *setsDecider) createPart(p *job.Part) *job.Action {
	if len(p.PodSets) == 0 || s.isRemote() {
		return nil
	}
	priority, err := resolvePriority(s.d, s.job, p.PodSets, s.o.Classes)
	if err != nil {
		return new(classMissing(err))
	}
	w := bareWorkload(s.cfg, s.job, podset.Copy(p.PodSets), priority)
	w.Name = s.name(p)
	w.Spec.MaximumExecutionTimeSeconds = nil // serving pods have no end
	s.mark(p, w)
	copyLabels(s.cfg, w, s.job)
	return &job.Action{Verb: job.CreateWorkload, Workload: w, Events: normal(eventCreatedWorkload, "Created workload "+w.Namespace+"/"+w.Name)}
}

// mark records the object on its Workload.
func (s *setsDecider) mark(p *job.Part, w *kueue.Workload) {
	labelUID(w, s.job)
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Annotations[kueue.IsGroupWorkloadAnnotation] = "true"
	w.Annotations[kueue.JobOwnerGVKAnnotation] = s.d.GVK.String()
	w.Annotations[kueue.JobOwnerNameAnnotation] = s.job.GetName()
	if n := number(p); n != "" {
		w.Annotations[kueue.ComponentWorkloadIndexAnnotation] = n
	}
	if !s.isOwner(w) {
		w.OwnerReferences = append(w.OwnerReferences, ownerRef(s.d, s.job))
	}
}

// draft returns a copy of a Workload that shares all but what claim and syncPart may change: an object has many Workloads, and most passes
// change none. A draft must be copied before it is written.
func draft(w *kueue.Workload) *kueue.Workload {
	next := new(*w)
	next.Labels, next.Annotations, next.OwnerReferences = maps.Clone(w.Labels), maps.Clone(w.Annotations), slices.Clip(w.OwnerReferences)
	return next
}

// claim marks a Workload of another version, or one that lost its owner.
func (s *setsDecider) claim(p *job.Part, w *kueue.Workload) *job.Action {
	next := draft(w)
	s.mark(p, next)
	if len(next.OwnerReferences) == len(w.OwnerReferences) && maps.Equal(next.Annotations, w.Annotations) {
		return nil
	}
	next = next.DeepCopy()
	if !s.isRemote() && !lifecycle.HasFinalizer(w) { // it was released as that of a deleted object
		next.Finalizers = append(next.Finalizers, kueue.ResourceInUseFinalizer)
	}
	return &job.Action{Verb: job.UpdateWorkload, Workload: next}
}

// holdPart removes the Workload of a group without replicas from the queue, and releases its quota.
func (s *setsDecider) holdPart(w *kueue.Workload) *job.Action {
	out := lifecycle.KeptOut(w, s.cfg.AdmissionGatedBy)
	if out == lifecycle.OnHold || ((out == lifecycle.Inactive || out == lifecycle.Gated) && !lifecycle.IsReserved(w)) {
		return nil // it is out of the queue already
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonOnHold, "It has no replicas", s.o.Now)
	return &job.Action{Verb: job.WriteStatus, Workload: next}
}

// resume returns a Workload to its queue, with the current pod sets. Without a quota reservation its counts always follow. With one and without
// pods, another size means that the object had no replicas in between: that puts it on hold.
func (s *setsDecider) resume(p *job.Part, w *kueue.Workload) *job.Action {
	held := lifecycle.IsOnHold(w)
	if lifecycle.IsReserved(w) {
		sized := slices.EqualFunc(p.PodSets, w.Spec.PodSets, func(a, b kueue.PodSet) bool { return a.Count == b.Count })
		if sized || s.isRemote() || !s.isEmpty(w) {
			return nil
		}
		return s.holdPart(w)
	}
	resized := !slices.EqualFunc(p.PodSets, w.Spec.PodSets, func(a, b kueue.PodSet) bool { return a.Name == b.Name && a.Count == b.Count })
	if resized || (held && !podset.SameSets(p.PodSets, w.Spec.PodSets, false, true)) {
		next := w.DeepCopy()
		next.Spec.PodSets = podset.Copy(p.PodSets)
		return &job.Action{Verb: job.UpdateWorkload, Workload: next, Events: s.updated(w, "its size or its pods changed while it did not run")}
	}
	if !held {
		return nil
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonPendingEvaluation, "It has replicas again", s.o.Now)
	return &job.Action{Verb: job.WriteStatus, Workload: next}
}

// syncPart synchronizes queue, gates and priority class. A queue with a quota reservation cannot change.
func (s *setsDecider) syncPart(w *kueue.Workload) *job.Action {
	next := draft(w)
	if queue := kueue.LocalQueueName(job.QueueName(s.job)); !lifecycle.IsReserved(w) {
		next.Spec.QueueName = queue
	}
	changed := s.syncGates(next)
	ok, err := s.syncPriority(next)
	if err != nil {
		return new(classMissing(err))
	}
	switch {
	case changed || ok:
		return &job.Action{Verb: job.UpdateWorkload, Workload: next.DeepCopy(), Events: s.updated(w, "its owner changed its admission gates or its priority")}
	case next.Spec.QueueName != w.Spec.QueueName:
		return &job.Action{Verb: job.UpdateWorkload, Workload: next.DeepCopy()}
	default:
		return nil
	}
}

// changedPods are the pods to patch: put into their groups, updated in their queue, or ungated.
func (s *setsDecider) changedPods(parts []job.Part, names []string, workloads []*kueue.Workload) []*corev1.Pod {
	byName := map[string]int{}
	for i := range parts {
		byName[parts[i].Name] = i
	}
	out := s.ungateOrphans()
	orphans := map[types.UID]bool{}
	for _, pod := range out {
		orphans[pod.UID] = true
	}
	for _, pod := range s.pods {
		if job.PodIsOver(pod) || pod.DeletionTimestamp != nil || orphans[pod.UID] {
			continue
		}
		next := new(*pod) // shares all that stamp does not change
		next.Labels, next.Annotations = maps.Clone(pod.Labels), maps.Clone(pod.Annotations)
		part, role := s.d.Sets.Place(s.job, pod)
		if at, ok := byName[part]; ok && (workloads[at] == nil || workloads[at].DeletionTimestamp == nil) {
			s.stamp(next, names[at], role, parts[at].Total)
		}
		switch {
		case !maps.Equal(next.Labels, pod.Labels) || !maps.Equal(next.Annotations, pod.Annotations):
			out = append(out, next.DeepCopy())
		case s.holdsUpRollout(pod): // ungate after the metadata is stored: only gated pods may get a queue
			next = pod.DeepCopy()
			job.OpenGates(next, false)
			out = append(out, next)
		}
	}
	return out
}

// stamp puts a pod into its group, once, and updates its queue while it is gated.
func (s *setsDecider) stamp(pod *corev1.Pod, group, role string, total int32) {
	gated := job.PodIsGated(pod)
	queue := job.QueueName(s.job)
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
	if !gated {
		pod.Annotations[job.UnqueuedAnnotation] = "true"
	}
	if class := s.job.GetLabels()[kueue.PriorityClassLabel]; class != "" && gated {
		pod.Labels[kueue.PriorityClassLabel] = class
	}
	s.cfg.WriteIdentifier(pod, kueue.PrebuiltWorkloadLabel, group)
	s.cfg.WriteIdentifier(pod, kueue.PodGroupNameLabel, group)
	pod.Annotations[kueue.PodGroupTotalCountAnnotation] = strconv.Itoa(int(total))
	pod.Annotations[kueue.PodGroupServingAnnotation] = "true"
	pod.Annotations[kueue.RoleHashAnnotation] = role
	if s.d.Sets.Index != "" {
		pod.Annotations[kueue.PodGroupFastAdmissionAnnotation] = "true"
		pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation] = s.d.Sets.Index
	}
}

// holdsUpRollout reports whether a gated pod is of a revision that is being replaced. Its controller replaces it only once it runs,
// so both gates are removed, whatever its group waits for (spec: 30 §4.9).
func (s *setsDecider) holdsUpRollout(pod *corev1.Pod) bool {
	gated := job.PodIsGated(pod) || job.PodHasGate(pod, kueue.TopologySchedulingGate)
	return gated && s.isOutdated(pod) && !s.anyDelegated()
}

// isOutdated reports whether a pod is of a revision that is being replaced.
func (s *setsDecider) isOutdated(pod *corev1.Pod) bool {
	ref := s.d.Sets.Makers.Of(pod)
	if ref == nil || s.makers[ref.Name] == nil || s.makers[ref.Name].GetUID() != ref.UID {
		return false
	}
	return s.d.Sets.Makers.Outdated(s.makers[ref.Name], pod)
}

// anyDelegated reports whether pods of the object run on another cluster, so that no local one may.
func (s *setsDecider) anyDelegated() bool { return slices.ContainsFunc(s.o.Workloads, s.isDelegated) }

// ungateOrphans ungates pods that no group will admit: their object, or what makes them, is gone, and they go with it. A pod without a controller
// stays gated: a user may make any number of them, or keep them by the propagation policy Orphan.
func (s *setsDecider) ungateOrphans() []*corev1.Pod {
	if !s.d.Sets.Frees || s.anyDelegated() {
		return nil
	}
	var out []*corev1.Pod
	for _, pod := range s.pods {
		ref := s.d.Sets.Makers.Of(pod)
		orphan := s.job == nil || (ref != nil && s.makers[ref.Name] == nil)
		if !orphan || metav1.GetControllerOf(pod) == nil || job.PodIsOver(pod) || pod.DeletionTimestamp != nil || !job.PodIsGated(pod) {
			continue
		}
		next := pod.DeepCopy()
		job.OpenGates(next, false)
		out = append(out, next)
	}
	return out
}
