package recovery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

var end = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{kueue.SafeToForcefullyDeleteAnnotation: "true"}, DeletionTimestamp: &end, DeletionGracePeriodSeconds: new(int64(30)),
		},
		Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(out)
	}
	return out
}

func annotated(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[kueue.SafeToForcefullyDeleteAnnotation] = value }
}

func failed(p *corev1.Pod) { Fail(p, "m", end.Time) }

func byForce(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(0)) }

func kept(p *corev1.Pod) { p.Finalizers = []string{"berth.dev/test"} }

func TestMayHang(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod that is being deleted":                {pod(), true},
		"the annotation has another value":           {pod(annotated("True")), false},
		"the annotation is 1":                        {pod(annotated("1")), false},
		"no annotation":                              {pod(func(p *corev1.Pod) { p.Annotations = nil }), false},
		"not being deleted":                          {pod(func(p *corev1.Pod) { p.DeletionTimestamp = nil }), false},
		"without a node":                             {pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), false},
		"one that is over":                           {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), true},
		"failed, and not deleted yet":                {pod(failed), true},
		"deleted by force by a user, with finalizer": {pod(byForce), true},
		"failed and deleted, with a finalizer":       {pod(failed, byForce, kept), false},
		"failed, and the deletion was cut off":       {pod(failed, byForce), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MayHang(tc.pod); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestIsUnreachable(t *testing.T) {
	for name, tc := range map[string]struct {
		taints []corev1.Taint
		want   bool
	}{
		"no taint":                  {nil, false},
		"not ready":                 {[]corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, false},
		"unreachable, NoExecute":    {[]corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}, true},
		"unreachable, NoSchedule":   {[]corev1.Taint{{Key: "x"}, {Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}, true},
		"unreachable, PreferNo":     {[]corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectPreferNoSchedule}}, true},
		"another taint with a name": {[]corev1.Taint{{Key: "my/unreachable"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsUnreachable(&corev1.Node{Spec: corev1.NodeSpec{Taints: tc.taints}}); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestFail: the phase of a pod that is over stays, and a second time changes nothing. The message has the delay in its unit (spec: 20 §6 #29).
func TestFail(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]corev1.PodPhase{
		corev1.PodRunning: corev1.PodFailed, corev1.PodPending: corev1.PodFailed, corev1.PodFailed: corev1.PodFailed, corev1.PodSucceeded: corev1.PodSucceeded,
	} {
		t.Run(string(phase), func(t *testing.T) {
			p := pod(func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady}, {Type: Condition, Status: corev1.ConditionFalse},
				}}
			})
			if !Fail(p, Message(p, time.Minute), end.Time) {
				t.Fatal("nothing changed")
			}
			if diff := cmp.Diff(corev1.PodStatus{Phase: want, Conditions: []corev1.PodCondition{{Type: corev1.PodReady}, {
				Type: "KueueFailureRecovery", Status: corev1.ConditionTrue, Reason: "KueueForcefullyDeleted", LastTransitionTime: end,
				Message: "The pod was to end by 2026-01-02T03:04:05Z; its node n1 is unreachable and did not confirm that within 1m0s: " +
					"the pod is deleted by force",
			}}}, p.Status); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if Fail(p, "other", end.Time) {
				t.Error("a second time changes the pod")
			}
		})
	}
	if got := Due(pod(), time.Minute); !got.Equal(end.Add(time.Minute)) {
		t.Errorf("due at %s", got)
	}
}
