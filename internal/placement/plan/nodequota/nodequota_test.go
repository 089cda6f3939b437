package nodequota

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

var (
	now  = time.Unix(100_000, 0)
	born = now.Add(-time.Hour)
)

func node(edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kind": "gpu"}, CreationTimestamp: metav1.NewTime(born)},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			"cpu": apiresource.MustParse("7900m"), "memory": apiresource.MustParse("31Gi"), "nvidia.com/gpu": apiresource.MustParse("8"),
		}},
	}
	ready(corev1.ConditionTrue, 50*time.Minute)(n)
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func ready(status corev1.ConditionStatus, ago time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
}

func taint(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func flavor() *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"kind": "gpu"}, NodeTaints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
		Tolerations: []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}, {Key: "team", Value: "a", Effect: corev1.TaintEffectNoExecute}},
	}}
}

func TestShareOf(t *testing.T) {
	for value, want := range map[string]int64{
		"90%": 90, "1%": 1, "100%": 100, "0%": -1, "101%": -1, "90": -1, "": -1, "%": -1, "-5%": -1, "+5%": -1, "05%": -1, "9.5%": -1, "90%%": -1, " 90%": -1,
	} {
		got, err := ShareOf(map[string]string{Annotation: value})
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v", value, got, err)
		}
	}
	if got, err := ShareOf(nil); got != 0 || err != nil {
		t.Errorf("without the annotation: %d, %v", got, err)
	}
}

func TestIs(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*corev1.Node)
		want bool
	}{
		"the labels":                          {func(*corev1.Node) {}, true},
		"another value":                       {func(n *corev1.Node) { n.Labels["kind"] = "cpu" }, false},
		"no label":                            {func(n *corev1.Node) { n.Labels = nil }, false},
		"a declared taint":                    {taint("gpu", "yes", corev1.TaintEffectNoSchedule), true},
		"declared with another effect":        {taint("gpu", "yes", corev1.TaintEffectNoExecute), false},
		"declared with another value":         {taint("gpu", "no", corev1.TaintEffectNoSchedule), false},
		"tolerated whatever the value":        {taint("spot", "x", corev1.TaintEffectNoExecute), true},
		"tolerated value and effect":          {taint("team", "a", corev1.TaintEffectNoExecute), true},
		"tolerated value, with other effect":  {taint("team", "a", corev1.TaintEffectNoSchedule), false},
		"another value than the tolerated":    {taint("team", "b", corev1.TaintEffectNoExecute), false},
		"a taint of somebody":                 {taint("mine", "", corev1.TaintEffectNoSchedule), false},
		"a taint that keeps no pods away":     {taint("mine", "", corev1.TaintEffectPreferNoSchedule), true},
		"a taint of a node that is not ready": {taint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoExecute), true},
		"out of service":                      {taint(corev1.TaintNodeOutOfService, "", corev1.TaintEffectNoExecute), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Is(node(tc.edit), flavor()); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if !Is(node(), &kueue.ResourceFlavor{}) {
		t.Error("a flavor without labels has all nodes")
	}
}

func TestCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		node *corev1.Node
		want bool
		left time.Duration // of the grace
	}{
		"ready":                     {node(), true, 0},
		"ready since now":           {node(ready(corev1.ConditionTrue, 0)), true, 0},
		"not ready for seconds":     {node(ready(corev1.ConditionFalse, 10*time.Second)), true, 50 * time.Second},
		"unknown for seconds":       {node(ready(corev1.ConditionUnknown, 10*time.Second)), true, 50 * time.Second},
		"not ready for the grace":   {node(ready(corev1.ConditionFalse, time.Minute)), false, 0},
		"never ready":               {node(ready(corev1.ConditionFalse, time.Hour)), false, 0},
		"no condition":              {node(func(n *corev1.Node) { n.Status.Conditions = nil }), false, 0},
		"cordoned":                  {node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), false, 0},
		"being deleted":             {node(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }), false, 0},
		"new, and not ready as yet": {node(ready(corev1.ConditionFalse, 2*time.Second), func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Second)) }), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			counts, until := Counts(tc.node, now)
			want := time.Time{}
			if tc.left > 0 {
				want = now.Add(tc.left)
			}
			if counts != tc.want || !until.Equal(want) {
				t.Errorf("%v until %s", counts, until)
			}
		})
	}
}

