package slices_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

// slice returns a Workload of a job, with quota of a queue unless that is empty.
func slice(name, owner, queue, replaces string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Annotations: map[string]string{}}}
	if owner != "" {
		w.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", UID: types.UID(owner), Controller: new(true)}}
	}
	if replaces != "" {
		w.Annotations[kueue.WorkloadSliceReplacementForAnnotation] = replaces
	}
	if queue != "" {
		lifecycle.Machine{}.Reserve(w, &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue)}, nil, metav1.Now())
	}
	return w
}

func finished(w *kueue.Workload) *kueue.Workload {
	lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "", metav1.Now())
	return w
}

func released(w *kueue.Workload) *kueue.Workload {
	was := w.Status.Admission
	lifecycle.Machine{}.Preempt(w, kueue.ReasonInClusterQueue, "", metav1.Now())
	lifecycle.Machine{}.Release(w, false, metav1.Now())
	w.Status.Admission = was // a foreign write
	return w
}

func moved(w *kueue.Workload) *kueue.Workload {
	w.Namespace = "other"
	return w
}

// sent returns a slice of a chain that the manager of another cluster created.
func sent(w *kueue.Workload, chain string) *kueue.Workload {
	w.Labels = map[string]string{kueue.MultiKueueOriginLabel: "m"}
	w.Annotations[kueue.WorkloadSliceNameAnnotation] = chain
	return w
}

func TestMayFinish(t *testing.T) {
	checked := slice("b", "u", "", "ns/a")
	lifecycle.Machine{}.Reserve(checked, &kueue.Admission{ClusterQueue: "q"}, []kueue.AdmissionCheckReference{"c"}, metav1.Now())
	leaves := slice("b", "u", "q", "ns/a")
	lifecycle.Machine{}.Preempt(leaves, kueue.ReasonInClusterQueue, "", metav1.Now())
	over := slice("b", "u", "q", "ns/a")
	lifecycle.Machine{}.Finish(over, kueue.ReasonSucceeded, "", metav1.Now())
	tests := map[string]struct {
		by, old *kueue.Workload
		want    bool
	}{
		"its successor":        {slice("b", "u", "q", "ns/a"), slice("a", "u", "q", ""), true},
		"nobody's":             {slice("b", "", "q", "ns/a"), slice("a", "", "q", ""), true},
		"waits":                {slice("b", "u", "", "ns/a"), slice("a", "u", "q", ""), false},
		"waits for a check":    {checked, slice("a", "u", "q", ""), false},
		"is evicted again":     {leaves, slice("a", "u", "q", ""), true},
		"is over":              {over, slice("a", "u", "q", ""), false},
		"of another job":       {slice("b", "v", "q", "ns/a"), slice("a", "u", "q", ""), false},
		"of no job":            {slice("b", "", "q", "ns/a"), slice("a", "u", "q", ""), false},
		"in another queue":     {slice("b", "u", "q", "ns/a"), slice("a", "u", "r", ""), false},
		"in another namespace": {slice("b", "u", "q", "other/a"), slice("a", "u", "q", ""), false},
		"no namespace":         {slice("b", "u", "q", "a"), slice("a", "u", "q", ""), false},
		"of another name":      {slice("b", "u", "q", "ns/c"), slice("a", "u", "q", ""), false},
		"one that is over":     {slice("b", "u", "q", "ns/a"), finished(slice("a", "u", "q", "")), false},
		"one that has lost it": {slice("b", "u", "q", "ns/a"), released(slice("a", "u", "q", "")), false},
		"elsewhere":            {slice("b", "u", "q", "ns/a"), moved(slice("a", "u", "q", "")), false},
		"from afar":            {sent(slice("b", "", "q", "ns/a"), "x"), sent(slice("a", "", "q", ""), "x"), true},
		"another from afar":    {sent(slice("b", "", "q", "ns/a"), "x"), sent(slice("a", "", "q", ""), "y"), false},
		"itself":               {slice("a", "u", "q", "ns/a"), slice("a", "u", "q", "ns/a"), false},
	}
	for name, tc := range tests {
		if got := slices.MayFinish(tc.by, tc.old); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if got, want := slices.WillFinish(tc.by, tc.old), name == "one that has lost it"; got != want {
			t.Errorf("%s: it is to be finished later: %v, want %v", name, got, want)
		}
	}
}

