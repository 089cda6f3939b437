// Package lookup has the lookups that the reconciler and the webhook of jobs
// share: the configuration of the plans, and the reads of the hard gate.
package lookup

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Manager is the field manager of writes by the controller of a kind (spec: 30 §5.3).
func Manager(d *job.Descriptor) string {
	return "kueue-" + strings.ToLower(d.GVK.Kind) + "-controller"
}

// replicaSet is between pods and Deployments, so the walk up the owners passes it.
var replicaSet = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}

var pods = corev1.SchemeGroupVersion.WithKind("Pod")

// NewConfig returns the configuration of jobs from the options.
func NewConfig(o *options.Options) *job.Config {
	on := o.Gates.On
	seriesLabels, seriesAnnotations := o.Metrics.WorkloadLabels()
	return &job.Config{
		ManagedNamespaces:        o.ManagedNamespaces,
		ManageAll:                o.ManageJobsWithoutQueueName,
		Kinds:                    kinds(o),
		VerifyOwners:             o.VerifyOwners,
		ExternalOwns:             externalOwns(o),
		PodsOfParentsOnly:        podsOfParentsOnly(o),
		LabelKeysToCopy:          o.LabelKeysToCopy,
		SeriesLabels:             seriesLabels,
		SeriesAnnotations:        seriesAnnotations,
		WaitForPodsReady:         o.PodsReady.Enabled,
		DeleteDeactivatedAfter:   o.Retention.Deactivated,
		Lifecycle:                Machine(o),
		AdmissionGatedBy:         on(feature.AdmissionGatedBy),
		AssignQueueLabels:        on(feature.AssignQueueLabelsForPods),
		AnnotationIdentifiers:    on(feature.WorkloadIdentifierAnnotations),
		DefaultPriorityClass:     on(feature.WorkloadPriorityClassDefaulting),
		ElasticJobs:              on(feature.ElasticJobsViaWorkloadSlices),
		FinishOrphans:            on(feature.FinishOrphanedWorkloads),
		MultiKueue:               on(feature.MultiKueue),
		PartialAdmission:         on(feature.PartialAdmission),
		ReclaimablePods:          on(feature.ReclaimablePods),
		ShortNames:               on(feature.ShortWorkloadNames),
		HonourUserSuspend:        o.HonourUserSuspend,
		MaxChildren:              o.MaxChildren,
		MaxMinRunTime:            o.MaxMinRunTime,
		SkipOwnersWhenDeleting:   on(feature.SkipAncestorCheckForDeletedWorkloads),
		Topology:                 on(feature.TopologyAwareScheduling),
		TopologySliceConstraints: on(feature.TASMultiLayerTopology),
	}
}

// Machine returns the state machine of Workloads from the options.
func Machine(o *options.Options) lifecycle.Machine {
	return lifecycle.Machine{
		LegacyReasons:    !o.Gates.On(feature.UnadmittedWorkloadsObservability),
		ExplicitStatus:   o.Gates.On(feature.UnadmittedWorkloadsExplicitStatus),
		WaitForPodsReady: o.PodsReady.Enabled,
		IgnorePlaces:     !o.Gates.On(feature.TopologyAwareScheduling),
	}
}

// Rules returns the lifecycle rules of Workloads from the options.
func Rules(o *options.Options) lifecycle.Rules {
	r := lifecycle.Rules{
		Machine: Machine(o), KeepFinished: o.Retention.Finished,
		Orphans: o.Gates.On(feature.FinishOrphanedWorkloads), Gated: o.Gates.On(feature.AdmissionGatedBy),
	}
	if p := o.PodsReady; p.Enabled {
		r.Ready = &lifecycle.ReadyRules{Timeout: p.Timeout, Recovery: p.Recovery, Base: p.BackoffBase, Max: p.BackoffMax, Limit: p.BackoffLimit}
	}
	return r
}

// podsOfParentsOnly reports whether pods are integrated only for the serving kinds (spec: 30 §2.2).
func podsOfParentsOnly(o *options.Options) bool {
	podsThemselves, podsOfOthers := false, false
	for _, f := range options.Frameworks() {
		listed := slices.Contains(o.Frameworks, f.Name)
		podsThemselves = podsThemselves || (listed && f.GVK == pods)
		podsOfOthers = podsOfOthers || (listed && f.Serves)
	}
	return podsOfOthers && !podsThemselves
}

// externalOwns are the kinds that external kinds own: nil, which is any, where the options name none.
func externalOwns(o *options.Options) map[schema.GroupVersionKind][]schema.GroupVersionKind {
	out := map[schema.GroupVersionKind][]schema.GroupVersionKind{}
	for _, gvk := range o.ExternalFrameworks {
		out[gvk] = o.ExternalOwns[gvk]
	}
	return out
}

// kinds are all kinds that may own jobs, mapped to whether they are enabled.
func kinds(o *options.Options) job.Kinds {
	out := job.Kinds{replicaSet: false}
	for _, f := range options.Frameworks() {
		out[f.GVK] = slices.Contains(o.Frameworks, f.Name)
	}
	if podsOfParentsOnly(o) {
		out[pods] = true
	}
	for _, gvk := range o.ExternalFrameworks {
		out[gvk] = true
	}
	for _, k := range o.DeclaredKinds {
		out[k.GVK] = true
	}
	return out
}
