package patch

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// OwnersAnnotation on a TrainJob records the creator of each manager's entry in strict mode.
const OwnersAnnotation = "berth.dev/runtime-patch-owners"

// The verb, group and virtual resource of the question to RBAC about the entry of a manager. The name is the manager, or its domain followed
// by /* (spec: 50 §4.13.2).
const (
	OwnershipVerb     = "manage"
	OwnershipResource = "runtimepatchmanagers"
)

// OwnershipNames returns the names of the questions to RBAC for a manager. One grant suffices.
func OwnershipNames(manager string) []string {
	domain, _, _ := strings.Cut(manager, "/")
	return []string{manager, domain + "/*"}
}

// Ends of refusals because of owners and of conflicts. The optional policy for clusters without the webhook uses the same words.
const (
	anotherActor    = "another actor"
	differentValues = "to different values"
)

// IsFinal reports whether a refusal is repeated for every retry: because of owners, or of a conflict (spec: 50 §4.10).
func IsFinal(refusal string) bool {
	return strings.Contains(refusal, listPath.String()) && (strings.Contains(refusal, anotherActor) || strings.Contains(refusal, differentValues))
}

// User is the user of a request.
type User struct {
	Name   string
	Groups []string
}

// protects reports whether only owners may write the entries of a manager.
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

// listsOwner reports whether the configuration makes a user the owner of a manager.
func (c *Config) listsOwner(u *User, manager string) bool {
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

// owns reports whether a user may write the entry of a manager. In strict mode its recorded creator may. Without a record every user may,
// unless the manager is reserved.
func (r *Request) owns(manager string) bool {
	if r.Granted[manager] || r.Config.listsOwner(&r.User, manager) {
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

// Questions returns, sorted, the managers about which RBAC has to be asked before validation: protected managers whose entries the request
// writes, except managers that the configuration gives to the user.
func (r *Request) Questions() []string {
	asked := map[string]bool{}
	for _, m := range r.changedManagers() {
		if r.Config.protects(m) && !r.owns(m) {
			asked[m] = true
		}
	}
	return slices.Sorted(maps.Keys(asked))
}

// changedManagers returns the managers whose entries the request adds, changes or removes. New empty entries do not count: the webhook of
// the queue adds them in the name of the user.
func (r *Request) changedManagers() []string {
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

// validateOwners refuses changes of protected entries by other users (spec: 50 §4.13.2).
func (v *checker) validateOwners() {
	for _, m := range v.changedManagers() {
		if v.Config.protects(m) && !v.owns(m) {
			v.refuse(DeniedOwnership, field.Forbidden(listPath.Key(m), "manager "+m+" is owned by "+anotherActor+"; leave its entry as it is"))
		}
	}
}

func recordedOwners(job *trainerv1alpha1.TrainJob) map[string]string {
	owners := map[string]string{}
	if json.Unmarshal([]byte(job.Annotations[OwnersAnnotation]), &owners) != nil {
		return map[string]string{}
	}
	return owners
}

// recordOwners replaces the annotation of strict mode: owners of entries that remain are retained, and the user owns new entries of managers
// that are not reserved.
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
	metav1.SetMetaDataAnnotation(&r.New.ObjectMeta, OwnersAnnotation, text(owners))
}
