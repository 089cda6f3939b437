package state

import (
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// The definitions below are the input of a State, as values. They must not be modified
// after they were handed over.

// Quota is the quota of a ClusterQueue or Cohort of one resource of one flavor. Limits that
// are not set are quota.NoLimit.
type Quota struct {
	Resource              string
	Nominal, Borrow, Lend resource.Amount
}

// FlavorQuota is one flavor of a resource group.
type FlavorQuota struct {
	Flavor    string
	Resources []Quota // the same resources in the same order in every flavor of a group
}

// Group is a resource group: its flavors in order of preference.
type Group struct {
	Resources []string
	Flavors   []FlavorQuota
}

// Cohort defines a Cohort. A cohort that is only named, by a queue or a child, exists
// without quota.
type Cohort struct {
	Name, Parent string
	Groups       []Group
	Weight       *quota.Weight // of its fair share; nil is the default
}

// Queue defines a ClusterQueue.
type Queue struct {
	Name, Cohort string
	Groups       []Group
	Closed       string // why no workload is admitted, as a clause; "" is open
	Strict       bool
	Namespaces   []workload.Term // ORed; none selects no namespace
	Fungibility  flavor.Fungibility
	Preemption   preempt.Policy
	Weight       *quota.Weight // of its fair share; nil is the default
	// DelayAll, or DelayFlavors for these flavors: pods are placed once the admission checks are ready.
	// spec: 20 §4.7.4.
	DelayAll     bool     `json:",omitempty"`
	DelayFlavors []string `json:",omitempty"`
	// PlacedElsewhere: pods run in other clusters, and get no places here.
	PlacedElsewhere bool `json:",omitempty"`
	// Backfill: its first blocked workloads get reserved starts, before which others start if they do not move those. It has no effect where
	// UsageBased, Checked or with Variants. Checked: workloads are admitted some time after they got their quota, so no bound of their runs is
	// known before.
	Backfill cycle.Backfill `json:",omitempty"`
	Checked  bool           `json:",omitempty"`
	// UsageBased: its workloads are in the order of the standings of their LocalQueues first. spec: 20 §4.4.
	UsageBased bool `json:",omitempty"`
	// Variants: jobs are queued as variants, one for each flavor. A job that runs on one may migrate to those with a Rank below MigratesTo.
	// spec: 20 §4.13.
	Variants   bool  `json:",omitempty"`
	MigratesTo int32 `json:",omitempty"`
}

// LocalQueue defines a tenant's queue, which leads to a ClusterQueue.
type LocalQueue struct {
	Namespace, Name string
	Queue           string
	// Stopped: it admits nothing, because it is being deleted if Deleted is set as well.
	Stopped bool
	Deleted bool `json:",omitempty"`
	// Weight divides its usage: 0 is the default of 1, and one below 0 stands for 0. spec: 20 §2.1.
	Weight float64 `json:",omitempty"`
}

func (l *LocalQueue) key() Name { return Name{l.Namespace, l.Name} }

// Namespace is a namespace with its labels.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Request is what is requested of one resource, whatever the flavor: by all pods of a pod set, or by all pending workloads of a queue.
type Request struct {
	Resource string
	Amount   resource.Amount
}

// PodSet defines a pod set. Requests are sorted by resource.
type PodSet struct {
	Name        string
	Count       int32
	MinCount    int32  // may be admitted with as few as that; 0 for all or nothing
	Group       string // pod sets of one group get the same flavors; "" is a group of its own
	Requests    []Request
	Constraints *workload.Constraints
	// PerPod, Topology and Elastic are as in workload.PodSet.
	PerPod   []Request          `json:",omitempty"`
	Topology *workload.Topology `json:",omitempty"`
	Elastic  bool               `json:",omitempty"`
	// Shape is a canonical text of all properties of the pods that scheduling distinguishes,
	// Constraints included, beyond the other fields; equal pod sets have equal shapes.
	Shape string
}

// Held is the reservation of a workload of one flavor-resource, in one pod set or, without
// one, in all.
type Held struct {
	PodSet           string
	Flavor, Resource string
	Amount           resource.Amount
}

// Workload defines a Workload as of one version of the API object.
type Workload struct {
	UID, Namespace, Name string
	Version              uint64 // of the API object; older ones are ignored
	Generation           int64  // of its spec
	LocalQueue           string
	Priority             int64
	Created, Since       workload.Instant
	PodSets              []PodSet

	// Owner is the UID of its controller, "" for none.
	Owner string
	// Replaces is the name of the slice, in the same namespace, that it replaces once it is
	// admitted. It counts only if both have the same owner, or none.
	Replaces string
	// VariantOf is the UID of the parent, in the same namespace, of which it is a variant; "" for none. Of the variants of a parent the
	// preferred one has the lowest Rank. Holds: its status contains a reservation, which does not count where it is deactivated.
	// Divisible: it is no variant, and a ClusterQueue with Variants does not queue it. spec: 20 §4.13.
	VariantOf string `json:",omitempty"`
	Rank      int32  `json:",omitempty"`
	Holds     bool   `json:",omitempty"`
	Divisible bool   `json:",omitempty"`
	// Gated: it may not preempt others.
	Gated bool
	// MinRun is how long it runs at least before it is preempted, unless no other victims suffice; 0 for no time.
	MinRun workload.Instant `json:",omitempty"`
	// Bound is how long it runs at most from its reservation on, or will run from one; 0 for no bound.
	Bound workload.Instant `json:",omitempty"`
	// Problem is why it cannot be admitted whatever quota is free; nil for none.
	Problem *workload.Problem
	// Resting: it is backed off: it will be pending, but not before a time that the caller knows.
	Resting bool

	// Queueable: it may be pending. A workload that is finished, deactivated, gated or being
	// deleted may not.
	Queueable bool
	// Told: its status already contains that it waits, and so has to contain the reason.
	Told bool

	// Reserved: it has a reservation in Queue and holds Held, whatever the state of the queue.
	Reserved, Admitted, Evicting bool
	// Ready: all its pods are ready.
	Ready      bool
	Queue      string
	Held       []Held
	ReservedAt workload.Instant
	// Granted is the number of pods that the reservation is for, by pod set, where that is fewer than it has. spec: 20 §4.10.
	Granted map[string]int32 `json:",omitempty"`
	// Placed is where the pods of its pod sets are placed. Delayed are the pod sets that wait for
	// their places, and PlaceNow reports that these may be found now. Unhealthy are the failed nodes to
	// replace, and Updates what admission checks add to the pods.
	Placed    []PodSetPlacement `json:",omitempty"`
	Delayed   []string          `json:",omitempty"`
	PlaceNow  bool              `json:",omitempty"`
	Unhealthy []string          `json:",omitempty"`
	Updates   []PodSetUpdate    `json:",omitempty"`
}

// Key is namespace/name.
func (w *Workload) Key() string { return w.Namespace + "/" + w.Name }
