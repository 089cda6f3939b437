package cluster

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Kind is a kind of object, with its names in commands.
type Kind struct {
	Name, Kind string   // clusterqueue, ClusterQueue
	Aliases    []string // cq, clusterqueues
	Namespaced bool
	Object     func() client.Object
}

// Plural returns the name of the resource.
func (k *Kind) Plural() string { return k.Aliases[len(k.Aliases)-1] }

// Is reports whether a word names the kind.
func (k *Kind) Is(word string) bool {
	word = strings.TrimSuffix(strings.ToLower(word), "."+kueue.GroupVersion.Group)
	return word == k.Name || slices.Contains(k.Aliases, word)
}

// The kinds of the queueing API; the plural is the last alias. spec: 70 §4.9.
var (
	ClusterQueue          = &Kind{"clusterqueue", "ClusterQueue", []string{"cq", "clusterqueues"}, false, func() client.Object { return &kueue.ClusterQueue{} }}
	LocalQueue            = &Kind{"localqueue", "LocalQueue", []string{"lq", "localqueues"}, true, func() client.Object { return &kueue.LocalQueue{} }}
	Workload              = &Kind{"workload", "Workload", []string{"kwl", "kueueworkload", "kueueworkloads", "wl", "workloads"}, true, func() client.Object { return &kueue.Workload{} }}
	ResourceFlavor        = &Kind{"resourceflavor", "ResourceFlavor", []string{"rf", "resourceflavors"}, false, func() client.Object { return &kueue.ResourceFlavor{} }}
	Cohort                = &Kind{"cohort", "Cohort", []string{"co", "cohorts"}, false, func() client.Object { return &kueue.Cohort{} }}
	Topology              = &Kind{"topology", "Topology", []string{"topologies"}, false, func() client.Object { return &kueue.Topology{} }}
	AdmissionCheck        = &Kind{"admissioncheck", "AdmissionCheck", []string{"ac", "admissionchecks"}, false, func() client.Object { return &kueue.AdmissionCheck{} }}
	WorkloadPriorityClass = &Kind{"workloadpriorityclass", "WorkloadPriorityClass", []string{"wpc", "workloadpriorityclasses"}, false, func() client.Object { return &kueue.WorkloadPriorityClass{} }}
)

// Kinds lists all of them.
var Kinds = []*Kind{
	Workload, LocalQueue, ClusterQueue, Cohort, ResourceFlavor, Topology, AdmissionCheck, WorkloadPriorityClass,
}

// KindOf finds the kind of that name, or nil.
func KindOf(word string) *Kind {
	for _, k := range Kinds {
		if k.Is(word) {
			return k
		}
	}
	return nil
}
