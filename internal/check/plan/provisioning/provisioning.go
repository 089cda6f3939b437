// Package provisioning decides about admission checks that ask a cluster autoscaler for nodes, by a ProvisioningRequest for each attempt:
//
//	reserved ─► PodTemplates ─► ProvisioningRequest ─► Accepted ─► Provisioned ─► Ready, pods are bound to the capacity
//	                                  │
//	                                  └─► Failed, or BookingExpired before admission ─► Retry after a backoff, at last Rejected
//
// (spec: 20 §2.6, §4.18)
package provisioning

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Annotations that bind pods to provisioned capacity (spec: 20 §5.3).
const (
	ConsumeAnnotation = "autoscaling.x-k8s.io/consume-provisioning-request"
	ClassAnnotation   = "autoscaling.x-k8s.io/provisioning-class-name"
)

// Facts are everything that decides about the checks of one Workload. Plans do not modify them.
type Facts struct {
	Workload *kueue.Workload
	Checks   []Checked // of this controller, that the Workload lists
	Flavors  podset.Flavors
	// Requests are the ProvisioningRequests that the Workload controls.
	Requests []*Request
	// Templates are the PodTemplates that were created for requests of the Workload.
	Templates []*metav1.PartialObjectMetadata
	// Version is the version of the API in which requests are created.
	Version string
	// DeleteOnEviction is the feature gate CleanupProvisioningRequestsOnEviction.
	DeleteOnEviction bool
	Now              metav1.Time
}

// Checked is an AdmissionCheck with its configuration.
type Checked struct {
	Check  *kueue.AdmissionCheck
	Config *kueue.ProvisioningRequestConfig // nil if the check is not active
	Why    string                           // it is not active
}

// ConfigName returns the ProvisioningRequestConfig that a check names, or why it names none.
func ConfigName(check *kueue.AdmissionCheck) (name, why string) {
	p := check.Spec.Parameters
	if p == nil || p.Name == "" || p.APIGroup != kueue.GroupVersion.Group || p.Kind != "ProvisioningRequestConfig" {
		return "", fmt.Sprintf("spec.parameters of AdmissionCheck %s must name a ProvisioningRequestConfig of %s", check.Name, kueue.GroupVersion.Group)
	}
	return p.Name, ""
}

// Plan decides about one check of a Workload with a reservation.
func (f *Facts) Plan(check *kueue.AdmissionCheck, entry kueue.AdmissionCheckState) plan.Plan {
	c := f.checked(check.Name)
	out := plan.Plan{Entry: entry}
	pending := entry.State == kueue.CheckStatePending
	if c.Config == nil {
		if pending {
			out.Entry = plan.Become(entry, kueue.CheckStatePending, "The admission check is not active: "+c.Why, f.Now)
		}
		return out
	}
	if entry.State == kueue.CheckStateRetry || entry.State == kueue.CheckStateRejected {
		return out
	}
	sets := groups(f.Workload, c.Config)
	if len(sets) == 0 {
		if pending {
			out.Entry = plan.Become(entry, kueue.CheckStateReady, "No ProvisioningRequest is needed: no pod uses a managed resource", f.Now)
		}
		return out
	}
	current, attempt := f.current(c)
	if pending && (current == nil || f.isOver(current) && !f.triggers(current, attempt, entry)) {
		if out.Writes, out.Err = f.create(c, f.nextAttempt(c, entry), sets); out.Err == nil {
			out.Entry = plan.Become(entry, kueue.CheckStatePending, "", f.Now)
		}
		return out
	}
	if current != nil {
		out.Writes = f.transfers(current)
		out.Entry = f.answer(current, attempt, c.Config, entry)
	}
	return out
}

func (f *Facts) checked(name string) *Checked {
	for i := range f.Checks {
		if f.Checks[i].Check.Name == name {
			return &f.Checks[i]
		}
	}
	return &Checked{Why: "it is unknown"}
}