// quotas returns groups of quotas, such as "gpus cpu=4 nvidia.com/gpu=1".
func quotas(lines ...string) (out []kueue.ResourceGroup) {
	for _, line := range lines {
		words := strings.Fields(line)
		f := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(words[0])}
		for _, word := range words[1:] {
			name, amount, _ := strings.Cut(word, "=")
			f.Resources = append(f.Resources, kueue.ResourceQuota{Name: corev1.ResourceName(name), NominalQuota: apiresource.MustParse(amount)})
		}
		out = append(out, kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{f}})
	}
	return out
}

func text(groups []kueue.ResourceGroup) (out []string) {
	for _, g := range groups {
		line := string(g.Flavors[0].Name)
		for _, r := range g.Flavors[0].Resources {
			line += " " + string(r.Name) + "=" + r.NominalQuota.String()
		}
		out = append(out, line)
	}
	return out
}

func TestFollow(t *testing.T) {
	other := func(n *corev1.Node) { n.Labels["kind"] = "other" }
	flapping := ready(corev1.ConditionUnknown, 20*time.Second)
	for name, tc := range map[string]struct {
		have    string
		nodes   []*corev1.Node
		percent int64
		want    string
		changed bool
		count   int
		wake    time.Duration
	}{
		"all of it":             {"gpus cpu=1 memory=1 nvidia.com/gpu=1", []*corev1.Node{node(), node()}, 100, "gpus cpu=15800m memory=62Gi nvidia.com/gpu=16", true, 2, 0},
		"a share, rounded down": {"gpus cpu=1 nvidia.com/gpu=1", []*corev1.Node{node()}, 90, "gpus cpu=7110m nvidia.com/gpu=7", true, 1, 0},
		"the same":              {"gpus cpu=7.11 nvidia.com/gpu=7", []*corev1.Node{node()}, 90, "gpus cpu=7110m nvidia.com/gpu=7", false, 1, 0},
		"no node":               {"gpus cpu=1", nil, 90, "gpus cpu=0", true, 0, 0},
		"nodes of others":       {"gpus cpu=1", []*corev1.Node{node(other)}, 90, "gpus cpu=0", true, 0, 0},
		"what no node has":      {"gpus licenses=4", []*corev1.Node{node()}, 90, "gpus licenses=0", true, 1, 0},
		"a node that flaps":     {"gpus nvidia.com/gpu=16", []*corev1.Node{node(), node(flapping)}, 100, "gpus nvidia.com/gpu=16", false, 2, 40 * time.Second},
		"a flavor that is not":  {"none cpu=1", []*corev1.Node{node()}, 90, "none cpu=1", false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := quotas(tc.have)
			got := Follow(in, func(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
				if name == "gpus" {
					return flavor()
				}
				return nil
			}, tc.nodes, tc.percent, now)
			wake := time.Time{}
			if tc.wake > 0 {
				wake = now.Add(tc.wake)
			}
			want := text(quotas(tc.want))
			if fmt.Sprint(text(got.Groups)) != fmt.Sprint(want) || got.Changed != tc.changed || got.Nodes != tc.count || !got.Wake.Equal(wake) {
				t.Errorf("%v, want %v: %+v", text(got.Groups), want, got)
			}
			if (len(got.Missing) > 0) != strings.HasPrefix(tc.have, "none") {
				t.Errorf("missing %v", got.Missing)
			}
			if fmt.Sprint(text(in)) != fmt.Sprint(text(quotas(tc.have))) {
				t.Error("the object was changed")
			}
		})
	}
	if got := part(1<<62, 90); got != (1<<62)/100*90+(1<<62)%100*90/100 || got < 0 {
		t.Errorf("part: %d", got)
	}
}
