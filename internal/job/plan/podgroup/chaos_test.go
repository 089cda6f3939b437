package podgroup_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestChaos throws pods, failures, deletions, admissions and evictions at a group, with writes that reach only some of the
// members, as when a manager dies in the middle. At any time no more pods are open than were admitted, and none without an
// admission; and in the end, when everything was deleted, nothing of ours holds anything.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newWorld()
		x.keeps = func(string) bool { return rapid.Bool().Draw(t, "write") }
		names := 0
		some := func() []string {
			var out []string
			for _, p := range x.pods {
				if rapid.Bool().Draw(t, "chosen") {
					out = append(out, p.Name)
				}
			}
			return append(out, "nobody")
		}
		for range rapid.IntRange(5, 40).Draw(t, "turns") {
			switch rapid.IntRange(0, 8).Draw(t, "turn") {
			case 0, 1:
				names++
				x.add(3, string(rune('a'+names%26))+string(rune('a'+names/26))+":"+rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "role"))
			case 2:
				x.phase(corev1.PodFailed, opened(x, some())...)
			case 3:
				x.phase(corev1.PodSucceeded, opened(x, some())...)
			case 4:
				x.remove(some()...)
			case 5:
				if x.w != nil && !lifecycle.IsReserved(x.w) && !lifecycle.IsFinished(x.w) && waits(x) == "" {
					x.admit()
				}
			case 6:
				if x.w != nil && lifecycle.IsReserved(x.w) {
					x.evict()
				}
			case 7:
				x.schedule()
			default:
				for range rapid.IntRange(1, 4).Draw(t, "steps") {
					admitted := x.w != nil && lifecycle.IsAdmitted(x.w) && !lifecycle.IsEvicted(x.w)
					before := x.open()
					x.step()
					for _, name := range x.open() {
						if !slices.Contains(before, name) && !admitted {
							t.Fatalf("%s was opened without an admission", name)
						}
					}
					checkRoom(t, x)
				}
			}
		}
		x.keeps = nil
		for range 3 {
			x.runUntilStable()
			x.schedule()
		}
		checkRoom(t, x)
		x.remove()
		x.phase(corev1.PodFailed)
		x.runUntilStable()
		if x.w != nil { // the user gives up, as deleting all pods waits for replacements
			x.w.DeletionTimestamp = new(x.now)
			x.collect()
		}
		x.runUntilStable()
		if held := x.held(); len(held) > 0 || x.w != nil {
			t.Fatalf("still held: %v, workload %v\n%v", held, x.w != nil, x.log)
		}
	})
}

// opened are the given pods that run on a node.
func opened(x *world, names []string) []string {
	var out []string
	for _, p := range x.pods {
		if p.Status.Phase == corev1.PodRunning && slices.Contains(names, p.Name) {
			out = append(out, p.Name)
		}
	}
	return append(out, "nobody")
}

// waits is the reason why the Workload waits for replacements, or empty.
func waits(x *world) string {
	if c := lifecycle.Condition(x.w, kueue.WorkloadWaitingForReplacementPods); c != nil && c.Status == "True" {
		return c.Reason
	}
	return ""
}

func checkRoom(t *rapid.T, x *world) {
	open := x.open()
	if len(open) == 0 || x.w == nil || !lifecycle.IsReserved(x.w) {
		return
	}
	var room int
	for _, s := range x.w.Spec.PodSets {
		room += int(s.Count)
	}
	if len(open) > room {
		t.Fatalf("%v are open, and %d were admitted", open, room)
	}
}