// last returns the request of the latest attempt for a check, and the number of the attempt; nil and 0 for none.
func (f *Facts) last(c *Checked) (r *Request, attempt int) {
	for _, o := range f.Requests {
		if n := o.attemptFor(f.Workload.Name, c.Check.Name); n > attempt {
			r, attempt = o, n
		}
	}
	return r, attempt
}

// current returns the request that decides about a check: of the latest attempt, as the configuration asks, and not being deleted.
func (f *Facts) current(c *Checked) (r *Request, attempt int) {
	r, attempt = f.last(c)
	if r == nil || c.Config == nil || r.DeletionTimestamp != nil || !f.inSync(r, c.Config) || f.DeleteOnEviction && f.isOld(r) {
		return nil, 0
	}
	return r, attempt
}

// isOld reports whether a request was created before the last eviction of the Workload.
func (f *Facts) isOld(r *Request) bool {
	at, known := r.Annotations[EvictionsAnnotation]
	return known && at != evictions(f.Workload)
}

// isOver reports whether a request is of no use: it failed, its booking expired before the admission, or its capacity was revoked from an
// earlier reservation.
func (f *Facts) isOver(r *Request) bool {
	return r.is(Failed) || r.is(BookingExpired) && !lifecycle.IsAdmitted(f.Workload) || r.is(CapacityRevoked) && f.isOld(r)
}

// triggers reports whether the end of a request is news: the end of an earlier attempt was answered already.
func (f *Facts) triggers(r *Request, attempt int, entry kueue.AdmissionCheckState) bool {
	return !f.isOld(r) && attempt > retries(entry)
}

func retries(entry kueue.AdmissionCheckState) int { return int(ptr.Deref(entry.RetryCount, 0)) }

// nextAttempt returns the number of the attempt of a new request.
func (f *Facts) nextAttempt(c *Checked, entry kueue.AdmissionCheckState) int {
	if r, attempt := f.last(c); r != nil && r.DeletionTimestamp == nil && f.isOver(r) && !(f.DeleteOnEviction && f.isOld(r)) {
		return attempt + 1
	}
	return retries(entry) + 1
}

// answer returns the entry of a check as its request asks. The first row that matches wins: spec 20 §4.18.4.
func (f *Facts) answer(r *Request, attempt int, config *kueue.ProvisioningRequestConfig, entry kueue.AdmissionCheckState) kueue.AdmissionCheckState {
	pending := entry.State == kueue.CheckStatePending
	expired := r.is(BookingExpired) && !lifecycle.IsAdmitted(f.Workload)
	switch {
	case r.is(Failed):
		return f.retry(r, attempt, config, entry, r.message(Failed))
	case r.is(CapacityRevoked) && lifecycle.IsActive(f.Workload):
		return plan.Become(entry, kueue.CheckStateRejected, "The capacity was revoked: "+r.message(CapacityRevoked), f.Now)
	case expired:
		return f.retry(r, attempt, config, entry, r.message(BookingExpired))
	case !pending:
		return entry
	case r.is(Provisioned):
		entry.PodSetUpdates = f.updates(r, config)
		return plan.Become(entry, kueue.CheckStateReady, r.message(Provisioned), f.Now)
	case r.is(Accepted):
		return plan.Become(entry, kueue.CheckStatePending, r.message(Provisioned), f.Now)
	default:
		return plan.Become(entry, kueue.CheckStatePending, "", f.Now)
	}
}

// retry returns the entry after the end of a request: another attempt after a backoff, or none.
func (f *Facts) retry(r *Request, attempt int, config *kueue.ProvisioningRequestConfig, entry kueue.AdmissionCheckState, why string) kueue.AdmissionCheckState {
	if !f.triggers(r, attempt, entry) {
		return entry
	}
	limit, base, most := strategy(config)
	if attempt > limit {
		return plan.Become(entry, kueue.CheckStateRejected, fmt.Sprintf("No attempt is left after %d: %s", attempt, why), f.Now)
	}
	out := plan.Become(entry, kueue.CheckStateRetry, fmt.Sprintf("Attempt %d of %d: %s", attempt, limit+1, why), f.Now)
	out.RequeueAfterSeconds = new(backoff(base, most, retries(entry)))
	return out
}

