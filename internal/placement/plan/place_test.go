package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// places is a Workload with a topology assignment for each pod set.
type places struct {
	admitted, evicted, finished, variant bool
	sets                                 []placedSet
}

// placedSet is a pod set. Its domains read "n1:2 n2:4", or "r1/x:2" for two levels; empty is no assignment.
type placedSet struct {
	name, domains  string
	count, granted int32
	topology       *kueue.PodSetTopologyRequest
}

func (p *places) workload(t rapid.TB) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "ns"}}
	w.Status.Admission = &kueue.Admission{}
	for condition, is := range map[string]bool{
		kueue.WorkloadAdmitted: p.admitted, kueue.WorkloadEvicted: p.evicted, kueue.WorkloadFinished: p.finished, kueue.WorkloadQuotaReserved: true,
	} {
		if is {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
		}
	}
	if p.variant {
		w.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload", Name: "parent", Controller: new(true)}}
	}
	for _, s := range p.sets {
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: kueue.PodSetReference(s.name), Count: s.count, TopologyRequest: s.topology})
		a := kueue.PodSetAssignment{Name: kueue.PodSetReference(s.name)}
		if s.granted > 0 {
			a.Count = &s.granted
		}
		if s.domains != "" {
			a.TopologyAssignment = assigned(t, s.domains)
		}
		w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, a)
	}
	return w
}

func assigned(t rapid.TB, text string) *kueue.TopologyAssignment {
	t.Helper()
	levels := []string{corev1.LabelHostname}
	var domains []assignment.Domain
	for part := range strings.FieldsSeq(text) {
		path, pods, _ := strings.Cut(part, ":")
		count, err := strconv.Atoi(pods)
		if err != nil {
			t.Fatal(err)
		}
		domains = append(domains, assignment.Domain{Values: strings.Split(path, "/"), Count: int32(count)})
	}
	if strings.Contains(text, "/") {
		levels = []string{"block", "rack"}
	}
	return &kueue.TopologyAssignment{Levels: levels, Slices: assignment.Compress(domains)} // in the order of the text
}

// placedPod reads "NAME [SET] [up] [PHASE] [deleting] [i=INDEX] [j=GROUP] [offset=N] [on=HOST] [in=BLOCK/RACK]". It is gated unless up, and
// of the pod set main unless it names another one.
func placedPod(line string) *corev1.Pod {
	words := strings.Fields(line)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: words[0], Namespace: "ns", UID: types.UID(words[0]), Labels: map[string]string{kueue.PodSetLabel: "main"}, Annotations: map[string]string{},
	}}
	gates := []corev1.PodSchedulingGate{{Name: "else"}, {Name: kueue.TopologySchedulingGate}}
	selector := map[string]string{}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "up":
			gates = nil
		case "deleting":
			p.DeletionTimestamp = &metav1.Time{}
		case "i":
			p.Labels["index"] = value
		case "j":
			p.Labels["group"] = value
		case "offset":
			p.Annotations[kueue.PodIndexOffsetAnnotation] = value
		case "on":
			selector[corev1.LabelHostname] = value
		case "in":
			selector["block"], selector["rack"], _ = strings.Cut(value, "/")
		case "Pending", "Running", "Succeeded", "Failed":
			p.Status.Phase = corev1.PodPhase(key)
		default:
			p.Labels[kueue.PodSetLabel] = key
		}
	}
	p.Spec.SchedulingGates = gates
	if len(selector) > 0 {
		p.Spec.NodeSelector = selector
	}
	return p
}

// placed lists "POD>DOMAIN" of ungated pods.
func placed(t rapid.TB, pods []*corev1.Pod) (out []string) {
	t.Helper()
	for _, p := range pods {
		if plan.IsUnplaced(p) || !slices.Equal(p.Spec.SchedulingGates, []corev1.PodSchedulingGate{{Name: "else"}}) {
			t.Errorf("gates of %s: %v", p.Name, p.Spec.SchedulingGates)
		}
		domain := p.Spec.NodeSelector[corev1.LabelHostname]
		if block, has := p.Spec.NodeSelector["block"]; has {
			domain = block + "/" + p.Spec.NodeSelector["rack"]
		}
		out = append(out, p.Name+">"+domain)
	}
	return out
}