// A slice with a forged origin label replaces no slice of a job of
// this cluster, of another origin, of another chain or in another namespace. It does replace a slice of the very chain that it names; but
// users that may create Workloads in a namespace may as well name the controller of any slice there, so the label grants no more than that.
func TestOriginIsNoOwner(t *testing.T) {
	sent := func(name, origin, chain, replaces string) *kueue.Workload {
		w := slice(name, "", "q", replaces)
		w.Labels = map[string]string{kueue.MultiKueueOriginLabel: origin}
		if chain != "" {
			w.Annotations[kueue.WorkloadSliceNameAnnotation] = chain
		}
		return w
	}
	elsewhere := sent("a", "hub", "", "")
	elsewhere.Namespace = "other"
	adopted := sent("a", "hub", "", "")
	adopted.OwnerReferences = slice("a", "u", "", "").OwnerReferences
	for name, tc := range map[string]struct {
		by, old *kueue.Workload
		want    bool
	}{
		"of a job of this cluster":           {sent("b", "hub", "a", "ns/a"), slice("a", "u", "q", ""), false},
		"of nobody on this cluster":          {sent("b", "hub", "a", "ns/a"), slice("a", "", "q", ""), false},
		"of another origin":                  {sent("b", "hub", "a", "ns/a"), sent("a", "east", "", ""), false},
		"of another chain":                   {sent("b", "hub", "c", "ns/a"), sent("a", "hub", "", ""), false},
		"of no chain":                        {sent("b", "hub", "", "ns/a"), sent("a", "hub", "", ""), false},
		"in another namespace":               {sent("b", "hub", "a", "other/a"), elsewhere, false},
		"without the label":                  {slice("b", "", "q", "ns/a"), sent("a", "hub", "", ""), false},
		"of its job, without the label":      {slice("b", "u", "q", "ns/a"), adopted, false},
		"of its chain, as its manager makes": {sent("b", "hub", "a", "ns/a"), sent("a", "hub", "", ""), true},
		"of its chain, which has its job":    {sent("b", "hub", "a", "ns/a"), adopted, true},
	} {
		if got := slices.MayFinish(tc.by, tc.old); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// chained parses slices, the oldest first, each as "name, the name of the slice that it replaces or -, its stage".
func chained(lines ...string) []*kueue.Workload {
	var out []*kueue.Workload
	m, admission := lifecycle.Machine{}, &kueue.Admission{ClusterQueue: "q"}
	for i, line := range lines {
		var name, before, state string
		if _, err := fmt.Sscan(line, &name, &before, &state); err != nil {
			panic(err)
		}
		w := slice(name, "u", "", "ns/"+before)
		w.CreationTimestamp = metav1.Unix(int64(i), 0)
		switch state {
		case "waits":
		case "stopped": // before any controller acted
			w.Spec.Active = new(false)
		case "reserved":
			m.Reserve(w, admission, []kueue.AdmissionCheckReference{"c"}, metav1.Now())
		default:
			m.Reserve(w, admission, nil, metav1.Now())
		}
		switch state {
		case "evicted", "released":
			m.Preempt(w, kueue.ReasonInClusterQueue, "", metav1.Now())
		case "deactivated", "off":
			w.Spec.Active = new(false)
			m.Deactivate(w, metav1.Now())
		}
		if state == "released" || state == "off" {
			m.Release(w, false, metav1.Now())
		}
		out = append(out, w)
	}
	return out
}

func TestNormalise(t *testing.T) {
	name := func(w *kueue.Workload) string {
		if w == nil {
			return "-"
		}
		return w.Name
	}
	for title, tc := range map[string]struct { //berth:unordered a test
		live []*kueue.Workload
		want string // the head, the selected one, then the ones that are over
	}{
		"none":                       {nil, "- -"},
		"waits":                      {chained("a - waits"), "- a"},
		"runs":                       {chained("a - admitted"), "a a"},
		"was evicted":                {chained("a - released"), "- a"},
		"is off":                     {chained("a - off"), "- a"},
		"grows":                      {chained("a - admitted", "b a waits"), "a b"},
		"grows, waits for a check":   {chained("a - admitted", "b a reserved"), "a b"},
		"grows, and was evicted":     {chained("a - admitted", "b a released"), "a b"},
		"grew":                       {chained("a - admitted", "b a admitted"), "b b a:WorkloadSliceReplaced"},
		"grew, and is evicted":       {chained("a - admitted", "b a evicted"), "b b a:WorkloadSliceReplaced"},
		"is evicted while it grows":  {chained("a - evicted", "b a waits"), "a a"},
		"is evicted, heir has quota": {chained("a - evicted", "b a reserved"), "a a b:OutOfSync"},
		"both lose it":               {chained("a - evicted", "b a released"), "a a b:OutOfSync"},
		"deactivated as it grows":    {chained("a - deactivated", "b a waits"), "a a b:OutOfSync"},
		"was evicted while it grows": {chained("a - released", "b a waits"), "- b a:WorkloadSliceReplaced"},
		"is off while it grows":      {chained("a - off", "b a waits"), "- a b:OutOfSync"},
		"is to stop while it grows":  {chained("a - stopped", "b a waits"), "- b a:WorkloadSliceReplaced"},
		"both were evicted":          {chained("a - released", "b a released"), "- - a:OutOfSync b:OutOfSync"},
		"two wait":                   {chained("a - waits", "b - waits"), "- b a:OutOfSync"},
		"two run":                    {chained("a - admitted", "b - admitted"), "b b a:OutOfSync"},
		"two heirs":                  {chained("a - admitted", "b a waits", "c a waits"), "a b c:OutOfSync"},
		"two heirs, one has quota":   {chained("a - admitted", "b a waits", "c a reserved"), "a c b:OutOfSync"},
		"two heirs, one is admitted": {chained("a - admitted", "b a reserved", "c a admitted"), "c c a:WorkloadSliceReplaced b:OutOfSync"},
		"the heir has an heir":       {chained("a - admitted", "b a reserved", "c b waits"), "a b c:OutOfSync"},
	} {
		k := slices.Normalise(tc.live)
		got := name(k.Head) + " " + name(k.Selected)
		for _, o := range k.Over {
			got += " " + o.Workload.Name + ":" + o.Reason
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", title, got, tc.want)
		}
	}
}

func TestIsReplacement(t *testing.T) {
	for name, tc := range map[string]struct { //berth:unordered a test
		live []*kueue.Workload
		want bool
	}{
		"waits":                       {chained("a - admitted", "b a waits"), true},
		"waits for a check":           {chained("a - admitted", "b a reserved"), true},
		"has the place":               {chained("a - admitted", "b a admitted"), false},
		"nothing to take":             {chained("a - waits", "b a reserved"), false},
		"of another":                  {chained("a - admitted", "b c reserved"), false},
		"each is to be the other's":   {chained("a b admitted", "b a reserved"), false},
		"it is to take its own place": {chained("b b reserved"), false},
	} {
		if got := slices.IsReplacement(tc.live[len(tc.live)-1], tc.live); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestSort: the oldest first, and in one second by UID.
func TestSort(t *testing.T) {
	list := chained("c - waits", "b - waits", "a - waits")
	list[2].CreationTimestamp = list[1].CreationTimestamp
	slices.Sort(list)
	if got := list[0].Name + list[1].Name + list[2].Name; got != "cab" {
		t.Errorf("%s, want cab", got)
	}
}

func TestCompare(t *testing.T) {
	sets := func(counts ...int32) []kueue.PodSet {
		var out []kueue.PodSet
		for i, n := range counts {
			out = append(out, kueue.PodSet{Name: kueue.PodSetReference([]string{"a", "b", "c"}[i]), Count: n})
		}
		return out
	}
	swapped := sets(1, 2)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	tests := map[string]struct {
		wanted []kueue.PodSet
		want   slices.Change
	}{
		"the same":          {sets(1, 2), slices.Same},
		"in another order":  {swapped, slices.Same},
		"fewer":             {sets(1, 1), slices.Shrinks},
		"more":              {sets(2, 2), slices.Grows},
		"up and down":       {sets(2, 1), slices.Grows},
		"down and up":       {sets(0, 3), slices.Grows},
		"another set":       {sets(1, 2, 3), slices.Incompatible},
		"a set of a name":   {[]kueue.PodSet{{Name: "a", Count: 1}, {Name: "x", Count: 2}}, slices.Incompatible},
		"one set fewer now": {sets(1), slices.Incompatible},
	}
	for name, tc := range tests {
		w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: sets(1, 2)}}
		if got := slices.Compare(w, tc.wanted); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// sized parses pod sets, each as name:count.
func sized(sets ...string) []kueue.PodSet {
	var out []kueue.PodSet
	for _, s := range sets {
		name, count, _ := strings.Cut(s, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			panic(err)
		}
		out = append(out, kueue.PodSet{Name: kueue.PodSetReference(name), Count: int32(n)})
	}
	return out
}

// Sets appear and disappear by their names, and unwanted sets have no pods.
func TestCompareShaped(t *testing.T) {
	for name, tc := range map[string]struct { //berth:unordered a test
		has, wanted []kueue.PodSet
		want        slices.Change
		resized     string
	}{
		"the same":                 {sized("a:1", "b:2"), sized("b:2", "a:1"), slices.Same, "a:1 b:2"},
		"fewer":                    {sized("a:1", "b:2"), sized("a:1", "b:1"), slices.Shrinks, "a:1 b:1"},
		"more":                     {sized("a:1"), sized("a:2"), slices.Grows, "a:2"},
		"up and down":              {sized("a:1", "b:2"), sized("a:2", "b:1"), slices.Grows, "a:2 b:1"},
		"a new one":                {sized("a:1"), sized("a:1", "b:1"), slices.Grows, "a:1"},
		"a new one without pods":   {sized("a:1"), sized("a:1", "b:0"), slices.Same, "a:1"},
		"one less":                 {sized("a:1", "b:2"), sized("a:1"), slices.Shrinks, "a:1 b:0"},
		"one less, of none":        {sized("a:1", "b:0"), sized("a:1"), slices.Same, "a:1 b:0"},
		"one less, and a new one":  {sized("a:1", "b:2"), sized("a:1", "c:2"), slices.Grows, "a:1 b:0"},
		"fewer, and one less of 0": {sized("a:2", "b:0"), sized("a:1"), slices.Shrinks, "a:1 b:0"},
	} {
		w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: tc.has}}
		if got := slices.CompareShaped(w, tc.wanted); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		slices.ResizeShaped(w, tc.wanted)
		var got []string
		for _, p := range w.Spec.PodSets {
			got = append(got, fmt.Sprintf("%s:%d", p.Name, p.Count))
		}
		if strings.Join(got, " ") != tc.resized {
			t.Errorf("%s: resized to %v, want %s", name, got, tc.resized)
		}
	}
}

// The number of pods that may run, and whether the slice had quota for more, by the admitted count, the count of the spec and the
// reclaimable pods.
func TestGranted(t *testing.T) {
	for name, tc := range map[string]struct { //berth:unordered a test
		admitted, now, back int32
		granted             int32
		scaledDown          bool
	}{
		"as it was admitted":       {4, 4, 0, 4, false},
		"shrank":                   {4, 3, 0, 3, true},
		"cannot grow":              {4, 6, 0, 4, false},
		"gave some back":           {4, 4, 1, 3, false},
		"shrank, and gave back":    {4, 3, 1, 2, true},
		"gave back more than this": {4, 1, 3, 0, true},
	} {
		w := slice("a", "u", "", "")
		w.Annotations[kueue.ElasticJobAnnotation] = "true"
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: tc.now}}
		if slices.Granted(w, "main") != 0 || slices.ScaledDown(w, "main") {
			t.Errorf("%s: pods are granted without an admission", name)
		}
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(tc.admitted)}}}
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: tc.back}, {Name: "other", Count: 9}}
		if got, down := slices.Granted(w, "main"), slices.ScaledDown(w, "main"); got != tc.granted || down != tc.scaledDown {
			t.Errorf("%s: %d, %v, want %d, %v", name, got, down, tc.granted, tc.scaledDown)
		}
		if slices.Granted(w, "other") != 0 || slices.ScaledDown(w, "other") {
			t.Errorf("%s: a set is granted that there is not", name)
		}
		if w.Annotations = nil; slices.ScaledDown(w, "main") != tc.scaledDown {
			t.Errorf("%s: pod sets of any Workload may shrink", name)
		}
	}
}

