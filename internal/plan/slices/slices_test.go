package slices_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/lifecycle"
	"github.com/berth-project/berth/internal/plan/slices"
)

// slice is a Workload of a job, with quota of a queue unless that is empty.
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

func TestMayFinish(t *testing.T) {
	over := slice("b", "u", "q", "ns/a")
	lifecycle.Machine{}.Finish(over, kueue.ReasonSucceeded, "", metav1.Now())
	tests := map[string]struct {
		by, old *kueue.Workload
		want    bool
	}{
		"its successor":        {slice("b", "u", "q", "ns/a"), slice("a", "u", "q", ""), true},
		"nobody's":             {slice("b", "", "q", "ns/a"), slice("a", "", "q", ""), true},
		"waits":                {slice("b", "u", "", "ns/a"), slice("a", "u", "q", ""), false},
		"is over":              {over, slice("a", "u", "q", ""), false},
		"of another job":       {slice("b", "v", "q", "ns/a"), slice("a", "u", "q", ""), false},
		"of no job":            {slice("b", "", "q", "ns/a"), slice("a", "u", "q", ""), false},
		"in another queue":     {slice("b", "u", "q", "ns/a"), slice("a", "u", "r", ""), false},
		"in another namespace": {slice("b", "u", "q", "other/a"), slice("a", "u", "q", ""), false},
		"no namespace":         {slice("b", "u", "q", "a"), slice("a", "u", "q", ""), false},
		"of another name":      {slice("b", "u", "q", "ns/c"), slice("a", "u", "q", ""), false},
		"itself":               {slice("a", "u", "q", "ns/a"), slice("a", "u", "q", "ns/a"), false},
	}
	for name, tc := range tests {
		if got := slices.MayFinish(tc.by, tc.old); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
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
}
