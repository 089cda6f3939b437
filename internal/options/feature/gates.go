// Package feature is the table of feature gates with their stages and defaults. It resolves them once, from a configuration file and the
// flag. Code calls [Gates.On] with a constant; no code uses names.
package feature

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	_ "k8s.io/apiserver/pkg/features" // registers the gates of the API server
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/berth-project/berth/internal/options/strict"
)

// Flag is the name of the flag for ParseFlag.
const Flag = "--feature-gates"

// Stage is the maturity of a feature.
type Stage uint8

// The stages of a feature gate.
const (
	Alpha Stage = iota
	Beta
	GA
	Deprecated
)

type row struct {
	name   string
	stage  Stage
	on     bool // by default
	locked bool // at its default
	// needs are the parents: gates that must be on for this one.
	needs []Gate
	// acted is true if the gate has an effect in this version.
	acted bool
}

// Gates are the resolved gates: a plain, comparable value. The zero value has every gate off; see Default.
type Gates struct {
	on [most]bool
}

// On reports whether a feature is on.
func (g Gates) On(gate Gate) bool { return g.on[gate] }

// OnByName reports whether the gate of a name is on; false for an unknown name.
func (g Gates) OnByName(name string) bool {
	gate, known := byName()[name]
	return known && g.on[gate]
}

// With returns a copy with one gate changed, without checks.
func (g Gates) With(gate Gate, on bool) Gates {
	g.on[gate] = on
	return g
}

// Default returns every gate at its default.
func Default() Gates {
	var g Gates
	for i, spec := range table {
		g.on[i] = spec.on
	}
	return g
}

// Stage returns the maturity of the feature.
func (g Gate) Stage() Stage { return table[g].stage }

// String returns the name of the gate in a configuration.
func (g Gate) String() string { return table[g].name }

// Names that set every gate of a stage, except gates that are set by their own name.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// retired are removed gates of upstream releases since 0.13: their feature is always on, or was dropped. They are accepted with a warning
// (spec: 70 §5.7, 40 §5).
var retired = map[string]bool{
	"AdmissionCheckValidationRules":                   true,
	"ConfigurableResourceTransformations":             true,
	"DynamicResourceAllocation":                       true,
	"ExposeFlavorsInLocalQueue":                       true,
	"FlavorFungibilityImplicitPreferenceDefault":      true,
	"HierarchicalCohorts":                             true,
	"KeepQuotaForProvReqRetry":                        true,
	"LendingLimit":                                    true,
	"LocalQueueDefaulting":                            true,
	"ManagedJobsNamespaceSelector":                    true,
	"MultiKueueAllowInsecureKubeconfigs":              true,
	"MultiKueueBatchJobWithManagedBy":                 true,
	"MultiKueueRedoAdmissionOnEvictionInWorker":       true,
	"MultiKueueReuseClientConnectionConfigForWorkers": true,
	"MultiKueueWaitForWorkloadAdmitted":               true,
	"MultiplePreemptions":                             true,
	"ObjectRetentionPolicies":                         true,
	"PropagateBatchJobLabelsToWorkload":               true,
	"ProvisioningACC":                                 true,
	"QueueVisibility":                                 true,
	"SanitizePodSets":                                 true,
	"SkipFinalizersForPodsSuspendedByParent":          true,
	"TASProfileLeastFreeCapacity":                     true,
	"TASProfileMostFreeCapacity":                      true,
	"WorkloadResourceRequestsSummary":                 true,
}

// Setting is one name and value of the user.
type Setting struct {
	Name string
	On   bool
	At   strict.Problem // the position, without a Detail
}

func (s Setting) problem(format string, args ...any) strict.Problem {
	p := s.At
	p.Detail = fmt.Sprintf(format, args...)
	return p
}

// Result are the resolved settings.
type Result struct {
	Gates    Gates
	Inert    []string // names that were set without an effect, sorted
	Warnings []string
	Problems []strict.Problem
}

