// Package autoscaler is a stand-in for a cluster autoscaler, for demos and tests: it answers ProvisioningRequests of one class, makes
// simulated nodes appear for them after a while, and removes idle ones once their request is gone. The parameters of a request, and so the
// annotations provreq.kueue.x-k8s.io/NAME of its job, ask it to be late, to fail, to revoke the capacity or to let the booking expire.
//
//	(none) ─► Accepted ── Delay ──► Provisioned ── RevokeAfter ──► CapacityRevoked
//	                         │           └──────── ExpireAfter ──► BookingExpired
//	                         └─► Failed, in the first Failures attempts
//
// All it needs to know is in the API server: it may be stopped and started at any time.
package autoscaler

import (
	"context"
	_ "embed"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Class is the provisioningClassName of the requests that are answered.
const Class = "simulated.berth.dev"

// Parameters of a request. Times are durations such as 5s.
const (
	// Delay is the time from acceptance to Provisioned or Failed.
	Delay = "Delay"
	// Failures is how many attempts fail: of a request with the number N at the end of its name, the N-th.
	Failures = "Failures"
	// RevokeAfter and ExpireAfter are times after Provisioned. Without them the capacity stays.
	RevokeAfter = "RevokeAfter"
	ExpireAfter = "ExpireAfter"
)

const (
	// GroupLabel is a label of nodes: the request that they were made for, as its detail GroupDetail names it.
	GroupLabel = "berth.dev/node-group"
	// GroupDetail is the key of the name in status.provisioningClassDetails.
	GroupDetail = "NodeGroup"

	every = 100 * time.Millisecond
)

// GroupVersionKind is the kind of the requests.
var GroupVersionKind = schema.GroupVersionKind{Group: "autoscaling.x-k8s.io", Version: "v1", Kind: "ProvisioningRequest"}

//go:embed provisioningrequests.yaml
var crd []byte

// CRD returns the definition of ProvisioningRequests, in the versions v1 and v1beta1.
func CRD() *apiextensionsv1.CustomResourceDefinition {
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(crd, out); err != nil {
		panic(err) // it is part of the program
	}
	return out
}

// Autoscaler answers requests. Its fields do not change while it runs.
type Autoscaler struct {
	Client client.Client
	// Delay is the time from acceptance to nodes of requests without the parameter.
	Delay time.Duration
	// NodeCapacity is the size of each node; nil makes no nodes, for an API server alone.
	NodeCapacity corev1.ResourceList
	// MarkReady creates nodes that are ready, for an API server alone; otherwise the control plane simulates them.
	MarkReady bool
	// Namespace, unless empty, is the one whose requests are answered.
	Namespace string
	// Labels are on each node besides.
	Labels map[string]string
	// Failed gets errors, which are retried; nil ignores them.
	Failed func(error)

	accepted map[types.UID]time.Time // more precise than the condition
}

// Run answers requests until ctx ends.
func (a *Autoscaler) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := a.Pass(ctx, time.Now()); err != nil && ctx.Err() == nil && a.Failed != nil {
			a.Failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Pass answers all requests once.
func (a *Autoscaler) Pass(ctx context.Context, now time.Time) error {
	if a.accepted == nil {
		a.accepted = map[types.UID]time.Time{}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(GroupVersionKind.GroupVersion().WithKind(GroupVersionKind.Kind + "List"))
	if err := a.Client.List(ctx, list, client.InNamespace(a.Namespace)); err != nil {
		return fmt.Errorf("listing requests: %w", err)
	}
	var first error
	groups := map[string]bool{}
	for i := range list.Items {
		r, err := parse(&list.Items[i])
		if err != nil || r.Spec.ProvisioningClassName != Class || r.DeletionTimestamp != nil {
			continue
		}
		if !apimeta.IsStatusConditionTrue(r.Status.Conditions, "CapacityRevoked") {
			groups[r.group()] = true
		}
		if err := a.answer(ctx, r, now); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) && first == nil {
			first = fmt.Errorf("request %s/%s: %w", r.Namespace, r.Name, err)
		}
	}
	if a.NodeCapacity != nil {
		if err := a.removeIdle(ctx, groups); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// request is the part of a ProvisioningRequest that is read and answered.
type request struct {
	fields
	stored *unstructured.Unstructured
}

type fields struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodSets []struct {
			PodTemplateRef struct {
				Name string `json:"name"`
			} `json:"podTemplateRef"`
			Count int32 `json:"count"`
		} `json:"podSets"`
		ProvisioningClassName string            `json:"provisioningClassName"`
		Parameters            map[string]string `json:"parameters"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		Details    map[string]string  `json:"provisioningClassDetails,omitempty"`
	} `json:"status"`
}

func parse(stored *unstructured.Unstructured) (*request, error) {
	out := &request{stored: stored}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &out.fields)
}

// group is the name of the nodes of a request.
func (r *request) group() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.UID)) // never fails
	return fmt.Sprintf("%08x", h.Sum32())
}

func (r *request) since(condition string) (time.Time, bool) {
	c := apimeta.FindStatusCondition(r.Status.Conditions, condition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// duration returns a parameter, or another value without it.
func (r *request) duration(parameter string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(r.Spec.Parameters[parameter]); err == nil {
		return d
	}
	return otherwise
}

// attempt is the number at the end of the name.
func (r *request) attempt() int {
	n, err := strconv.Atoi(r.Name[strings.LastIndexByte(r.Name, '-')+1:])
	if err != nil {
		return 1
	}
	return n
}

// answer moves a request on by at most one condition.
func (a *Autoscaler) answer(ctx context.Context, r *request, now time.Time) error {
	accepted, is := r.since("Accepted")
	if !is {
		a.accepted[r.UID] = now
		eta := now.Add(r.duration(Delay, a.Delay)).UTC().Format(time.TimeOnly)
		return a.set(ctx, r, now, nil, condition("Accepted", true, "The request was accepted"),
			condition("Provisioned", false, "Nodes are expected at "+eta))
	}
	if known, has := a.accepted[r.UID]; has {
		accepted = known
	}
	if _, failed := r.since("Failed"); failed {
		return nil
	}
	provisioned, is := r.since("Provisioned")
	const never = 1 << 62
	switch {
	case !is && now.Sub(accepted) < r.duration(Delay, a.Delay):
		return nil
	case !is:
		failures, _ := strconv.Atoi(r.Spec.Parameters[Failures])
		if r.attempt() <= failures {
			return a.set(ctx, r, now, nil, condition("Failed", true, "No capacity is left in any zone"))
		}
		if ready, err := a.makeNodes(ctx, r); err != nil || !ready {
			return err
		}
		return a.set(ctx, r, now, map[string]string{GroupDetail: r.group()}, condition("Provisioned", true, "The nodes are there"))
	case now.Sub(provisioned) >= r.duration(RevokeAfter, never) && !apimeta.IsStatusConditionTrue(r.Status.Conditions, "CapacityRevoked"):
		return a.set(ctx, r, now, nil, condition("CapacityRevoked", true, "The nodes are needed elsewhere"))
	case now.Sub(provisioned) >= r.duration(ExpireAfter, never) && !apimeta.IsStatusConditionTrue(r.Status.Conditions, "BookingExpired"):
		return a.set(ctx, r, now, nil, condition("BookingExpired", true, "The nodes are not kept any longer"))
	}
	return nil
}

func condition(kind string, is bool, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: "StandIn", Message: message}
}

// set writes conditions and details, pinned to the version that was read.
func (a *Autoscaler) set(ctx context.Context, r *request, now time.Time, details map[string]string, conditions ...metav1.Condition) error {
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(now)
		apimeta.SetStatusCondition(&r.Status.Conditions, c)
	}
	if details != nil {
		r.Status.Details = details
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&r.Status)
	if err != nil {
		return err
	}
	next := r.stored.DeepCopy()
	next.Object["status"] = status
	return a.Client.Status().Update(ctx, next)
}

// makeNodes creates the missing nodes of a request, and reports whether all are ready.
func (a *Autoscaler) makeNodes(ctx context.Context, r *request) (ready bool, err error) {
	if a.NodeCapacity == nil {
		return true, nil
	}
	var nodes corev1.NodeList
	if err := a.Client.List(ctx, &nodes, client.MatchingLabels{GroupLabel: r.group()}); err != nil {
		return false, err
	}
	want := 0
	for _, set := range r.Spec.PodSets {
		template := &corev1.PodTemplate{}
		if err := a.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: set.PodTemplateRef.Name}, template); err != nil {
			return false, err
		}
		fit := a.fitting(&template.Template.Spec)
		if fit == 0 {
			return false, fmt.Errorf("a pod of %s is larger than a node", template.Name)
		}
		want += (int(set.Count) + fit - 1) / fit
	}
	ready = true
	for i := range want {
		name := fmt.Sprintf("scaled-%s-%d", r.group(), i)
		at := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == name })
		ready = ready && at >= 0 && isReady(&nodes.Items[at])
		if at >= 0 {
			continue
		}
		if err := a.Client.Create(ctx, a.node(name, r.group())); err != nil && !apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("creating node %s: %w", name, err)
		}
	}
	return ready, nil
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// fitting returns how many pods fit on a node.
func (a *Autoscaler) fitting(spec *corev1.PodSpec) int {
	sum := corev1.ResourceList{}
	for _, c := range spec.Containers {
		for name, amount := range c.Resources.Requests {
			total := sum[name]
			total.Add(amount)
			sum[name] = total
		}
	}
	out := 110
	for name, amount := range sum {
		if has := a.NodeCapacity[name]; !amount.IsZero() {
			out = min(out, int(has.MilliValue()/amount.MilliValue()))
		}
	}
	return out
}

func (a *Autoscaler) node(name, group string) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			GroupLabel: group, corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		},
		Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}
	maps.Copy(out.Labels, a.Labels)
	capacity := a.NodeCapacity.DeepCopy()
	if _, has := capacity[corev1.ResourcePods]; !has {
		capacity[corev1.ResourcePods] = resource.MustParse("110")
	}
	out.Status.Capacity, out.Status.Allocatable = capacity, capacity
	if a.MarkReady {
		out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "StandIn"}}
	}
	return out
}

// removeIdle deletes nodes whose request is gone or revoked, once their pods have ended.
func (a *Autoscaler) removeIdle(ctx context.Context, groups map[string]bool) error {
	var nodes corev1.NodeList
	if err := a.Client.List(ctx, &nodes, client.HasLabels{GroupLabel}); err != nil {
		return err
	}
	nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return groups[n.Labels[GroupLabel]] })
	if len(nodes.Items) == 0 {
		return nil
	}
	var pods corev1.PodList
	if err := a.Client.List(ctx, &pods); err != nil {
		return err
	}
	busy := map[string]bool{}
	for _, p := range pods.Items {
		busy[p.Spec.NodeName] = busy[p.Spec.NodeName] || p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; !busy[n.Name] {
			if err := a.Client.Delete(ctx, n); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}
