package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/terminal"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// byConditions explains a Workload without the manager, from its conditions and the status of its queues.
func (s *session) byConditions(ctx context.Context, w *kueue.Workload) *berthv1alpha1.Explanation {
	out := &berthv1alpha1.Explanation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, UID: w.UID, CreationTimestamp: w.CreationTimestamp},
		LocalQueue: string(w.Spec.QueueName), Priority: int64(ptr.Deref(w.Spec.Priority, 0)),
	}
	cq, lines := s.wayIn(ctx, w)
	out.ClusterQueue = cq
	if a := w.Status.Admission; a != nil {
		out.ClusterQueue = string(a.ClusterQueue)
		for _, ps := range a.PodSetAssignments {
			for _, name := range slices.Sorted(maps.Keys(ps.ResourceUsage)) {
				amount := ps.ResourceUsage[name]
				out.Flavors = append(out.Flavors, berthv1alpha1.FlavorChoice{
					PodSet: string(ps.Name), Resource: string(name), Flavor: string(ps.Flavors[name]), Amount: amount, Mode: "held",
				})
			}
		}
	}
	lines = append(s.life(w), lines...)
	status := lifecycle.StateOf(w)
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && status == lifecycle.StatePending {
		out.Reason, out.Message = c.Reason, c.Message
	}
	if out.Message == "" && len(lines) > 0 {
		out.Message = lines[0]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s", w.Namespace, w.Name)
	if out.ClusterQueue != "" {
		fmt.Fprintf(&b, " in %s", out.ClusterQueue)
	}
	fmt.Fprintf(&b, " (priority %d): %s", out.Priority, status)
	if out.Reason != "" {
		fmt.Fprintf(&b, ", %s", out.Reason)
	}
	b.WriteString("\n")
	for _, f := range out.Flavors {
		fmt.Fprintf(&b, "  %s: %s %s from %s (%s)\n", f.PodSet, f.Amount.String(), f.Resource, f.Flavor, f.Mode)
	}
	for _, line := range lines {
		fmt.Fprintf(&b, "  %s\n", terminal.Printable(line))
	}
	out.Text = b.String()
	return out
}

// life lists the facts of the status, one in a line, the most important one first.
func (s *session) life(w *kueue.Workload) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if !running(w) {
		say("it is stopped (spec.active is false): %s resume workload %s -n %s", s.Program, w.Name, w.Namespace)
	}
	for _, show := range []struct {
		condition string
		status    metav1.ConditionStatus
		words     string
	}{
		{kueue.WorkloadFinished, metav1.ConditionTrue, "finished"},
		{kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "waits for quota"},
		{kueue.WorkloadAdmitted, metav1.ConditionFalse, "not admitted"},
		{kueue.WorkloadAdmitted, metav1.ConditionTrue, "admitted"},
		{kueue.WorkloadEvicted, metav1.ConditionTrue, "evicted"},
		{kueue.WorkloadRequeued, metav1.ConditionFalse, "not queued again yet"},
		{kueue.WorkloadPodsReady, metav1.ConditionFalse, "pods not ready"},
		{kueue.WorkloadBlockedOnPreemptionGates, metav1.ConditionTrue, "may not preempt yet"},
		{kueue.WorkloadWaitingForReplacementPods, metav1.ConditionTrue, "waits for replacement pods"},
	} {
		if c := apimeta.FindStatusCondition(w.Status.Conditions, show.condition); c != nil && c.Status == show.status {
			say("%s since %s: %s [%s]", show.words, s.Since(c.LastTransitionTime), c.Message, c.Reason)
		}
	}
	for _, check := range w.Status.AdmissionChecks {
		if check.State != kueue.CheckStateReady {
			say("admission check %s is %s since %s: %s", check.Name, check.State, s.Since(check.LastTransitionTime), check.Message)
		}
	}
	if r := w.Status.RequeueState; r != nil && r.RequeueAt != nil {
		say("it is queued again at %s", r.RequeueAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if gates := w.Annotations[kueue.AdmissionGatedByAnnotation]; gates != "" {
		say("the annotation %s keeps it out of its queue: %s", kueue.AdmissionGatedByAnnotation, gates)
	}
	if len(w.Status.Conditions) == 0 {
		say("it has no conditions: no manager has evaluated it yet")
	}
	return lines
}

// wayIn describes problems of a Workload's queues.
func (s *session) wayIn(ctx context.Context, w *kueue.Workload) (clusterQueue string, lines []string) {
	if w.Spec.QueueName == "" {
		return "", []string{"it names no LocalQueue (spec.queueName)"}
	}
	var lq kueue.LocalQueue
	err := s.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}, &lq)
	if err != nil {
		return "", asAQueue("LocalQueue", string(w.Spec.QueueName), err)
	}
	if !running(&lq) {
		lines = append(lines, fmt.Sprintf("LocalQueue %s is stopped (%s): %s resume localqueue %s -n %s", lq.Name, lq.Spec.StopPolicy, s.Program, lq.Name, lq.Namespace))
	}
	var cq kueue.ClusterQueue
	err = s.Get(ctx, client.ObjectKey{Name: string(lq.Spec.ClusterQueue)}, &cq)
	if err != nil {
		return string(lq.Spec.ClusterQueue), append(lines, asAQueue("ClusterQueue", string(lq.Spec.ClusterQueue), err)...)
	}
	if !running(&cq) {
		lines = append(lines, fmt.Sprintf("ClusterQueue %s is stopped (%s): %s resume clusterqueue %s", cq.Name, cq.Spec.StopPolicy, s.Program, cq.Name))
	} else if is, why := active(cq.Status.Conditions); is != "true" {
		lines = append(lines, fmt.Sprintf("ClusterQueue %s is not active: %s", cq.Name, why))
	}
	return cq.Name, lines
}

// asAQueue is the line about a queue that could not be read, if it does not exist. Missing permission is not reported.
func asAQueue(kind, name string, err error) []string {
	if apierrors.IsNotFound(err) {
		return []string{fmt.Sprintf("%s %s does not exist", kind, name)}
	}
	return nil
}