// Resolve applies settings with unique names to the defaults.
func Resolve(settings []Setting) Result {
	r := Result{Gates: Default()}
	gates := byName()
	explicit := map[Gate]Setting{}
	for _, s := range settings {
		gate, known := gates[s.Name]
		switch {
		case s.Name == allAlpha || s.Name == allBeta:
		case known:
			explicit[gate] = s
			if spec := table[gate]; spec.locked && s.On != spec.on {
				r.Problems = append(r.Problems, s.problem("is part of the product and always %t; remove it", spec.on))
			} else if !spec.acted {
				r.Inert = append(r.Inert, s.Name)
			}
		case s.Name == "MultiKueueAllowInsecureKubeconfigs" && s.On:
			r.Problems = append(r.Problems, s.problem("is gone: insecure kubeconfigs are always refused; remove it"))
		case retired[s.Name]:
			r.Warnings = append(r.Warnings, fmt.Sprintf("feature gate %s is gone and changes nothing; remove it", s.Name))
		case ofAPIServer()[s.Name]:
			r.Inert = append(r.Inert, s.Name)
		default:
			known := append(slices.Collect(maps.Keys(gates)), allAlpha, allBeta)
			slices.Sort(known)
			r.Problems = append(r.Problems, s.problem("unknown feature gate; %s", suggest(s.Name, known)))
		}
	}
	slices.Sort(r.Inert)
	r.applyStages(settings, explicit)
	for gate, s := range explicit {
		r.Gates.on[gate] = s.On
	}
	r.followParents(explicit)
	return r
}

func (r *Result) applyStages(settings []Setting, explicit map[Gate]Setting) {
	for _, s := range settings {
		for i, spec := range table {
			_, named := explicit[Gate(i)]
			whole := s.Name == allAlpha && spec.stage == Alpha || s.Name == allBeta && spec.stage == Beta
			if whole && !named {
				r.Gates.on[i] = s.On
			}
		}
	}
}

// followParents turns off the gates whose parents are off, with a warning. It is a problem if such a gate was set by its own name
// (spec: 70 §5.7, §6 #23).
func (r *Result) followParents(explicit map[Gate]Setting) {
	followers := map[Gate][]string{}
	for changed := true; changed; {
		changed = false
		for i, spec := range table {
			for _, parent := range spec.needs {
				if !r.Gates.on[i] || r.Gates.on[parent] {
					continue
				}
				r.Gates.on[i], changed = false, true
				if s, named := explicit[Gate(i)]; named {
					r.Problems = append(r.Problems, s.problem("needs %s, which is off; turn that on or leave this one out", parent))
				} else {
					followers[parent] = append(followers[parent], spec.name)
				}
			}
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(followers)) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("feature gate %s is off, and so are the gates that need it: %s",
			parent, strings.Join(followers[parent], ", ")))
	}
}

// ParseFlag parses A=true,B=false. Blanks around names and values and empty entries are ignored.
func ParseFlag(flag string) (map[string]bool, []strict.Problem) {
	settings := map[string]bool{}
	var problems []strict.Problem
	for entry := range strings.SplitSeq(flag, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, text, found := strings.Cut(entry, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(text))
		at := strict.Problem{Source: Flag, Field: name}
		switch previous, twice := settings[name]; {
		case name == "" || !found:
			at.Field, at.Detail = "", fmt.Sprintf("want NAME=true or NAME=false, got %q", entry)
		case err != nil:
			at.Detail = fmt.Sprintf("want true or false, got %q", strings.TrimSpace(text))
		case twice && previous != on:
			at.Detail = "is set to both true and false; keep one"
		default:
			settings[name] = on
			continue
		}
		problems = append(problems, at)
	}
	return settings, problems
}

// Merge joins the gates of the file and the flag. Upstream refuses to start with both; here equal values are a warning and different ones a
// problem (spec: 70 §6 #3, example 20).
func Merge(file map[string]bool, where func(name string) strict.Problem, flag map[string]bool) (settings []Setting, warnings []string, problems []strict.Problem) {
	for _, name := range slices.Sorted(maps.Keys(file)) {
		s := Setting{Name: name, On: file[name], At: where(name)}
		if on, both := flag[name]; both && on != s.On {
			problems = append(problems, s.problem("is %t here and %t in %s; keep one of them", s.On, on, Flag))
		}
		settings = append(settings, s)
	}
	for _, name := range slices.Sorted(maps.Keys(flag)) {
		if _, both := file[name]; both {
			continue
		}
		settings = append(settings, Setting{Name: name, On: flag[name], At: strict.Problem{Source: Flag, Field: name}})
	}
	if len(file) > 0 && len(flag) > 0 && len(problems) == 0 {
		warnings = append(warnings, "feature gates are set both in the file and by "+Flag+"; both are used, but keep them in one place")
	}
	return settings, warnings, problems
}

func byName() map[string]Gate {
	byName := make(map[string]Gate, len(table))
	for i, spec := range table {
		byName[spec.name] = Gate(i)
	}
	return byName
}

// ofAPIServer returns the gates of the library of the visibility API. Upstream registers them, too, so files may name them.
func ofAPIServer() map[string]bool {
	names := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		names[string(name)] = true
	}
	return names
}

// suggest returns advice about an unknown gate. There are too many gates to list them all.
func suggest(name string, known []string) string {
	if near := strict.Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "see docs/gates.md for all of them, or remove it"
}
