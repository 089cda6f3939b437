// Package patch defines runtime patches: the fields that an entry sets, how entries of
// several managers are merged into the template of a runtime, their conflicts, who may
// write them and when.
//
//	entries ─► Expand (selectors) ─► Merge ─► template
//	   │
//	   ├─► Default: times, entries of other users
//	   ├─► Validate: targets, shapes, metadata, owners, conflicts; Transition: when
//	   └─► Record: status.runtimePatches
//
// The unit is the leaf, a single field that an entry sets: two managers conflict if they
// set one leaf to different values (spec: 50 §4.9, §4.13).
package patch

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

var listPath = field.NewPath("spec", "runtimePatches")

// ConflictPolicy is what happens when managers set one field to different values (spec: 50 §4.13.1).
type ConflictPolicy string

// The conflict policies. Under Warn and Ignore the merge order decides (spec: 50 §4.9). Warn is the default: clients of this API expect that
// a conflict does not fail the request.
const (
	ConflictWarn   ConflictPolicy = "Warn"
	ConflictReject ConflictPolicy = "Reject"
	ConflictIgnore ConflictPolicy = "Ignore"
)

// OwnershipMode is which entries are protected (spec: 50 §4.13.2).
type OwnershipMode string

const (
	// OwnershipReserved protects the entries of reserved managers.
	OwnershipReserved OwnershipMode = "Reserved"
	// OwnershipStrict protects every entry, which its creator owns.
	OwnershipStrict OwnershipMode = "Strict"
	// OwnershipOff protects none.
	OwnershipOff OwnershipMode = "Off"
)

// Config configures runtime patches (spec: 50 §4.13.7).
type Config struct {
	ConflictPolicy ConflictPolicy
	Ownership      Ownership
	// SchedulingManagers are patterns of managers whose entries are merged last and whose tolerations are added.
	SchedulingManagers []string
	// RestrictMetadata refuses metadata other than labels and annotations, and reserved keys.
	RestrictMetadata bool
	// StrictTargets refuses patches of replicated jobs and containers that the runtime does not have. Otherwise such patches have no effect.
	StrictTargets bool
	// Selectors allows patches that select replicated jobs by label: gate RuntimePatchSelectors.
	Selectors bool
}

// Ownership defines the owners of managers.
type Ownership struct {
	Mode     OwnershipMode
	Reserved []ReservedManager
	// Self is the user name of Berth's service account, which owns the managers of the queue.
	Self string
}

// ReservedManager is a pattern of managers, and the users and groups that own them.
type ReservedManager struct {
	Manager       string
	Users, Groups []string
}

// DefaultConfig returns the configuration of a manager without a configuration file.
func DefaultConfig() Config {
	return Config{
		ConflictPolicy: ConflictWarn, SchedulingManagers: []string{schedulingPattern}, RestrictMetadata: true, StrictTargets: true,
		Ownership: Ownership{Mode: OwnershipReserved, Reserved: []ReservedManager{{Manager: schedulingPattern}}},
	}
}

const schedulingPattern = "kueue.x-k8s.io/*"

// matches reports whether a manager fits a pattern: itself, or its domain followed by /*.
func matches(pattern, manager string) bool {
	if domain, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(manager, domain)
	}
	return pattern == manager
}

// schedules reports whether the entries of a manager are merged last.
func (c *Config) schedules(manager string) bool {
	return slices.ContainsFunc(c.SchedulingManagers, func(p string) bool { return matches(p, manager) })
}

// Request is a TrainJob whose patches are to be validated.
type Request struct {
	// New is the TrainJob, and Old the stored one; nil for a new TrainJob. Default changes New; Validate changes nothing.
	New, Old *trainerv1alpha1.TrainJob
	// Selected and OldSelected are SelectedOf each.
	Selected, OldSelected Selected
	Config                *Config
	// User makes the request. Granted are the managers, of those in Questions, that RBAC grants to the user.
	User    User
	Granted map[string]bool
	// Merged is the runtime's template with the patches of New. Nil: Validate merges them if necessary.
	Merged *trainerv1alpha1.JobSetTemplateSpec
}

// Reserved are the names that the policies of the runtime use, and patches may not use.
type Reserved struct {
	// Labels and Annotations of pods.
	Labels, Annotations []string
	// Jobs are by name of the replicated job.
	Jobs map[string]ReservedJob
}

// ReservedJob are the reserved names in the pods of one replicated job.
type ReservedJob struct {
	Volumes []string
	// Mounts are clean paths, and Env variables, by container.
	Mounts, Env map[string][]string
}

type checker struct {
	*Request
	Runtime  *trainerv1alpha1.JobSetTemplateSpec // unpatched; nil if it is not known
	Reserved *Reserved

	Findings
}

// Findings are the result of a validation.
type Findings struct {
	Warnings []string
	Errors   field.ErrorList
	// Denied are the reasons why patches are refused, and Conflicts is the number of conflicts, refused or not.
	Denied    []string
	Conflicts int
}

// Reasons of refusals.
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

// Validate applies the rules for the patches of a TrainJob, except the rules of Transition. runtime is the template of its runtime, or nil.
func Validate(r *Request, runtime *trainerv1alpha1.JobSetTemplateSpec, reserved *Reserved) Findings {
	v := &checker{Request: r, Runtime: runtime, Reserved: reserved}
	v.validateOwners()
	v.validatePatches()
	return v.Findings
}
