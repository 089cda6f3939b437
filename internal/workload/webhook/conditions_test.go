package webhook

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

func wire(t reviewtest.Fatal, w *kueue.Workload) map[string]any {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return content
}

// edits are valid and invalid changes of a Workload, by name.
var edits = map[string]func(*kueue.Workload){
	"reserve":            func(w *kueue.Workload) { setCondition(w, kueue.WorkloadQuotaReserved, metav1.ConditionTrue) },
	"release":            func(w *kueue.Workload) { setCondition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse) },
	"admitted":           func(w *kueue.Workload) { setCondition(w, kueue.WorkloadAdmitted, metav1.ConditionTrue) },
	"evict":              func(w *kueue.Workload) { setCondition(w, kueue.WorkloadEvicted, metav1.ConditionTrue) },
	"finish":             func(w *kueue.Workload) { setCondition(w, kueue.WorkloadFinished, metav1.ConditionTrue) },
	"assign":             func(w *kueue.Workload) { assign(w, "main", map[string]string{"cpu": "4", "memory": "8Gi"}) },
	"assign thousandths": func(w *kueue.Workload) { assign(w, "main", map[string]string{"cpu": "500m", "a/b": "14"}) },
	"assign odd":         func(w *kueue.Workload) { assign(w, "main", map[string]string{"cpu": "4", "memory": "3Gi"}) },
	"assign odd millis":  func(w *kueue.Workload) { assign(w, "main", map[string]string{"cpu": "501m"}) },
	"assign rounded up":  func(w *kueue.Workload) { assign(w, "main", map[string]string{"memory": "2002m"}) },
	"assign an exponent": func(w *kueue.Workload) { assign(w, "main", map[string]string{"memory": "2e3"}) },
	"assign too much":    func(w *kueue.Workload) { assign(w, "main", map[string]string{"memory": "10E"}) },
	"assign a stranger":  func(w *kueue.Workload) { assign(w, "stranger", nil) },
	"assign no count": func(w *kueue.Workload) {
		assign(w, "main", map[string]string{"cpu": "3"})
		w.Status.Admission.PodSetAssignments[0].Count = nil
	},
	"assign topology": func(w *kueue.Workload) {
		if w.Status.Admission != nil {
			w.Status.Admission.PodSetAssignments[0].DelayedTopologyRequest = new(kueue.DelayedTopologyRequestPending)
		}
	},
	"unassign":  func(w *kueue.Workload) { w.Status.Admission = nil },
	"long type": func(w *kueue.Workload) { setCondition(w, strings.Repeat("x", 64), metav1.ConditionTrue) },
	"no time": func(w *kueue.Workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: "Timeless", Status: "True", Reason: "R"})
	},
	"long message": func(w *kueue.Workload) {
		setCondition(w, "Wordy", metav1.ConditionTrue)
		w.Status.Conditions[len(w.Status.Conditions)-1].Message = strings.Repeat("\u20ac", 12000)
	},
	"reclaim":        func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}} },
	"reclaim all":    func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 2}} },
	"reclaim more":   func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 3}} },
	"cluster":        func(w *kueue.Workload) { w.Status.ClusterName = "one" },
	"nominate":       func(w *kueue.Workload) { w.Status.NominatedClusterNames = []string{"one"} },
	"check":          func(w *kueue.Workload) { setCheck(w, kueue.CheckStateReady, "") },
	"check pending":  func(w *kueue.Workload) { setCheck(w, kueue.CheckStatePending, "") },
	"check updates":  func(w *kueue.Workload) { setCheck(w, kueue.CheckStateReady, "main") },
	"check stranger": func(w *kueue.Workload) { setCheck(w, kueue.CheckStateReady, "stranger") },
	"more pods":      func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 3 },
	"pods by name":   func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Labels = map[string]string{"a b": "c"} },
	"placed": func(w *kueue.Workload) {
		w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("rack")}
	},
	"gate":  func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "a.b/c"} },
	"label": func(w *kueue.Workload) { w.Labels = map[string]string{"any": "thing"} },
	"stop":  func(w *kueue.Workload) { w.Spec.Active = new(false) },
}

func setCondition(w *kueue.Workload, name string, status metav1.ConditionStatus) {
	for i := range w.Status.Conditions {
		if w.Status.Conditions[i].Type == name {
			w.Status.Conditions[i].Status = status
			return
		}
	}
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: name, Status: status, Reason: "Any", LastTransitionTime: at})
}

func setCheck(w *kueue.Workload, state kueue.CheckState, podSet kueue.PodSetReference) {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	check := kueue.AdmissionCheckState{Name: "check", State: state, LastTransitionTime: at}
	if podSet != "" {
		check.PodSetUpdates = []kueue.PodSetUpdate{{Name: podSet}}
	}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{check}
}

func assign(w *kueue.Workload, podSet kueue.PodSetReference, amounts map[string]string) {
	usage := corev1.ResourceList{}
	for name, amount := range amounts {
		usage[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	w.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: podSet, Count: new(int32(2)), ResourceUsage: usage}}}
}

