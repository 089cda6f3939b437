package patch

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// reinvoked is the maximum duration of a request whose webhooks are reinvoked.
const reinvoked = 30 * time.Second

// Default prepares a TrainJob to be stored, and returns warnings: it empties new entries of managers that the user does not own, and sets
// times (spec: 50 §4.13.2, §4.13.5). It is idempotent. Questions comes first.
func Default(r *Request, now time.Time) []string {
	warnings := r.resetForeignEntries()
	r.recordOwners()
	r.setTimes(now)
	return warnings
}

// resetForeignEntries empties the entries of a new TrainJob whose managers the user does not own, so that an exported object can be created
// again.
func (r *Request) resetForeignEntries() []string {
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

// Skeleton returns an entry without fields.
func Skeleton(manager string) trainerv1alpha1.RuntimePatch {
	return trainerv1alpha1.RuntimePatch{Manager: manager, TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{
		Template: &trainerv1alpha1.JobSetTemplatePatch{Spec: &trainerv1alpha1.JobSetSpecPatch{}},
	}}
}

// setTimes sets the time of each entry to that of its last change, in whole seconds. The time of a client is accepted for new entries only,
// and not in the future.
func (r *Request) setTimes(now time.Time) {
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
