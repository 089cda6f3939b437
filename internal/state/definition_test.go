package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/workload"
)

// TestSamePlace: a workload is placed anew if something changes that decisions depend on,
// and stays where it is otherwise; its requests do not matter while it holds quota.
func TestSamePlace(t *testing.T) {
	always, waiting, holding := []bool{true, true}, []bool{true, false}, []bool{false, true}
	never := []bool{false, false}
	tests := map[string]struct {
		edit  func(*Workload)
		anew  []bool // waiting, and holding quota
		undid bool   // it is the edit of one that was being evicted
	}{
		"nothing":         {edit: func(*Workload) {}, anew: never},
		"generation":      {edit: func(d *Workload) { d.Generation++ }, anew: never},
		"created":         {edit: func(d *Workload) { d.Created++ }, anew: never},
		"told":            {edit: func(d *Workload) { d.Told = true }, anew: never},
		"admitted":        {edit: func(d *Workload) { d.Admitted = true }, anew: never},
		"ready":           {edit: func(d *Workload) { d.Ready = true }, anew: never},
		"evicting":        {edit: func(d *Workload) { d.Evicting = true }, anew: never},
		"may stay":        {edit: func(d *Workload) { d.Evicting = false }, anew: always, undid: true},
		"equal problem":   {edit: func(d *Workload) { d.Problem = &workload.Problem{Reason: "r", Note: "n"} }, anew: never},
		"priority":        {edit: func(d *Workload) { d.Priority++ }, anew: always},
		"since":           {edit: func(d *Workload) { d.Since++ }, anew: always},
		"holds or not":    {edit: func(d *Workload) { d.Reserved = !d.Reserved }, anew: always},
		"LocalQueue":      {edit: func(d *Workload) { d.LocalQueue = "q1-0" }, anew: waiting},
		"owner":           {edit: func(d *Workload) { d.Owner = "o" }, anew: always},
		"what it follows": {edit: func(d *Workload) { d.Replaces = "before" }, anew: always},
		"minimum":         {edit: func(d *Workload) { d.MinRun = 5 }, anew: never},
		"gated":           {edit: func(d *Workload) { d.Gated = true }, anew: waiting},
		"resting":         {edit: func(d *Workload) { d.Resting = true }, anew: waiting},
		"queueable":       {edit: func(d *Workload) { d.Queueable = false }, anew: waiting},
		"another problem": {edit: func(d *Workload) { d.Problem = &workload.Problem{Reason: "r", Note: "m"} }, anew: waiting},
		"no problem":      {edit: func(d *Workload) { d.Problem = nil }, anew: waiting},
		"pod sets":        {edit: func(d *Workload) { d.PodSets = []PodSet{{Name: "main", Count: 2}} }, anew: waiting},
		"queue":           {edit: func(d *Workload) { d.Queue = "q1" }, anew: holding},
		"what it holds":   {edit: func(d *Workload) { d.Held = []Held{{"main", "f", "cpu", 2}} }, anew: holding},
		"granted pods":    {edit: func(d *Workload) { d.Granted = map[string]int32{"main": 0} }, anew: never},
		"since when":      {edit: func(d *Workload) { d.ReservedAt++ }, anew: holding},
	}
	for name, tc := range tests {
		for i, reserved := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", holding", false: ", waiting"}[reserved], func(t *testing.T) {
				s := statisticsWorld(2, 0)
				def := Workload{
					UID: "w", Namespace: "ns", Name: "w", Version: 1, Generation: 1, LocalQueue: "q0-0", Created: 1, Since: 2, Queueable: true,
					PodSets: []PodSet{{Name: "main", Count: 1}}, Problem: &workload.Problem{Reason: "r", Note: "n"}, Evicting: tc.undid,
					Reserved: reserved, Queue: "q0", Held: []Held{{"main", "f", "cpu", 1}}, ReservedAt: 3,
				}
				s.Apply(SetWorkload(def))
				r := s.records["w"]
				before := r.wl
				def.Version++
				tc.edit(&def)
				s.Apply(SetWorkload(def))
				if anew := r.wl != before; anew != tc.anew[i] {
					t.Errorf("placed anew: %v, want %v", anew, tc.anew[i])
				}
				if r.wl.MinRun != def.MinRun {
					t.Errorf("the minimum of its value is %d", r.wl.MinRun)
				}
				if !def.Reserved { // then this is not kept
					def.Queue, def.Held, def.ReservedAt, def.Granted = "", nil, 0, nil
				}
				def.PodSets[0].Requests = []Request{}
				if diff := cmp.Diff(def, r.def.workload(s.world.Table.Names())); diff != "" {
					t.Errorf("what is kept of it (-want +got):\n%s", diff)
				}
			})
		}
	}
}
