package job_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// parseMap reads "a=1,b=2".
func parseMap(text string) map[string]string {
	if text == "" {
		return nil
	}
	out := map[string]string{}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		out[key] = value
	}
	return out
}

func tolerations(keys ...string) []corev1.Toleration {
	var out []corev1.Toleration
	for _, k := range keys {
		out = append(out, corev1.Toleration{Key: k, Operator: corev1.TolerationOpExists})
	}
	return out
}

func TestMergeInto(t *testing.T) {
	tests := map[string]struct {
		template, info, want job.PodSetInfo
		conflict             string // what the error names
	}{
		"into nothing": {
			info: job.PodSetInfo{Labels: parseMap("l=1"), Annotations: parseMap("a=1"), NodeSelector: parseMap("n=1"), Tolerations: tolerations("t")},
			want: job.PodSetInfo{Labels: parseMap("l=1"), Annotations: parseMap("a=1"), NodeSelector: parseMap("n=1"), Tolerations: tolerations("t")},
		},
		"beside others": {
			template: job.PodSetInfo{NodeSelector: parseMap("zone=a"), Tolerations: tolerations("x")},
			info:     job.PodSetInfo{NodeSelector: parseMap("pool=h100"), Tolerations: tolerations("y")},
			want:     job.PodSetInfo{NodeSelector: parseMap("zone=a,pool=h100"), Tolerations: tolerations("x", "y")},
		},
		"the same again": {
			template: job.PodSetInfo{NodeSelector: parseMap("pool=h100"), Tolerations: tolerations("x"), SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}},
			info:     job.PodSetInfo{NodeSelector: parseMap("pool=h100"), Tolerations: tolerations("x"), SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}},
			want:     job.PodSetInfo{NodeSelector: parseMap("pool=h100"), Tolerations: tolerations("x"), SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}},
		},
		"no operator means Equal": {
			template: job.PodSetInfo{Tolerations: []corev1.Toleration{{Key: "k", Value: "v"}}},
			info:     job.PodSetInfo{Tolerations: []corev1.Toleration{{Key: "k", Value: "v", Operator: corev1.TolerationOpEqual}}},
			want:     job.PodSetInfo{Tolerations: []corev1.Toleration{{Key: "k", Value: "v"}}},
		},
		"flavors' own tolerations stay double": {
			info: job.PodSetInfo{Tolerations: tolerations("t", "t")},
			want: job.PodSetInfo{Tolerations: tolerations("t", "t")},
		},
		"selector conflict":   {template: job.PodSetInfo{NodeSelector: parseMap("p=1")}, info: job.PodSetInfo{NodeSelector: parseMap("p=2")}, conflict: "node selector p"},
		"label conflict":      {template: job.PodSetInfo{Labels: parseMap("p=1")}, info: job.PodSetInfo{Labels: parseMap("p=2")}, conflict: "label p"},
		"annotation conflict": {template: job.PodSetInfo{Annotations: parseMap("p=1")}, info: job.PodSetInfo{Annotations: parseMap("p=2")}, conflict: "annotation p"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			template := toTemplate(tc.template)
			before := template.DeepCopy()
			err := tc.info.MergeInto(template)
			if tc.conflict != "" {
				if err == nil || !errors.Is(err, podset.ErrPermanent) || !strings.Contains(err.Error(), tc.conflict) {
					t.Errorf("got %v, want a permanent error about %s", err, tc.conflict)
				}
				if diff := cmp.Diff(before, template); diff != "" {
					t.Errorf("changed in spite of the error:\n%s", diff)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(toTemplate(tc.want), template, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func toTemplate(i job.PodSetInfo) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: i.Labels, Annotations: i.Annotations},
		Spec:       corev1.PodSpec{NodeSelector: i.NodeSelector, Tolerations: i.Tolerations, SchedulingGates: i.SchedulingGates},
	}
}

// TestRestoreUndoesMerge checks that a template comes back as it was from whatever was merged into it.
func TestRestoreUndoesMerge(t *testing.T) {
	small := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c", "job-name"}), rapid.SampledFrom([]string{"1", "2"}))
	keys := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3)
	draw := func(t *rapid.T, what string) job.PodSetInfo {
		return job.PodSetInfo{
			Labels: small.Draw(t, what+" labels"), Annotations: small.Draw(t, what+" annotations"), NodeSelector: small.Draw(t, what+" selector"),
			Tolerations: tolerations(keys.Draw(t, what+" tolerations")...),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		template := toTemplate(draw(t, "template"))
		before := template.DeepCopy()
		info := draw(t, "info")
		if err := info.MergeInto(template); err != nil {
			return
		}
		merged := template.DeepCopy()
		if err := info.MergeInto(template); err != nil || cmp.Diff(merged, template) != "" {
			t.Fatalf("merging twice is not merging once: %v\n%s", err, cmp.Diff(merged, template))
		}
		changed := podset.Restore(template, before)
		if diff := cmp.Diff(before, template, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-before +restored:\n%s", diff)
		}
		if changed == cmp.Equal(before, merged, cmpopts.EquateEmpty()) {
			t.Fatalf("changed is %v", changed)
		}
		if podset.Restore(template, before) {
			t.Fatal("restoring twice changes something")
		}
	})
}

