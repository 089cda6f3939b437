// Package podgroup is the job of several pods: a named group with one Workload.
//
//	pods of one group ─► Join ─► Group ─► the functions of a job kind
//	                               │
//	                               └─► Standing: kept, surplus, releasable, absent, against the Workload
//
// Pods of one role are equal: a role is a pod set, and its name is a hash of the
// requirements of its pods. A failed pod leaves its place to a replacement, and is
// kept until that exists.
//
// The pods to delete depend on the pods alone, and pods that were selected before
// sort first. So a stale observation selects the same pods again, whose writes
// fail, and no state of pending writes is needed (spec: 30 §4.9).
package podgroup

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// StatusManager is the field manager of the manager's writes to the status of a pod.
const StatusManager = "kueue"

// Rules are the rules of groups that feature gates choose.
type Rules struct {
	Fast       bool // a deleted pod needs no quota, also while it ends
	OnlyMarked bool // see job.Once
}

// Groups describes groups of pods. member returns the group of a queued pod, or "".
func Groups(member func(job.Object, *job.Config) string, rules Rules) *job.Groups {
	join := func(name string, members []job.Object, cfg *job.Config, now time.Time) job.Object {
		return join(name, members, cfg, rules.Fast, now)
	}
	return &job.Groups{Member: member, Join: join, Jobs: &job.Descriptor{
		Framework:   "pod",
		GVK:         corev1.SchemeGroupVersion.WithKind("Pod"),
		Resource:    "pods",
		New:         func() job.Object { return &corev1.Pod{} },
		NewList:     func() runtime.Object { return &corev1.PodList{} },
		PodSets:     podSets,
		IsSuspended: isSuspended,
		Suspend:     func(job.Object) {}, // waiting pods are gated at creation
		Resume:      resume,
		Start:       start,
		Restore:     func(job.Object, []kueue.PodSet) bool { return false }, // stopped pods are deleted
		Stops:       &job.Stops{Next: stop, Begun: stopping},
		Finished:    finished,
		IsActive:    isActive,
		PodsReady:   podsReady,
		Reclaimable: reclaimable,
		Once: &job.Once{
			Marked:   func(job.Object, *job.Config) bool { return true }, // unmarked pods are not members
			Finalize: finalize, OnlyMarked: rules.OnlyMarked, StatusManager: StatusManager,
		},
		Prebuilt: true,
	}}
}

// Group is a group of pods. Its labels and annotations come from the oldest pod that has not failed.
type Group struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Pods are the members, the oldest first.
	Pods []*corev1.Pod

	cfg  *job.Config
	fast bool
	now  time.Time
}

var _ job.Composite = (*Group)(nil)

// join returns the group of its members, at least one, as of now.
func join(name string, members []job.Object, cfg *job.Config, fast bool, now time.Time) job.Object {
	g := &Group{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Pods: podsOf(members), cfg: cfg, fast: fast, now: now}
	slices.SortFunc(g.Pods, func(a, b *corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	speaker := g.Pods[0]
	if at := slices.IndexFunc(g.Pods, func(p *corev1.Pod) bool { return !isInactive(p) }); at >= 0 {
		speaker = g.Pods[at]
	}
	g.ObjectMeta = metav1.ObjectMeta{
		Namespace: speaker.Namespace, Name: name, Labels: maps.Clone(speaker.Labels), Annotations: maps.Clone(speaker.Annotations),
		CreationTimestamp: g.Pods[len(g.Pods)-1].CreationTimestamp,
	}
	return g
}

func podsOf(members []job.Object) (out []*corev1.Pod) {
	for _, m := range members {
		out = append(out, m.(*corev1.Pod))
	}
	return out
}

// DeepCopyObject copies the list of the members and shares the members, which are not modified: see only.
func (g *Group) DeepCopyObject() runtime.Object {
	out := *g
	out.Pods = slices.Clone(g.Pods)
	return &out
}

// Members are the pods.
func (g *Group) Members() []job.Object { return job.Objects(g.Pods) }

// only returns the group with some pods.
func (g *Group) only(pods []*corev1.Pod) *Group {
	out := *g
	out.Pods = pods
	return &out
}

// IsServing reports whether the group serves: it never finishes, and does not choose its queue.
func (g *Group) IsServing() bool { return g.Annotations[kueue.PodGroupServingAnnotation] == "true" }

// isFast reports whether the whole group is admitted once its first pod exists.
func (g *Group) isFast() bool { return g.Annotations[kueue.PodGroupFastAdmissionAnnotation] == "true" }

// isPrebuilt reports whether the group names its Workload.
func (g *Group) isPrebuilt() bool { return g.cfg.PrebuiltName(g) != "" }

// total is the number of pods of the group, or 0 if the annotation is invalid.
func (g *Group) total() int32 { return totalOf(g) }

func totalOf(o metav1.Object) int32 {
	n, err := strconv.ParseInt(o.GetAnnotations()[kueue.PodGroupTotalCountAnnotation], 10, 32)
	if err != nil || n < 1 {
		return 0
	}
	return int32(n)
}

// runnable are the members that run, will run, or have succeeded. A pod that is being deleted is not runnable; its replacement will
// be.
func (g *Group) runnable() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(g.Pods), func(p *corev1.Pod) bool { return isInactive(p) || isDying(p) })
}

