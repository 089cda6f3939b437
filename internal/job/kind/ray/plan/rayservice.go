// Package plan computes the quota that the clusters of a RayService may use, and
// which clusters and pods may run.
//
//	clusters: active 1+2, pending 1+2 (another shape) ─► Demand: head x2, workers x2, workers-1a2b3c4d x2
//	slice S, admitted ────────────────────────────────► Covers: may the pending cluster start?
//	pods, gated ──────────────────────────────────────► Free: as many as S has room for
//
// KubeRay upgrades a service by a second cluster beside the first. It is created
// suspended and starts only once a slice is admitted that has room for both; when
// the first is gone, the slice shrinks. Pods with different requests are different
// pod sets, also if their groups have the same name, so that each is charged
// exactly and gets flavors of its own (spec: 30 §4.10.3).
//
// All of it is a function of the observation. There is no state to lose with a
// process.
package plan

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	placementplan "github.com/berth-project/berth/internal/placement/plan"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Rank is the role of a cluster in its service.
type Rank int

// The ranks, in the order in which pods get room.
const (
	Active   Rank = iota // it gets the service's traffic
	Pending              // it is to become the active one
	Dangling             // neither; it will be deleted
	Deleting
)

// Cluster is a RayCluster of the service.
type Cluster struct {
	Name string
	UID  types.UID
	Rank Rank
	// Held reports that it is suspended: it has no pods.
	Held bool
	// Current reports that it matches the service's spec.
	Current bool
	// Twin reports that KubeRay made it for the same spec as the active cluster.
	Twin bool
	// Groups are its pod sets, named like its groups.
	Groups []kueue.PodSet
	// Breach is the value of UngatedAnnotation.
	Breach string
}

// Service is a RayService with its dependents.
type Service struct {
	// Spec are the pod sets of a new cluster.
	Spec []kueue.PodSet
	// Suspended reports that it is stopped, with all its clusters.
	Suspended bool
	Clusters  []Cluster
	// Pods are the pods of the clusters, and of deleted clusters.
	Pods []*corev1.Pod
	// Slices are the Workloads of the service.
	Slices []*kueue.Workload
	// HoldPods reports that pods wait for quota by their gates, and clusters are not suspended.
	HoldPods bool
	// Stays reports that KubeRay never replaces a cluster.
	Stays bool
	// BySteps reports that KubeRay moves the traffic in steps, and moves it back if an upgrade is reverted.
	BySteps bool
}

// Labels of KubeRay's pods.
const (
	ClusterLabel = "ray.io/cluster"
	GroupLabel   = "ray.io/group"
	headGroup    = "headgroup"
	headSet      = "head"
)

// group is the name of a pod's pod set in its cluster.
func group(pod *corev1.Pod) string {
	if name := strings.ToLower(pod.Labels[GroupLabel]); name != headGroup {
		return name
	}
	return headSet
}

// cluster is the cluster that controls a pod, or nil.
func (s *Service) cluster(pod *corev1.Pod) *Cluster {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return nil
	}
	at := slices.IndexFunc(s.Clusters, func(c Cluster) bool { return c.UID == ref.UID })
	if at < 0 {
		return nil
	}
	return &s.Clusters[at]
}

// ranked are the clusters in the order in which their pods get room.
func (s *Service) ranked() []*Cluster {
	out := make([]*Cluster, len(s.Clusters))
	for i := range out {
		out[i] = &s.Clusters[i]
	}
	slices.SortFunc(out, func(a, b *Cluster) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Name, b.Name)) })
	return out
}

// Runs reports whether a pod may use resources: it has no gate, or that is unknown, and it has not ended. A pod that is being
// deleted uses them until it is gone.
func Runs(pod *corev1.Pod) bool { return !placementplan.IsGated(pod) && !placementplan.IsOver(pod) }

func (s *Service) hasRun(c *Cluster) bool {
	return slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
		ref := metav1.GetControllerOf(p)
		return ref != nil && ref.UID == c.UID && Runs(p)
	})
}

// IsStale reports whether a cluster without running pods is not needed: the service's spec has changed since, or the active cluster
// matches it. A cluster that has run counts in full: KubeRay deletes it in its own order.
func (s *Service) IsStale(c *Cluster) bool {
	return c.Rank == Pending && !s.hasRun(c) && (s.isWithdrawn(c) || (!c.Current && !s.Stays))
}

// isWithdrawn reports whether a pending cluster is of a reverted upgrade. KubeRay does not end such an upgrade, except with steps:
// it compares the spec with the pending cluster, and makes another one that is the twin of the active one. KubeRay's hash decides
// about twins: clusters that only look equal would be made again and again.
func (s *Service) isWithdrawn(c *Cluster) bool {
	unchanged := slices.ContainsFunc(s.Clusters, func(x Cluster) bool { return x.Rank == Active && x.Current })
	return c.Twin || (unchanged && !c.Current && !s.BySteps)
}

// Withdraws returns the pending cluster of an upgrade that was reverted before any of its pods ran, nil if there is none. It must
// be deleted, and removed from the service's status; otherwise KubeRay makes it again by its name.
func (s *Service) Withdraws() *Cluster {
	for _, c := range s.ranked() {
		if !s.Suspended && c.Rank == Pending && !s.hasRun(c) && s.isWithdrawn(c) {
			return c
		}
	}
	return nil
}

