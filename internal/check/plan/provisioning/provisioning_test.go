package provisioning

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

var now = metav1.NewTime(time.Unix(1_000_000, 0))

// scene is a Workload with one check, and what exists for it.
type scene struct {
	*Facts
	t *testing.T
}

func pods(name string, count int32, requests string) kueue.PodSet {
	list := corev1.ResourceList{}
	for part := range strings.SplitSeq(requests, ",") {
		key, amount, _ := strings.Cut(part, "=")
		list[corev1.ResourceName(key)] = resource.MustParse(amount)
	}
	return kueue.PodSet{Name: kueue.PodSetReference(name), Count: count, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list}}},
	}}}
}

// reserved is a scene whose Workload holds quota for some pod sets.
func reserved(t *testing.T, podSets ...kueue.PodSet) *scene {
	t.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl", UID: "wl-uid"}}
	w.Spec.PodSets = podSets
	w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
	for _, ps := range podSets {
		w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{
			Name: ps.Name, Count: &ps.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
		})
	}
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "check", State: kueue.CheckStatePending}}
	config := &kueue.ProvisioningRequestConfig{}
	config.Spec.ProvisioningClassName = "class"
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "check"}}
	flavor := &kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "p"}}}
	return &scene{t: t, Facts: &Facts{
		Workload: w, Checks: []Checked{{Check: check, Config: config}}, Flavors: podset.Flavors{"f": flavor}, Version: "v1", DeleteOnEviction: true, Now: now,
	}}
}

func (s *scene) config() *kueue.ProvisioningRequestConfig { return s.Checks[0].Config }

func (s *scene) entryOf() *kueue.AdmissionCheckState { return &s.Workload.Status.AdmissionChecks[0] }

// decide returns the plan of the check.
func (s *scene) decide() plan.Plan {
	s.t.Helper()
	out := s.Plan(s.Checks[0].Check, *s.entryOf())
	if out.Err != nil {
		s.t.Fatal(out.Err)
	}
	return out
}

// made stores what a plan creates, as the API server would.
func (s *scene) made(writes []plan.Write) *Request {
	s.t.Helper()
	var last *Request
	for _, w := range writes {
		switch o := w.Object.(type) {
		case *corev1.PodTemplate:
			s.Templates = append(s.Templates, &metav1.PartialObjectMetadata{ObjectMeta: o.ObjectMeta})
		case *unstructured.Unstructured:
			o.SetUID(types.UID("uid of " + o.GetName()))
			r, err := NewRequest(o)
			if err != nil {
				s.t.Fatal(err)
			}
			s.Requests, last = append(s.Requests, r), r
		}
	}
	return last
}

func (r *Request) answered(conditions ...string) {
	r.Status.Conditions = nil
	for _, c := range conditions {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Message: c + " it is"})
	}
}

func verbs(writes []plan.Write) (out []string) {
	for _, w := range writes {
		out = append(out, string(w.Verb)+" "+w.Object.GetName())
	}
	return out
}

