// Package plan counts what the clusters of a RayService may use, and says
// which of them, and which of their pods, may run.
//
//	clusters: active 1+2, pending 1+2 (another shape) ─► Demand: head x2, workers x2, workers-1a2b3c4d x2
//	slice S, admitted ────────────────────────────────► Covers: may the pending cluster start?
//	pods, gated ──────────────────────────────────────► Free: as many as S has room for
//
// KubeRay upgrades a service by a second cluster beside the first. That one is
// born stopped and starts only once a slice is admitted that has room for both;
// when the first is gone, the slice shrinks. Pods that ask for different things
// are different pod sets, also if their groups have the same name, so that each
// is charged for what it is and gets flavors of its own (spec: 30 §4.10.3).
//
// All of it is a function of what is there. Nothing is remembered, so nothing is
// lost with a process.
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

// Rank is what a cluster is to its service.
type Rank int

// The ranks, in the order in which pods get room.
const (
	Active   Rank = iota // its service's traffic goes there
	Pending              // it is to become the active one
	Dangling             // it is neither, and will be deleted
	Deleting
)

// Cluster is a RayCluster of the service.
type Cluster struct {
	Name string
	UID  types.UID
	Rank Rank
	// Held says that it is suspended: it has no pods.
	Held bool
	// Current says that it is what the service asks for now.
	Current bool
	// Twin says that KubeRay made it for exactly what it made the active one for.
	Twin bool
	// Groups are the pod sets that it wants, named as its groups are.
	Groups []kueue.PodSet
	// Breach is what UngatedAnnotation says of it.
	Breach string
}

// Service is a RayService with all that belongs to it.
type Service struct {
	// Spec are the pod sets that a new cluster would want.
	Spec []kueue.PodSet
	// Suspended says that it is stopped, with all its clusters.
	Suspended bool
	// Clusters are in any order.
	Clusters []Cluster
	// Pods are those of the clusters, and those that outlived theirs.
	Pods []*corev1.Pod
	// Slices are the Workloads of the service.
	Slices []*kueue.Workload
	// HoldPods says that clusters are not held: their pods are, by their gates.
	HoldPods bool
	// Stays says that KubeRay replaces no cluster, whatever the service asks for.
	Stays bool
	// BySteps says that KubeRay moves the traffic by steps, and moves it back if an upgrade is taken back.
	BySteps bool
}

// Labels by which KubeRay tells what a pod is for.
const (
	ClusterLabel = "ray.io/cluster"
	GroupLabel   = "ray.io/group"
	headGroup    = "headgroup"
	headSet      = "head"
)

// group is the name of the pod set, as a cluster has it, that a pod belongs to.
func group(pod *corev1.Pod) string {
	if name := strings.ToLower(pod.Labels[GroupLabel]); name != headGroup {
		return name
	}
	return headSet
}

// cluster is the one that controls a pod, or nil.
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

// ranked are the clusters, those first whose pods get room first.
func (s *Service) ranked() []*Cluster {
	out := make([]*Cluster, len(s.Clusters))
	for i := range out {
		out[i] = &s.Clusters[i]
	}
	slices.SortFunc(out, func(a, b *Cluster) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Name, b.Name)) })
	return out
}

// Runs reports whether a pod may use resources: it has no gate, or nobody can tell, and it is not over. One that is being
// deleted uses them until it is gone.
func Runs(pod *corev1.Pod) bool { return !placementplan.IsGated(pod) && !placementplan.IsOver(pod) }

// hasRun reports whether a pod of the cluster runs.
func (s *Service) hasRun(c *Cluster) bool {
	return slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
		ref := metav1.GetControllerOf(p)
		return ref != nil && ref.UID == c.UID && Runs(p)
	})
}

// IsStale reports whether a cluster of which no pod has run is not what the service needs: it was made for something that the
// service does not ask for any more, or the active one is what it asks for. A cluster that has run counts in full: KubeRay
// takes it away in an order of its own.
func (s *Service) IsStale(c *Cluster) bool {
	return c.Rank == Pending && !s.hasRun(c) && (s.isWithdrawn(c) || (!c.Current && !s.Stays))
}

