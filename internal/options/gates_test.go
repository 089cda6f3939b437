package options

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/options/feature"
)

func TestGates(t *testing.T) {
	allTAS := "TASProfileMixed, TASFailedNodeReplacement, TASFailedNodeReplacementFailFast, TASReplaceNodeOnPodTermination, " +
		"TASReplaceNodeOnNodeTaints, TASAssignmentsEncodingByHostnamePrefix, TASMultiLayerTopology, TASHandleOverlappingFlavors, " +
		"TASRecomputeAssignmentWithinSchedulingCycle, TASCacheNodeMatchResults, TASCachingRemainingResources, TASCacheTopologyTree, TASValidateWorkloadSliceSize"
	for name, tc := range map[string]struct {
		flag     string
		file     string
		on, off  []feature.Gate
		inert    []string
		warnings []string
	}{
		"nothing set": {on: []feature.Gate{feature.PartialAdmission, feature.TLSOptions}, off: []feature.Gate{feature.ConcurrentAdmission, feature.UnadmittedWorkloadsExplicitStatus}},
		"by flag": {
			flag: "ConcurrentAdmission=true, PartialAdmission=f,", on: []feature.Gate{feature.ConcurrentAdmission}, off: []feature.Gate{feature.PartialAdmission},
		},
		"by file": {
			file: "ConcurrentAdmission: true", on: []feature.Gate{feature.ConcurrentAdmission},
		},
		"one that is acted upon": {flag: "QuotaCheckStrategy=false", off: []feature.Gate{feature.QuotaCheckStrategy}},
		"flag and file, equal": { // spec: 70 §7 example 20
			flag: "ConcurrentAdmission=true", file: "ConcurrentAdmission: true", on: []feature.Gate{feature.ConcurrentAdmission},
			warnings: []string{"feature gates are set both in the file and by --feature-gates; both are used, but keep them in one place"},
		},
		"flag and file, joined": {
			flag: "ConcurrentAdmission=true", file: "PartialAdmission: false", on: []feature.Gate{feature.ConcurrentAdmission}, off: []feature.Gate{feature.PartialAdmission},
			warnings: []string{"feature gates are set both in the file and by --feature-gates; both are used, but keep them in one place"},
		},
		"children follow": { // spec: 70 §7 example 17
			flag: "TopologyAwareScheduling=false", off: []feature.Gate{feature.TopologyAwareScheduling, feature.TASProfileMixed, feature.TASFailedNodeReplacementFailFast, feature.TASCacheTopologyTree},
			warnings: []string{"feature gate TopologyAwareScheduling is off, and so are the gates that need it: " + allTAS},
		},
		"children of children follow": {
			flag: "TASFailedNodeReplacement=false", on: []feature.Gate{feature.TASProfileMixed}, off: []feature.Gate{feature.TASFailedNodeReplacementFailFast, feature.TASReplaceNodeOnPodTermination, feature.TASReplaceNodeOnNodeTaints},
			warnings: []string{"feature gate TASFailedNodeReplacement is off, and so are the gates that need it: TASFailedNodeReplacementFailFast, TASReplaceNodeOnPodTermination, TASReplaceNodeOnNodeTaints"},
		},
		"a child may be off by name too": {
			flag: "FlavorFungibility=false,FlavorFungibilityPreserveScanProgress=false", off: []feature.Gate{feature.FlavorFungibility, feature.FlavorFungibilityPreserveScanProgress},
		},
		"all alpha": {
			flag: "AllAlpha=true,ShortWorkloadNames=false", on: []feature.Gate{feature.ConcurrentAdmission, feature.TASBalancedPlacement, feature.RestartJob}, off: []feature.Gate{feature.ShortWorkloadNames, feature.UnadmittedWorkloadsExplicitStatus},
		},
		"all beta on": {flag: "AllBeta=true", on: []feature.Gate{feature.UnadmittedWorkloadsExplicitStatus}, off: []feature.Gate{feature.ConcurrentAdmission, feature.TASReplaceNodeDueToNotReadyOverFixedTime}},
		"all beta off": {
			flag: "AllBeta=false", off: []feature.Gate{feature.PartialAdmission, feature.TopologyAwareScheduling, feature.KueueDRAIntegration}, on: []feature.Gate{feature.TLSOptions},
		},
		"locked gate at its value": {flag: "ManagedJobsNamespaceSelectorAlwaysRespected=true", on: []feature.Gate{feature.ManagedJobsNamespaceSelectorAlwaysRespected}},
		"retired": {
			flag:     "LendingLimit=true,MultiKueueAllowInsecureKubeconfigs=false,ProvisioningACC=true",
			warnings: []string{"feature gate LendingLimit is gone and changes nothing; remove it", "feature gate MultiKueueAllowInsecureKubeconfigs is gone and changes nothing; remove it", "feature gate ProvisioningACC is gone and changes nothing; remove it"},
		},
		"of the API server": {flag: "APIServingWithRoutine=true", inert: []string{"APIServingWithRoutine"}},
		"of JobSet and Trainer": {
			flag: "ElasticJobSet=true,TrainJobStatus=true", on: []feature.Gate{feature.ElasticJobSet, feature.TrainJobStatus},
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
		"unknown, far off":  {flag: "Xyzzy=true", want: "--feature-gates: Xyzzy: unknown feature gate; see docs/gates.md for all of them, or remove it"},
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
			_, err := Parse("c.yaml", withHeader(body), tc.flag)
			if err == nil || err.Error() != tc.want {
				t.Errorf("want %s\n got %v", tc.want, err)
			}
		})
	}
}