// Defaults of a retryStrategy, also of one with null fields.
const (
	defaultLimit = 3
	defaultBase  = 60
	defaultMost  = 1800
)

func strategy(config *kueue.ProvisioningRequestConfig) (limit int, base, most int32) {
	s := ptr.Deref(config.Spec.RetryStrategy, kueue.ProvisioningRequestRetryStrategy{})
	return int(ptr.Deref(s.BackoffLimitCount, defaultLimit)), ptr.Deref(s.BackoffBaseSeconds, defaultBase), ptr.Deref(s.BackoffMaxSeconds, defaultMost)
}

// backoff returns base·2^retries seconds, at most most.
func backoff(base, most int32, retries int) int32 {
	out := int64(max(base, 0))
	for range min(retries, 32) {
		out = min(2*out, int64(most))
	}
	return int32(max(min(out, int64(most)), 0))
}

// updates returns what the pods get: the binding to the capacity, and the node selectors of the configuration that the request has values
// for. Merged pod sets all get it.
func (f *Facts) updates(r *Request, config *kueue.ProvisioningRequestConfig) (out []kueue.PodSetUpdate) {
	selector := map[string]string{}
	if config.Spec.PodSetUpdates != nil {
		for _, s := range config.Spec.PodSetUpdates.NodeSelector {
			if value, has := r.Status.ProvisioningClassDetails[s.ValueFromProvisioningClassDetail]; has {
				selector[s.Key] = value
			}
		}
	}
	for _, g := range groups(f.Workload, config) {
		if !r.has(TemplateName(r.Name, string(g.first.Name))) {
			continue
		}
		for _, name := range g.members {
			out = append(out, kueue.PodSetUpdate{
				Name:         name,
				Annotations:  map[string]string{ConsumeAnnotation: r.Name, ClassAnnotation: r.Spec.ProvisioningClassName},
				NodeSelector: podset.OrNil(selector),
			})
		}
	}
	return out
}

// Cleanup returns the deletions of objects that no check of the Workload needs: all after an eviction, as the gate says, and at the end; else
// the requests that are not current, and PodTemplates without a request. Without a reservation and without an eviction, all stay.
// spec: 20 §4.18.5.
func (f *Facts) Cleanup() (out []plan.Write) {
	w := f.Workload
	all := lifecycle.IsFinished(w) || w.DeletionTimestamp != nil || f.DeleteOnEviction && lifecycle.IsEvicted(w)
	if !all && !plan.Holds(w) {
		return nil
	}
	needed, names := map[types.UID]bool{}, map[string]bool{}
	if !all {
		needed, names = f.needed()
	}
	for _, r := range f.Requests {
		if !needed[r.UID] && r.DeletionTimestamp == nil {
			out = append(out, plan.Write{Verb: plan.Delete, Object: r.stored})
		}
	}
	for _, t := range f.Templates {
		if t.DeletionTimestamp == nil && metav1.IsControlledBy(t, w) && !names[t.Annotations[RequestAnnotation]] {
			out = append(out, plan.Write{Verb: plan.Delete, Object: t})
		}
	}
	slices.SortFunc(out, func(a, b plan.Write) int { return strings.Compare(a.Object.GetName(), b.Object.GetName()) })
	return out
}

// needed returns the requests that decide about checks, by UID, and the names of these and of the next ones.
func (f *Facts) needed() (requests map[types.UID]bool, names map[string]bool) {
	requests, names = map[types.UID]bool{}, map[string]bool{}
	for i := range f.Checks {
		c := &f.Checks[i]
		if c.Config == nil {
			continue
		}
		if r, _ := f.current(c); r != nil {
			requests[r.UID], names[r.Name] = true, true
		}
		names[RequestName(f.Workload.Name, c.Check.Name, f.nextAttempt(c, f.entry(c.Check.Name)))] = true
	}
	return requests, names
}

func (f *Facts) entry(check string) kueue.AdmissionCheckState {
	for _, e := range f.Workload.Status.AdmissionChecks {
		if string(e.Name) == check {
			return e
		}
	}
	return kueue.AdmissionCheckState{}
}
