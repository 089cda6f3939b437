package plan

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// exclusive makes a pod of a Job that is placed exclusively by rack.
func exclusive(name, index string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name),
		Labels: map[string]string{
			jobsetv1alpha2.JobSetNameKey: "ring", jobsetv1alpha2.ReplicatedJobNameKey: "oar", jobsetv1alpha2.JobIndexKey: "0", jobsetv1alpha2.JobKeyKey: "key",
		},
		Annotations: map[string]string{
			jobsetv1alpha2.JobSetNameKey: "ring", jobsetv1alpha2.ExclusiveTopologyAnnotation: "rack", "batch.kubernetes.io/job-completion-index": index,
		},
		OwnerReferences: []metav1.OwnerReference{{UID: "job", Controller: new(true)}},
	}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func in(rack string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"rack": rack} }
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func going(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Unix(0, 0)) }

func ofJob(uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences[0].UID = uid }
}

func orphan(p *corev1.Pod) { p.OwnerReferences = nil }

func byNodeSelector(p *corev1.Pod) {
	p.Annotations[jobsetv1alpha2.NodeSelectorStrategyAnnotation] = ""
}

// Acceptance 49, 53, 54.
func TestPlaceLeader(t *testing.T) {
	pod := exclusive("l", "0", func(p *corev1.Pod) {
		p.Spec.Priority = new(int32(-5))
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "user"}}}}
	})
	LabelPriority(pod)
	PlaceLeader(pod)
	want := `podAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
  - topologyKey: user
  - labelSelector:
      matchExpressions:
      - key: jobset.sigs.k8s.io/job-key
        operator: In
        values:
        - key
    namespaceSelector: {}
    topologyKey: rack
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
  - labelSelector:
      matchExpressions:
      - key: jobset.sigs.k8s.io/job-key
        operator: Exists
      - key: jobset.sigs.k8s.io/job-key
        operator: NotIn
        values:
        - key
      - key: jobset.sigs.k8s.io/priority
        operator: In
        values:
        - n5
    namespaceSelector: {}
    topologyKey: rack
`
	if got := toYAML(t, pod.Spec.Affinity); got != want {
		t.Errorf("affinity:\n%s", got)
	}
	if !IsExclusive(pod) || IsExclusive(exclusive("p", "0", byNodeSelector)) {
		t.Error("the node selector strategy is not ours")
	}
	left := exclusive("p", "0", byNodeSelector, func(p *corev1.Pod) { p.Spec.Priority = new(int32(1)) })
	LabelPriority(left)
	if _, ok := left.Labels[jobsetv1alpha2.PriorityLabel]; ok {
		t.Error("a pod of the node selector strategy is changed")
	}
}

// Every priority has a label value of its own, valid and the same on the template of a Job and on a pod.
func TestPriorityLabel(t *testing.T) {
	for priority, want := range map[int32]string{0: "0", 1000: "1000", -10: "n10", math.MinInt32: "n2147483648", math.MaxInt32: "2147483647"} {
		w := running(t, 1)
		w.jobs = nil
		o := w.observed()
		o.Priorities.Default = priority
		p := w.c.Decide(o)
		pod := exclusive("l", "0", func(p *corev1.Pod) { p.Spec.Priority = &priority })
		LabelPriority(pod)
		for _, labels := range []map[string]string{built(&p)[0].Spec.Template.Labels, pod.Labels} {
			if got := labels[jobsetv1alpha2.PriorityLabel]; got != want || len(validation.IsValidLabelValue(got)) > 0 {
				t.Errorf("%d: label value %q, want %q", priority, got, want)
			}
		}
	}
}