func TestSameShape(t *testing.T) {
	base := func() kueue.PodSet {
		return kueue.PodSet{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "x"}}, InitContainers: []corev1.Container{{Name: "i"}},
		}}}
	}
	asks := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	for name, tc := range map[string]struct { //berth:unordered a test
		change func(*corev1.PodSpec)
		want   bool
	}{
		"nothing":        {func(*corev1.PodSpec) {}, true},
		"image":          {func(p *corev1.PodSpec) { p.Containers[0].Image = "y" }, true},
		"selector":       {func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"a": "b"} }, true},
		"requests":       {func(p *corev1.PodSpec) { p.Containers[0].Resources = asks }, false},
		"of a first one": {func(p *corev1.PodSpec) { p.InitContainers[0].Resources = asks }, false},
		"of all":         {func(p *corev1.PodSpec) { p.Resources = &asks }, false},
		"name":           {func(p *corev1.PodSpec) { p.Containers[0].Name = "d" }, false},
		"one more":       {func(p *corev1.PodSpec) { p.Containers = append(p.Containers, corev1.Container{Name: "d"}) }, false},
		"overhead":       {func(p *corev1.PodSpec) { p.Overhead = asks.Requests }, false},
		"claims":         {func(p *corev1.PodSpec) { p.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, false},
		"runtime class":  {func(p *corev1.PodSpec) { p.RuntimeClassName = new("vm") }, false},
	} {
		b := base()
		tc.change(&b.Template.Spec)
		if got := slices.SameShape(base(), b); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestGranting: a slice that is being evicted lets no pod run, though it still has its quota (spec: 30 §7 example 73).
func TestGranting(t *testing.T) {
	w := slice("a", "u", "q", "")
	w.Annotations[kueue.ElasticJobAnnotation] = "true"
	granting := func(want bool, when string) {
		t.Helper()
		if got := slices.Granting([]*kueue.Workload{w}) != nil; got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	granting(true, "admitted")
	m := lifecycle.Machine{}
	m.Preempt(w, kueue.ReasonInClusterQueue, "", metav1.Now())
	if !lifecycle.IsReserved(w) {
		t.Fatal("an eviction takes the quota away at once")
	}
	granting(false, "being evicted")
	m.Release(w, false, metav1.Now())
	m.Reserve(w, &kueue.Admission{ClusterQueue: "q"}, nil, metav1.Now())
	granting(true, "admitted again")
	w.Annotations[kueue.ElasticJobAnnotation] = "false"
	granting(false, "not elastic")
	w = slice("a", "u", "", "")
	w.Annotations[kueue.ElasticJobAnnotation] = "true"
	m.Reserve(w, &kueue.Admission{ClusterQueue: "q"}, []kueue.AdmissionCheckReference{"c"}, metav1.Now())
	granting(false, "waits for a check")
}