func expect(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// spec 20 §4.18.2: names, labels, owners, pods as they will be started.
func TestCreated(t *testing.T) {
	s := reserved(t, pods("driver", 1, "cpu=1"), pods("workers", 4, "cpu=2"), pods("none", 0, "cpu=1"))
	c := &s.Workload.Spec.PodSets[1].Template.Spec.Containers[0]
	c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("1Gi")}
	s.config().Spec.Parameters = map[string]kueue.ProvisioningRequestParameter{"a": "config", "b": "config"}
	s.Workload.Annotations = map[string]string{"provreq.kueue.x-k8s.io/b": "job", "provreq.kueue.x-k8s.io/c": "job"}
	decided := s.decide()
	expect(t, "writes", []string{"create ppt-wl-check-1-driver", "create ppt-wl-check-1-workers", "create wl-check-1"}, verbs(decided.Writes))
	workers := decided.Writes[1].Object.(*corev1.PodTemplate)
	expect(t, "requests", corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
		workers.Template.Spec.Containers[0].Resources.Requests)
	expect(t, "node selector", map[string]string{"pool": "p"}, workers.Template.Spec.NodeSelector)
	r := s.made(decided.Writes)
	expect(t, "parameters", map[string]string{"a": "config", "b": "job", "c": "job"}, r.Spec.Parameters)
	expect(t, "class", "class", r.Spec.ProvisioningClassName)
	expect(t, "counts", []int32{1, 4}, []int32{r.Spec.PodSets[0].Count, r.Spec.PodSets[1].Count})
	for _, o := range []metav1.Object{r, workers} {
		if o.GetLabels()[kueue.ManagedLabel] != "true" || !metav1.IsControlledBy(o, s.Workload) {
			t.Errorf("%s has labels %v and owners %v", o.GetName(), o.GetLabels(), o.GetOwnerReferences())
		}
	}
	if c.Resources.Requests.Memory().Value() != 0 {
		t.Error("the Workload was changed")
	}
	decided = s.decide()
	expect(t, "transfer", []string{"patch ppt-wl-check-1-driver", "patch ppt-wl-check-1-workers"}, verbs(decided.Writes))
	for i, w := range decided.Writes {
		if !metav1.IsControlledBy(w.Object, r) {
			t.Errorf("%s is owned by %v", w.Object.GetName(), w.Object.GetOwnerReferences())
		}
		s.Templates[i] = w.Object.(*metav1.PartialObjectMetadata)
	}
	expect(t, "a settled world", []string(nil), verbs(append(s.decide().Writes, s.Cleanup()...)))
}

func TestNames(t *testing.T) {
	expect(t, "request", "w-c-3", RequestName("w", "c", 3))
	expect(t, "template", "ppt-w-c-3-main", TemplateName("w-c-3", "main"))
	long := RequestName(strings.Repeat("w", 250), "c", 1)
	if len(long) != 253 || long[:247] != strings.Repeat("w", 247) || long[247] != '-' || long == RequestName(strings.Repeat("w", 250), "c", 2) {
		t.Errorf("a long name is %s", long)
	}
	r := &Request{fields: fields{ObjectMeta: metav1.ObjectMeta{Name: RequestName(strings.Repeat("w", 250), "c", 7)}}}
	expect(t, "attempt of a shortened name", 7, r.attemptFor(strings.Repeat("w", 250), "c"))
	expect(t, "of another check", 0, r.attemptFor(strings.Repeat("w", 250), "d"))
}

// spec 20 §4.18.1
func TestManagedResources(t *testing.T) {
	s := reserved(t, pods("main", 1, "cpu=1"))
	s.config().Spec.ManagedResources = []corev1.ResourceName{"nvidia.com/gpu"}
	decided := s.decide()
	expect(t, "state", kueue.CheckStateReady, decided.Entry.State)
	expect(t, "writes", 0, len(decided.Writes))
	s.Workload.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	expect(t, "state with a limit", kueue.CheckStatePending, s.decide().Entry.State)
	s.Workload.Status.Admission.PodSetAssignments[0].Count = new(int32(0))
	expect(t, "state without a pod", kueue.CheckStateReady, s.decide().Entry.State)
	s.Checks[0].Config, s.Checks[0].Why = nil, "it is gone"
	decided = s.decide()
	expect(t, "entry of an inactive check", "Pending: The admission check is not active: it is gone", string(decided.Entry.State)+": "+decided.Entry.Message)
}

// spec 20 §2.6, podSetMergePolicy
func TestMerge(t *testing.T) {
	labelled := pods("labelled", 2, "cpu=2")
	labelled.Template.Labels = map[string]string{"a": "b"}
	sets := []kueue.PodSet{pods("a", 1, "cpu=2"), pods("small", 1, "cpu=1"), labelled, pods("c", 4, "cpu=2")}
	cases := map[string]struct {
		policy *kueue.ProvisioningRequestPodSetMergePolicy
		want   map[string]int32
	}{
		"none":         {nil, map[string]int32{"a": 1, "small": 1, "labelled": 2, "c": 4}},
		"templates":    {new(kueue.IdenticalPodTemplates), map[string]int32{"a": 5, "small": 1, "labelled": 2}},
		"requirements": {new(kueue.IdenticalWorkloadSchedulingRequirements), map[string]int32{"a": 7, "small": 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := reserved(t, sets...)
			s.config().Spec.PodSetMergePolicy = c.policy
			r := s.made(s.decide().Writes)
			got := map[string]int32{}
			for _, p := range r.Spec.PodSets {
				got[strings.TrimPrefix(p.PodTemplateRef.Name, "ppt-wl-check-1-")] = p.Count
			}
			expect(t, "pod sets", c.want, got)
			r.answered(Provisioned)
			expect(t, "updated pod sets", 4, len(s.decide().Entry.PodSetUpdates))
		})
	}
}

