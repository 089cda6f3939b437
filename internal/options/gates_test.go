package options

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestGateTable(t *testing.T) {
	seen := map[string]bool{}
	for i, spec := range gateTable {
		switch {
		case spec.name == "":
			t.Errorf("gate %d has no row", i)
		case seen[spec.name]:
			t.Errorf("%s has two rows", spec.name)
		case retiredGates[spec.name]:
			t.Errorf("%s is both in use and retired", spec.name)
		case spec.locked != (spec.stage == GA):
			t.Errorf("%s: GA and locked go together", spec.name)
		case spec.stage == Alpha && spec.on:
			t.Errorf("%s is alpha and on by default", spec.name)
		}
		seen[spec.name] = true
		for _, parent := range spec.needs {
			if spec.on && !gateTable[parent].on {
				t.Errorf("%s is on by default, but %s, which it needs, is off", spec.name, parent)
			}
		}
		if spec.name != TopologyAwareScheduling.String() && strings.HasPrefix(spec.name, "TAS") && spec.needs[0] != TopologyAwareScheduling {
			t.Errorf("%s must need TopologyAwareScheduling (spec: 70 §5.7)", spec.name)
		}
	}
}

func TestGates(t *testing.T) {
	allTAS := "TASProfileMixed, TASFailedNodeReplacement, TASFailedNodeReplacementFailFast, TASReplaceNodeOnPodTermination, " +
		"TASReplaceNodeOnNodeTaints, TASAssignmentsEncodingByHostnamePrefix, TASMultiLayerTopology, TASHandleOverlappingFlavors, " +
		"TASRecomputeAssignmentWithinSchedulingCycle, TASCacheNodeMatchResults, TASCachingRemainingResources, TASCacheTopologyTree, TASValidateWorkloadSliceSize"
	for name, tc := range map[string]struct {
		flag     string
		file     string
		on, off  []Gate
		inert    []string
		warnings []string
	}{
		"nothing set": {on: []Gate{PartialAdmission, TLSOptions}, off: []Gate{ConcurrentAdmission, UnadmittedWorkloadsExplicitStatus}},
		"by flag": {
			flag: "ConcurrentAdmission=true, PartialAdmission=f,", on: []Gate{ConcurrentAdmission}, off: []Gate{PartialAdmission},
			inert: []string{"ConcurrentAdmission"},
		},
		"by file": {
			file: "ConcurrentAdmission: true", on: []Gate{ConcurrentAdmission}, inert: []string{"ConcurrentAdmission"},
		},
		"one that is acted upon": {flag: "QuotaCheckStrategy=false", off: []Gate{QuotaCheckStrategy}},
		"flag and file, equal": { // spec: 70 §7 example 20
			flag: "ConcurrentAdmission=true", file: "ConcurrentAdmission: true", on: []Gate{ConcurrentAdmission}, inert: []string{"ConcurrentAdmission"},
			warnings: []string{"feature gates are set both in the file and by --feature-gates; both are used, but keep them in one place"},
		},
		"flag and file, joined": {
			flag: "ConcurrentAdmission=true", file: "PartialAdmission: false", on: []Gate{ConcurrentAdmission}, off: []Gate{PartialAdmission},
			inert:    []string{"ConcurrentAdmission"},
			warnings: []string{"feature gates are set both in the file and by --feature-gates; both are used, but keep them in one place"},
		},
		"children follow": { // spec: 70 §7 example 17
			flag: "TopologyAwareScheduling=false", off: []Gate{TopologyAwareScheduling, TASProfileMixed, TASFailedNodeReplacementFailFast, TASCacheTopologyTree},
			inert:    []string{"TopologyAwareScheduling"},
			warnings: []string{"feature gate TopologyAwareScheduling is off, and so are the gates that need it: " + allTAS},
		},
		"children of children follow": {
			flag: "TASFailedNodeReplacement=false", on: []Gate{TASProfileMixed}, off: []Gate{TASFailedNodeReplacementFailFast, TASReplaceNodeOnPodTermination},
			inert:    []string{"TASFailedNodeReplacement"},
			warnings: []string{"feature gate TASFailedNodeReplacement is off, and so are the gates that need it: TASFailedNodeReplacementFailFast, TASReplaceNodeOnPodTermination"},
		},
		"a child may be off by name too": {
			flag: "FlavorFungibility=false,FlavorFungibilityPreserveScanProgress=false", off: []Gate{FlavorFungibility, FlavorFungibilityPreserveScanProgress},
		},
		"all alpha": {
			flag: "AllAlpha=true,ShortWorkloadNames=false", on: []Gate{ConcurrentAdmission, TASBalancedPlacement, RestartJob}, off: []Gate{ShortWorkloadNames, UnadmittedWorkloadsExplicitStatus},
			inert: []string{"ShortWorkloadNames"},
		},
		"all beta on": {flag: "AllBeta=true", on: []Gate{UnadmittedWorkloadsExplicitStatus}, off: []Gate{ConcurrentAdmission, TASReplaceNodeDueToNotReadyOverFixedTime}},
		"all beta off": {
			flag: "AllBeta=false", off: []Gate{PartialAdmission, TopologyAwareScheduling, KueueDRAIntegration}, on: []Gate{TLSOptions},
		},
		"locked gate at its value": {flag: "ManagedJobsNamespaceSelectorAlwaysRespected=true", on: []Gate{ManagedJobsNamespaceSelectorAlwaysRespected}},
		"retired": {
			flag:     "LendingLimit=true,MultiKueueAllowInsecureKubeconfigs=false",
			warnings: []string{"feature gate LendingLimit is gone and changes nothing; remove it", "feature gate MultiKueueAllowInsecureKubeconfigs is gone and changes nothing; remove it"},
		},
		"of the API server": {flag: "APIServingWithRoutine=true", inert: []string{"APIServingWithRoutine"}},
		"of JobSet and Trainer": {
			flag: "ElasticJobSet=true,TrainJobStatus=true", on: []Gate{ElasticJobSet, TrainJobStatus},
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := ""
			if tc.file != "" {
				body = "featureGates: {" + tc.file + "}"
			}
			o := mustParse(t, body, tc.flag)
			for _, g := range tc.on {
				if !o.Gates.On(g) {
					t.Errorf("%s is off", g)
				}
			}
			for _, g := range tc.off {
				if o.Gates.On(g) {
					t.Errorf("%s is on", g)
				}
			}
			if diff := cmp.Diff(tc.inert, o.InertGates()); diff != "" {
				t.Errorf("inert (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, o.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGateMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ flag, file, want string }{
		"unknown by flag":   {flag: "PartialAdmision=true", want: "--feature-gates: PartialAdmision: unknown feature gate; did you mean PartialAdmission?"},
		"unknown by file":   {file: "TopologyAwareSchedulin: true", want: "c.yaml:4: featureGates[TopologyAwareSchedulin]: unknown feature gate; did you mean TopologyAwareScheduling?"},
		"unknown, far off":  {flag: "Xyzzy=true", want: "--feature-gates: Xyzzy: unknown feature gate; see the feature gates in the documentation, or remove it"},
		"locked":            {flag: "TLSOptions=false", want: "--feature-gates: TLSOptions: is part of the product and always true; remove it"},                                                                                                                            // example 18
		"child by name":     {flag: "UnadmittedWorkloadsObservability=false,UnadmittedWorkloadsExplicitStatus=true", want: "--feature-gates: UnadmittedWorkloadsExplicitStatus: needs UnadmittedWorkloadsObservability, which is off; turn that on or leave this one out"}, // example 19
		"child of a stage":  {file: "AllBeta: false\n  TASBalancedPlacement: true", want: "c.yaml:5: featureGates[TASBalancedPlacement]: needs TopologyAwareScheduling, which is off; turn that on or leave this one out"},
		"two parents":       {flag: "ElasticJobsViaWorkloadSlices=false,ElasticJobsViaWorkloadSlicesWithTAS=true", want: "--feature-gates: ElasticJobsViaWorkloadSlicesWithTAS: needs ElasticJobsViaWorkloadSlices, which is off; turn that on or leave this one out"},
		"flag against file": {flag: "ConcurrentAdmission=false", file: "ConcurrentAdmission: true", want: "c.yaml:4: featureGates[ConcurrentAdmission]: is true here and false in --feature-gates; keep one of them"},
		"insecure":          {flag: "MultiKueueAllowInsecureKubeconfigs=true", want: "--feature-gates: MultiKueueAllowInsecureKubeconfigs: is gone: insecure kubeconfigs are always refused; remove it"},
		"no value":          {flag: "ConcurrentAdmission", want: `--feature-gates: want NAME=true or NAME=false, got "ConcurrentAdmission"`},
		"no name":           {flag: "=true", want: `--feature-gates: want NAME=true or NAME=false, got "=true"`},
		"no bool":           {flag: "ConcurrentAdmission=on", want: `--feature-gates: ConcurrentAdmission: want true or false, got "on"`},
		"both values":       {flag: "ConcurrentAdmission=true,ConcurrentAdmission=false", want: "--feature-gates: ConcurrentAdmission: is set to both true and false; keep one"},
	} {
		t.Run(name, func(t *testing.T) {
			body := ""
			if tc.file != "" {
				body = "featureGates:\n  " + tc.file
			}
			_, err := parse("c.yaml", withHeader(body), tc.flag)
			if err == nil || err.Error() != tc.want {
				t.Errorf("want %s\n got %v", tc.want, err)
			}
		})
	}
}

// Whatever is set, a gate that is on has its parents on, a locked gate keeps
// its value, and the order of the names does not matter.
func TestGateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.IntRange(0, int(gateCount)-1), rapid.ID[int]).Draw(t, "gates")
		settings := make([]gateSetting, 0, len(names)+2)
		for _, n := range names {
			settings = append(settings, gateSetting{name: Gate(n).String(), on: rapid.Bool().Draw(t, "on")})
		}
		for _, stage := range []string{allAlpha, allBeta} {
			if rapid.Bool().Draw(t, stage) {
				settings = append(settings, gateSetting{name: stage, on: rapid.Bool().Draw(t, "all on")})
			}
		}
		r := resolveGates(settings)
		for i, spec := range gateTable {
			for _, parent := range spec.needs {
				if r.gates.On(Gate(i)) && !r.gates.On(parent) {
					t.Fatalf("%s is on without %s", spec.name, parent)
				}
			}
		}
		for _, s := range settings[:len(names)] {
			got := r.gates.On(gatesByName()[s.name])
			if len(r.problems) == 0 && got != s.on {
				t.Fatalf("%s was set to %t and is %t", s.name, s.on, got)
			}
		}
		shuffled := rapid.Permutation(settings).Draw(t, "order")
		if again := resolveGates(shuffled); again.gates != r.gates || len(again.problems) != len(r.problems) {
			t.Fatalf("another order gives another result")
		}
	})
}
