package options

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	_ "k8s.io/apiserver/pkg/features" // registers the gates of the API server
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// FeatureGatesFlag is the name of the flag whose value LoadWithGates takes.
const FeatureGatesFlag = "--feature-gates"

// Stage is how far a feature has come.
type Stage uint8

// The stages of a feature gate.
const (
	Alpha Stage = iota
	Beta
	GA
	Deprecated
)

// gateSpec is what is known of one gate.
type gateSpec struct {
	name   string
	stage  Stage
	on     bool // by default
	locked bool // at its default
	// needs are the gates that must be on for this one to be on.
	needs []Gate
	// acted is true when turning the gate changes what this build does.
	acted bool
}

// Gates says of every gate whether it is on. It is a plain value: comparable,
// copied freely and never changed after it was resolved. The zero value has
// every gate off; see DefaultGates.
type Gates struct {
	on [gateCount]bool
}

// On reports whether a feature is on.
func (g Gates) On(gate Gate) bool { return g.on[gate] }

// With returns a copy with one gate turned; it checks nothing.
func (g Gates) With(gate Gate, on bool) Gates {
	g.on[gate] = on
	return g
}

// DefaultGates has every gate at its default.
func DefaultGates() Gates {
	var g Gates
	for i, spec := range gateTable {
		g.on[i] = spec.on
	}
	return g
}

// String gives the name of the gate, as it is written in a configuration.
func (g Gate) String() string { return gateTable[g].name }

// The names that set every gate of a stage that is not set by its own name.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// retiredGates are names that releases since 0.13 of upstream knew and that
// are gone: their feature is always there, or was dropped. They are accepted
// with a warning (spec: 70 §5.7, 40 §5).
var retiredGates = map[string]bool{
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
	"QueueVisibility":                                 true,
	"SanitizePodSets":                                 true,
	"TASProfileLeastFreeCapacity":                     true,
	"TASProfileMostFreeCapacity":                      true,
	"WorkloadResourceRequestsSummary":                 true,
}

// gateSetting is one name and value that the user wrote.
type gateSetting struct {
	name string
	on   bool
	at   Problem // where; its Detail is empty
}

// problem says what is wrong with the setting.
func (s gateSetting) problem(format string, args ...any) Problem {
	p := s.at
	p.Detail = fmt.Sprintf(format, args...)
	return p
}

// gateResult is what the settings come to.
type gateResult struct {
	gates    Gates
	inert    []string // names that were set and change nothing, sorted
	warnings []string
	problems []Problem
}

// resolveGates applies settings to the defaults. No name may be in them twice.
func resolveGates(settings []gateSetting) gateResult {
	r := gateResult{gates: DefaultGates()}
	byName := gatesByName()
	explicit := map[Gate]gateSetting{}
	for _, s := range settings {
		gate, known := byName[s.name]
		switch {
		case s.name == allAlpha || s.name == allBeta:
		case known:
			explicit[gate] = s
			if spec := gateTable[gate]; spec.locked && s.on != spec.on {
				r.problems = append(r.problems, s.problem("is part of the product and always %t; remove it", spec.on))
			} else if !spec.acted {
				r.inert = append(r.inert, s.name)
			}
		case s.name == "MultiKueueAllowInsecureKubeconfigs" && s.on:
			r.problems = append(r.problems, s.problem("is gone: insecure kubeconfigs are always refused; remove it"))
		case retiredGates[s.name]:
			r.warnings = append(r.warnings, fmt.Sprintf("feature gate %s is gone and changes nothing; remove it", s.name))
		case apiServerGates()[s.name]:
			r.inert = append(r.inert, s.name)
		default:
			known := append(slices.Collect(maps.Keys(byName)), allAlpha, allBeta)
			slices.Sort(known)
			r.problems = append(r.problems, s.problem("unknown feature gate; %s", suggestGate(s.name, known)))
		}
	}
	slices.Sort(r.inert)
	r.applyStages(settings, explicit)
	for gate, s := range explicit {
		r.gates.on[gate] = s.on
	}
	r.followParents(explicit)
	return r
}

