package ctl

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// kind is a kind of object, with the names under which the commands know it.
type kind struct {
	name, kind string   // clusterqueue, ClusterQueue
	aliases    []string // cq, clusterqueues
	namespaced bool
	object     func() client.Object
}

// plural is the name of the resource.
func (k *kind) plural() string { return k.aliases[len(k.aliases)-1] }

// is says whether a word names the kind.
func (k *kind) is(word string) bool {
	word = strings.TrimSuffix(strings.ToLower(word), "."+kueue.GroupVersion.Group)
	return word == k.name || slices.Contains(k.aliases, word)
}

// The kinds of the queueing API; the plural is the last alias. spec: 70 §4.9.
var (
	clusterQueueKind   = &kind{"clusterqueue", "ClusterQueue", []string{"cq", "clusterqueues"}, false, func() client.Object { return &kueue.ClusterQueue{} }}
	localQueueKind     = &kind{"localqueue", "LocalQueue", []string{"lq", "localqueues"}, true, func() client.Object { return &kueue.LocalQueue{} }}
	workloadKind       = &kind{"workload", "Workload", []string{"kwl", "kueueworkload", "kueueworkloads", "wl", "workloads"}, true, func() client.Object { return &kueue.Workload{} }}
	resourceFlavorKind = &kind{"resourceflavor", "ResourceFlavor", []string{"rf", "resourceflavors"}, false, func() client.Object { return &kueue.ResourceFlavor{} }}
	cohortKind         = &kind{"cohort", "Cohort", []string{"cohorts"}, false, func() client.Object { return &kueue.Cohort{} }}
	topologyKind       = &kind{"topology", "Topology", []string{"topologies"}, false, func() client.Object { return &kueue.Topology{} }}
	admissionCheckKind = &kind{"admissioncheck", "AdmissionCheck", []string{"ac", "admissionchecks"}, false, func() client.Object { return &kueue.AdmissionCheck{} }}
	priorityClassKind  = &kind{"workloadpriorityclass", "WorkloadPriorityClass", []string{"wpc", "workloadpriorityclasses"}, false, func() client.Object { return &kueue.WorkloadPriorityClass{} }}
)

var kinds = []*kind{
	workloadKind, localQueueKind, clusterQueueKind, cohortKind, resourceFlavorKind, topologyKind, admissionCheckKind, priorityClassKind,
}

// kindOf finds the kind that a word names, nil if it names none.
func kindOf(word string) *kind {
	for _, k := range kinds {
		if k.is(word) {
			return k
		}
	}
	return nil
}