// counts reports whether a cluster is to have all its pods.
func (s *Service) counts(c *Cluster) bool { return c.Rank <= Pending && !s.IsStale(c) }

// Waits reports whether a cluster still waits for quota: it is suspended, or its pods are gated and there is no room for all of
// them.
func (s *Service) Waits(c *Cluster) bool {
	if s.HoldPods && c.Breach != Reheld {
		return s.counts(c) && s.begins(c) && !s.hasRoomFor(s.demand(s.names(), func(*Cluster) bool { return true }))
	}
	return s.counts(c) && c.Held
}

// begins reports whether a cluster is to start, and Berth has ungated none of its pods. Pods that an administrator ungated do not
// count.
func (s *Service) begins(c *Cluster) bool {
	return c.Rank == Pending && !slices.ContainsFunc(s.podsOf(c), func(p *corev1.Pod) bool { return Runs(p) && p.Labels[kueue.PodSetLabel] != "" })
}

// hasRoomFor reports whether the admitted slice has room for a demand.
func (s *Service) hasRoomFor(wanted []kueue.PodSet) bool {
	w := s.Granting()
	return w != nil && !slices.ContainsFunc(wanted, func(p kueue.PodSet) bool { return p.Count > chain.Granted(w, p.Name) })
}

// Granting is the slice by which the service runs, or nil.
func (s *Service) Granting() *kueue.Workload { return chain.Granting(s.Slices) }

// Covers reports whether a cluster may run: the admitted slice has room for it beside all that runs already or may run at any time.
func (s *Service) Covers(c *Cluster) bool {
	return !s.Suspended && s.counts(c) && s.hasRoomFor(s.demand(s.names(), func(x *Cluster) bool { return x.UID == c.UID || !s.Waits(x) }))
}

// Releases returns the cluster to unsuspend next, nil if there is none. A stale one is unsuspended too, but its pods keep their
// gates: only once it has a pod does KubeRay detect that it is not needed, and delete it.
func (s *Service) Releases() (c *Cluster, stale bool) {
	if s.Suspended {
		return nil, false
	}
	for _, c := range s.ranked() {
		switch {
		case !c.Held || c.Rank > Pending:
		case s.HoldPods && c.Breach != Reheld:
			return c, false
		case s.IsStale(c):
			return c, true
		case s.Covers(c):
			return c, false
		}
	}
	return nil, false
}

// MayRelease reports whether a cluster may be unsuspended now, by any client.
func (s *Service) MayRelease(uid types.UID) bool {
	at := slices.IndexFunc(s.Clusters, func(c Cluster) bool { return c.UID == uid })
	return at >= 0 && (s.Covers(&s.Clusters[at]) || (!s.Suspended && s.IsStale(&s.Clusters[at])))
}

// Free returns the pods to ungate, with the values of infos, by pod set. The active cluster comes first; a cluster that is not
// covered yet gets nothing, so that it does not start partially.
func (s *Service) Free(infos []job.PodSetInfo) []*corev1.Pod {
	w := s.Granting()
	if w == nil || s.Suspended {
		return nil
	}
	n := s.names()
	room := s.room(n, w)
	var out []*corev1.Pod
	for _, c := range s.ranked() {
		if !s.counts(c) || (s.begins(c) && !s.Covers(c)) {
			continue
		}
		for _, pod := range s.podsOf(c) {
			set := n.ofPod(s, pod)
			at := slices.IndexFunc(infos, func(i job.PodSetInfo) bool { return i.Name == set })
			if Runs(pod) || placementplan.IsOver(pod) || pod.DeletionTimestamp != nil || at < 0 || room[set] <= 0 {
				continue
			}
			if free := placementplan.Free(pod, &infos[at]); free != nil {
				out = append(out, free)
				room[set]--
			}
		}
	}
	return out
}

// HasRoom reports whether a gated pod may be ungated, by any client.
func (s *Service) HasRoom(pod *corev1.Pod) bool {
	w := s.Granting()
	c := s.cluster(pod)
	if w == nil || s.Suspended || c == nil || !s.counts(c) || (s.begins(c) && !s.Covers(c)) {
		return false
	}
	n := s.names()
	return s.room(n, w)[n.ofPod(s, pod)] > 0
}

// room is the number of further pods of each set that may run.
func (s *Service) room(n *names, w *kueue.Workload) map[kueue.PodSetReference]int32 {
	out := map[kueue.PodSetReference]int32{}
	for i := range w.Spec.PodSets {
		out[w.Spec.PodSets[i].Name] = chain.Granted(w, w.Spec.PodSets[i].Name)
	}
	for _, pod := range s.Pods {
		if Runs(pod) {
			out[n.ofPod(s, pod)]--
		}
	}
	return out
}

func (s *Service) podsOf(c *Cluster) []*corev1.Pod {
	return slices.DeleteFunc(s.byName(), func(p *corev1.Pod) bool { return s.cluster(p) != c })
}

func (s *Service) byName() []*corev1.Pod {
	return slices.SortedFunc(slices.Values(s.Pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}
