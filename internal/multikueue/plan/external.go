package plan

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Conditions that the controller of an external framework may set on the local Workload, with its own field manager (spec: 40 §4.13.6).
const (
	ExternalSyncCondition = annotationPrefix + "ExternalSync"
	reasonRetry           = "RetryRequested"
	reasonRejected        = "Rejected"
)

func externalMessage(w *kueue.Workload) string {
	c := lifecycle.Condition(w, ExternalSyncCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	return fmt.Sprintf("[%s] %s: %s", external.Controller, c.Reason, c.Message)
}

// requested handles what the controller of an external framework asks for: a retry, once for each request, or a rejection. A job that
// violates a precondition is rejected as well.
func (d *decider) requested() bool {
	if refused := d.o.Job.Refused; refused != nil && d.check.State == kueue.CheckStatePending && !lifecycle.IsEvicted(d.w) {
		d.removeAll()
		message := fmt.Sprintf("[%s] %s", refused.Code, refused.Text)
		if refused.Code == external.Precondition || !d.o.Job.RetryRefused {
			return d.reject(message, Warning{refused.Code, message})
		}
		d.retry(message, true)
		return true
	}
	c := lifecycle.Condition(d.w, ExternalSyncCondition)
	if !d.o.Job.Carried || c == nil || c.Status != metav1.ConditionFalse || lifecycle.IsEvicted(d.w) {
		return false
	}
	switch {
	case c.Reason == reasonRejected:
		return d.reject(externalMessage(d.w), Warning{external.Controller, externalMessage(d.w)})
	case c.Reason == reasonRetry && d.isNews(c):
		d.retry(externalMessage(d.w), true)
		return true
	}
	return false
}

// isNews reports whether a condition changed after the check did. Both have seconds: within the same one, it refers to the run that the
// check is Ready for, and was handled if the check is not Ready.
func (d *decider) isNews(c *metav1.Condition) bool {
	at, since := c.LastTransitionTime.Unix(), d.check.LastTransitionTime.Unix()
	return at > since || (at == since && d.check.State == kueue.CheckStateReady)
}

// endedThere ends the copy of a finished job that no controller on the worker cluster integrates. Rule 3 then finishes the Workload.
func (d *decider) endedThere(c *Cluster) bool {
	if !d.o.Job.Alone || c.JobIsOver == nil || !c.HasJob {
		return false
	}
	reason := kueue.ReasonFailed
	if c.JobIsOver.Success {
		reason = kueue.ReasonSucceeded
	}
	next := c.Copy.DeepCopy()
	d.Lifecycle.Finish(next, reason, c.JobIsOver.Message, d.o.Now)
	d.do(Step{Do: MirrorJob, Cluster: c.Name})
	d.do(Step{Do: UpdateCopyStatus, Cluster: c.Name, Workload: next})
	return true
}

// ExternalScope returns what the expressions of an external framework may read. remote may be nil, and so may cluster, the metadata of a
// MultiKueueCluster.
func (c *Config) ExternalScope(d *job.Descriptor, local, remote job.Object, w *kueue.Workload, cluster map[string]any) (*external.Scope, error) {
	out := &external.Scope{Cluster: cluster, Origin: c.Origin}
	l, err := Tree(d, local)
	if err != nil {
		return nil, err
	}
	out.Local = l.Object
	if remote != nil {
		r, err := Tree(d, remote)
		if err != nil {
			return nil, err
		}
		out.Remote = r.Object
	}
	out.Workload, err = workloadTree(w)
	return out, err
}

func workloadTree(w *kueue.Workload) (map[string]any, error) {
	podSets := []any{}
	for i := range w.Spec.PodSets {
		podSets = append(podSets, map[string]any{"name": string(w.Spec.PodSets[i].Name), "count": int64(w.Spec.PodSets[i].Count)})
	}
	spec := map[string]any{"queueName": string(w.Spec.QueueName), "podSets": podSets}
	if w.Spec.Priority != nil {
		spec["priority"] = int64(*w.Spec.Priority)
	}
	out := map[string]any{
		"metadata": map[string]any{"name": w.Name, "namespace": w.Namespace, "labels": view.Texts(w.Labels), "annotations": view.Texts(w.Annotations)},
		"spec":     spec,
		"status":   map[string]any{},
	}
	if w.Status.Admission == nil {
		return out, nil
	}
	raw, err := json.Marshal(w.Status.Admission)
	if err != nil {
		return nil, err
	}
	var admission map[string]any
	if err := json.Unmarshal(raw, &admission); err != nil {
		return nil, err
	}
	out["status"] = map[string]any{"admission": admission}
	return out, nil
}
