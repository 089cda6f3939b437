package health

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

var (
	now   = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	usual = Gates{OnPodTermination: true, OnTaints: true, KeepPodOwned: true}
)

// world is a Workload w with the pod sets main, and maybe side. Lines describe nodes and pods.
type world struct {
	main, side string   // hostnames, one pod each
	levels     []string // default: the hostname
	recorded   []string
	state      string   // default: admitted
	owners     int      // pods that own the Workload
	group      bool     // they are a pod group
	nodes      []string // "NAME [host=NAME] [notready|unknown|silent] [for=DURATION] [taint=KEY:EFFECT]…"
	pods       []string // "NAME [on=NODE] [to=HOST] [gated] [deleting] [PHASE] [plain]"
}

func (s *world) observed(t rapid.TB) *Observed {
	t.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "ns"}}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}, {Name: "side", Count: 1}}
	w.Spec.PodSets[0].Template.Spec.Tolerations = []corev1.Toleration{
		{Key: "mine", Operator: corev1.TolerationOpExists}, {Key: "short", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(60))},
	}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", PodSetUpdates: []kueue.PodSetUpdate{{
		Name: "main", Tolerations: []corev1.Toleration{{Key: "checked", Operator: corev1.TolerationOpExists}},
	}}}}
	if s.state != "without admission" {
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{
			{Name: "main", TopologyAssignment: s.assigned(s.main), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f", "memory": "lost"}},
			{Name: "side", TopologyAssignment: s.assigned(s.side)},
		}}
	}
	if s.state == "partly without nodes" {
		w.Status.Admission.PodSetAssignments[1].TopologyAssignment = nil
	}
	for condition, is := range map[string]bool{
		kueue.WorkloadQuotaReserved: s.state != "without admission", kueue.WorkloadAdmitted: s.state != "reserved" && s.state != "without admission",
		kueue.WorkloadEvicted: s.state == "evicted", kueue.WorkloadFinished: s.state == "finished",
	} {
		if is {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
		}
	}
	for _, name := range s.recorded {
		w.Status.UnhealthyNodes = append(w.Status.UnhealthyNodes, kueue.UnhealthyNode{Name: name})
	}
	for range s.owners {
		w.OwnerReferences = append(w.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p"})
	}
	if s.group {
		w.Annotations = map[string]string{kueue.IsGroupWorkloadAnnotation: "true"}
	}
	nodes := map[string]Node{}
	for _, line := range s.nodes {
		n := node(t, line)
		nodes[n.Hostname] = n
	}
	flavor := &kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{Tolerations: []corev1.Toleration{{Key: "flavored", Operator: corev1.TolerationOpExists}}}}
	o := &Observed{
		Workload: w, Flavors: job.Flavors{"f": flavor}, Now: now,
		Node: func(host string) (Node, bool) { n, ok := nodes[host]; return n, ok },
	}
	for _, line := range s.pods {
		o.Pods = append(o.Pods, pod(line))
	}
	return o
}

func (s *world) assigned(hosts string) *kueue.TopologyAssignment {
	levels := s.levels
	if levels == nil {
		levels = []string{corev1.LabelHostname}
	}
	var domains []assignment.Domain
	for host := range strings.FieldsSeq(hosts) {
		domains = append(domains, assignment.Domain{Values: []string{host}, Count: 1})
	}
	return assignment.Encode(levels, domains, true)
}

func node(t rapid.TB, line string) Node {
	words := strings.Fields(line)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{corev1.LabelHostname: words[0]}}}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
	conditions := []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}
	silent := false
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "host":
			n.Labels[corev1.LabelHostname] = value
		case "notready":
			ready.Status = corev1.ConditionFalse
		case "unknown":
			ready.Status = corev1.ConditionUnknown
		case "silent":
			silent = true
		case "for":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			ready.LastTransitionTime = metav1.NewTime(now.Add(-d))
		case "taint":
			key, effect, _ := strings.Cut(value, ":")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
		default:
			t.Fatalf("%q in %q", word, line)
		}
	}
	if !silent {
		conditions = append(conditions, ready)
	}
	n.Status.Conditions = conditions
	return NodeOf(n)
}

