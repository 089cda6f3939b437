package controller

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func jobNumber(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("job-", i)}
}

func TestLastNotes(t *testing.T) {
	var notes lastNotes
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
		if got := notes.isNews(step.job, step.reason, step.note); got != step.news {
			t.Errorf("step %d: %v", i, got)
		}
	}
	notes.forget(job)
	if !notes.isNews(job, "A", "x") || notes.isNews(other, "A", "x") {
		t.Error("not exactly one job was forgotten")
	}
}

// A job that is gone costs the same however many others there are: compare the figures of the two.
func BenchmarkForget(b *testing.B) {
	for _, jobs := range []int{100, 100_000} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) {
			var notes lastNotes
			for i := range jobs {
				notes.isNews(jobNumber(i), "Waits", "note")
			}
			for b.Loop() {
				notes.isNews(jobNumber(0), "Waits", "note")
				notes.forget(jobNumber(0))
			}
		})
	}
}
