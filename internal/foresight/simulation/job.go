// Package simulation runs a workload trace against a State, and measures what comes of it.
package simulation

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Second is a second in the engine's unit of time.
const Second = workload.Instant(1e9)

// Job is one line of a trace.
type Job struct {
	Name string
	// Class groups jobs in the results, "" for one by the number of pods.
	Class string
	// Namespace and LocalQueue are where it is queued; an empty LocalQueue is chosen by the caller.
	Namespace, LocalQueue string
	Priority              int64
	Submit                workload.Instant // since the beginning
	Run                   workload.Instant // how long it runs once it is admitted
	Limit                 workload.Instant // the time limit that it was submitted with, at least Run; 0 for none
	Pods                  int32
	PerPod                []state.Request
	// Required and Preferred are the level of a topology in one domain of which all pods have to be, or should be; at most one of them.
	Required, Preferred string
	// Slice is the level in one domain of which each SliceSize pods have to be; "" and 0 for no slices.
	Slice     string
	SliceSize int32
	// Owner is the number of the user, group or queue that the trace names, by which a caller may choose the LocalQueue.
	Owner int64
	// Line is where it is in its file, 0 if it is in none.
	Line int
}

// class returns the class of a job.
func (j *Job) class() string {
	if j.Class != "" {
		return j.Class
	}
	for _, most := range []int32{1, 8, 64, 512} {
		if j.Pods <= most {
			return byPods[most]
		}
	}
	return byPods[0]
}

var byPods = map[int32]string{1: "1 pod", 8: "2 to 8 pods", 64: "9 to 64 pods", 512: "65 to 512 pods", 0: "more pods"}

// InOrder sorts jobs by the time of their submission; jobs of one time keep their order.
func InOrder(jobs []Job) {
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
}

// definition returns the Workload of a job of a number. places tells whether pods get places on nodes.
func (j *Job) definition(number int, start workload.Instant, places bool) state.Workload {
	uid := uidOf(number)
	total := make([]state.Request, len(j.PerPod))
	for i, r := range j.PerPod {
		total[i] = state.Request{Resource: r.Resource, Amount: r.Amount.Mul(int64(j.Pods))}
	}
	perPod := j.PerPod
	if places {
		perPod = append(slices.Clip(perPod), state.Request{Resource: string(corev1.ResourcePods), Amount: 1})
	}
	return state.Workload{
		UID: uid, Namespace: j.Namespace, Name: uid, Version: 1, Generation: 1, LocalQueue: j.LocalQueue, Priority: j.Priority,
		Created: start + j.Submit, Since: start + j.Submit, Queueable: true, Bound: j.Limit,
		PodSets: []state.PodSet{{Name: "main", Count: j.Pods, Requests: total, PerPod: perPod, Topology: j.topology(), Constraints: &none}},
	}
}

func (j *Job) topology() *workload.Topology {
	if j.Required+j.Preferred+j.Slice == "" {
		return nil
	}
	t := &workload.Topology{Required: j.Required, Preferred: j.Preferred}
	if j.Slice != "" {
		t.Slices = []workload.SliceLayer{{Level: j.Slice, Size: j.SliceSize}}
	}
	return t
}

// none are the constraints of all pods of a trace.
var none workload.Constraints

// uidOf returns a UID that sorts by number.
func uidOf(number int) string { return fmt.Sprintf("%09d", number) }

// numberOf is the inverse of uidOf, -1 for other workloads.
func numberOf(uid string) int {
	if len(uid) != 9 {
		return -1
	}
	n := 0
	for _, c := range []byte(uid) {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}
