package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// The webhooks keep the gates of pods. While they are not served an administrator can remove gates, even in a loop. A pod that lost
// its gate without quota is deleted, and KubeRay makes another one; after the second such pod the cluster is suspended until its
// admission, so that the loop finds no pods.

// UngatedAnnotation is on a cluster with a pod that lost its gate without quota: the UID of that pod, or Reheld.
const UngatedAnnotation = "berth.dev/ungated-without-quota"

// Reheld is the UngatedAnnotation of a cluster that is suspended until its admission.
const Reheld = "suspended"

// Breach returns the cluster of an upgrade that is not admitted and of which a pod lost its gate, nil if there is none, and the new
// value of UngatedAnnotation: Reheld, or the first such pod. A serving cluster is not suspended for that.
func (s *Service) Breach() (c *Cluster, note string) {
	if s.Suspended {
		return nil, ""
	}
	excess := s.Excess()
	for _, c := range s.ranked() {
		if c.Rank != Pending || c.Held || !s.counts(c) || s.Covers(c) {
			continue
		}
		if c.Breach == Reheld {
			return c, Reheld
		}
		for _, pod := range excess {
			switch {
			case s.cluster(pod) != c || pod.UID == types.UID(c.Breach):
			case c.Breach == "":
				return c, string(pod.UID)
			default:
				return c, Reheld
			}
		}
	}
	return nil, ""
}

// Excess lists pods that Berth did not ungate and that have no gate: all of a cluster that waits for quota, and of others as many
// as exceed the room. It takes an outage of both webhooks, and a user who removed the gates.
func (s *Service) Excess() []*corev1.Pod {
	n := s.names()
	over := map[kueue.PodSetReference]int32{}
	if w := s.Granting(); w != nil && !s.Suspended {
		over = s.room(n, w)
	} else {
		for _, pod := range s.Pods {
			if Runs(pod) {
				over[n.ofPod(s, pod)]--
			}
		}
	}
	var out []*corev1.Pod
	for _, pod := range slices.Backward(s.byName()) {
		set, c := n.ofPod(s, pod), s.cluster(pod)
		if !Runs(pod) || pod.Labels[kueue.PodSetLabel] != "" || pod.DeletionTimestamp != nil || c == nil {
			continue
		}
		if over[set] < 0 || (s.counts(c) && s.begins(c) && !s.Covers(c)) {
			out = append(out, pod)
			over[set]++
		}
	}
	return out
}