func twoPods() *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "ns"},
		Spec:       kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 2}}},
	}
}

// The webhook is called for every change of a Workload, unless it would allow it without a warning.
func TestConditionMissesNothing(t *testing.T) {
	judges := reviewtest.Condition(t, judged)
	s := testServer()
	check := s.validateWorkload
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom(sortedKeys(edits)), 0, 5)
		old := twoPods()
		for _, name := range some.Draw(t, "before") {
			edits[name](old)
		}
		w := old.DeepCopy()
		for _, name := range some.Draw(t, "change") {
			edits[name](w)
		}
		if judges(t, wire(t, w), wire(t, old)) {
			return
		}
		if err := check(t.Context(), nil, w, old); err != nil && check(t.Context(), nil, old, old) == nil {
			t.Fatalf("not called, and would refuse: %v", err)
		}
	})
}

// The webhook is not called for the usual writes of a status: the purpose of the condition.
func TestConditionSparesCalls(t *testing.T) {
	judges := reviewtest.Condition(t, judged)
	cases := map[string]struct {
		before, change []string
		called         bool
	}{
		"creation is judged":               {called: true, before: []string{"none"}},
		"waiting":                          {change: []string{"release"}},
		"admission":                        {before: []string{"release"}, change: []string{"reserve", "admitted", "assign"}},
		"admission in thousandths":         {change: []string{"reserve", "assign thousandths"}},
		"admission that is not plain":      {change: []string{"reserve", "assign an exponent"}, called: true},
		"admission of an odd amount":       {change: []string{"reserve", "assign odd"}, called: true},
		"admission of odd thousandths":     {change: []string{"reserve", "assign odd millis"}, called: true},
		"admission of thousandths of byte": {change: []string{"reserve", "assign rounded up"}, called: true},
		"admission of a stranger":          {change: []string{"reserve", "assign a stranger"}, called: true},
		"reservation of nothing":           {change: []string{"reserve"}, called: true},
		"a late reservation":               {before: []string{"assign odd"}, change: []string{"reserve"}, called: true},
		"eviction":                         {before: []string{"reserve", "assign", "check"}, change: []string{"evict", "check pending"}},
		"release":                          {before: []string{"reserve", "assign", "evict"}, change: []string{"release", "unassign"}},
		"finish":                           {before: []string{"reserve", "assign odd"}, change: []string{"finish"}},
		"labels":                           {before: []string{"reserve", "assign"}, change: []string{"label"}},
		"another admission":                {before: []string{"reserve", "assign"}, change: []string{"assign thousandths"}, called: true},
		"pods that are done":               {before: []string{"reserve", "assign"}, change: []string{"reclaim"}, called: true},
		"a check with something to add":    {before: []string{"reserve", "assign", "check"}, change: []string{"check updates"}, called: true},
		"a change of the spec":             {change: []string{"stop"}, called: true},
		"a gate":                           {change: []string{"gate"}, called: true},
		"a cluster":                        {change: []string{"cluster"}, called: true},
		"a condition without a time":       {change: []string{"no time"}, called: true},
		"a condition with a long name":     {change: []string{"long type"}, called: true},
		"a condition of many words":        {change: []string{"long message"}, called: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			old := twoPods()
			if len(c.before) > 0 && c.before[0] == "none" {
				if got := judges(t, wire(t, old), nil); got != c.called {
					t.Errorf("called is %v", got)
				}
				return
			}
			for _, edit := range c.before {
				edits[edit](old)
			}
			w := old.DeepCopy()
			for _, edit := range c.change {
				edits[edit](w)
			}
			if got := judges(t, wire(t, w), wire(t, old)); got != c.called {
				t.Errorf("called is %v", got)
			}
		})
	}
}

// A new Workload is only sent to be defaulted if that may change it, or if its fields do not have the types of the
// schema, which is checked later.
func TestConditionOfDefaults(t *testing.T) {
	needs := reviewtest.Condition(t, defaulted)
	podSets := func(sets ...any) map[string]any { return map[string]any{"spec": map[string]any{"podSets": sets}} }
	cases := map[string]struct {
		object map[string]any
		called bool
	}{
		"usual":             {object: podSets(map[string]any{"name": "main"}, map[string]any{"name": "more"})},
		"without pod sets":  {object: map[string]any{"spec": map[string]any{}}},
		"with a minimum":    {object: podSets(map[string]any{"name": "main"}, map[string]any{"minCount": int64(1)}), called: true},
		"without a spec":    {object: map[string]any{}, called: true},
		"a text for a spec": {object: map[string]any{"spec": "text"}, called: true},
		"null for a spec":   {object: map[string]any{"spec": nil}, called: true},
		"a text for a list": {object: map[string]any{"spec": map[string]any{"podSets": "text"}}, called: true},
		"a text in a list":  {object: podSets("text"), called: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := needs(t, c.object, nil); got != c.called {
				t.Errorf("called is %v", got)
			}
		})
	}
}

func sortedKeys(m map[string]func(*kueue.Workload)) []string {
	return slices.Sorted(maps.Keys(m))
}