func TestRestoreKeepsLabels(t *testing.T) {
	template := toTemplate(job.PodSetInfo{Labels: parseMap("job-name=own,app=x,injected=1")})
	podset.Restore(template, toTemplate(job.PodSetInfo{Labels: parseMap("job-name=other,app=x")}), "job-name", "controller-uid")
	if diff := cmp.Diff(parseMap("job-name=own,app=x"), template.Labels); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInfosFromAdmission(t *testing.T) {
	flavors := job.Flavors{
		"a": {Spec: kueue.ResourceFlavorSpec{NodeLabels: parseMap("pool=a"), Tolerations: tolerations("a")}},
		"b": {Spec: kueue.ResourceFlavorSpec{NodeLabels: parseMap("disk=b"), Tolerations: tolerations("b")}},
		"c": {Spec: kueue.ResourceFlavorSpec{NodeLabels: parseMap("pool=c")}},
	}
	one := func(count *int32, names ...kueue.ResourceFlavorReference) kueue.PodSetAssignment {
		a := kueue.PodSetAssignment{Name: "main", Count: count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}}
		for i, n := range names {
			a.Flavors[corev1.ResourceName(fmt.Sprintf("r%d", i))] = n
		}
		return a
	}
	base := parseMap("kueue.x-k8s.io/podset=main")
	tests := map[string]struct {
		cfg       job.Config
		change    func(w *kueue.Workload)
		want      job.PodSetInfo
		permanent bool
		err       string
	}{
		"flavors in the order of their names, each once": {
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{one(new(int32(3)), "b", "a", "b")}
			},
			want: job.PodSetInfo{Count: 3, Labels: base, NodeSelector: parseMap("pool=a,disk=b"), Tolerations: tolerations("a", "b")},
		},
		"count of the spec by default": {
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{one(nil)}
			},
			want: job.PodSetInfo{Count: 5, Labels: base},
		},
		"queue labels": {
			cfg:  job.Config{AssignQueueLabels: true},
			want: job.PodSetInfo{Count: 5, Labels: parseMap("kueue.x-k8s.io/podset=main,kueue.x-k8s.io/local-queue-name=lq,kueue.x-k8s.io/cluster-queue-name=cq")},
		},
		"a queue that is no label": {
			cfg:    job.Config{AssignQueueLabels: true},
			change: func(w *kueue.Workload) { w.Status.Admission.ClusterQueue = "team.cq" },
			want:   job.PodSetInfo{Count: 5, Labels: parseMap("kueue.x-k8s.io/podset=main,kueue.x-k8s.io/local-queue-name=lq")},
		},
		"workload annotation": {
			cfg:  job.Config{Topology: true},
			want: job.PodSetInfo{Count: 5, Labels: base, Annotations: parseMap("kueue.x-k8s.io/workload=w")},
		},
		"a placement gates the pods": {
			cfg: job.Config{Topology: true},
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{}
			},
			want: job.PodSetInfo{
				Count: 5, Labels: base, Annotations: parseMap("kueue.x-k8s.io/workload=w,kueue.x-k8s.io/podset-unconstrained-topology=true"),
				SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}},
			},
		},
		"a placement of slices": {
			cfg: job.Config{Topology: true},
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{}
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(2))}
			},
			want: job.PodSetInfo{
				Count: 5, Labels: base, Annotations: parseMap("kueue.x-k8s.io/workload=w,kueue.x-k8s.io/podset-unconstrained-topology=true"),
				SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}},
			},
		},
		"a placement with ranks alone": {
			cfg: job.Config{Topology: true},
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{}
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodIndexLabel: new("index")}
			},
			want: job.PodSetInfo{
				Count: 5, Labels: base, Annotations: parseMap("kueue.x-k8s.io/workload=w,kueue.x-k8s.io/podset-unconstrained-topology=true"),
				SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}},
			},
		},
		"a placement with a wish": {
			cfg: job.Config{Topology: true},
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{}
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Unconstrained: new(false)}
			},
			want: job.PodSetInfo{Count: 5, Labels: base, Annotations: parseMap("kueue.x-k8s.io/workload=w"), SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}},
		},
		"a placement from before topologies were switched off": {
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{}
			},
			want: job.PodSetInfo{Count: 5, Labels: base},
		},
		"a slice from before resizes were switched off": {
			change: func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true"} },
			want:   job.PodSetInfo{Count: 5, Labels: base, Annotations: parseMap("kueue.x-k8s.io/workload-slice-name=w")},
		},
		"a copy on a worker": {
			change: func(w *kueue.Workload) { w.Labels = map[string]string{kueue.MultiKueueOriginLabel: "m"} },
			want:   job.PodSetInfo{Count: 5, Labels: parseMap("kueue.x-k8s.io/podset=main,kueue.x-k8s.io/multikueue-worker-workload-pod=true")},
		},
		"admission checks": {
			change: func(w *kueue.Workload) {
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "prov", PodSetUpdates: []kueue.PodSetUpdate{
					{Name: "main", Labels: parseMap("l=1"), NodeSelector: parseMap("n=1"), Annotations: parseMap("a=1"), Tolerations: tolerations("p")},
					{Name: "other", Labels: parseMap("l=2")},
				}}}
			},
			want: job.PodSetInfo{
				Count: 5, Labels: parseMap("kueue.x-k8s.io/podset=main,l=1"), Annotations: parseMap("a=1"), NodeSelector: parseMap("n=1"), Tolerations: tolerations("p"),
			},
		},
		"checks contradict each other": {
			change: func(w *kueue.Workload) {
				for _, v := range []string{"1", "2"} {
					w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, kueue.AdmissionCheckState{
						Name: kueue.AdmissionCheckReference("c" + v), PodSetUpdates: []kueue.PodSetUpdate{{Name: "main", NodeSelector: parseMap("n=" + v)}},
					})
				}
			},
			permanent: true, err: "admission check c2: node selector n",
		},
		"flavors contradict each other": {
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{one(nil, "a", "c")}
			},
			permanent: true, err: "node selector pool",
		},
		"a flavor that is gone is to be waited for": {
			change: func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{one(nil, "gone")}
			},
			err: "flavor gone",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 5}}}}
			w.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{one(nil)}}
			if tc.change != nil {
				tc.change(w)
			}
			infos, err := job.InfosFromAdmission(&tc.cfg, w, flavors)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || errors.Is(err, podset.ErrPermanent) != tc.permanent {
					t.Errorf("got %v (permanent %v), want %s (permanent %v)", err, errors.Is(err, podset.ErrPermanent), tc.err, tc.permanent)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Name = "main"
			if diff := cmp.Diff([]job.PodSetInfo{tc.want}, infos, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTopologyRequest(t *testing.T) {
	const prefix = "kueue.x-k8s.io/podset-"
	tests := map[string]struct {
		annotations map[string]string
		index       string
		want        *kueue.PodSetTopologyRequest
	}{
		"nothing":       {},
		"only an index": {nil, "idx", &kueue.PodSetTopologyRequest{PodIndexLabel: new("idx")}},
		"required wins": {
			map[string]string{prefix + "required-topology": "rack", prefix + "preferred-topology": "block"},
			"",
			&kueue.PodSetTopologyRequest{Required: new("rack")},
		},
		"preferred with group": {
			map[string]string{prefix + "preferred-topology": "block", prefix + "group-name": "g"},
			"",
			&kueue.PodSetTopologyRequest{Preferred: new("block"), PodSetGroupName: new("g")},
		},
		"group alone":                          {map[string]string{prefix + "group-name": "g"}, "", nil},
		"unconstrained false":                  {map[string]string{prefix + "unconstrained-topology": "false"}, "", &kueue.PodSetTopologyRequest{Unconstrained: new(false)}},
		"unconstrained, another word for true": {map[string]string{prefix + "unconstrained-topology": "True"}, "", &kueue.PodSetTopologyRequest{Unconstrained: new(true)}},
		"slices": {
			map[string]string{prefix + "slice-required-topology": "rack", prefix + "slice-size": "4"},
			"",
			&kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(4))},
		},
		"half a slice": {map[string]string{prefix + "slice-size": "4"}, "", nil},
		"layers": {
			map[string]string{prefix + "slice-required-topology-constraints": `[{"topology":"rack","size":4},{"topology":"host","size":2}]`},
			"",
			&kueue.PodSetTopologyRequest{PodSetSliceRequiredTopologyConstraints: []kueue.PodSetSliceTopologyConstraint{{Topology: "rack", Size: 4}, {Topology: "host", Size: 2}}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := &job.Config{Topology: true, TopologySliceConstraints: true}
			if diff := cmp.Diff(tc.want, cfg.TopologyRequest(&metav1.ObjectMeta{Annotations: tc.annotations}, job.Ranks{PodIndex: tc.index})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := new(job.Config).TopologyRequest(&metav1.ObjectMeta{Annotations: tc.annotations}, job.Ranks{PodIndex: tc.index}); got != nil {
				t.Errorf("with the gate off: %v", got)
			}
		})
	}
}

func FuzzTopologyAnnotations(f *testing.F) {
	f.Add("4", `[{"topology":"rack","size":4}]`, "true")
	f.Fuzz(func(t *testing.T, size, layers, unconstrained string) {
		cfg := &job.Config{Topology: true, TopologySliceConstraints: true}
		for _, annotations := range []map[string]string{
			{kueue.PodSetSliceRequiredTopologyAnnotation: "rack", kueue.PodSetSliceSizeAnnotation: size},
			{kueue.PodSetSliceRequiredTopologyConstraintsAnnotation: layers},
			{kueue.PodSetUnconstrainedTopologyAnnotation: unconstrained},
		} {
			meta := &metav1.ObjectMeta{Annotations: annotations}
			errs := (&job.Setting{Config: cfg}).ValidateTopology(meta, nil, 8)
			request := cfg.TopologyRequest(meta, job.Ranks{})
			if len(errs) > 0 {
				continue
			}
			if request == nil {
				t.Fatalf("%v is valid and asks for nothing", annotations)
			}
			if s := request.PodSetSliceSize; s != nil && (*s < 1 || *s > 8) {
				t.Fatalf("slice size %d is valid", *s)
			}
		}
	})
}

// TestValidateTopology is the row "TAS annotations on pod template" of spec 20 §3, for 8 pods.
func TestValidateTopology(t *testing.T) {
	const prefix = "kueue.x-k8s.io/podset-"
	const (
		atSize, atGroup   = "m.annotations[" + prefix + "slice-size]", "m.annotations[" + prefix + "group-name]"
		atSlice, atLayers = "m.annotations[" + prefix + "slice-required-topology]", "m.annotations[" + prefix + "slice-required-topology-constraints]"
	)
	type set = map[string]string
	slice := func(size string) set {
		return set{prefix + "slice-required-topology": "a", prefix + "slice-size": size}
	}
	layers := func(text string) set { return set{prefix + "slice-required-topology-constraints": text} }
	both := func(a, b set) set { maps.Copy(a, b); return a }
	required := func() set { return set{prefix + "required-topology": "cloud/rack"} }
	tests := map[string]struct {
		annotations map[string]string
		want        []string // paths of errors
		oneLayer    bool     // without the gate TASMultiLayerTopology
	}{
		"fine":                  {annotations: required()},
		"slices, and a wish":    {annotations: both(required(), slice("8"))},
		"two layers":            {annotations: layers(`[{"topology":"a","size":8},{"topology":"b","size":4}]`)},
		"preferred in a group":  {annotations: set{prefix + "preferred-topology": "a", prefix + "group-name": "7a"}},
		"two wishes":            {annotations: both(required(), set{prefix + "preferred-topology": "b"}), want: []string{"m.annotations"}},
		"a wish, unconstrained": {annotations: both(required(), set{prefix + "unconstrained-topology": "false"}), want: []string{"m.annotations"}},
		"required no label":     {annotations: set{prefix + "required-topology": "a b"}, want: []string{"m.annotations[" + prefix + "required-topology]"}},
		"preferred no label":    {annotations: set{prefix + "preferred-topology": "a b"}, want: []string{"m.annotations[" + prefix + "preferred-topology]"}},
		"slice no label":        {annotations: both(slice("2"), set{prefix + "slice-required-topology": "a b"}), want: []string{atSlice}},
		"no bool":               {annotations: set{prefix + "unconstrained-topology": "yes"}, want: []string{"m.annotations[" + prefix + "unconstrained-topology]"}},
		"slice without":         {annotations: set{prefix + "slice-required-topology": "a"}, want: []string{atSize}},
		"size without":          {annotations: set{prefix + "slice-size": "2"}, want: []string{atSize}},
		"size too large":        {annotations: slice("9"), want: []string{atSize}},
		"size 0":                {annotations: slice("0"), want: []string{atSize}},
		"size no number":        {annotations: slice("2.5"), want: []string{atSize}},
		"group is a number":     {annotations: both(required(), set{prefix + "group-name": "7"}), want: []string{atGroup}},
		"group alone":           {annotations: set{prefix + "group-name": "g"}, want: []string{atGroup}},
		"group unconstrained":   {annotations: set{prefix + "unconstrained-topology": "true", prefix + "group-name": "g"}, want: []string{atGroup}},
		"group with slices":     {annotations: both(both(required(), slice("2")), set{prefix + "group-name": "g"}), want: []string{atGroup}},
		"group with layers":     {annotations: both(both(required(), layers(`[{"topology":"a","size":2}]`)), set{prefix + "group-name": "g"}), want: []string{atLayers}},
		"slices with layers":    {annotations: both(slice("2"), layers(`[{"topology":"a","size":2}]`)), want: []string{atLayers, atLayers}},
		"layers without gate":   {annotations: layers(`[{"topology":"a","size":2}]`), oneLayer: true, want: []string{atLayers}},
		"layers do not divide":  {annotations: layers(`[{"topology":"a","size":4},{"topology":"b","size":3}]`), want: []string{atLayers + "[1].size"}},
		"layers twice":          {annotations: layers(`[{"topology":"a","size":4},{"topology":"a","size":2}]`), want: []string{atLayers + "[1].topology"}},
		"layer no label":        {annotations: layers(`[{"topology":"a b","size":4}]`), want: []string{atLayers + "[0].topology"}},
		"layer size 0":          {annotations: layers(`[{"topology":"a"}]`), want: []string{atLayers + "[0].size"}},
		"layer too large":       {annotations: layers(`[{"topology":"a","size":9}]`), want: []string{atLayers + "[0].size"}},
		"no layer":              {annotations: layers(`[]`), want: []string{atLayers}},
		"four layers": {
			annotations: layers(`[{"topology":"a","size":8},{"topology":"b","size":4},{"topology":"c","size":2},{"topology":"d","size":1}]`), want: []string{atLayers},
		},
		"layers are no list": {annotations: layers(`{}`), want: []string{atLayers}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := &job.Setting{Config: &job.Config{Topology: true, TopologySliceConstraints: !tc.oneLayer}}
			var got []string
			for _, err := range in.ValidateTopology(&metav1.ObjectMeta{Annotations: tc.annotations}, field.NewPath("m"), 8) {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			off := &job.Setting{Config: &job.Config{TopologySliceConstraints: true}}
			if errs := off.ValidateTopology(&metav1.ObjectMeta{Annotations: tc.annotations}, nil, 8); len(errs) > 0 {
				t.Errorf("with the gate TopologyAwareScheduling off: %v", errs)
			}
		})
	}
}

// TestPodsWithoutPlace is acceptance example 25 of spec 20 §7: the user who creates a job is told of the pods that fill no slice.
func TestPodsWithoutPlace(t *testing.T) {
	const prefix = "kueue.x-k8s.io/podset-slice-"
	slices := map[string]string{prefix + "required-topology": "rack", prefix + "size": "3"}
	layers := map[string]string{prefix + "required-topology-constraints": `[{"topology":"block","size":4},{"topology":"rack","size":2}]`}
	tests := map[string]struct {
		annotations map[string]string
		count       int32
		want        []string
	}{
		"seven in slices of three": {slices, 7, []string{"m.annotations[" + prefix + "size]: 7 pods are no multiple of the slice size 3: 1 of them will have quota but no place, and stay gated"}},
		"six":                      {slices, 6, nil},
		"an unknown number":        {slices, -1, nil},
		"refused all the same":     {slices, 2, nil},
		"six in blocks of four":    {layers, 6, []string{"m.annotations[" + prefix + "required-topology-constraints]: 6 pods are no multiple of the slice size 4: 2 of them will have quota but no place, and stay gated"}},
		"eight":                    {layers, 8, nil},
		"no slices":                {map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"}, 7, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := &job.Setting{Config: &job.Config{Topology: true, TopologySliceConstraints: true}}
			_ = in.ValidateTopology(&metav1.ObjectMeta{Annotations: tc.annotations}, field.NewPath("m"), tc.count)
			if diff := cmp.Diff(tc.want, in.Warnings); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