// applyStages turns whole stages, as AllAlpha and AllBeta ask.
func (r *gateResult) applyStages(settings []gateSetting, explicit map[Gate]gateSetting) {
	for _, s := range settings {
		for i, spec := range gateTable {
			_, named := explicit[Gate(i)]
			whole := s.name == allAlpha && spec.stage == Alpha || s.name == allBeta && spec.stage == Beta
			if whole && !named {
				r.gates.on[i] = s.on
			}
		}
	}
}

// followParents turns off the gates whose parents are off. One that was turned
// on by its own name is a mistake; the others follow with a line in the log
// (spec: 70 §5.7, §6 #23).
func (r *gateResult) followParents(explicit map[Gate]gateSetting) {
	followers := map[Gate][]string{}
	for changed := true; changed; {
		changed = false
		for i, spec := range gateTable {
			for _, parent := range spec.needs {
				if !r.gates.on[i] || r.gates.on[parent] {
					continue
				}
				r.gates.on[i], changed = false, true
				if s, named := explicit[Gate(i)]; named {
					r.problems = append(r.problems, s.problem("needs %s, which is off; turn that on or leave this one out", parent))
				} else {
					followers[parent] = append(followers[parent], spec.name)
				}
			}
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(followers)) {
		r.warnings = append(r.warnings, fmt.Sprintf("feature gate %s is off, and so are the gates that need it: %s",
			parent, strings.Join(followers[parent], ", ")))
	}
}

// parseGatesFlag reads A=true,B=false. Blanks around names and values are
// ignored, as is an empty entry.
func parseGatesFlag(flag string) (map[string]bool, []Problem) {
	settings := map[string]bool{}
	var problems []Problem
	for entry := range strings.SplitSeq(flag, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, text, found := strings.Cut(entry, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(text))
		at := Problem{Source: FeatureGatesFlag, Field: name}
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

// mergeGates joins the gates of the file with those of the flag. Upstream
// refuses to start with both; here equal values pass with a warning and
// different ones are a mistake (spec: 70 §6 #3, example 20).
func mergeGates(file map[string]bool, where func(name string) Problem, flag map[string]bool) (settings []gateSetting, warnings []string, problems []Problem) {
	for _, name := range slices.Sorted(maps.Keys(file)) {
		s := gateSetting{name: name, on: file[name], at: where(name)}
		if on, both := flag[name]; both && on != s.on {
			problems = append(problems, s.problem("is %t here and %t in %s; keep one of them", s.on, on, FeatureGatesFlag))
		}
		settings = append(settings, s)
	}
	for _, name := range slices.Sorted(maps.Keys(flag)) {
		if _, both := file[name]; both {
			continue
		}
		settings = append(settings, gateSetting{name: name, on: flag[name], at: Problem{Source: FeatureGatesFlag, Field: name}})
	}
	if len(file) > 0 && len(flag) > 0 && len(problems) == 0 {
		warnings = append(warnings, "feature gates are set both in the file and by "+FeatureGatesFlag+"; both are used, but keep them in one place")
	}
	return settings, warnings, problems
}

// gatesByName indexes the table.
func gatesByName() map[string]Gate {
	byName := make(map[string]Gate, gateCount)
	for i, spec := range gateTable {
		byName[spec.name] = Gate(i)
	}
	return byName
}

// apiServerGates are the names that the library behind the visibility API
// knows. Upstream's registry holds them too, so files may name them.
func apiServerGates() map[string]bool {
	names := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		names[string(name)] = true
	}
	return names
}

// suggestGate says which gate a misspelt name meant. There are too many gates
// to list them all.
func suggestGate(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "see the feature gates in the documentation, or remove it"
}