// spec 20 §4.18.4: the first row that matches wins.
func TestAnswers(t *testing.T) {
	cases := map[string]struct {
		is             []string
		state          kueue.CheckState // of the entry before
		retries, limit int32
		admitted       bool
		want           kueue.CheckState
		after          int32
		message        string
	}{
		"no condition":                      {want: kueue.CheckStatePending},
		"accepted":                          {is: []string{Accepted}, want: kueue.CheckStatePending},
		"provisioned":                       {is: []string{Accepted, Provisioned}, want: kueue.CheckStateReady, message: "Provisioned it is"},
		"failed":                            {is: []string{Failed}, limit: 1, want: kueue.CheckStateRetry, after: 60},
		"failed though provisioned":         {is: []string{Provisioned, Failed}, limit: 1, want: kueue.CheckStateRetry, after: 60},
		"failed without a retry":            {is: []string{Failed}, limit: 0, want: kueue.CheckStateRejected},
		"failed while ready":                {is: []string{Failed}, state: kueue.CheckStateReady, limit: 1, want: kueue.CheckStateRetry, after: 60},
		"revoked":                           {is: []string{Provisioned, CapacityRevoked}, limit: 1, want: kueue.CheckStateRejected},
		"revoked while it runs":             {is: []string{Provisioned, CapacityRevoked}, state: kueue.CheckStateReady, admitted: true, want: kueue.CheckStateRejected},
		"expired":                           {is: []string{Provisioned, BookingExpired}, limit: 1, want: kueue.CheckStateRetry, after: 60},
		"expired after admission":           {is: []string{Provisioned, BookingExpired}, state: kueue.CheckStateReady, admitted: true, limit: 1, want: kueue.CheckStateReady},
		"ready stays":                       {is: []string{Accepted}, state: kueue.CheckStateReady, want: kueue.CheckStateReady},
		"a retry is not answered again":     {is: []string{Failed}, state: kueue.CheckStateRetry, limit: 3, want: kueue.CheckStateRetry},
		"a rejection is not answered again": {is: []string{Provisioned}, state: kueue.CheckStateRejected, want: kueue.CheckStateRejected},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := reserved(t, pods("main", 1, "cpu=1"))
			s.config().Spec.RetryStrategy = &kueue.ProvisioningRequestRetryStrategy{BackoffLimitCount: &c.limit}
			r := s.made(s.decide().Writes)
			if c.state != "" {
				s.entryOf().State = c.state
			}
			if c.admitted {
				s.Workload.Status.Conditions = append(s.Workload.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})
			}
			r.answered(c.is...)
			got := s.decide().Entry
			expect(t, "state", c.want, got.State)
			if c.after > 0 && (got.RequeueAfterSeconds == nil || *got.RequeueAfterSeconds != c.after) {
				t.Errorf("requeueAfterSeconds %v, want %d", got.RequeueAfterSeconds, c.after)
			}
			if c.message != "" {
				expect(t, "message", c.message, got.Message)
			}
			if changed := got.State != s.entryOf().State; changed != (got.LastTransitionTime == now) {
				t.Errorf("the state changed: %v; the transition is at %s", changed, got.LastTransitionTime)
			}
		})
	}
}

func TestEstimate(t *testing.T) {
	s := reserved(t, pods("main", 1, "cpu=1"))
	r := s.made(s.decide().Writes)
	r.answered(Accepted)
	r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: Provisioned, Status: metav1.ConditionFalse, Message: "in 5 minutes"})
	expect(t, "message", "in 5 minutes", s.decide().Entry.Message)
	s.entryOf().Message = "in 5 minutes"
	r.answered()
	expect(t, "message without a condition", "", s.decide().Entry.Message)
}

