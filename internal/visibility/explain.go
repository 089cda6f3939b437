package visibility

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// explanation is the decision trace of a Workload.
func explanation(ctx context.Context, s *Server, a *ask) (runtime.Object, error) {
	w := s.Workload(a.namespace, a.name)
	if w == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: berthv1alpha1.GroupVersion.Group, Resource: "workloads"}, a.name)
	}
	found, err := s.told(ctx, w)
	if err != nil {
		return nil, err
	}
	return s.compose(w, found, func(namespaces []string) []string { return s.readable(ctx, a.caller, namespaces) }), nil
}

// Explain returns the decision trace of a Workload as far as the read model has it: the engine is not asked. Without figures, traced is
// false, and the reason is that of the last decision or of its condition. readable selects the namespaces in which the caller may list
// Workloads.
func (s *Server) Explain(w *kueue.Workload, readable func(namespaces []string) []string) (e *berthv1alpha1.Explanation, traced bool) {
	found, traced := s.published(w)
	if found != nil && !traced {
		e = s.compose(w, found, readable)
		if c := lifecycle.Unreserved(w); c != nil {
			e.Reason, e.Message = c.Reason, c.Message
		}
		return e, false
	}
	return s.compose(w, found, readable), traced
}

// compose makes the explanation of a Workload from the last decision about it, nil for none.
func (s *Server) compose(w *kueue.Workload, found *told, readable func(namespaces []string) []string) *berthv1alpha1.Explanation {
	out := &berthv1alpha1.Explanation{LocalQueue: string(w.Spec.QueueName)}
	if found != nil {
		out = new(s.explain(w.Namespace, found, string(w.Spec.QueueName), readable))
		out.LocalQueue = string(w.Spec.QueueName)
	} else if w.Spec.Priority != nil {
		out.Priority = int64(*w.Spec.Priority)
	}
	out.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, UID: w.UID, CreationTimestamp: w.CreationTimestamp}
	switch told := lifecycle.Unreserved(w); {
	case found == nil:
		out.Reason, out.Message = nowhere(w, s.Requests.Gated)
		out.Text = w.Namespace + "/" + w.Name + ": in no queue\n  " + out.Message + "\n"
	case out.Reason == string(trace.PendingEvaluation) && told != nil:
		// Another replica has evaluated it and written the condition.
		out.Reason, out.Message = told.Reason, told.Message
		out.Text += "  its condition says " + told.Reason + ": " + told.Message + "\n"
	}
	return out
}

// told is the last decision about a Workload.
type told struct {
	attempt *trace.Attempt
	place   int // in line from 0, −1 for none
}

// told returns the last decision about a Workload, nil if the engine does not know it. It is the published one if its trace is kept; if not,
// the engine evaluates the Workload now.
func (s *Server) told(ctx context.Context, w *kueue.Workload) (*told, error) {
	if due := s.Unwritten[string(w.UID)]; due != nil {
		return s.unwritten(s.Model(), due), nil
	}
	if found, traced := s.published(w); traced {
		return found, nil
	}
	return question(ctx, s, func(st *state.State) *told {
		attempt, place := st.AttemptNow(string(w.UID))
		if attempt == nil {
			return nil
		}
		return &told{attempt, place}
	})
}

// published returns the last decision about a Workload in the read model, nil for none. Without its trace, traced is false, and it has no
// figures.
func (s *Server) published(w *kueue.Workload) (found *told, traced bool) {
	model := s.Model()
	queue, _ := model.PointsTo(w.Namespace, string(w.Spec.QueueName))
	if w.Status.Admission != nil {
		queue = string(w.Status.Admission.ClusterQueue)
	}
	priority, since := s.Requests.InLine(w)
	last, place, known := model.Find(queue, string(w.UID), priority, since)
	if !known {
		return nil, false
	}
	attempt, traced := last.Attempt()
	if !traced {
		attempt = last.Outcome()
	}
	return &told{attempt, place}, traced
}

