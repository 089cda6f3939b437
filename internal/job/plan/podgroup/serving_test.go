package podgroup_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// serving is an admitted group of three that serves, as a StatefulSet makes them, with two pods that run.
func serving() *world {
	x := newWorld()
	x.cfg.WaitForPodsReady = false
	x.add(3, "a:main", "b:main", "c:main")
	x.runUntilStable()
	x.w.Annotations[kueue.JobOwnerGVKAnnotation] = "apps/v1, Kind=StatefulSet"
	x.pods = x.pods[:2]
	x.each(serves)
	x.admit()
	x.runUntilStable()
	x.schedule()
	return x
}

func serves(p *corev1.Pod) {
	p.Finalizers = nil
	p.Labels[kueue.PrebuiltWorkloadLabel] = "g"
	p.Annotations[kueue.PodGroupServingAnnotation] = "true"
}

// TestScaledBehindOurBack: no more pods start than were admitted, however many there are.
func TestScaledBehindOurBack(t *testing.T) {
	x := serving()
	x.add(5, "c:main", "d:main", "e:main")
	x.each(serves)
	x.runUntilStable()
	if diff := cmp.Diff([]string{"a", "b", "c"}, x.open()); diff != "" || x.finished() != "" {
		t.Errorf("finished %q, open -want +got:\n%s", x.finished(), diff)
	}
	x.phase(corev1.PodFailed, "a")
	x.runUntilStable()
	if diff := cmp.Diff([]string{"b", "c", "d"}, x.open()); diff != "" {
		t.Errorf("one failed, open -want +got:\n%s", diff)
	}
}

// TestServingNeverEnds: its pods may succeed, fail and go.
func TestServingNeverEnds(t *testing.T) {
	x := serving()
	x.phase(corev1.PodSucceeded)
	if log := x.runUntilStable(); len(log) > 0 {
		t.Errorf("written: %v", log)
	}
	x.each(func(p *corev1.Pod) { p.Labels[kueue.QueueNameLabel] = "other" })
	x.cfg.Lifecycle.Pending(x.w, kueue.ReasonPendingEvaluation, "m", x.now)
	if x.runUntilStable(); x.w.Spec.QueueName != "lq" {
		t.Errorf("its pods moved it to %s", x.w.Spec.QueueName)
	}
}

// TestLetThrough: a pod that was let through to be replaced is left to its controller; one that was admitted and is no longer
// is stopped.
func TestLetThrough(t *testing.T) {
	x := serving()
	x.add(3, "c:main")
	x.each(func(p *corev1.Pod) {
		serves(p)
		job.OpenGates(p, false)
	}, "c")
	x.w = x.w.DeepCopy()
	x.cfg.Lifecycle.Pending(x.w, kueue.ReasonPendingEvaluation, "by hand", x.now)
	want := []string{"update MAIN:3 of a b c to MAIN:3 of a b c c, OwnerReferencesAdded", "tell NotAdmitted a b, Stopped", "delete a b"}
	if diff := cmp.Diff(want, x.runUntilStable()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c"}, x.open()); diff != "" {
		t.Errorf("open -want +got:\n%s", diff)
	}
}

// TestQuotaUntilPodsEnd: an evicted group keeps its quota until its pods had the time to end that they were given.
func TestQuotaUntilPodsEnd(t *testing.T) {
	for _, fast := range []bool{false, true} {
		x := running()
		x.set(feature.FastQuotaReleaseInPodIntegration, fast)
		x.evict()
		x.runUntilStable()
		if got := lifecycle.IsReserved(x.w); got == fast {
			t.Errorf("fast %v: reserved is %v while pods end", fast, got)
		}
		if a := decide.Next(x.cfg, x.of.Jobs, x.observed()); !fast && (a.After <= 0 || a.After > 30*time.Second) {
			t.Errorf("looks again after %s", a.After)
		}
		x.now = metav1.NewTime(x.now.Add(30 * time.Second))
		x.runUntilStable()
		if lifecycle.IsReserved(x.w) {
			t.Errorf("fast %v: still reserved", fast)
		}
	}
}

// TestLongGracePeriod: a grace period of centuries does not overflow into one that is over.
func TestLongGracePeriod(t *testing.T) {
	x := running()
	x.set(feature.FastQuotaReleaseInPodIntegration, false)
	x.evict()
	x.runUntilStable()
	x.each(func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(math.MaxInt64 / 1000)) })
	x.runUntilStable()
	if !lifecycle.IsReserved(x.w) {
		t.Error("the quota is released while pods run")
	}
}

// TestWhoStays: the pods that stay are held ones, open ones, old ones, in this order.
func TestWhoStays(t *testing.T) {
	x := running()
	x.add(3, "d:A", "e:A")
	x.each(func(p *corev1.Pod) { p.Finalizers = nil }, "a")
	x.each(func(p *corev1.Pod) { job.OpenGates(p, false) }, "e")
	x.runUntilStable()
	var left []string
	for _, p := range x.pods {
		if p.DeletionTimestamp == nil {
			left = append(left, p.Name)
		}
	}
	slices.Sort(left)
	if diff := cmp.Diff([]string{"b", "c", "e"}, left); diff != "" {
		t.Errorf("left -want +got:\n%s", diff)
	}
}