// role is the pod set of a pod. Names of pod sets are in lower case.
func role(pod *corev1.Pod) string { return strings.ToLower(pod.Annotations[kueue.RoleHashAnnotation]) }

// podSets returns one pod set for each role, by name. With fast admission the first pod represents all.
func podSets(o job.Object, in *job.Setting) ([]kueue.PodSet, error) {
	g := o.(*Group)
	counts := map[string]int32{}
	var firsts []*corev1.Pod // of each role
	for _, p := range g.runnable() {
		name := role(p)
		if name == "" {
			return nil, fmt.Errorf("pod %s has no annotation %s, which its webhook sets: create it again", p.Name, kueue.RoleHashAnnotation)
		}
		if counts[name]++; counts[name] > 1 {
			continue
		}
		firsts = append(firsts, p)
		if g.isFast() {
			counts[name] = g.total()
			break
		}
	}
	if len(firsts) > podset.Most { // there may be a role for each pod, and pod sets are large
		return nil, podset.WrongNumber(len(firsts))
	}
	slices.SortFunc(firsts, func(a, b *corev1.Pod) int { return strings.Compare(role(a), role(b)) })
	var out []kueue.PodSet
	for _, p := range firsts {
		out = append(out, kueue.PodSet{
			Name: kueue.PodSetReference(role(p)), Count: counts[role(p)], Template: corev1.PodTemplateSpec{Spec: *p.Spec.DeepCopy()},
			TopologyRequest: in.TopologyRequest(&p.ObjectMeta, job.Ranks{PodIndex: kueue.PodGroupPodIndexLabel}),
		})
	}
	return out, nil
}

// Check returns why the members do not make a Workload.
func (g *Group) Check() error {
	total := g.total()
	if total == 0 {
		return fmt.Errorf("annotation %s of pod group %s is not a number of at least 1: set the number of its pods", kueue.PodGroupTotalCountAnnotation, g.Name)
	}
	runnable, firsts := g.runnable(), map[string]*corev1.Pod{}
	for _, p := range runnable {
		if first := firsts[role(p)]; first == nil {
			firsts[role(p)] = p
		} else if err := exceeds(&p.Spec, &first.Spec); err != nil {
			return fmt.Errorf("pod %s asks for more than pod %s of the same %s, %s, as which it would be counted (%w): create it again, with another role or none",
				p.Name, first.Name, kueue.RoleHashAnnotation, role(p), err)
		}
		switch {
		case job.QueueName(p) != job.QueueName(g):
			return fmt.Errorf("pods of group %s name the queues %q and %q: give all the same label %s", g.Name, job.QueueName(g), job.QueueName(p), kueue.QueueNameLabel)
		case totalOf(p) != total:
			return fmt.Errorf("pods of group %s disagree about its size, %d and %q: give all the same annotation %s",
				g.Name, total, p.Annotations[kueue.PodGroupTotalCountAnnotation], kueue.PodGroupTotalCountAnnotation)
		}
		if index := p.Labels[kueue.PodGroupPodIndexLabel]; index != "" {
			if n, err := strconv.ParseInt(index, 10, 32); err != nil || n < 0 || n >= int64(total) {
				return fmt.Errorf("label %s of pod %s is %q: it must be a number from 0 to %d", kueue.PodGroupPodIndexLabel, p.Name, index, total-1)
			}
		}
	}
	if int32(len(runnable)) < total && (!g.isFast() || len(runnable) == 0) {
		return fmt.Errorf("pod group %s does not have all of its %d pods: create the others", g.Name, total) // one text, one event
	}
	return nil
}

// Total is the number of pods of the group, or 0 while pods are missing or disagree.
func (g *Group) Total() int32 {
	if g.Check() != nil {
		return 0
	}
	return g.total()
}

// Agrees reports whether all pods name the group's queue, and it is theirs to choose.
func (g *Group) Agrees() bool {
	return !g.IsServing() && !slices.ContainsFunc(g.runnable(), func(p *corev1.Pod) bool { return job.QueueName(p) != job.QueueName(g) })
}

// Labels merges the labels of the given keys. Two values for one key are an error, which is resolved when the pods agree.
func (g *Group) Labels(keys []string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range g.Pods {
		for _, key := range keys {
			value, ok := p.Labels[key]
			if !ok {
				continue
			}
			if old, found := out[key]; found && old != value {
				return nil, fmt.Errorf("pods of group %s have the values %q and %q for label %s, which their workload is to copy", g.Name, old, value, key)
			}
			out[key] = value
		}
	}
	return out, nil
}

// Agreed returns the keys for which no two members have different values.
func (g *Group) Agreed(keys []string, of func(metav1.Object) map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		differ := false
		for _, p := range g.Pods {
			if value, ok := of(p)[key]; ok {
				old, found := out[key]
				differ = differ || found && old != value
				out[key] = value
			}
		}
		if differ {
			delete(out, key)
		}
	}
	return out
}