// unwritten is a decision that no manager is there to write: the Workload waits for one.
func (s *Server) unwritten(model *state.Model, due *trace.Attempt) *told {
	out := due.Clone()
	out.Verdict, out.Reason, out.Note = trace.Waits, trace.PendingEvaluation, "it fits now: it is admitted as soon as a manager evaluates it"
	if due.Verdict == trace.Preempts {
		out.Note = "other workloads are preempted for it as soon as a manager evaluates it"
	}
	place := -1
	if line, found := model.Waiting(due.Queue); found {
		place = slices.IndexFunc(line.Page(nil, 0, int64(line.Len())), func(p state.Placed) bool { return p.UID() == due.UID })
	}
	return &told{out, place}
}

// explain converts a decision to the API's form. Callers that may list Workloads in the namespace of a victim, or of a LocalQueue that
// comes first by past usage, get its name.
func (s *Server) explain(own string, t *told, localQueue string, readable func(namespaces []string) []string) (out berthv1alpha1.Explanation) {
	m := s.Model()
	var others []string // namespaces, but the own one
	see := func(namespace string) {
		if namespace != own && !slices.Contains(others, namespace) {
			others = append(others, namespace)
		}
	}
	for _, v := range t.attempt.Victims {
		namespace, _, _ := strings.Cut(v.Key, "/")
		see(namespace)
	}
	var before []state.Name
	if t.place >= 0 {
		if before = m.BehindByUsage(t.attempt.Queue, own, localQueue); len(before) > 0 {
			see(before[0].Namespace)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		others = readable(others)
	}
	visible := func(namespace string) bool { return namespace == own || slices.Contains(others, namespace) }
	describe(&out, t.attempt.Naming(visible))
	if len(before) > 0 {
		out.Text += behind(m, before, state.Name{Namespace: own, Name: localQueue}, visible)
	}
	if t.place >= 0 {
		out.PositionInClusterQueue = new(int32(t.place))
		out.Start = startOf(s.Starts, t.attempt.UID, t.attempt.Queue, out.Reason)
		if reserved := t.attempt.Start; reserved != nil && !reserved.Overdue && out.Start != nil {
			out.Start.By = at(workload.Instant(reserved.At))
		}
	}
	if s.Starts != nil {
		if runTime := s.Starts.RunTime(t.attempt.UID); runTime.Source != foresight.Unknown {
			out.RunTime = runTime.String()
		}
	}
	return out
}

// maxReviews bounds the namespaces that are authorized for one explanation. Victims in further ones stay unnamed.
const maxReviews = 16

// readable returns the namespaces in which a caller may list Workloads: all of them if it may do so everywhere.
func (s *Server) readable(ctx context.Context, caller user.Info, among []string) []string {
	may := func(namespace string) bool {
		decision, _, err := s.Access.Authorizer.Authorize(inflight.For(ctx, caller.GetName()), &authorizer.AttributesRecord{
			User: caller, Verb: "list", APIGroup: kueue.GroupVersion.Group, APIVersion: kueue.GroupVersion.Version, Resource: "workloads",
			Namespace: namespace, ResourceRequest: true,
		})
		if err != nil {
			s.Log.Error(err, "The API server could not be asked whether a caller may list Workloads", "user", caller.GetName(), "namespace", namespace)
		}
		return decision == authorizer.DecisionAllow
	}
	if may("") {
		return among
	}
	var out []string
	for _, namespace := range among[:min(len(among), maxReviews)] {
		if may(namespace) {
			out = append(out, namespace)
		}
	}
	return out
}

// behind tells which LocalQueues come before another one because they have used less. LocalQueues that the caller may not see have no name.
func behind(m *state.Model, before []state.Name, than state.Name, visible func(namespace string) bool) string {
	least, own := m.Usage(before[0].Namespace, before[0].Name), m.Usage(than.Namespace, than.Name)
	if least == nil || own == nil {
		return ""
	}
	first := "another LocalQueue"
	if visible(before[0].Namespace) {
		first = "LocalQueue " + before[0].Namespace + "/" + before[0].Name
	}
	text := fmt.Sprintf("  behind %s because that has used less: %.4g, and this one %.4g (admission fair sharing comes before priority)\n", first, least.Value, own.Value)
	if more := len(before) - 1; more > 0 {
		text += fmt.Sprintf("  behind %d more LocalQueues that have used less\n", more)
	}
	return text
}

// describe converts a decision trace to the API's form.
func describe(out *berthv1alpha1.Explanation, attempt *trace.Attempt) {
	out.Text, out.ClusterQueue, out.Priority = attempt.String(), attempt.Queue, attempt.Priority
	out.Verdict, out.Reason, out.Message = string(attempt.Verdict), string(attempt.Reason), attempt.Sentence()
	for _, ps := range attempt.PodSets {
		for _, c := range ps.Resources {
			p := attempt.Table.Pair(c.FR)
			out.Flavors = append(out.Flavors, berthv1alpha1.FlavorChoice{
				PodSet: ps.Name, Resource: p.Resource, Flavor: p.Flavor, Mode: c.Mode.String(), BorrowingLevel: int32(c.Level),
				Amount: convert.Quantity(corev1.ResourceName(p.Resource), c.Amount),
			})
		}
	}
	for i := range attempt.Refusals {
		out.Shortfalls = append(out.Shortfalls, shortfall(&attempt.Refusals[i]))
	}
	for _, v := range attempt.Victims {
		namespace, name, _ := strings.Cut(v.Key, "/")
		victim := berthv1alpha1.Victim{Namespace: namespace, Name: name, ClusterQueue: v.Queue, Reason: v.Reason}
		if v.MinRun > 0 {
			victim.RanSeconds, victim.MinRunSeconds = new(int64(v.Ran.Seconds())), new(int64(v.MinRun.Seconds()))
		}
		out.Preempts = append(out.Preempts, victim)
	}
	if len(attempt.WakesOn) > 0 {
		out.WakesOn = attempt.Wakes()
	}
}

func shortfall(r *trace.Refusal) berthv1alpha1.Shortfall {
	out := berthv1alpha1.Shortfall{
		PodSet: r.PodSet, Resource: r.Resource, Flavor: r.Flavor, Reason: string(r.Reason()), Message: r.String(), LimitedBy: r.Node,
	}
	if r.Reason() == trace.NoMatchingFlavor {
		return out
	}
	quantity := func(a resource.Amount) *apiresource.Quantity {
		if a >= resource.Unlimited {
			return nil
		}
		return new(convert.Quantity(corev1.ResourceName(r.Resource), a))
	}
	out.Requested, out.Available, out.Potential = quantity(r.Asked), quantity(r.Available), quantity(r.Potential)
	return out
}

// nowhere returns the reason why a Workload is in no queue, as far as its object shows it. gates is the parameter of lifecycle.KeptOut.
func nowhere(w *kueue.Workload, gates bool) (reason, message string) {
	switch lifecycle.KeptOut(w, gates) {
	case lifecycle.Finished:
		c := lifecycle.Condition(w, kueue.WorkloadFinished)
		return c.Reason, "it is finished: " + c.Message
	case lifecycle.Deleted:
		return "", "it is being deleted"
	case lifecycle.Inactive:
		return string(trace.Inactive), "it is deactivated; set spec.active to true to queue it again"
	case lifecycle.Gated:
		if names := w.Annotations[kueue.AdmissionGatedByAnnotation]; names != "" {
			return "", "the annotation " + kueue.AdmissionGatedByAnnotation + " keeps it out: " + names
		}
	case lifecycle.Divided:
		return "", "it is queued as variants, one for each flavor of its ClusterQueue: Workloads that it owns"
	case lifecycle.NoObstacle, lifecycle.OnHold, lifecycle.WaitingForNewPods: // their conditions say why
	}
	if c := lifecycle.Unreserved(w); c != nil {
		return c.Reason, c.Message
	}
	if c := lifecycle.Condition(w, kueue.WorkloadRequeued); lifecycle.IsRequeueBlocked(w) {
		return c.Reason, "it is not to be queued again yet: " + c.Message
	}
	return "", "the manager has not put it into a queue yet"
}
