package patch

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// reinvoked is how long one request can take at most, with all webhooks that it calls twice.
const reinvoked = 30 * time.Second

// Default changes a TrainJob that is about to be stored, and returns warnings: entries of reserved managers that the user
// may not write are emptied when the object is created, and times are stamped (spec: 50 §4.13.2, §4.13.5). It is
// idempotent. Ask Questions first.
func Default(r *Request, now time.Time) []string {
	warnings := r.resetForeign()
	r.recordOwners()
	r.stamp(now)
	return warnings
}

// resetForeign empties the entries that a new TrainJob brings along for managers that are not the user's, so that an
// exported object can be created again.
func (r *Request) resetForeign() []string {
	if r.Old != nil {
		return nil
	}
	var warnings []string
	for i := range r.New.Spec.RuntimePatches {
		p := &r.New.Spec.RuntimePatches[i]
		if !r.Config.protects(p.Manager) || isEmpty(p, r.Selected[p.Manager]) || r.owns(p.Manager) {
			continue
		}
		*p = Skeleton(p.Manager)
		delete(r.Selected, p.Manager)
		warnings = append(warnings, fmt.Sprintf("spec.runtimePatches[%s] was emptied: manager %s is owned by another actor", p.Manager, p.Manager))
	}
	return warnings
}

// Skeleton is an entry that sets nothing.
func Skeleton(manager string) trainerv1alpha1.RuntimePatch {
	return trainerv1alpha1.RuntimePatch{Manager: manager, TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{
		Template: &trainerv1alpha1.JobSetTemplatePatch{Spec: &trainerv1alpha1.JobSetSpecPatch{}},
	}}
}

// stamp sets the time of each entry to that of the last change of its content, in whole seconds. A time that the client
// gives is kept for new entries if it is not in the future, and otherwise never.
func (r *Request) stamp(now time.Time) {
	now = now.UTC().Truncate(time.Second)
	for i := range r.New.Spec.RuntimePatches {
		p := &r.New.Spec.RuntimePatches[i]
		var old *trainerv1alpha1.RuntimePatch
		if r.Old != nil {
			old = patchOf(r.Old.Spec.RuntimePatches, p.Manager)
		}
		fresh := p.Time != nil && !p.Time.After(now) && now.Sub(p.Time.Time) <= reinvoked // by an earlier call of this request
		switch {
		case old != nil && sameContent(p, old, r.Selected[p.Manager], r.OldSelected[p.Manager]):
			p.Time = old.Time.DeepCopy()
		case old != nil:
			if !fresh || p.Time.Equal(old.Time) {
				p.Time = &metav1.Time{Time: now}
			}
		case p.Time == nil || p.Time.After(now) || (r.Config.Ownership.Mode == OwnershipStrict && !fresh):
			p.Time = &metav1.Time{Time: now}
		}
	}
}
