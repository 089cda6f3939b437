package controller

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// The Jobs of a JobSet are the Jobs of the events, in their last versions; and a list that was
// returned earlier does not change.
func TestJobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, want := newJobs(), map[types.UID]map[types.UID]*batchv1.Job{}
		type copied struct{ lent, kept []plan.Job }
		var readers []copied
		sets, ids := rapid.SampledFrom([]types.UID{"a", "b"}), rapid.IntRange(0, 5)
		version := 0
		job := func(set types.UID, id int) *batchv1.Job {
			version++
			owner := metav1.OwnerReference{APIVersion: jobsetv1alpha2.GroupVersion.String(), Kind: jobsetv1alpha2.KindJobSet, Name: "js", UID: set, Controller: new(true)}
			return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				UID: types.UID(fmt.Sprint(set, id)), ResourceVersion: fmt.Sprint(version), OwnerReferences: []metav1.OwnerReference{owner},
			}}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				set := sets.Draw(t, "set")
				j := job(set, ids.Draw(t, "id"))
				have.put(j)
				if want[set] == nil {
					want[set] = map[types.UID]*batchv1.Job{}
				}
				want[set][j.UID] = j
			},
			"remove": func(t *rapid.T) {
				set := sets.Draw(t, "set")
				j := job(set, ids.Draw(t, "id"))
				have.remove(j)
				delete(want[set], j.UID)
			},
			"foreign": func(t *rapid.T) {
				j := job("a", ids.Draw(t, "id"))
				j.OwnerReferences[0].Kind = "Workflow"
				have.put(j)
				have.remove(j)
			},
			"read": func(t *rapid.T) {
				lent := have.of(sets.Draw(t, "set"))
				readers = append(readers, copied{lent, slices.Clone(lent)})
			},
			"": func(t *rapid.T) {
				for set := range maps.Keys(want) {
					got := map[types.UID]*batchv1.Job{}
					for _, j := range have.of(set) {
						got[j.Object.UID] = j.Object
					}
					if !maps.Equal(got, want[set]) {
						t.Fatalf("of %s: %v, want %v", set, got, want[set])
					}
				}
				for _, r := range readers {
					if !slices.Equal(r.lent, r.kept) {
						t.Fatalf("a list changed under its reader")
					}
				}
				if len(want["a"])+len(want["b"]) == 0 && len(have.sets) > 0 {
					t.Fatalf("%d JobSets are remembered that have no Jobs", len(have.sets))
				}
			},
		})
	})
}