// spec 20 §4.18.4, podSetUpdates
func TestUpdates(t *testing.T) {
	s := reserved(t, pods("main", 1, "cpu=1"))
	s.config().Spec.PodSetUpdates = &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestNodeSelectorUpdate{
		{Key: "example.com/pool", ValueFromProvisioningClassDetail: "Pool"}, {Key: "example.com/zone", ValueFromProvisioningClassDetail: "Zone"},
	}}
	r := s.made(s.decide().Writes)
	r.answered(Provisioned)
	r.Status.ProvisioningClassDetails = map[string]string{"Pool": "p1"}
	expect(t, "updates", []kueue.PodSetUpdate{{
		Name: "main", NodeSelector: map[string]string{"example.com/pool": "p1"},
		Annotations: map[string]string{
			"autoscaling.x-k8s.io/consume-provisioning-request": "wl-check-1", "autoscaling.x-k8s.io/provisioning-class-name": "class",
		},
	}}, s.decide().Entry.PodSetUpdates)
}

// spec 20 §4.18.3 and §7.56
func TestAttempts(t *testing.T) {
	for _, deletes := range []bool{true, false} {
		s := reserved(t, pods("main", 1, "cpu=1"))
		s.DeleteOnEviction = deletes
		s.config().Spec.RetryStrategy = &kueue.ProvisioningRequestRetryStrategy{BackoffLimitCount: new(int32(1))}
		first := s.made(s.decide().Writes)
		first.answered(Failed)
		s.entryOf().State = s.decide().Entry.State
		expect(t, "the first failure", kueue.CheckStateRetry, s.entryOf().State)
		expect(t, "writes while it waits", 0, len(s.decide().Writes))

		s.entryOf().State, s.entryOf().RetryCount = kueue.CheckStatePending, new(int32(1)) // evicted, and reserved again
		s.Workload.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.EvictionCount{{Reason: "AdmissionCheck", Count: 1}}}
		if deletes {
			expect(t, "an old request", []string{"delete ppt-wl-check-1-main", "delete wl-check-1"}, verbs(s.Cleanup()))
			s.Requests, s.Templates = nil, nil
		} else {
			expect(t, "a kept request", 0, len(s.Cleanup()))
		}
		decided := s.decide()
		expect(t, "the second attempt", []string{"create ppt-wl-check-2-main", "create wl-check-2"}, verbs(decided.Writes))
		second := s.made(decided.Writes)
		if !deletes {
			expect(t, "the first one goes", []string{"delete ppt-wl-check-1-main", "delete wl-check-1"}, verbs(s.Cleanup()))
		}
		second.answered(Failed)
		expect(t, "the second failure", kueue.CheckStateRejected, s.decide().Entry.State)
	}
}

func TestBackoff(t *testing.T) {
	for retries, want := range []int32{60, 120, 240, 480, 960, 1800, 1800} {
		expect(t, "backoff", want, backoff(60, 1800, retries))
	}
	expect(t, "without an end", int32(1800), backoff(60, 1800, 1<<30))
	expect(t, "of zero", int32(0), backoff(0, 1800, 3))
	limit, base, most := strategy(&kueue.ProvisioningRequestConfig{Spec: kueue.ProvisioningRequestConfigSpec{RetryStrategy: &kueue.ProvisioningRequestRetryStrategy{}}})
	expect(t, "defaults of null fields", []int{3, 60, 1800}, []int{limit, int(base), int(most)})
}

