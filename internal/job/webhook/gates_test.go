package webhook

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// TestGatesStay: only the manager takes the gates of pods off that wait for quota.
func TestGatesStay(t *testing.T) {
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	for name, tc := range map[string]struct {
		gate, user, self string
		change           func(*corev1.Pod)
		refused          bool
	}{
		"a user, an elastic job":       {kueue.ElasticJobSchedulingGate, "eve", "berth", nil, true},
		"a user, a queued pod":         {kueue.AdmissionSchedulingGate, "eve", "berth", nil, true},
		"the manager, an elastic job":  {kueue.ElasticJobSchedulingGate, "berth", "berth", nil, false},
		"the manager, a queued pod":    {kueue.AdmissionSchedulingGate, "berth", "berth", nil, false},
		"another gate":                 {"example.com/gate", "eve", "berth", nil, false},
		"a pod that is being deleted":  {kueue.ElasticJobSchedulingGate, "eve", "berth", deleted, false},
		"a manager without a name yet": {kueue.ElasticJobSchedulingGate, "eve", "", nil, false},
	} {
		d := descriptor(t, "pod")
		s := gateServer(d, namespaces{labels: map[string]string{"managed": "yes"}})
		s.o.Self = tc.self
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: tc.gate}}}}
		if tc.change != nil {
			tc.change(old)
		}
		pod := old.DeepCopy()
		pod.Spec.SchedulingGates = nil
		req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update, Namespace: "ns"}}
		req.UserInfo.Username = tc.user
		if err := s.validateJob(d)(t.Context(), req, pod, old); (err != nil) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