func ranked() *kueue.PodSetTopologyRequest {
	return &kueue.PodSetTopologyRequest{PodIndexLabel: new("index")}
}

func grouped(groups int32) *kueue.PodSetTopologyRequest {
	return &kueue.PodSetTopologyRequest{PodIndexLabel: new("index"), SubGroupIndexLabel: new("group"), SubGroupCount: &groups}
}

func inGroup(name string) *kueue.PodSetTopologyRequest {
	return &kueue.PodSetTopologyRequest{PodIndexLabel: new("index"), PodSetGroupName: &name}
}

func TestPlaceByRank(t *testing.T) {
	six := []placedSet{{name: "main", count: 6, topology: ranked(), domains: "n1:2 n2:4"}}
	indexed := []string{"f i=0", "e i=1", "d i=2", "c i=3", "b i=4", "a i=5"}
	cases := map[string]struct {
		sets []placedSet
		pods []string
		want []string
	}{
		"by index":                       {six, indexed, []string{"f>n1", "e>n1", "d>n2", "c>n2", "b>n2", "a>n2"}}, // example 33
		"one label is missing":           {six, append(slices.Clone(indexed[:3]), "c", "b i=4", "a i=5"), []string{"a>n1", "b>n1", "c>n2", "d>n2", "e>n2", "f>n2"}},
		"one label is no number":         {six, []string{"b i=0", "a i=x"}, []string{"a>n1", "b>n1"}},
		"one label is negative":          {six, []string{"b i=0", "a i=-1"}, []string{"a>n1", "b>n1"}},
		"two have the same":              {six, []string{"c i=5", "b i=4", "a i=4"}, []string{"a>n1", "b>n1", "c>n2"}},
		"one is out of range":            {six, []string{"b i=6", "a i=5"}, []string{"a>n1", "b>n1"}},
		"a rank without a pod keeps it":  {six, []string{"a i=5", "b i=0"}, []string{"b>n1", "a>n2"}},
		"one that is over does not rank": {six, []string{"a i=5", "b i=5 Failed", "c Succeeded"}, []string{"a>n2"}},
		"a gated one that is deleted":    {six, []string{"a i=5", "b i=5 deleting"}, []string{"a>n2"}},
		"one that runs and is deleted":   {six, []string{"a i=5", "b i=5 up on=n2 deleting"}, []string{"a>n1"}}, // two with one rank
		"ungated ones in their domain":   {six, []string{"a i=5", "b i=0 up on=n1", "c i=4 up on=n2"}, []string{"a>n2"}},
		"an ungated one elsewhere":       {six, []string{"a i=5", "b i=0 up on=n2"}, []string{"a>n1"}},
		"an ungated one without domain":  {six, []string{"a i=5", "b i=0 up"}, []string{"a>n1"}},
		"a rank without a slot": {
			[]placedSet{{name: "main", count: 7, topology: ranked(), domains: "n1:3 n2:3"}},
			[]string{"b i=5", "a i=6"},
			[]string{"a>n1", "b>n1"},
		},
		"ranks count what was granted": {
			[]placedSet{{name: "main", count: 9, granted: 2, topology: ranked(), domains: "n1:1 n2:1"}},
			[]string{"b i=0", "a i=2"},
			[]string{"a>n1", "b>n2"},
		},
		"no label is named": {
			[]placedSet{{name: "main", count: 2, topology: &kueue.PodSetTopologyRequest{}, domains: "n1:1 n2:1"}},
			[]string{"a i=1", "b i=0"},
			[]string{"a>n1", "b>n2"},
		},
		"nothing was asked for":   {[]placedSet{{name: "main", count: 2, domains: "n1:1 n2:1"}}, []string{"a i=1", "b i=0"}, []string{"a>n1", "b>n2"}},
		"an offset":               {six, []string{"b i=1 offset=1", "a i=6 offset=1"}, []string{"b>n1", "a>n2"}},
		"an index below it":       {six, []string{"b i=0 offset=1", "a i=6 offset=1"}, []string{"a>n1", "b>n1"}},
		"the first pod's offset":  {six, []string{"b i=2 offset=2", "a i=5"}, []string{"b>n2", "a>n2"}},
		"subgroups":               {[]placedSet{{name: "main", count: 4, topology: grouped(2), domains: "n1:2 n2:2"}}, []string{"d j=0 i=0", "c j=0 i=1", "b j=1 i=0", "a j=1 i=1"}, []string{"d>n1", "c>n1", "b>n2", "a>n2"}},
		"an index of two groups":  {[]placedSet{{name: "main", count: 4, topology: grouped(2), domains: "n1:2 n2:2"}}, []string{"b j=0 i=2", "a j=1 i=1"}, []string{"a>n1", "b>n1"}},
		"a group that is too far": {[]placedSet{{name: "main", count: 4, topology: grouped(2), domains: "n1:2 n2:2"}}, []string{"b j=2 i=0", "a j=1 i=1"}, []string{"a>n1", "b>n1"}},
		"a group without a label": {[]placedSet{{name: "main", count: 4, topology: grouped(2), domains: "n1:2 n2:2"}}, []string{"b i=0", "a j=1 i=1"}, []string{"a>n1", "b>n1"}},
		"no number of groups":     {[]placedSet{{name: "main", count: 4, topology: grouped(0), domains: "n1:2 n2:2"}}, []string{"b j=0 i=0", "a j=1 i=1"}, []string{"a>n1", "b>n1"}},
		"a leader and its workers": {
			[]placedSet{
				{name: "leader", count: 1, topology: inGroup("g"), domains: "n1:1"},
				{name: "main", count: 3, topology: inGroup("g"), domains: "n1:1 n2:2"},
			},
			[]string{"l leader i=0", "c i=1", "b i=2", "a i=3"},
			[]string{"l>n1", "c>n1", "b>n2", "a>n2"},
		},
		"two equal pod sets: the first has the workers": {
			[]placedSet{
				{name: "main", count: 1, topology: inGroup("g"), domains: "n1:1"},
				{name: "leader", count: 1, topology: inGroup("g"), domains: "n2:1"},
			},
			[]string{"l leader i=0", "a i=1"},
			[]string{"a>n1", "l>n2"},
		},
		"three pod sets are no leader and workers": {
			[]placedSet{
				{name: "leader", count: 1, topology: inGroup("g")},
				{name: "other", count: 1, topology: inGroup("g")},
				{name: "main", count: 3, topology: inGroup("g"), domains: "n1:1 n2:2"},
			},
			[]string{"b i=0", "a i=2"},
			[]string{"b>n1", "a>n2"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &plan.Placement{Workload: (&places{admitted: true, sets: tc.sets}).workload(t)}
			for _, line := range tc.pods {
				o.Pods = append(o.Pods, placedPod(line))
			}
			got, err := plan.Place(o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, placed(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlaceInOrder(t *testing.T) {
	cases := map[string]struct {
		domains   string
		pods      []string
		unhealthy []string
		want      []string
	}{
		"domain by domain, lowest names first": {"n2:1 n1:2", []string{"c", "a", "b"}, nil, []string{"a>n2", "b>n1", "c>n1"}},
		"no more pods than slots":              {"n1:1", []string{"a", "b"}, nil, []string{"a>n1"}},
		"ungated ones have their slot":         {"n1:2 n2:1", []string{"a", "b", "c up on=n1"}, nil, []string{"a>n1", "b>n2"}},
		"also without a node":                  {"n1:1 n2:1", []string{"a", "c up Pending on=n1"}, nil, []string{"a>n2"}},
		"and when they end":                    {"n1:1 n2:1", []string{"a", "c up deleting on=n1"}, nil, []string{"a>n2"}},
		"but not when they are over":           {"n1:1 n2:1", []string{"a", "c up Failed on=n1"}, nil, []string{"a>n1"}},
		"more than there are slots":            {"n1:1 n2:1", []string{"a", "b", "c up on=n1", "d up on=n1"}, nil, []string{"a>n2"}},
		"elsewhere":                            {"n1:1", []string{"a", "c up on=n7"}, nil, []string{"a>n1"}},
		"equal domains are added up":           {"n1:1 n1:1", []string{"a", "b", "c up on=n1"}, nil, []string{"a>n1"}},
		"two levels":                           {"b1/r1:1 b1/r2:1", []string{"a", "b", "c up in=b1/r1"}, nil, []string{"a>b1/r2"}},
		"one level of two names no domain":     {"b1/r1:1", []string{"a", "c up in=b2/r1"}, nil, []string{"a>b1/r1"}},
		"another pod set":                      {"n1:2", []string{"a other", "b"}, nil, []string{"b>n1"}},
		"a node selector that allows one":      {"n1:1 n2:1", []string{"a on=n2", "b"}, nil, []string{"b>n1", "a>n2"}},
		"a node selector that allows none":     {"n1:1 n2:1", []string{"a on=n7", "b"}, nil, []string{"b>n1"}},
		"an unhealthy node":                    {"n1:1 n2:1", []string{"a", "b"}, []string{"n1"}, []string{"b>n2"}},
		"a rack of that name":                  {"b1/n1:1", []string{"a"}, []string{"n1"}, []string{"a>b1/n1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := placedSet{name: "main", count: 9, domains: tc.domains}
			o := &plan.Placement{Workload: (&places{admitted: true, sets: []placedSet{set}}).workload(t), Unhealthy: map[string]bool{}}
			for _, line := range tc.pods {
				o.Pods = append(o.Pods, placedPod(line))
			}
			for _, host := range tc.unhealthy {
				o.Unhealthy[host] = true
			}
			got, err := plan.Place(o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, placed(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlaceByRankUnhealthy: the rank of a pod keeps its slot on an unhealthy node, and the others are not affected.
func TestPlaceByRankUnhealthy(t *testing.T) {
	set := placedSet{name: "main", count: 3, topology: ranked(), domains: "n1:1 n2:2"}
	o := &plan.Placement{Workload: (&places{admitted: true, sets: []placedSet{set}}).workload(t), Unhealthy: map[string]bool{"n1": true}}
	o.Pods = []*corev1.Pod{placedPod("a i=0"), placedPod("b i=1"), placedPod("c i=2 on=n1")}
	got, err := plan.Place(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b>n2"}, placed(t, got)); diff != "" { // c can never get to n2
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHasPlaces(t *testing.T) {
	set := []placedSet{{name: "main", count: 1, domains: "n1:1"}}
	cases := map[string]struct {
		of   places
		want bool
	}{
		"admitted":              {places{admitted: true, sets: set}, true},
		"only reserved":         {places{sets: set}, false},
		"evicted":               {places{admitted: true, evicted: true, sets: set}, false},
		"finished":              {places{admitted: true, finished: true, sets: set}, false},
		"a variant":             {places{admitted: true, variant: true, sets: set}, false},
		"without an assignment": {places{admitted: true, sets: []placedSet{{name: "main", count: 1}}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := tc.of.workload(t)
			if got := plan.HasPlaces(w); got != tc.want {
				t.Errorf("got %v", got)
			}
			got, err := plan.Place(&plan.Placement{Workload: w, Pods: []*corev1.Pod{placedPod("a")}})
			if err != nil || (len(got) > 0) != tc.want {
				t.Errorf("placed %v, %v", got, err)
			}
		})
	}
}

func TestPlaceFails(t *testing.T) {
	w := (&places{admitted: true, sets: []placedSet{{name: "main", count: 1, domains: "n1:1"}}}).workload(t)
	_, err := plan.Place(&plan.Placement{Workload: w, Pods: []*corev1.Pod{placedPod("a offset=one")}})
	if want := `annotation kueue.x-k8s.io/pod-index-offset of pod ns/a is "one": it must be an integer`; err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
	w.Status.Admission.PodSetAssignments[0].TopologyAssignment.Slices[0].DomainCount = 0
	_, err = plan.Place(&plan.Placement{Workload: w})
	if want := "topology assignment of pod set main: slices[0].domainCount is 0, at least 1 is required"; err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

// For any pods: no domain gets more pods than it has slots, the order of the list does not matter, pods with all ranks go to the slots
// of their ranks, and a second pass changes nothing.
func TestPlaceAnyPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := map[string]int{}
		var domains, order []string
		total := 0
		for i := range rapid.IntRange(1, 4).Draw(t, "domains") {
			name, n := fmt.Sprint("n", i), rapid.IntRange(1, 3).Draw(t, "slots")
			domains = append(domains, fmt.Sprintf("%s:%d", name, n))
			order = append(order, slices.Repeat([]string{name}, n)...)
			slots[name], total = n, total+n
		}
		set := placedSet{name: "main", count: int32(total), domains: strings.Join(domains, " "), topology: ranked()}
		o := &plan.Placement{Workload: (&places{admitted: true, sets: []placedSet{set}}).workload(t), Unhealthy: map[string]bool{}}
		if rapid.Bool().Draw(t, "unhealthy") {
			o.Unhealthy[rapid.SampledFrom(order).Draw(t, "node")] = true
		}
		valid := rapid.Bool().Draw(t, "valid ranks")
		ranks := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range total {
				if !yield(i) {
					return
				}
			}
		})).Draw(t, "ranks")
		for i := range rapid.IntRange(0, total).Draw(t, "pods") {
			line := fmt.Sprintf("p%d i=%d", i, ranks[i])
			if !valid {
				line = fmt.Sprintf("p%d i=%d", i, rapid.IntRange(-1, total).Draw(t, "index"))
			}
			if !valid && rapid.Bool().Draw(t, "up") {
				line += " up on=" + rapid.SampledFrom([]string{"n0", "n1", "n9"}).Draw(t, "host")
			}
			o.Pods = append(o.Pods, placedPod(line))
		}
		got, err := plan.Place(o)
		if err != nil {
			t.Fatal(err)
		}
		o.Pods = rapid.Permutation(o.Pods).Draw(t, "order")
		again, err := plan.Place(o)
		if diff := cmp.Diff(placed(t, got), placed(t, again)); diff != "" || err != nil {
			t.Fatalf("%v, another order (-first +second):\n%s", err, diff)
		}
		checkPlaces(t, o, got, slots)
		if !valid {
			return
		}
		for _, p := range got {
			if rank, _ := strconv.Atoi(p.Labels["index"]); order[rank] != p.Spec.NodeSelector[corev1.LabelHostname] {
				t.Fatalf("%s of rank %d is in %v", p.Name, rank, p.Spec.NodeSelector)
			}
		}
		healthy := slices.DeleteFunc(slices.Clone(o.Pods), func(p *corev1.Pod) bool {
			rank, _ := strconv.Atoi(p.Labels["index"])
			return o.Unhealthy[order[rank]]
		})
		if len(got) != len(healthy) {
			t.Fatalf("%d of %d pods were placed", len(got), len(healthy))
		}
	})
}

func checkPlaces(t *rapid.T, o *plan.Placement, got []*corev1.Pod, slots map[string]int) {
	used := map[string]int{}
	next := map[types.UID]*corev1.Pod{}
	for _, p := range got {
		next[p.UID] = p
		used[p.Spec.NodeSelector[corev1.LabelHostname]]++
	}
	ups := map[string]int{}
	for i, p := range o.Pods {
		if !plan.IsUnplaced(p) {
			ups[p.Spec.NodeSelector[corev1.LabelHostname]]++
		}
		if n := next[p.UID]; n != nil {
			o.Pods[i] = n
		}
	}
	for _, host := range slices.Sorted(maps.Keys(used)) {
		if used[host]+ups[host] > slots[host] || o.Unhealthy[host] {
			t.Fatalf("%d pods were put on %s with %d of %d slots taken", used[host], host, ups[host], slots[host])
		}
	}
	if settled, err := plan.Place(o); err != nil || len(settled) > 0 {
		t.Fatalf("a second pass: %v, %v", placed(t, settled), err)
	}
}

func BenchmarkPlace(b *testing.B) {
	w := (&places{admitted: true, sets: []placedSet{{name: "main", count: 10_000, domains: "n:1"}}}).workload(b)
	var domains []assignment.Domain
	o := &plan.Placement{Workload: w}
	for i := range 10_000 {
		domains = append(domains, assignment.Domain{Values: []string{fmt.Sprintf("node-%05d", i)}, Count: 1})
		o.Pods = append(o.Pods, placedPod(fmt.Sprintf("p-%05d", i)))
	}
	w.Status.Admission.PodSetAssignments[0].TopologyAssignment = assignment.Encode([]string{corev1.LabelHostname}, domains, true)
	for b.Loop() {
		if got, err := plan.Place(o); err != nil || len(got) != 10_000 {
			b.Fatal(len(got), err)
		}
	}
}

// TestPlacesLeft: a pod set that has shrunk keeps the places of its pods, and the first others up to its count (spec: 20 §4.11).
func TestPlacesLeft(t *testing.T) {
	tests := map[string]struct {
		count, granted int32
		pods           []string
		want           string
	}{
		"not shrunk":                         {5, 5, []string{"a up on=n3"}, "n1:2 n2:2 n3:1"},
		"no pods yet":                        {3, 5, nil, "n1:2 n2:1"},
		"the pods of the last places remain": {2, 5, []string{"a up on=n3", "b up on=n2"}, "n2:1 n3:1"},
		"one is missing":                     {3, 5, []string{"a up on=n3", "b up on=n2"}, "n1:1 n2:1 n3:1"},
		"none has ended yet":                 {1, 5, []string{"a up on=n1", "b up on=n1", "c up on=n2", "d up on=n2", "e up on=n3"}, "n1:2 n2:2 n3:1"},
		"ended, and gated":                   {1, 5, []string{"a up on=n3 Succeeded", "b up on=n2 Failed", "c"}, "n1:1"},
		"deleted, and not ended":             {1, 5, []string{"a up on=n3 deleting"}, "n3:1"},
		"more on a node than it has places":  {2, 5, []string{"a up on=n3", "b up on=n3"}, "n1:1 n3:1"},
		"elsewhere, and of another pod set":  {1, 5, []string{"a up on=n9", "b other up on=n3"}, "n1:1"},
		"to nothing":                         {0, 5, nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := places{admitted: true, sets: []placedSet{{name: "main", domains: "n1:2 n2:2 n3:1", count: tc.count, granted: tc.granted}}}
			w := o.workload(t)
			var pods []*corev1.Pod
			for _, line := range tc.pods {
				pods = append(pods, placedPod(line))
			}
			domains, err := plan.Places(w, &w.Status.Admission.PodSetAssignments[0], pods)
			var got []string
			for _, d := range domains {
				got = append(got, fmt.Sprintf("%s:%d", d.Path(), d.Count))
			}
			if text := strings.Join(got, " "); err != nil || text != tc.want {
				t.Errorf("%q (%v), want %q", text, err, tc.want)
			}
		})
	}
}