// isWithdrawn reports whether a pending cluster is that of an upgrade that was taken back. KubeRay does not end such an upgrade
// unless it goes by steps: it compares what is asked for with the pending cluster, and makes another one that is the twin of
// the active one. What KubeRay noted decides about twins: of clusters that only look alike it would make one again and again.
func (s *Service) isWithdrawn(c *Cluster) bool {
	unchanged := slices.ContainsFunc(s.Clusters, func(x Cluster) bool { return x.Rank == Active && x.Current })
	return c.Twin || (unchanged && !c.Current && !s.BySteps)
}

// Withdraws is the pending cluster of an upgrade that was taken back before any of its pods ran, nil if there is none. It is
// to be deleted, and the service to name no pending cluster; otherwise KubeRay makes it again by its name.
func (s *Service) Withdraws() *Cluster {
	for _, c := range s.ranked() {
		if !s.Suspended && c.Rank == Pending && !s.hasRun(c) && s.isWithdrawn(c) {
			return c
		}
	}
	return nil
}

// counts reports whether a cluster is to have all the pods that it wants.
func (s *Service) counts(c *Cluster) bool { return c.Rank <= Pending && !s.IsStale(c) }

// Waits reports whether a cluster has still to be let go: it is held, or its pods are and there is no room for all of them.
func (s *Service) Waits(c *Cluster) bool {
	if s.HoldPods && c.Breach != Reheld {
		return s.counts(c) && s.begins(c) && !s.hasRoomFor(s.demand(s.names(), func(*Cluster) bool { return true }))
	}
	return s.counts(c) && c.Held
}

// begins reports whether a cluster is to start, and Berth has let no pod of it go yet. Pods that an administrator opened do not count.
func (s *Service) begins(c *Cluster) bool {
	return c.Rank == Pending && !slices.ContainsFunc(s.podsOf(c), func(p *corev1.Pod) bool { return Runs(p) && p.Labels[kueue.PodSetLabel] != "" })
}

// hasRoomFor reports whether the slice that is admitted has room for a demand.
func (s *Service) hasRoomFor(wanted []kueue.PodSet) bool {
	w := s.Granting()
	return w != nil && !slices.ContainsFunc(wanted, func(p kueue.PodSet) bool { return p.Count > chain.Granted(w, p.Name) })
}

// Granting is the slice by which the service runs, or nil.
func (s *Service) Granting() *kueue.Workload { return chain.Granting(s.Slices) }

// Covers reports whether a cluster may run: the slice that is admitted has room for it beside everything that runs already
// or may do so at any time.
func (s *Service) Covers(c *Cluster) bool {
	return !s.Suspended && s.counts(c) && s.hasRoomFor(s.demand(s.names(), func(x *Cluster) bool { return x.UID == c.UID || !s.Waits(x) }))
}

// Releases names the cluster that is to be let go next, nil if there is none. A stale one is let go, too, but its pods keep
// their gates: KubeRay notices only once there is a pod that nobody wants the cluster any more, and takes it away.
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

// MayRelease reports whether a cluster may be let go now, whoever asks.
func (s *Service) MayRelease(uid types.UID) bool {
	at := slices.IndexFunc(s.Clusters, func(c Cluster) bool { return c.UID == uid })
	return at >= 0 && (s.Covers(&s.Clusters[at]) || (!s.Suspended && s.IsStale(&s.Clusters[at])))
}

// Free lists the pods that lose their gate, as they are to be. infos is what the admission says, by pod set. The active
// cluster comes first; a cluster that is not covered yet gets nothing, so that it does not come up by halves.
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

// HasRoom reports whether a pod that has a gate may lose it, whoever asks.
func (s *Service) HasRoom(pod *corev1.Pod) bool {
	w := s.Granting()
	c := s.cluster(pod)
	if w == nil || s.Suspended || c == nil || !s.counts(c) || (s.begins(c) && !s.Covers(c)) {
		return false
	}
	n := s.names()
	return s.room(n, w)[n.ofPod(s, pod)] > 0
}

// room is how many more pods of each set may run.
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

// podsOf are the pods of a cluster, by name.
func (s *Service) podsOf(c *Cluster) []*corev1.Pod {
	return slices.DeleteFunc(s.byName(), func(p *corev1.Pod) bool { return s.cluster(p) != c })
}

func (s *Service) byName() []*corev1.Pod {
	return slices.SortedFunc(slices.Values(s.Pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}
