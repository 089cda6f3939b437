// Package patch is what runtime patches mean: which fields an entry sets, how the
// entries of several managers are merged into the template of a runtime, where
// they contradict each other, who may write them and when.
//
//	entries ─► Expand (selectors) ─► Merge ─► template
//	   │
//	   ├─► Default: times, entries of others
//	   ├─► Validate: targets, shapes, metadata, owners, conflicts; Transition: when
//	   └─► Record: what became of each
//
// Everything works on leaves, the single fields that an entry sets: two managers
// disagree if they set one leaf to different values (spec: 50 §4.9, §4.13).
package patch

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// listPath is the field of the patches.
var listPath = field.NewPath("spec", "runtimePatches")

// ConflictPolicy says what happens when managers set one field to different values (spec: 50 §4.13.1).
type ConflictPolicy string

// The conflict policies. Under Warn and Ignore the order of merging decides (spec: 50 §4.9). Warn is the default, as clients of this
// API that have two managers set one field differently expect success.
const (
	ConflictWarn   ConflictPolicy = "Warn"
	ConflictReject ConflictPolicy = "Reject"
	ConflictIgnore ConflictPolicy = "Ignore"
)

// OwnershipMode says whose entries are protected (spec: 50 §4.13.2).
type OwnershipMode string

// The modes of ownership.
const (
	// OwnershipReserved protects the entries of reserved managers.
	OwnershipReserved OwnershipMode = "Reserved"
	// OwnershipStrict protects every entry; who creates an entry owns it.
	OwnershipStrict OwnershipMode = "Strict"
	OwnershipOff    OwnershipMode = "Off"
)

// Config is how runtime patches are handled (spec: 50 §4.13.7).
type Config struct {
	ConflictPolicy ConflictPolicy
	Ownership      Ownership
	// SchedulingManagers are patterns of managers whose entries are merged last and whose tolerations are added.
	SchedulingManagers []string
	// RestrictMetadata refuses everything but labels and annotations in the metadata of patches, and reserved keys.
	RestrictMetadata bool
	// StrictTargets refuses patches of replicated jobs and containers that the runtime does not have. Otherwise such
	// patches have no effect.
	StrictTargets bool
	// Selectors allows patches that select replicated jobs by label: gate RuntimePatchSelectors.
	Selectors bool
}

// Ownership says who may write the entries of which managers.
type Ownership struct {
	Mode     OwnershipMode
	Reserved []ReservedManager
	// Self is the user name of Berth's own service account, which owns the managers that Berth writes for.
	Self string
}

// ReservedManager is a pattern of managers and the users and groups who own them. A group never matches a user of its name.
type ReservedManager struct {
	Manager       string
	Users, Groups []string
}

// DefaultConfig is the configuration of a manager that was told nothing.
func DefaultConfig() Config {
	return Config{
		ConflictPolicy: ConflictWarn, SchedulingManagers: []string{schedulingPattern}, RestrictMetadata: true, StrictTargets: true,
		Ownership: Ownership{Mode: OwnershipReserved, Reserved: []ReservedManager{{Manager: schedulingPattern}}},
	}
}

// schedulingPattern matches the managers that the queue writes for.
const schedulingPattern = "kueue.x-k8s.io/*"

// matches reports whether a manager fits a pattern: itself, or its domain followed by /*.
func matches(pattern, manager string) bool {
	if domain, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(manager, domain)
	}
	return pattern == manager
}

// schedules reports whether a manager's entries are merged last.
func (c *Config) schedules(manager string) bool {
	return slices.ContainsFunc(c.SchedulingManagers, func(p string) bool { return matches(p, manager) })
}

// Request is a TrainJob that somebody wants to store, and what decides about its patches.
type Request struct {
	// New is the TrainJob, and Old the one that is stored; nil for a new one. Default changes New; Validate changes nothing.
	New, Old *trainerv1alpha1.TrainJob
	// Selected and OldSelected are their patches with selectors: SelectedOf each.
	Selected, OldSelected Selected
	Config                *Config
	// User makes the request, and Granted are the managers that RBAC says are his, of those in Questions.
	User    User
	Granted map[string]bool
	// Merged is the runtime's template with the patches of New merged into it. Nil: Validate merges them if it has to.
	Merged *trainerv1alpha1.JobSetTemplateSpec
}

// Reserved are the names in a template that its policies use, so that patches may not.
type Reserved struct {
	// Labels and Annotations are those of pods that a pod group policy sets.
	Labels, Annotations []string
	// Jobs are by name of the replicated job.
	Jobs map[string]ReservedJob
}

// ReservedJob are the names in the pods of one replicated job.
type ReservedJob struct {
	Volumes []string
	// Mounts are clean paths, and Env variables, by container.
	Mounts, Env map[string][]string
}

// checker collects findings about one request.
type checker struct {
	*Request
	Runtime  *trainerv1alpha1.JobSetTemplateSpec // unpatched; nil if it is not known
	Reserved *Reserved

	Findings
}

// Findings are what is wrong with patches.
type Findings struct {
	Warnings []string
	Errors   field.ErrorList
	// Denied is why something was refused, a word for each kind of rule. Conflicts is how often managers contradict each
	// other, refused or not.
	Denied    []string
	Conflicts int
}

// Why patches are refused.
const (
	DeniedTransition = "transition"
	DeniedOwnership  = "ownership"
	DeniedContent    = "content"
	DeniedConflict   = "conflict"
)

func (v *checker) warn(text string) {
	if !slices.Contains(v.Warnings, text) {
		v.Warnings = append(v.Warnings, text)
	}
}

func (v *checker) refuse(reason string, errs ...*field.Error) {
	if len(errs) == 0 {
		return
	}
	v.Errors = append(v.Errors, errs...)
	if !slices.Contains(v.Denied, reason) {
		v.Denied = append(v.Denied, reason)
	}
}

// Validate says what is wrong with the patches of a TrainJob, given its runtime's template; nil if that is not known.
// When they may change says Transition.
func Validate(r *Request, runtime *trainerv1alpha1.JobSetTemplateSpec, reserved *Reserved) Findings {
	v := &checker{Request: r, Runtime: runtime, Reserved: reserved}
	v.validateOwners()
	v.validatePatches()
	return v.Findings
}
