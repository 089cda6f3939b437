package plan

import (
	"cmp"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// defaultGroup is the group of a replicated job that names none.
const defaultGroup = "default"

// replicated is one replicated job and the position of its Jobs.
type replicated struct {
	*jobsetv1alpha2.ReplicatedJob
	replicas int32
	// firstGlobal and firstInGroup are the indexes of its Job 0 in the JobSet and in the group.
	firstGlobal, firstInGroup int
	group                     string
	hash                      string // of the fields that a resume changes; see fingerprint
	arrays                    *jobsetv1alpha2.ReplicatedJobStatus
}

type layout struct {
	replicated     []replicated
	byName         map[string]int // position in replicated
	globalReplicas int
	groupReplicas  map[string]int
	priorities     Priorities
	coordinator    string // its address, or empty
	dns            bool
	subdomain      string
}

func newLayout(c Config, js *jobsetv1alpha2.JobSet, priorities Priorities) *layout {
	n := len(js.Spec.ReplicatedJobs)
	l := &layout{
		replicated: make([]replicated, 0, n), byName: make(map[string]int, n), groupReplicas: map[string]int{},
		priorities: priorities, dns: HasService(js), subdomain: ServiceName(js), coordinator: CoordinatorAddress(js),
	}
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		r := replicated{ReplicatedJob: rj, replicas: Replicas(rj), group: cmp.Or(rj.GroupName, defaultGroup), hash: fingerprint(rj)}
		r.firstGlobal, r.firstInGroup = l.globalReplicas, l.groupReplicas[r.group]
		l.globalReplicas += int(r.replicas)
		l.groupReplicas[r.group] += int(r.replicas)
		if c.RestartJob {
			r.arrays = countersOf(&js.Status, rj.Name)
		}
		l.byName[rj.Name] = i
		l.replicated = append(l.replicated, r)
	}
	return l
}

// countersOf returns the entry of a status about a replicated job, or nil.
func countersOf(status *jobsetv1alpha2.JobSetStatus, name string) *jobsetv1alpha2.ReplicatedJobStatus {
	for i := range status.ReplicatedJobsStatus {
		if s := &status.ReplicatedJobsStatus[i]; s.Name == name {
			return s
		}
	}
	return nil
}

// Replicas returns the number of Jobs of a replicated job.
func Replicas(rj *jobsetv1alpha2.ReplicatedJob) int32 {
	return max(ptr.Deref(rj.Replicas, 1), 0)
}

// HasService reports whether pods get host names, and so the JobSet a Service. An absent setting counts as off
// (spec: 60 §3.1).
func HasService(js *jobsetv1alpha2.JobSet) bool {
	return js.Spec.Network != nil && ptr.Deref(js.Spec.Network.EnableDNSHostnames, false)
}

// ServiceName returns the name of the headless Service, which is the subdomain of the pods (spec: 60 §4.9).
func ServiceName(js *jobsetv1alpha2.JobSet) string {
	if js.Spec.Network != nil && js.Spec.Network.Subdomain != "" {
		return js.Spec.Network.Subdomain
	}
	return js.Name
}

// JobName returns the name of the Job with an index (spec: 60 §4.2).
func JobName(jobSet, replicatedJob string, index int) string {
	return jobSet + "-" + replicatedJob + "-" + strconv.Itoa(index)
}

// CoordinatorAddress returns the host name of the coordinator within the namespace, or empty if there is none.
func CoordinatorAddress(js *jobsetv1alpha2.JobSet) string {
	c := js.Spec.Coordinator
	if c == nil {
		return ""
	}
	return JobName(js.Name, c.ReplicatedJob, c.JobIndex) + "-" + strconv.Itoa(c.PodIndex) + "." + ServiceName(js)
}

func controllerRef(js *jobsetv1alpha2.JobSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet))}
}
