package visibility

import (
	"context"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/convert"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/state"
)

// explanation is the decision trace of a Workload. The words are made in the goroutine
// of the engine, since names of flavors are looked up there.
func explanation(ctx context.Context, s *Server, namespace, name string, _ url.Values) (runtime.Object, error) {
	w := s.Workload(namespace, name)
	if w == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: berthv1alpha1.GroupVersion.Group, Resource: "workloads"}, name)
	}
	out := &berthv1alpha1.Explanation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: w.UID, CreationTimestamp: w.CreationTimestamp},
		LocalQueue: string(w.Spec.QueueName),
	}
	if w.Spec.Priority != nil {
		out.Priority = int64(*w.Spec.Priority)
	}
	known := false
	if err := s.ask(ctx, func(st *state.State) {
		look, place := st.LookNow(string(w.UID))
		if look == nil {
			return
		}
		known = true
		describe(out, look)
		if place >= 0 {
			out.PositionInClusterQueue = new(int32(place))
		}
	}); err != nil {
		return nil, err
	}
	switch told := waits(w); {
	case !known:
		out.Reason, out.Message = nowhere(w)
		out.Text = namespace + "/" + name + ": in no queue\n  " + out.Message + "\n"
	case out.Reason == string(trace.PendingEvaluation) && told != nil:
		// Another replica has looked at it and has said so.
		out.Reason, out.Message = told.Reason, told.Message
		out.Text += "  its condition says " + told.Reason + ": " + told.Message + "\n"
	}
	return out, nil
}

// describe puts a look into the words and figures of the API.
func describe(out *berthv1alpha1.Explanation, look *trace.Look) {
	out.Text, out.ClusterQueue, out.Priority = look.String(), look.Queue, look.Priority
	out.Verdict, out.Reason, out.Message = string(look.Verdict), string(look.Reason), look.Sentence()
	for _, ps := range look.PodSets {
		for _, c := range ps.Resources {
			p := look.Table.Pair(c.FR)
			out.Flavors = append(out.Flavors, berthv1alpha1.FlavorChoice{
				PodSet: ps.Name, Resource: p.Resource, Flavor: p.Flavor, Mode: c.Mode.String(), BorrowingLevel: int32(c.Level),
				Amount: convert.Quantity(corev1.ResourceName(p.Resource), c.Amount),
			})
		}
	}
	for i := range look.Refusals {
		out.Shortfalls = append(out.Shortfalls, shortfall(&look.Refusals[i]))
	}
	for _, v := range look.Victims {
		namespace, name, _ := strings.Cut(v.Key, "/")
		out.Preempts = append(out.Preempts, berthv1alpha1.Victim{Namespace: namespace, Name: name, ClusterQueue: v.Queue, Reason: v.Reason})
	}
	for _, fr := range look.WakesOn {
		p := look.Table.Pair(fr)
		out.WakesOn = append(out.WakesOn, p.Flavor+"/"+p.Resource)
	}
	slices.Sort(out.WakesOn)
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

// nowhere says why a Workload has no place in any queue, as far as it says so itself.
func nowhere(w *kueue.Workload) (reason, message string) {
	is := func(condition string) *metav1.Condition {
		c := apimeta.FindStatusCondition(w.Status.Conditions, condition)
		if c == nil || c.Status != metav1.ConditionTrue {
			return nil
		}
		return c
	}
	if c := is(kueue.WorkloadFinished); c != nil {
		return c.Reason, "it is finished: " + c.Message
	}
	if w.DeletionTimestamp != nil {
		return "", "it is being deleted"
	}
	if w.Spec.Active != nil && !*w.Spec.Active {
		return string(trace.Inactive), "it is deactivated; set spec.active to true to queue it again"
	}
	if gates := w.Annotations[kueue.AdmissionGatedByAnnotation]; gates != "" {
		return "", "the annotation " + kueue.AdmissionGatedByAnnotation + " keeps it out: " + gates
	}
	if c := waits(w); c != nil {
		return c.Reason, c.Message
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadRequeued); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason, "it is not to be queued again yet: " + c.Message
	}
	return "", "the manager has not put it into a queue yet"
}