// TestRetention deletes a group that Berth itself deactivated, some time after that. The pods of an object that makes them are not: it is deleted.
func TestRetention(t *testing.T) {
	x := running()
	x.cfg.DeleteDeactivatedAfter = new(10 * time.Minute)
	x.w = x.w.DeepCopy()
	x.w.Spec.Active = new(false)
	x.cfg.Lifecycle.RequestDeactivation(x.w, kueue.ReasonRequeuingLimitExceeded, "m", x.now)
	x.cfg.Lifecycle.Deactivate(x.w, x.now)
	x.runUntilStable()
	x.phase(corev1.PodFailed)
	x.runUntilStable()
	x.now = metav1.NewTime(x.now.Add(8 * time.Minute))
	if log := x.runUntilStable(); len(log) > 0 || len(x.held()) != 3 {
		t.Errorf("too early: %v, held %v", log, x.held())
	}
	x.now = metav1.NewTime(x.now.Add(2 * time.Minute))
	x.w.Annotations[kueue.JobOwnerGVKAnnotation] = "apps/v1, Kind=StatefulSet"
	if log := x.runUntilStable(); len(log) > 0 || len(x.held()) != 3 {
		t.Errorf("of an object that makes its pods: %v, held %v", log, x.held())
	}
	delete(x.w.Annotations, kueue.JobOwnerGVKAnnotation)
	if x.runUntilStable(); len(x.held()) > 0 || x.w != nil && len(x.w.Finalizers) > 0 {
		t.Errorf("%v; held %v", x.log, x.held())
	}
}

// TestLabelsMustAgree: what the Workload copies is one value for all.
func TestLabelsMustAgree(t *testing.T) {
	x := newWorld()
	x.cfg.LabelKeysToCopy = []string{"team"}
	x.add(2, "a:A", "b:A")
	x.each(func(p *corev1.Pod) { p.Labels["team"] = p.Name })
	if x.runUntilStable(); x.w != nil {
		t.Error("there is a workload")
	}
	x.each(func(p *corev1.Pod) { delete(p.Labels, "team") }, "a")
	if x.runUntilStable(); x.w == nil || x.w.Labels["team"] != "b" {
		t.Errorf("%v", x.log)
	}
}

// TestSeriesLabelsNeedNotAgree: what only metrics are labelled with keeps no group from its Workload.
func TestSeriesLabelsNeedNotAgree(t *testing.T) {
	x := newWorld()
	x.cfg.SeriesLabels, x.cfg.SeriesAnnotations = []string{"team", "owner"}, []string{"project"}
	x.add(2, "a:A", "b:A")
	x.each(func(p *corev1.Pod) {
		p.Labels["team"], p.Labels["owner"], p.Annotations["project"] = "blue", p.Name, "7"
	})
	x.each(func(p *corev1.Pod) { delete(p.Labels, "team") }, "a")
	if x.runUntilStable(); x.w == nil || x.w.Labels["team"] != "blue" || x.w.Annotations["project"] != "7" {
		t.Fatalf("%v", x.log)
	}
	if value, ok := x.w.Labels["owner"]; ok {
		t.Errorf("it has the label %q, about which its pods do not agree", value)
	}
}

// TestServingAsksForMore: what the API server, or a webhook, adds to a pod of a StatefulSet is no reason to delete it: the StatefulSet would make
// it again. A pod that a user adds to the group may ask for no more than the template.
func TestServingAsksForMore(t *testing.T) {
	x := serving()
	x.add(3, "c:main")
	x.each(func(p *corev1.Pod) {
		serves(p)
		p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("8")
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "s", UID: "s", Controller: new(true)}}
	}, "c")
	x.add(3, "d:main")
	x.each(func(p *corev1.Pod) {
		serves(p)
		p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("8")
	}, "d")
	x.runUntilStable()
	if diff := cmp.Diff([]string{"a", "b", "c"}, x.open()); diff != "" || len(x.pods) != 3 {
		t.Errorf("%d pods, open -want +got:\n%s", len(x.pods), diff)
	}
}

// TestSameShape: a limit is what pods ask for where no request is stated.
func TestSameShape(t *testing.T) {
	of := func(requests, limits corev1.ResourceList) *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}}}
	}
	cpu := func(n string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(n)} }
	for name, tc := range map[string]struct {
		t, old  *corev1.PodTemplateSpec
		changed bool
	}{
		"a limit alone":          {of(nil, cpu("2")), of(nil, cpu("1")), true},
		"a limit with a request": {of(cpu("1"), cpu("2")), of(cpu("1"), cpu("1")), false},
		"stated as a request":    {of(cpu("1"), cpu("1")), of(nil, cpu("1")), false},
	} {
		if errs := podgroup.SameShape(tc.t, tc.old, nil); (len(errs) > 0) != tc.changed {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
