package conversion

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// parsed reads an object from YAML, without apiVersion, which is given.
func parsed(t *testing.T, version schema.GroupVersion, text string) object {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(strings.ReplaceAll(text, "\t", "  ")))
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		t.Fatal(err)
	}
	o["apiVersion"] = version.String()
	return o
}

// Objects of v1beta1, their v1beta2 form, and the v1beta1 form that is read back.
func TestUp(t *testing.T) {
	cases := map[string]struct{ old, want, back string }{
		"cohort, plain list of checks and old words": { // spec: 10 §7 #63, 70 §7 #50
			old: `
kind: ClusterQueue
spec:
	cohort: c
	admissionChecks: [a, b, a]
	admissionChecksStrategy: {admissionChecks: [{name: z, onFlavors: [f]}]}
	flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}
status:
	pendingWorkloads: 1
	pendingWorkloadsStatus: {lastChangeTime: "2026-01-01T00:00:00Z"}
	fairSharing: {weightedShare: 3, admissionFairSharingStatus: {lastUpdate: "2026-01-01T00:00:00Z"}}`,
			want: `
kind: ClusterQueue
spec:
	cohortName: c
	admissionChecksStrategy: {admissionChecks: [{name: a}, {name: b}]}
	flavorFungibility: {whenCanBorrow: MayStopSearch, whenCanPreempt: MayStopSearch}
status:
	pendingWorkloads: 1
	fairSharing: {weightedShare: 3}`,
			back: `
kind: ClusterQueue
spec:
	cohort: c
	admissionChecksStrategy: {admissionChecks: [{name: a}, {name: b}]}
	flavorFungibility: {whenCanBorrow: MayStopSearch, whenCanPreempt: MayStopSearch}
status:
	pendingWorkloads: 1
	fairSharing: {weightedShare: 3}`,
		},
		"an empty list and an empty strategy are none": {
			old:  `{kind: ClusterQueue, spec: {admissionChecks: [], admissionChecksStrategy: {}}}`,
			want: `{kind: ClusterQueue, spec: {}}`,
			back: `{kind: ClusterQueue, spec: {}}`,
		},
		"policies of today stay": {
			old:  `{kind: ClusterQueue, spec: {flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor}}}`,
			want: `{kind: ClusterQueue, spec: {flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor}}}`,
			back: `{kind: ClusterQueue, spec: {flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor}}}`,
		},
		"usage of a LocalQueue": {
			old:  `{kind: LocalQueue, status: {flavorUsage: [{name: f, resources: []}], flavors: [{name: f}]}}`,
			want: `{kind: LocalQueue, status: {flavorsUsage: [{name: f, resources: []}]}}`,
			back: `{kind: LocalQueue, status: {flavorUsage: [{name: f, resources: []}]}}`,
		},
		"a worker cluster with a kubeconfig": {
			old:  `{kind: MultiKueueCluster, spec: {kubeConfig: {location: s, locationType: Path}}}`,
			want: `{kind: MultiKueueCluster, spec: {clusterSource: {kubeConfig: {location: s, locationType: Path}}}}`,
			back: `{kind: MultiKueueCluster, spec: {kubeConfig: {location: s, locationType: Path}}}`,
		},
		"a worker cluster with a profile": {
			old:  `{kind: MultiKueueCluster, spec: {kubeConfig: {location: "", locationType: Secret}, clusterProfileRef: {name: p}}}`,
			want: `{kind: MultiKueueCluster, spec: {clusterSource: {clusterProfileRef: {name: p}}}}`,
			back: `{kind: MultiKueueCluster, spec: {kubeConfig: {location: "", locationType: Secret}, clusterProfileRef: {name: p}}}`,
		},
		"pod priority class": { // spec: 70 §7 #52
			old: `
kind: Workload
spec: {priority: 5, priorityClassSource: scheduling.k8s.io/priorityclass, priorityClassName: high}
status: {accumulatedPastExexcutionTimeSeconds: 7}`,
			want: `
kind: Workload
spec: {priority: 5, priorityClassRef: {group: scheduling.k8s.io, kind: PriorityClass, name: high}}
status: {accumulatedPastExecutionTimeSeconds: 7}`,
			back: `
kind: Workload
spec: {priority: 5, priorityClassSource: scheduling.k8s.io/priorityclass, priorityClassName: high}
status: {accumulatedPastExexcutionTimeSeconds: 7}`,
		},
		"class of Workloads": {
			old:  `{kind: Workload, spec: {priorityClassSource: kueue.x-k8s.io/workloadpriorityclass, priorityClassName: high}}`,
			want: `{kind: Workload, spec: {priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}}}`,
			back: `{kind: Workload, spec: {priorityClassSource: kueue.x-k8s.io/workloadpriorityclass, priorityClassName: high}}`,
		},
		"a name without a source is no class": {
			old:  `{kind: Workload, spec: {priority: 5, priorityClassSource: "", priorityClassName: high}}`,
			want: `{kind: Workload, spec: {priority: 5}}`,
			back: `{kind: Workload, spec: {priority: 5}}`,
		},
		"quantities stay as they are written": {
			old:  `{kind: Cohort, spec: {resourceGroups: [{flavors: [{resources: [{nominalQuota: 4, lendingLimit: 1000m}]}]}]}}`,
			want: `{kind: Cohort, spec: {resourceGroups: [{flavors: [{resources: [{nominalQuota: 4, lendingLimit: 1000m}]}]}]}}`,
			back: `{kind: Cohort, spec: {resourceGroups: [{flavors: [{resources: [{nominalQuota: 4, lendingLimit: 1000m}]}]}]}}`,
		},
		"what the schema will refuse passes": {
			old:  `{kind: Workload, spec: [], status: {admission: {podSetAssignments: [{name: m, topologyAssignment: {domains: [{count: many}]}}]}}}`,
			want: `{kind: Workload, spec: [], status: {admission: {podSetAssignments: [{name: m, topologyAssignment: {domains: [{count: many}]}}]}}}`,
			back: `{kind: Workload, spec: [], status: {admission: {podSetAssignments: [{name: m, topologyAssignment: {domains: [{count: many}]}}]}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parsed(t, kueuev1beta1.GroupVersion, tc.old)
			convert(t, o, kueue.GroupVersion)
			if diff := cmp.Diff(parsed(t, kueue.GroupVersion, tc.want), o); diff != "" {
				t.Errorf("in v1beta2 (-want +got):\n%s", diff)
			}
			convert(t, o, kueuev1beta1.GroupVersion)
			if diff := cmp.Diff(parsed(t, kueuev1beta1.GroupVersion, tc.back), o); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

const layered = `
kind: Workload
metadata: {name: w, annotations: {mine: x}}
spec:
	preemptionGates: [{name: g}]
	podSets:
	- name: a
		topologyRequest:
			required: zone
			podsetSliceRequiredTopologyConstraints: [{topology: rack, size: 4}]
	- name: b
		topologyRequest:
			podSetSliceSize: 2
			podSetSliceRequiredTopology: rack
			podsetSliceRequiredTopologyConstraints: [{topology: block, size: 8}]
status:
	preemptionGates: [{name: g, position: Open, lastTransitionTime: "2026-01-01T00:00:00Z"}]
	admission:
		podSetAssignments:
		- name: a
			topologyAssignment:
				levels: [host]
				slices:
				- {domainCount: 1, valuesPerLevel: [{universal: h-1}], podCounts: {universal: 4}}
				- {domainCount: 1, valuesPerLevel: [{universal: h-2}], podCounts: {universal: 4}}`

// Kept fields, and their fate when an old client changes the objects that they belong to.
func TestKept(t *testing.T) {
	podSet := func(o object, i int) object { return items(at(o, "spec"), "podSets")[i] }
	cases := map[string]struct{ change, want func(o object) }{
		"nothing changed": {func(object) {}, func(object) {}},
		"a label": {
			func(o object) { at(o, "metadata")["labels"] = object{"l": "v"} },
			func(o object) { at(o, "metadata")["labels"] = object{"l": "v"} },
		},
		"the annotation is gone, and with it what it kept": {
			func(o object) { delete(at(o, "metadata", "annotations"), KeptAnnotation) },
			func(o object) {
				delete(at(o, "spec"), "preemptionGates")
				delete(at(o, "status"), "preemptionGates")
				for i := range 2 {
					delete(at(podSet(o, i), "topologyRequest"), constraintsField)
				}
				at(items(at(o, "status", "admission"), "podSetAssignments")[0], "topologyAssignment")["slices"] = []any{object{
					"domainCount": int64(2), "podCounts": object{"universal": int64(4)},
					"valuesPerLevel": []any{object{"individual": object{"prefix": "h-", "roots": []any{"1", "2"}}}},
				}}
			},
		},
		"pod sets in another order": {
			func(o object) { swap(at(o, "spec")["podSets"].([]any)) },
			func(o object) { swap(at(o, "spec")["podSets"].([]any)) },
		},
		"a pod set under another name": {
			func(o object) { podSet(o, 0)["name"] = "c" },
			func(o object) {
				podSet(o, 0)["name"] = "c"
				delete(at(podSet(o, 0), "topologyRequest"), constraintsField)
			},
		},
		"no wish for a topology any more": {
			func(o object) { delete(podSet(o, 0), "topologyRequest") },
			func(o object) { delete(podSet(o, 0), "topologyRequest") },
		},
		"slices in the words of v1beta1": {
			func(o object) {
				at(podSet(o, 0), "topologyRequest")["podSetSliceSize"] = int64(2)
				at(podSet(o, 1), "topologyRequest")["podSetSliceSize"] = int64(3)
			},
			func(o object) {
				for i, size := range []int64{2, 3} {
					at(podSet(o, i), "topologyRequest")["podSetSliceSize"] = size
					delete(at(podSet(o, i), "topologyRequest"), constraintsField)
				}
			},
		},
		"other domains": {
			func(o object) {
				at(items(at(o, "status", "admission"), "podSetAssignments")[0], "topologyAssignment")["domains"] = []any{
					object{"values": []any{"h-1"}, "count": int64(4)}, object{"values": []any{"h-3"}, "count": int64(4)},
				}
			},
			func(o object) {
				at(items(at(o, "status", "admission"), "podSetAssignments")[0], "topologyAssignment")["slices"] = []any{object{
					"domainCount": int64(2), "podCounts": object{"universal": int64(4)},
					"valuesPerLevel": []any{object{"individual": object{"prefix": "h-", "roots": []any{"1", "3"}}}},
				}}
			},
		},
		"no status, as in a copy that is created": {
			func(o object) { delete(o, "status") },
			func(o object) { delete(o, "status") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parsed(t, kueue.GroupVersion, layered)
			convert(t, o, kueuev1beta1.GroupVersion)
			tc.change(o)
			convert(t, o, kueue.GroupVersion)
			want := parsed(t, kueue.GroupVersion, layered)
			tc.want(want)
			if diff := cmp.Diff(want, o); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	o := parsed(t, kueue.GroupVersion, layered)
	convert(t, o, kueuev1beta1.GroupVersion)
	want := `{"spec":{"podSets":[` +
		`{"name":"a","topologyRequest":{"podsetSliceRequiredTopologyConstraints":[{"size":4,"topology":"rack"}]}},` +
		`{"name":"b","topologyRequest":{"podSetSliceRequiredTopology":"rack","podSetSliceSize":2,"podsetSliceRequiredTopologyConstraints":[{"size":8,"topology":"block"}]}}],` +
		`"preemptionGates":[{"name":"g"}]},` +
		`"status":{"admission":{"podSetAssignments":[{"name":"a","topologyAssignment":{"slices":[` +
		`{"domainCount":1,"podCounts":{"universal":4},"valuesPerLevel":[{"universal":"h-1"}]},` +
		`{"domainCount":1,"podCounts":{"universal":4},"valuesPerLevel":[{"universal":"h-2"}]}]}}]},` +
		`"preemptionGates":[{"lastTransitionTime":"2026-01-01T00:00:00Z","name":"g","position":"Open"}]}}`
	if diff := cmp.Diff(want, at(o, "metadata", "annotations")[KeptAnnotation]); diff != "" {
		t.Errorf("annotation (-want +got):\n%s", diff)
	}
}

func swap(list []any) { list[0], list[1] = list[1], list[0] }

// A stored annotation of a v1beta2 object is not taken for a generated one.
func TestStoredAnnotationIsNotRestored(t *testing.T) {
	o := parsed(t, kueue.GroupVersion, `{kind: MultiKueueConfig, spec: {clusters: [a]}}`)
	o["metadata"] = object{"annotations": object{KeptAnnotation: `{"spec":{"quotaManagement":"Automated"}}`}}
	convert(t, o, kueuev1beta1.GroupVersion)
	convert(t, o, kueue.GroupVersion)
	if diff := cmp.Diff(parsed(t, kueue.GroupVersion, `{kind: MultiKueueConfig, metadata: {}, spec: {clusters: [a]}}`), o); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The content of the annotation must satisfy the bounds of v1beta2.
func TestForgedAnnotation(t *testing.T) {
	gates := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{"name":"g%"},`, n), ",") }
	cases := map[string]struct{ text, err string }{
		"no JSON":             {`{`, "unexpected end"},
		"unknown field":       {`{"spec":{"active":false}}`, `unknown field "spec.active"`},
		"a gate twice":        {fmt.Sprintf(`{"spec":{"preemptionGates":[%s]}}`, gates(2)), "spec.preemptionGates must hold"},
		"too many gates":      {`{"spec":{"preemptionGates":[{"name":"1"},{"name":"2"},{"name":"3"},{"name":"4"},{"name":"5"},{"name":"6"},{"name":"7"},{"name":"8"},{"name":"9"}]}}`, "at most 8"},
		"a gate without name": {`{"status":{"preemptionGates":[{"name":"","position":"Open"}]}}`, "status.preemptionGates must hold"},
		"a gate ajar":         {`{"status":{"preemptionGates":[{"name":"g","position":"Ajar"}]}}`, `position is "Ajar"`},
		"layer without size":  {`{"spec":{"podSets":[{"name":"a","topologyRequest":{"podsetSliceRequiredTopologyConstraints":[{"topology":"r"}]}}]}}`, "size be at least 1"},
		"too many layers": {`{"spec":{"podSets":[{"name":"a","topologyRequest":{"podsetSliceRequiredTopologyConstraints":[` +
			`{"topology":"r","size":1},{"topology":"r","size":1},{"topology":"r","size":1},{"topology":"r","size":1}]}}]}}`, "at most 3"},
		"unknown mode":     {`{"spec":{"concurrentAdmissionPolicy":{"migration":{"mode":"Guess"}}}}`, `mode is "Guess"`},
		"bad flavor":       {`{"spec":{"concurrentAdmissionPolicy":{"migration":{"mode":"TryPreferredFlavors","constraints":{"lastAcceptableFlavorName":"A B"}}}}}`, "lastAcceptableFlavorName"},
		"unknown managers": {`{"spec":{"quotaManagement":"Magic"}}`, `quotaManagement is "Magic"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := object{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": object{"annotations": object{KeptAnnotation: tc.text}}}
			err := Convert(o, kueue.GroupVersion)
			if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), KeptAnnotation) {
				t.Errorf("error %v, want one about the annotation with %q", err, tc.err)
			}
		})
	}
}

// Versions of other groups and unknown versions are not converted.
func TestOtherVersions(t *testing.T) {
	o := parsed(t, kueue.GroupVersion, `{kind: ClusterQueue, spec: {cohortName: c}}`)
	want := runtime.DeepCopyJSON(o)
	convert(t, o, kueue.GroupVersion)
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("into its own version (-want +got):\n%s", diff)
	}
	for from, to := range map[string]string{
		"kueue.x-k8s.io/v1beta2": "kueue.x-k8s.io/v1", "kueue.x-k8s.io/v1alpha1": "kueue.x-k8s.io/v1beta2",
		"v1": "kueue.x-k8s.io/v1beta2", "a/b/c": "kueue.x-k8s.io/v1beta2",
	} {
		version, err := schema.ParseGroupVersion(to)
		if err != nil {
			t.Fatal(err)
		}
		if err := Convert(object{"apiVersion": from, "kind": "ClusterQueue"}, version); err == nil {
			t.Errorf("%s became %s", from, to)
		}
	}
}