func pod(line string) *corev1.Pod {
	words := strings.Fields(line)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: words[0], Labels: map[string]string{kueue.PodSetLabel: "main"},
		Annotations: map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "true"},
	}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "on":
			p.Spec.NodeName, p.Status.Phase = value, corev1.PodRunning
		case "to":
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: value}
		case "gated":
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
		case "deleting":
			p.DeletionTimestamp = &metav1.Time{}
		case "plain":
			p.Annotations = nil
		default:
			p.Status.Phase = corev1.PodPhase(key)
		}
	}
	return p
}

// want of a decision: "evict", or the recorded nodes.
func record(o *Observed, d Decision) string {
	if d.Evict != "" {
		return "evict"
	}
	list := o.Workload.Status.UnhealthyNodes
	if d.Changed {
		list = d.Unhealthy
	}
	var names []string
	for _, n := range list {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

func TestUnhealthy(t *testing.T) {
	off := Gates{}
	cases := map[string]struct {
		gates *Gates // default: usual
		node  string // n1; empty: it does not exist
		pods  []string
		want  bool
		wake  time.Duration
	}{
		"ready":                               {node: "n1"},
		"deleted":                             {pods: []string{"a on=n1"}, want: true},
		"without a Ready condition":           {node: "n1 silent", pods: []string{"a on=n1"}, want: true},
		"not ready, no pod":                   {node: "n1 notready", want: true},
		"unknown, no pod":                     {node: "n1 unknown", want: true},
		"not ready, a pod that runs":          {node: "n1 notready for=1h", pods: []string{"a on=n1"}},
		"not ready, a pod that starts":        {node: "n1 notready", pods: []string{"a on=n1 Pending"}},
		"not ready, its pod is over":          {node: "n1 notready", pods: []string{"a on=n1 Failed", "b on=n1 Succeeded"}, want: true},
		"not ready, its pod is being deleted": {node: "n1 notready", pods: []string{"a on=n1 deleting"}, want: true},
		"not ready, a pod that waits":         {node: "n1 notready", pods: []string{"a to=n1 gated"}, want: true},
		"not ready, a pod on another node":    {node: "n1 notready", pods: []string{"a on=n2"}, want: true},

		"a fixed time has not passed":     {&Gates{OnPodTermination: true, AfterFixedTime: true}, "n1 notready for=29s", []string{"a on=n1"}, false, time.Second},
		"a fixed time has passed":         {&Gates{OnPodTermination: true, AfterFixedTime: true}, "n1 notready for=30s", []string{"a on=n1"}, true, 0},
		"no pod comes before the time":    {&Gates{OnPodTermination: true, AfterFixedTime: true}, "n1 notready for=1s", nil, true, 0},
		"without the gate pods, 29 s":     {&off, "n1 notready for=29s", nil, false, time.Second},
		"without the gate pods, 30 s":     {&off, "n1 notready for=30s", []string{"a on=n1"}, true, 0},
		"without the gate pods, no state": {&off, "n1 silent", []string{"a on=n1"}, true, 0},

		"tainted, no pod":                        {node: "n1 taint=x:NoExecute", want: true},
		"cordoned, no pod":                       {node: "n1 taint=node.kubernetes.io/unschedulable:NoSchedule", want: true},
		"tainted, a pod":                         {node: "n1 taint=x:NoExecute", pods: []string{"a on=n1"}},
		"tainted, PreferNoSchedule":              {node: "n1 taint=x:PreferNoSchedule"},
		"tolerated by the template":              {node: "n1 taint=mine:NoExecute"},
		"tolerated by the flavor":                {node: "n1 taint=flavored:NoExecute"},
		"tolerated by a check":                   {node: "n1 taint=checked:NoSchedule"},
		"tolerated for a while":                  {node: "n1 taint=short:NoExecute", want: true},
		"tolerated for a while, a pod":           {node: "n1 taint=short:NoExecute", pods: []string{"a on=n1"}},
		"seconds are for NoExecute alone":        {node: "n1 taint=short:NoSchedule"},
		"one of two is tolerated":                {node: "n1 taint=mine:NoExecute taint=x:NoSchedule", want: true},
		"tainted, without the gate":              {&Gates{OnPodTermination: true}, "n1 taint=x:NoExecute", nil, false, 0},
		"tainted, without the gate pods":         {&Gates{OnTaints: true}, "n1 taint=x:NoExecute", []string{"a on=n1"}, true, 0},
		"for a while, without the gate pods":     {&Gates{OnTaints: true}, "n1 taint=short:NoExecute", []string{"a on=n1"}, false, 0},
		"for a while, no pod, without that gate": {&Gates{OnTaints: true}, "n1 taint=short:NoExecute", nil, true, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := world{main: "n1 n2", nodes: []string{"n2"}, pods: tc.pods}
			if tc.node != "" {
				s.nodes = append(s.nodes, tc.node)
			}
			gates := usual
			if tc.gates != nil {
				gates = *tc.gates
			}
			want, wake := "", time.Time{}
			if tc.want {
				want = "n1"
			}
			if tc.wake > 0 {
				wake = now.Add(tc.wake)
			}
			o := s.observed(t)
			d := gates.Decide(o)
			if got := record(o, d); got != want || d.Changed != tc.want {
				t.Errorf("unhealthy: %q, want %q", got, want)
			}
			if !d.Wake.Equal(wake) {
				t.Errorf("wake at %v, want %v", d.Wake, wake)
			}
			s.recorded = []string{"n1"} // it stays recorded exactly as long as it is unhealthy
			o = s.observed(t)
			if d := gates.Decide(o); record(o, d) != want || d.Changed == tc.want {
				t.Errorf("recorded before: %q", record(o, d))
			}
		})
	}
}

func TestRecord(t *testing.T) {
	long := strings.Repeat("n", 64)
	cases := map[string]struct {
		world world
		want  string
	}{
		"two at once":                          {world{main: "n1 n2"}, "evict"},
		"a second one":                         {world{main: "n1 n2", nodes: []string{"n2 notready"}, recorded: []string{"n1"}}, "evict"},
		"another one in place of the first":    {world{main: "n1 n2", nodes: []string{"n1"}, recorded: []string{"n1"}}, "n2"},
		"of another pod set":                   {world{main: "n1", side: "n2"}, "evict"},
		"both pod sets on one":                 {world{main: "n1", side: "n1"}, "n1"},
		"the taint concerns one pod set":       {world{main: "n1", side: "n1", nodes: []string{"n1 taint=mine:NoSchedule"}}, "n1"},
		"a pod set that is not there":          {world{main: "n1", side: "n2", nodes: []string{"n1 taint=mine:NoSchedule", "n2"}}, ""},
		"one that was replaced":                {world{main: "n2", nodes: []string{"n2"}, recorded: []string{"n1"}}, ""},
		"the longest name that is recorded":    {world{main: "h1", nodes: []string{long[:63] + " host=h1 notready"}}, long[:63]},
		"a longer name":                        {world{main: "h1", nodes: []string{long + " host=h1 notready"}}, "evict"},
		"a longer name, a single pod keeps it": {world{main: "h1", owners: 1, nodes: []string{long + " host=h1 notready"}}, ""},
		"name and hostname differ":             {world{main: "h1", nodes: []string{"n1 host=h1 notready"}}, "n1"},
		"only reserved":                        {world{main: "n1", state: "reserved"}, ""},
		"evicted":                              {world{main: "n1", state: "evicted", recorded: []string{"n1"}}, "n1"},
		"finished":                             {world{main: "n1", state: "finished"}, ""},
		"domains that are no nodes":            {world{main: "r1 r2", levels: []string{"rack"}}, ""},
		"a single pod keeps its node":          {world{main: "n1", owners: 1}, ""},
		"and an old entry goes":                {world{main: "n1", owners: 1, recorded: []string{"n1"}}, ""},
		"two pods are a group":                 {world{main: "n1", owners: 2}, "n1"},
		"a group of one":                       {world{main: "n1", owners: 1, group: true}, "n1"},
		"a pod on a node outside is no help":   {world{main: "n1", nodes: []string{"n1 notready", "n2"}, pods: []string{"a on=n2"}}, "n1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := tc.world.observed(t)
			if got := record(o, usual.Decide(o)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	o := (&world{main: "n1", owners: 1}).observed(t)
	if got := record(o, Gates{OnPodTermination: true}.Decide(o)); got != "n1" {
		t.Errorf("a single pod without the gate: %q", got)
	}
	o = (&world{main: "n1 n2"}).observed(t)
	if got, want := usual.Decide(o).Evict, "The nodes n1 and n2 failed, and the placement can be repaired for one node at a time"; got != want {
		t.Errorf("message %q", got)
	}
	o = (&world{main: "h1", nodes: []string{long + " host=h1 notready"}}).observed(t)
	if got, want := usual.Decide(o).Evict, "The node "+long+" failed, and the placement cannot be repaired: its name has more than 63 characters"; got != want {
		t.Errorf("message %q", got)
	}
}

func TestStuck(t *testing.T) {
	cases := map[string]struct {
		world         world
		stuck, strays string
	}{
		"a ready node":               {world{main: "n1", nodes: []string{"n1"}, pods: []string{"a to=n1"}}, "", ""},
		"not ready":                  {world{main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a to=n1", "b on=n1"}}, "a", ""},
		"tainted":                    {world{main: "n1", nodes: []string{"n1 taint=x:NoSchedule"}, pods: []string{"b to=n1", "a to=n1"}}, "a b", ""},
		"tainted and tolerated":      {world{main: "n1", nodes: []string{"n1 taint=mine:NoSchedule"}, pods: []string{"a to=n1"}}, "", ""},
		"tolerated for a while":      {world{main: "n1", nodes: []string{"n1 taint=short:NoExecute"}, pods: []string{"a to=n1"}}, "a", ""},
		"deleted":                    {world{main: "n1", pods: []string{"a to=n1"}}, "", ""},
		"without a Ready condition":  {world{main: "n1", nodes: []string{"n1 silent"}, pods: []string{"a to=n1"}}, "", ""},
		"still gated":                {world{main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a to=n1 gated"}}, "", ""},
		"on its node":                {world{main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a to=n1 on=n1 Pending"}}, "", ""},
		"being deleted":              {world{main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a to=n1 deleting"}}, "", ""},
		"over":                       {world{main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a to=n1 Failed"}}, "", ""},
		"no annotation of a request": {world{main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a to=n1 plain"}}, "", ""},
		"no node was chosen":         {world{main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a"}}, "", ""},
		"of a node that was replaced": {
			world{main: "n9", nodes: []string{"n1", "n9"}, pods: []string{"a to=n1", "b to=n9"}}, "", "a",
		},
		"of a node that was replaced and deleted": {world{main: "n9", nodes: []string{"n9"}, pods: []string{"a to=n1"}}, "", ""},
		"the Workload lost its admission":         {world{state: "without admission", nodes: []string{"n1"}, pods: []string{"a to=n1"}}, "", "a"},
		"the Workload is leaving":                 {world{state: "evicted", main: "n1", nodes: []string{"n1 notready"}, pods: []string{"a to=n1"}}, "a", ""},
		"evicted in the same step":                {world{main: "n1 n2", nodes: []string{"n1 notready"}, pods: []string{"a to=n1"}}, "", ""},
		"the user's choice in another topology": {
			world{main: "r1", levels: []string{"rack"}, nodes: []string{"n1"}, pods: []string{"a to=n1"}}, "", "",
		},
		"the user's choice without a topology": {
			world{main: "n2", state: "partly without nodes", nodes: []string{"n1", "n2"}, pods: []string{"a to=n1"}}, "", "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := usual.Decide(tc.world.observed(t))
			if diff := cmp.Diff([]string{tc.stuck, tc.strays}, []string{names(d.Stuck), names(d.Strays)}); diff != "" {
				t.Errorf("stuck and strays (-want +got):\n%s", diff)
			}
		})
	}
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

// For any world: at most one node is recorded, and only one of the assignment; no pod is failed that runs, is gated or waits for a healthy
// node; once it is carried out, the same decision is no change.
func TestDecideAnyWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]string{"n1", "n2", "n3"})
		s := world{
			main: strings.Join(rapid.SliceOfNDistinct(host, 0, 3, rapid.ID).Draw(t, "main"), " "), side: strings.Join(rapid.SliceOfN(host, 0, 1).Draw(t, "side"), " "),
			state:    rapid.SampledFrom([]string{"", "", "reserved", "evicted", "without admission"}).Draw(t, "state"),
			recorded: rapid.SliceOfNDistinct(host, 0, 2, rapid.ID).Draw(t, "recorded"),
		}
		for _, name := range rapid.SliceOfNDistinct(host, 0, 3, rapid.ID).Draw(t, "nodes") {
			s.nodes = append(s.nodes, name+rapid.SampledFrom([]string{"", " notready for=10s", " notready for=1h", " silent", " taint=x:NoExecute", " taint=mine:NoExecute"}).Draw(t, "state"))
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
			s.pods = append(s.pods, string(rune('a'+i))+" to="+host.Draw(t, "to")+rapid.SampledFrom([]string{"", " gated", " on=n1", " on=n2", " Failed", " deleting"}).Draw(t, "pod"))
		}
		gates := Gates{
			OnPodTermination: rapid.Bool().Draw(t, "on termination"), OnTaints: rapid.Bool().Draw(t, "on taints"), AfterFixedTime: rapid.Bool().Draw(t, "fixed time"),
		}
		o := s.observed(t)
		d := gates.Decide(o)
		if len(d.Unhealthy) > 1 || (d.Evict != "" && (d.Changed || len(d.Stuck)+len(d.Strays) > 0)) {
			t.Fatalf("%+v", d)
		}
		for _, n := range d.Unhealthy {
			if !strings.Contains(s.main+" "+s.side, n.Name) {
				t.Fatalf("%s is not in the assignment", n.Name)
			}
		}
		for _, p := range append(d.Stuck, d.Strays...) {
			n, exists := o.Node(p.Spec.NodeSelector[corev1.LabelHostname])
			if p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) > 0 || p.DeletionTimestamp != nil || !exists || !n.Reported {
				t.Fatalf("%s is failed: %+v, %+v", p.Name, p, n)
			}
		}
		if d.Wake.Before(now) && !d.Wake.IsZero() {
			t.Fatalf("wake in the past: %v", d.Wake)
		}
		if d.Changed {
			o.Workload.Status.UnhealthyNodes = d.Unhealthy
			if again := gates.Decide(o); again.Changed || again.Evict != d.Evict {
				t.Fatalf("the decision changes: %+v, then %+v", d, again)
			}
		}
	})
}

// TestShrunk: the nodes that a shrunk pod set gave back do not matter, and its Workload is found by them all the same, since its pods may
// still be there (spec: 20 §4.11).
func TestShrunk(t *testing.T) {
	tests := map[string]struct {
		pods, nodes []string
		want        []string
	}{
		"a node given back":         {[]string{"a on=n3"}, []string{"n2", "n3"}, nil},
		"the node of a pod":         {[]string{"a on=n3"}, []string{"n1", "n2"}, []string{"n3"}},
		"the place of its next":     {nil, []string{"n2", "n3"}, []string{"n1"}},
		"before its pods have gone": {[]string{"a on=n1", "b on=n2", "c on=n3"}, []string{"n1", "n3"}, []string{"n2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := world{main: "n1 n2 n3", nodes: tc.nodes}
			o := s.observed(t)
			o.Workload.Spec.PodSets[0].Count = 1
			o.Workload.Status.Admission.PodSetAssignments[0].Count = new(int32(3))
			for _, line := range tc.pods {
				name, on, _ := strings.Cut(line, " on=")
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kueue.PodSetLabel: "main"}}}
				p.Spec.NodeName, p.Spec.NodeSelector = on, map[string]string{corev1.LabelHostname: on}
				o.Pods = append(o.Pods, p)
			}
			var got []string
			for _, n := range usual.Decide(o).Unhealthy {
				got = append(got, n.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("unhealthy (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"n1", "n2", "n3"}, Hosts(o.Workload)); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
		})
	}
}
