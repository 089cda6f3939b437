package reconcile

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func jobNumber(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("job-", i)}
}

func TestLastNotes(t *testing.T) {
	var notes LastNotes
	job, other := jobNumber(1), jobNumber(2)
	for i, step := range []struct {
		job          types.NamespacedName
		reason, note string
		news         bool
	}{
		{job, "A", "x", true},
		{job, "A", "x", false},
		{job, "B", "x", true},
		{job, "A", "y", true},
		{job, "A", "x", true},
		{other, "A", "x", true},
		{other, "C", "", true},
		{other, "C", "", false},
	} {
		if got := notes.IsNews(step.job, step.reason, step.note); got != step.news {
			t.Errorf("step %d: %v", i, got)
		}
	}
	notes.Forget(job)
	if !notes.IsNews(job, "A", "x") || notes.IsNews(other, "A", "x") {
		t.Error("not exactly one job was forgotten")
	}
}

// A job that is gone costs the same however many others there are: compare the figures of the two.
func BenchmarkForget(b *testing.B) {
	for _, jobs := range []int{100, 100_000} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) {
			var notes LastNotes
			for i := range jobs {
				notes.IsNews(jobNumber(i), "Waits", "note")
			}
			for b.Loop() {
				notes.IsNews(jobNumber(0), "Waits", "note")
				notes.Forget(jobNumber(0))
			}
		})
	}
}