// Acceptance 49, 51: a follower waits for one live leader that has a node.
func TestLeaderOf(t *testing.T) {
	tests := map[string]struct {
		follower *corev1.Pod
		pods     []*corev1.Pod
		want     string
	}{
		"there":            {exclusive("f", "1"), []*corev1.Pod{exclusive("x", "1", on("n")), exclusive("l", "0", on("n"))}, ""},
		"after a retry":    {exclusive("f", "1"), []*corev1.Pod{exclusive("old", "0", on("m"), phase(corev1.PodFailed)), exclusive("l", "0", on("n"))}, ""},
		"going":            {exclusive("f", "1"), []*corev1.Pod{exclusive("old", "0", on("m"), going), exclusive("l", "0", on("n"))}, ""},
		"none":             {exclusive("f", "1"), []*corev1.Pod{exclusive("x", "1", on("n"))}, "not there yet"},
		"without a node":   {exclusive("f", "1"), []*corev1.Pod{exclusive("l", "0")}, "not scheduled yet"},
		"two":              {exclusive("f", "1"), []*corev1.Pod{exclusive("l", "0", on("n")), exclusive("k", "0", on("n"))}, "several leader pods"},
		"of another Job":   {exclusive("f", "1"), []*corev1.Pod{exclusive("l", "0", on("n"), ofJob("old"))}, "not there yet"},
		"of nobody":        {exclusive("f", "1", orphan), []*corev1.Pod{exclusive("l", "0", on("n"))}, "no controller"},
		"leader of nobody": {exclusive("f", "1"), []*corev1.Pod{exclusive("l", "0", on("n"), orphan)}, "not there yet"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			leader, err := LeaderOf(test.follower, test.pods)
			check(t, err, test.want)
			if err == nil && leader.Name != "l" {
				t.Errorf("leader %s", leader.Name)
			}
			refused := CheckFollower(test.follower, err)
			if refused == nil || !strings.Contains(refused.Error(), "follower pod node selector not set") || !strings.Contains(refused.Error(), test.want) {
				t.Errorf("refusal %v", refused)
			}
		})
	}
	pod := exclusive("f", "1")
	PlaceFollower(pod, "r1")
	if err := CheckFollower(pod, nil); err != nil || pod.Spec.NodeSelector["rack"] != "r1" {
		t.Errorf("%v, %v", err, pod.Spec.NodeSelector)
	}
	delete(pod.Labels, jobsetv1alpha2.JobIndexKey)
	check(t, CheckFollower(pod, nil), jobsetv1alpha2.JobIndexKey)
}

// Acceptance 50, 52, 54: only followers in another domain go, and none on a guess.
func TestMisplaced(t *testing.T) {
	node := func(rack string) metav1.Object { return &metav1.ObjectMeta{Labels: map[string]string{"rack": rack}} }
	leader := exclusive("l", "0", on("n"))
	tests := map[string]struct {
		leader *corev1.Pod
		pods   []*corev1.Pod
		node   metav1.Object
		want   string
		err    string
	}{
		"all right":                  {leader, []*corev1.Pod{leader, exclusive("a", "1", in("r1"))}, node("r1"), "", ""},
		"some wrong":                 {leader, []*corev1.Pod{leader, exclusive("c", "3", in("r2")), exclusive("a", "1", in("r1")), exclusive("b", "2", in("r2"))}, node("r1"), "b c", ""},
		"not bound":                  {leader, []*corev1.Pod{exclusive("a", "1")}, node("r1"), "a", ""},
		"going or over":              {leader, []*corev1.Pod{exclusive("a", "1", in("r2"), going), exclusive("b", "2", in("r2"), phase(corev1.PodSucceeded))}, node("r1"), "", ""},
		"of another Job":             {leader, []*corev1.Pod{exclusive("a", "1", in("r2"), ofJob("old"))}, node("r1"), "", ""},
		"node selector strategy":     {leader, []*corev1.Pod{exclusive("a", "1", byNodeSelector)}, node("r1"), "", ""},
		"another leader":             {leader, []*corev1.Pod{exclusive("k", "0", on("m"))}, node("r1"), "", ""},
		"node gone":                  {leader, []*corev1.Pod{exclusive("a", "1", in("r1")), exclusive("b", "2", in("r1"))}, nil, "", ""},
		"node gone, they disagree":   {leader, []*corev1.Pod{exclusive("a", "1", in("r1")), exclusive("b", "2", in("r2"))}, nil, "", "is gone"},
		"node without label":         {leader, []*corev1.Pod{exclusive("a", "1", in("r1"))}, node(""), "", "has no label rack"},
		"leader without controller":  {exclusive("l", "0", on("n"), orphan), nil, node("r1"), "", "has no controller"},
		"leader without the job key": {exclusive("l", "0", on("n"), func(p *corev1.Pod) { p.Labels = nil }), nil, node("r1"), "", "no label"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Misplaced(test.leader, test.pods, test.node)
			check(t, err, test.err)
			var names []string
			for _, p := range got {
				names = append(names, p.Name)
			}
			if strings.Join(names, " ") != test.want {
				t.Errorf("%v, want %s", names, test.want)
			}
		})
	}
}