// spec 20 §4.18.5
func TestSync(t *testing.T) {
	in := func(change func(*scene)) *scene {
		s := reserved(t, pods("main", 1, "cpu=1"))
		s.config().Spec.Parameters = map[string]kueue.ProvisioningRequestParameter{"a": "1"}
		s.made(s.decide().Writes)
		for i, w := range s.decide().Writes {
			s.Templates[i] = w.Object.(*metav1.PartialObjectMetadata)
		}
		change(s)
		return s
	}
	evicted := func(s *scene) {
		s.Workload.Status.Conditions = append(s.Workload.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue})
	}
	cases := map[string]struct {
		change func(*scene)
		want   []string
	}{
		"in sync":             {func(*scene) {}, nil},
		"a further parameter": {func(s *scene) { s.Requests[0].Spec.Parameters["b"] = "2" }, nil},
		"another parameter":   {func(s *scene) { s.config().Spec.Parameters["a"] = "2" }, []string{"delete wl-check-1"}},
		"a new parameter":     {func(s *scene) { s.config().Spec.Parameters["b"] = "2" }, []string{"delete wl-check-1"}},
		"another class":       {func(s *scene) { s.config().Spec.ProvisioningClassName = "other" }, []string{"delete wl-check-1"}},
		"no configuration":    {func(s *scene) { s.Checks[0].Config = nil }, []string{"delete wl-check-1"}},
		"the check is gone":   {func(s *scene) { s.Checks = nil }, []string{"delete wl-check-1"}},
		"finished": {func(s *scene) {
			s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
		}, []string{"delete wl-check-1"}},
		"evicted":                   {evicted, []string{"delete wl-check-1"}},
		"evicted, without the gate": {func(s *scene) { evicted(s); s.DeleteOnEviction = false }, nil},
		"no reservation":            {func(s *scene) { s.Workload.Status.Conditions = nil }, nil},
		"overridden by the job": {func(s *scene) {
			s.Workload.Annotations = map[string]string{"provreq.kueue.x-k8s.io/a": "9"}
			s.Requests[0].Spec.Parameters["a"] = "9"
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := in(c.change)
			expect(t, "deletions", c.want, verbs(s.Cleanup()))
		})
	}
	s := in(func(s *scene) { s.config().Spec.ProvisioningClassName = "other" })
	expect(t, "the name is in use", 0, len(s.decide().Writes))
	s.Requests = nil
	expect(t, "created again, in place of its templates", []string{"delete ppt-wl-check-1-main"}, verbs(s.decide().Writes))
	s.Templates = nil
	expect(t, "created again", []string{"create ppt-wl-check-1-main", "create wl-check-1"}, verbs(s.decide().Writes))
	s.entryOf().State = kueue.CheckStateReady
	expect(t, "not while it is ready", 0, len(s.decide().Writes))
	s = in(func(s *scene) {
		s.Requests[0].answered(Provisioned)
		s.entryOf().State = kueue.CheckStateReady
		s.Requests = nil
	})
	expect(t, "deleted by hand while ready", kueue.CheckStateReady, s.decide().Entry.State)
}

// A PodTemplate that an interrupted attempt left behind is used if it is the same, and replaced otherwise.
func TestLeftBehind(t *testing.T) {
	s := reserved(t, pods("main", 1, "cpu=1"))
	s.made(s.decide().Writes[:1])
	expect(t, "the same", []string{"create wl-check-1"}, verbs(s.decide().Writes))
	expect(t, "it is needed", 0, len(s.Cleanup()))
	s.Flavors["f"].Spec.NodeLabels["pool"] = "q"
	expect(t, "of another flavor", []string{"delete ppt-wl-check-1-main"}, verbs(s.decide().Writes))
	s.Workload.Status.Conditions = nil
	expect(t, "while it waits", 0, len(s.Cleanup()))
	s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue}}
	expect(t, "evicted", []string{"delete ppt-wl-check-1-main"}, verbs(s.Cleanup()))
}

// Requests of another manager have no annotations: the name tells the attempt.
func TestAdopted(t *testing.T) {
	s := reserved(t, pods("main", 1, "cpu=1"))
	r := s.made(s.decide().Writes)
	r.Annotations, r.Labels = nil, nil
	expect(t, "it is current", 0, len(s.Cleanup()))
	r.answered(Provisioned)
	expect(t, "state", kueue.CheckStateReady, s.decide().Entry.State)
	r.Name = "wl-check-2"
	r.answered(Failed)
	s.entryOf().RetryCount = new(int32(1))
	expect(t, "seconds after the second attempt", int32(120), *s.decide().Entry.RequeueAfterSeconds)
}
