package patch

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// OwnersAnnotation on a TrainJob records, in strict mode, who created the entry of each manager.
const OwnersAnnotation = "berth.dev/runtime-patch-owners"

// What RBAC is asked about the entry of a manager: the verb, and the group and resource, which is virtual. The name is
// the manager, then its domain followed by /* (spec: 50 §4.13.2).
const (
	OwnershipVerb     = "manage"
	OwnershipResource = "runtimepatchmanagers"
)

// OwnershipNames are the names to ask RBAC about for a manager. One grant suffices.
func OwnershipNames(manager string) []string {
	domain, _, _ := strings.Cut(manager, "/")
	return []string{manager, domain + "/*"}
}

// What refusals say that last: whose entry it is, and that managers contradict each other. The optional policy for clusters
// without the webhook has the same words.
const (
	anotherActor    = "another actor"
	differentValues = "to different values"
)

// IsFinal reports whether the text of a refusal is one of those that come back however often the same is tried: because of owners,
// or of a conflict (spec: 50 §4.10).
func IsFinal(refusal string) bool {
	return strings.Contains(refusal, listPath.String()) && (strings.Contains(refusal, anotherActor) || strings.Contains(refusal, differentValues))
}

// User is who makes a request.
type User struct {
	Name   string
	Groups []string
}

// protects reports whether the entries of a manager may be written by their owners only.
func (c *Config) protects(manager string) bool {
	switch c.Ownership.Mode {
	case OwnershipOff:
		return false
	case OwnershipStrict:
		return true
	default:
		return c.reserves(manager)
	}
}

func (c *Config) reserves(manager string) bool {
	return slices.ContainsFunc(c.Ownership.Reserved, func(r ReservedManager) bool { return matches(r.Manager, manager) })
}

// lists reports whether the configuration makes a user the owner of a manager.
func (c *Config) lists(u *User, manager string) bool {
	if u.Name != "" && u.Name == c.Ownership.Self && (matches(schedulingPattern, manager) || c.schedules(manager)) {
		return true
	}
	for _, r := range c.Ownership.Reserved {
		if !matches(r.Manager, manager) {
			continue
		}
		if u.Name != "" && slices.Contains(r.Users, u.Name) {
			return true
		}
		if slices.ContainsFunc(r.Groups, func(g string) bool { return slices.Contains(u.Groups, g) }) {
			return true
		}
	}
	return false
}

// owns reports whether a user may write the entry of a manager. In strict mode that includes whoever created it, and anyone
// as long as nobody did, unless the manager is reserved.
func (r *Request) owns(manager string) bool {
	if r.Granted[manager] || r.Config.lists(&r.User, manager) {
		return true
	}
	if r.Config.Ownership.Mode != OwnershipStrict || r.Config.reserves(manager) {
		return false
	}
	if r.Old == nil || patchOf(r.Old.Spec.RuntimePatches, manager) == nil {
		return true
	}
	return recordedOwners(r.Old)[manager] == r.User.Name && r.User.Name != ""
}

// Questions lists the managers for which RBAC has to be asked before the request can be judged: those whose entries the
// request writes, that are protected, and that are not the user's by configuration. They are sorted.
func (r *Request) Questions() []string {
	asked := map[string]bool{}
	for _, m := range r.touched() {
		if r.Config.protects(m) && !r.owns(m) {
			asked[m] = true
		}
	}
	return slices.Sorted(maps.Keys(asked))
}

// touched lists the managers whose entries the request adds, changes or removes. New entries that set nothing do not
// count: the queue's webhook adds such in the name of the user.
func (r *Request) touched() []string {
	var out []string
	var before []trainerv1alpha1.RuntimePatch
	if r.Old != nil {
		before = r.Old.Spec.RuntimePatches
	}
	for i := range r.New.Spec.RuntimePatches {
		p := &r.New.Spec.RuntimePatches[i]
		old := patchOf(before, p.Manager)
		if old == nil && isEmpty(p, r.Selected[p.Manager]) {
			continue
		}
		if old == nil || !sameContent(p, old, r.Selected[p.Manager], r.OldSelected[p.Manager]) {
			out = append(out, p.Manager)
		}
	}
	for i := range before {
		if patchOf(r.New.Spec.RuntimePatches, before[i].Manager) == nil {
			out = append(out, before[i].Manager)
		}
	}
	return out
}

// validateOwners refuses what only the owners of managers may write (spec: 50 §4.13.2).
func (v *checker) validateOwners() {
	for _, m := range v.touched() {
		if v.Config.protects(m) && !v.owns(m) {
			v.refuse(DeniedOwnership, field.Forbidden(listPath.Key(m), "manager "+m+" is owned by "+anotherActor+"; leave its entry as it is"))
		}
	}
}

// recordedOwners reads the annotation of strict mode.
func recordedOwners(job *trainerv1alpha1.TrainJob) map[string]string {
	owners := map[string]string{}
	if json.Unmarshal([]byte(job.Annotations[OwnersAnnotation]), &owners) != nil {
		return map[string]string{}
	}
	return owners
}

// recordOwners writes the annotation of strict mode, whatever the client put there: creators of entries that stay are
// kept, new entries of managers that are not reserved get the user.
func (r *Request) recordOwners() {
	if r.Config.Ownership.Mode != OwnershipStrict {
		return
	}
	before := map[string]string{}
	var old []trainerv1alpha1.RuntimePatch
	if r.Old != nil {
		before, old = recordedOwners(r.Old), r.Old.Spec.RuntimePatches
	}
	owners := map[string]string{}
	for i := range r.New.Spec.RuntimePatches {
		m := r.New.Spec.RuntimePatches[i].Manager
		switch creator, known := before[m]; {
		case known && patchOf(old, m) != nil:
			owners[m] = creator
		case !r.Config.reserves(m) && patchOf(old, m) == nil:
			owners[m] = r.User.Name
		}
	}
	if len(owners) == 0 {
		delete(r.New.Annotations, OwnersAnnotation)
		return
	}
	mergeMap(&r.New.Annotations, map[string]string{OwnersAnnotation: text(owners)})
}
