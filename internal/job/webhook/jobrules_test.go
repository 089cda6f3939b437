package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/kind/ray"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

func testOptions() *Options {
	return &Options{Jobs: &job.Config{AdmissionGatedBy: true, AnnotationIdentifiers: true, PartialAdmission: true}}
}

func TestJobRules(t *testing.T) {
	const label, annotation = "metadata.labels[kueue.x-k8s.io/", "metadata.annotations[kueue.x-k8s.io/"
	type change func(j *batchv1.Job)
	set := func(key, value string) change {
		return func(j *batchv1.Job) {
			if value == "" {
				delete(j.Labels, key)
			} else {
				j.Labels[key] = value
			}
		}
	}
	annotate := func(key, value string) change { return func(j *batchv1.Job) { j.Annotations[key] = value } }
	runs := func(j *batchv1.Job) { j.Spec.Suspend = new(false) }
	both := func(a, b change) change { return func(j *batchv1.Job) { a(j); b(j) } }
	tests := map[string]struct {
		old, change  change // without old it is a new job
		defaultQueue bool
		want         []string
	}{
		"plain":                          {change: func(*batchv1.Job) {}},
		"bad queue":                      {change: set(kueue.QueueNameLabel, "A_B"), want: []string{label + "queue-name]"}},
		"bad workload":                   {change: set(kueue.PrebuiltWorkloadLabel, "A_B"), want: []string{label + "prebuilt-workload-name]"}},
		"bad workload, annotation":       {change: annotate(kueue.PrebuiltWorkloadLabel, "A_B"), want: []string{annotation + "prebuilt-workload-name]"}},
		"only the one in effect":         {change: both(set(kueue.PrebuiltWorkloadLabel, "A_B"), annotate(kueue.PrebuiltWorkloadLabel, "ok"))},
		"expected run time":              {change: set("berth.dev/expected-run-seconds", "60")},
		"expected run time, no number":   {change: annotate("berth.dev/expected-run-seconds", "1h"), want: []string{"metadata.annotations[berth.dev/expected-run-seconds]"}},
		"expected run time below 1":      {change: set("berth.dev/expected-run-seconds", "0"), want: []string{"metadata.labels[berth.dev/expected-run-seconds]"}},
		"minimum run time":               {change: annotate("berth.dev/min-run-seconds", "60")},
		"minimum run time, no number":    {change: set("berth.dev/min-run-seconds", "1h"), want: []string{"metadata.labels[berth.dev/min-run-seconds]"}},
		"minimum run time below 1":       {change: annotate("berth.dev/min-run-seconds", "-1"), want: []string{"metadata.annotations[berth.dev/min-run-seconds]"}},
		"time is no number":              {change: set(kueue.MaxExecTimeSecondsLabel, "x"), want: []string{label + "max-exec-time-seconds]"}},
		"gates":                          {change: annotate(kueue.AdmissionGatedByAnnotation, "x"), want: []string{annotation + "admission-gated-by]"}},
		"queue changes while suspended":  {old: func(*batchv1.Job) {}, change: set(kueue.QueueNameLabel, "b")},
		"queue changes while it runs":    {old: runs, change: set(kueue.QueueNameLabel, "b"), want: []string{label + "queue-name]"}},
		"queue and start at once":        {old: set(kueue.QueueNameLabel, ""), change: both(set(kueue.QueueNameLabel, "b"), runs), want: []string{label + "queue-name]"}},
		"queue is removed":               {old: func(*batchv1.Job) {}, change: set(kueue.QueueNameLabel, "")},
		"queue is removed, default":      {old: func(*batchv1.Job) {}, change: set(kueue.QueueNameLabel, ""), defaultQueue: true, want: []string{label + "queue-name]"}},
		"a stop under way is no suspend": {old: runs, change: both(func(j *batchv1.Job) { j.Spec.Suspend = new(true) }, both(annotate(kueue.JobStoppingAnnotation, "true"), set(kueue.QueueNameLabel, "b"))), want: []string{label + "queue-name]"}},
		"workload named while suspended": {old: func(*batchv1.Job) {}, change: set(kueue.PrebuiltWorkloadLabel, "w")},
		"workload not named any more":    {old: both(runs, set(kueue.PrebuiltWorkloadLabel, "w")), change: set(kueue.PrebuiltWorkloadLabel, ""), want: []string{label + "prebuilt-workload-name]"}},
		"nor by annotation":              {old: both(runs, annotate(kueue.PrebuiltWorkloadLabel, "w")), change: annotate(kueue.PrebuiltWorkloadLabel, ""), want: []string{annotation + "prebuilt-workload-name]"}},
		"workload named while it runs":   {old: runs, change: set(kueue.PrebuiltWorkloadLabel, "w"), want: []string{label + "prebuilt-workload-name]"}},
		"workload moves to annotation": {
			old:    both(runs, set(kueue.PrebuiltWorkloadLabel, "w")),
			change: both(set(kueue.PrebuiltWorkloadLabel, ""), annotate(kueue.PrebuiltWorkloadLabel, "w")),
		},
		"time while suspended":           {old: func(*batchv1.Job) {}, change: set(kueue.MaxExecTimeSecondsLabel, "5")},
		"time while it starts":           {old: func(*batchv1.Job) {}, change: both(runs, set(kueue.MaxExecTimeSecondsLabel, "5")), want: []string{label + "max-exec-time-seconds]"}},
		"class is added":                 {old: func(*batchv1.Job) {}, change: set(kueue.PriorityClassLabel, "p")},
		"class is added while it runs":   {old: runs, change: set(kueue.PriorityClassLabel, "p"), want: []string{label + "priority-class]"}},
		"class is changed while it runs": {old: both(runs, set(kueue.PriorityClassLabel, "p")), change: set(kueue.PriorityClassLabel, "q")},
		"class is removed":               {old: set(kueue.PriorityClassLabel, "p"), change: set(kueue.PriorityClassLabel, ""), want: []string{label + "priority-class]"}},
		"elastic later":                  {old: func(*batchv1.Job) {}, change: annotate(kueue.ElasticJobAnnotation, "true"), want: []string{annotation + "elastic-job]"}},
		"gates later":                    {old: func(*batchv1.Job) {}, change: annotate(kueue.AdmissionGatedByAnnotation, "a.io/x"), want: []string{annotation + "admission-gated-by]"}},
		"all at once": {
			old: runs, change: both(set(kueue.QueueNameLabel, "A_B"), set(kueue.MaxExecTimeSecondsLabel, "x")),
			want: []string{label + "max-exec-time-seconds]", label + "max-exec-time-seconds]", label + "queue-name]", label + "queue-name]"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			j := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kueue.QueueNameLabel: "a"}, Annotations: map[string]string{}},
				Spec:       batchv1.JobSpec{Suspend: new(true)},
			}
			rules := jobRules{cfg: testOptions().Jobs, d: all.Descriptors()[0], job: j, hasDefaultQueue: tc.defaultQueue}
			check := rules.create
			if tc.old != nil {
				tc.old(j)
				rules.old, check = j.DeepCopy(), rules.update
			}
			tc.change(j)
			if diff := cmp.Diff(tc.want, reviewtest.Fields(t, review.Refuse(check()))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestLaxUpdates: kinds that do not repeat the rules for new jobs check the name of a prebuilt Workload while it may change.
func TestLaxUpdates(t *testing.T) {
	const label = "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]"
	for name, tc := range map[string]struct {
		suspended, elastic bool
		old, value         string
		want               []string
	}{
		"bad name while suspended": {suspended: true, value: "A_B", want: []string{label}},
		"bad name while elastic":   {elastic: true, value: "A_B", want: []string{label}},
		"bad name while it runs":   {old: "w", value: "A_B", want: []string{label}},
		"name while suspended":     {suspended: true, value: "w"},
		"name while elastic":       {elastic: true, old: "v", value: "w"},
		"name while it runs":       {old: "v", value: "w", want: []string{label}},
	} {
		lax := 0
		for _, d := range all.Descriptors() {
			if !d.LaxUpdates {
				continue
			}
			lax++
			old := d.New()
			if pod, ok := old.(*corev1.Pod); ok && tc.suspended {
				pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}
			} else if tc.suspended {
				d.Suspend(old)
			}
			old.SetLabels(map[string]string{kueue.PrebuiltWorkloadLabel: tc.old})
			if tc.elastic {
				old.SetAnnotations(map[string]string{kueue.ElasticJobAnnotation: "true"})
			}
			changed := old.DeepCopyObject().(job.Object)
			changed.SetLabels(map[string]string{kueue.PrebuiltWorkloadLabel: tc.value})
			rules := jobRules{cfg: testOptions().Jobs, d: d, job: changed, old: old}
			if diff := cmp.Diff(tc.want, reviewtest.Fields(t, review.Refuse(rules.update()))); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", d.Framework, name, diff)
			}
		}
		if lax < 7 {
			t.Errorf("%d kinds, want 5 of Kubeflow, AppWrapper and Pod", lax)
		}
	}
}

// TestServingRules: while replicas are ready the queue stays, and a priority class may be changed but not added.
func TestServingRules(t *testing.T) {
	const queue, class = "metadata.labels[kueue.x-k8s.io/queue-name]", "metadata.labels[kueue.x-k8s.io/priority-class]"
	for name, tc := range map[string]struct {
		key, old, value string
		ready, waiting  []string // the refused fields with and without ready replicas
	}{
		"queue is added":   {kueue.QueueNameLabel, "", "b", []string{queue}, nil},
		"queue is changed": {kueue.QueueNameLabel, "a", "b", []string{queue}, nil},
		"queue is removed": {kueue.QueueNameLabel, "a", "", []string{queue}, []string{queue}},
		"queue stays":      {kueue.QueueNameLabel, "a", "a", nil, nil},
		"class is added":   {kueue.PriorityClassLabel, "", "p", []string{class}, nil},
		"class is changed": {kueue.PriorityClassLabel, "p", "q", nil, nil},
		"class is removed": {kueue.PriorityClassLabel, "p", "", []string{class}, []string{class}},
		"another label":    {"other", "a", "b", nil, nil},
	} {
		for _, d := range all.Descriptors() {
			if !d.Serving {
				continue
			}
			for ready, want := range map[int][]string{1: tc.ready, 0: tc.waiting} {
				old := servingObject(t, d, ready, map[string]string{tc.key: tc.old})
				changed := old.DeepCopyObject().(job.Object)
				changed.SetLabels(map[string]string{tc.key: tc.value})
				rules := jobRules{cfg: testOptions().Jobs, d: d, job: changed, old: old}
				if diff := cmp.Diff(want, reviewtest.Fields(t, review.Refuse(rules.update()))); diff != "" {
					t.Errorf("%s %s, %d ready (-want +got):\n%s", d.Framework, name, ready, diff)
				}
			}
		}
	}
}

func servingObject(t *testing.T, d *job.Descriptor, ready int, labels map[string]string) job.Object {
	t.Helper()
	o := d.New()
	version, kind := d.GVK.ToAPIVersionAndKind()
	text := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"namespace": "ns", "name": "s"}, "status": {"readyReplicas": %d}}`, version, kind, ready)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	o.SetLabels(labels)
	return o
}

// TestShortened: a job is told that it gets less time before a preemption than it asks for.
func TestShortened(t *testing.T) {
	for name, tc := range map[string]struct {
		asks string
		most time.Duration
		want []string
	}{
		"nothing":    {},
		"no number":  {asks: "x"},
		"allowed":    {asks: "60", most: time.Minute},
		"more":       {asks: "61", most: time.Minute, want: []string{"berth.dev/min-run-seconds is more than the manager's configuration allows: it counts as 60 (preemption.maxMinRunTime)"}},
		"turned off": {asks: "60", want: []string{"berth.dev/min-run-seconds has no effect: the manager's configuration sets no preemption.maxMinRunTime"}},
	} {
		j := &batchv1.Job{}
		if tc.asks != "" {
			j.Annotations = map[string]string{"berth.dev/min-run-seconds": tc.asks}
		}
		rules := jobRules{cfg: &job.Config{MaxMinRunTime: tc.most}, job: j}
		if diff := cmp.Diff(tc.want, rules.shortened()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestShortenedJob: the answer to the creation of a queued job warns that its minimum run time does not count, and the job is not refused.
func TestShortenedJob(t *testing.T) {
	for name, tc := range map[string]struct {
		label, namespace string
		operation        admissionv1.Operation
		warned           bool
	}{
		"queued":                    {kueue.QueueNameLabel, "ns", admissionv1.Create, true},
		"not queued":                {"other", "ns", admissionv1.Create, false},
		"it was there before":       {kueue.QueueNameLabel, "ns", admissionv1.Update, false},
		"in a namespace off limits": {kueue.QueueNameLabel, "free", admissionv1.Create, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := &batchv1.Job{
				TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: tc.namespace, Name: "train", Labels: map[string]string{tc.label: "q"},
					Annotations: map[string]string{"berth.dev/min-run-seconds": "60"},
				},
				Spec: batchv1.JobSpec{Suspend: new(true)},
			}
			raw, err := json.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			d, labels := all.Descriptors()[0], map[string]string{"managed": "yes"}
			if tc.namespace == "free" {
				labels = nil
			}
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Kind: metav1.GroupVersionKind(d.GVK), Operation: tc.operation, Name: j.Name, Namespace: j.Namespace,
			}}
			req.Object.Raw, req.OldObject.Raw = raw, raw
			s := gateServer(d, namespaces{labels: labels})
			s.o.Jobs.ManageAll = false
			answer := s.ofKind(d)[1].Handler().Handle(t.Context(), req)
			warned := strings.Contains(strings.Join(answer.Warnings, "\n"), "berth.dev/min-run-seconds has no effect")
			if !answer.Allowed || warned != tc.warned {
				t.Errorf("allowed %v, warnings %q", answer.Allowed, answer.Warnings)
			}
		})
	}
}

// TestTooManyPodSets: a queued job for which no Workload could be made is refused when it is created.
func TestTooManyPodSets(t *testing.T) {
	descriptors := all.Descriptors()
	d := descriptors[slices.IndexFunc(descriptors, func(d *job.Descriptor) bool { return d.GVK.Kind == "JobSet" })]
	for n, allowed := range map[int]bool{18: true, 19: false} {
		var parts []any
		for i := range n {
			parts = append(parts, map[string]any{"name": fmt.Sprint("r", i)})
		}
		raw, err := json.Marshal(map[string]any{
			"apiVersion": d.GVK.GroupVersion().String(), "kind": d.GVK.Kind, "spec": map[string]any{"suspend": true, "replicatedJobs": parts},
			"metadata": map[string]any{"namespace": "ns", "name": "ring", "labels": map[string]any{kueue.QueueNameLabel: "q"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind(d.GVK), Operation: admissionv1.Create, Name: "ring", Namespace: "ns",
		}}
		req.Object.Raw = raw
		s := gateServer(d, namespaces{labels: map[string]string{"managed": "yes"}})
		answer := s.ofKind(d)[1].Handler().Handle(t.Context(), req)
		if answer.Allowed != allowed || (!allowed && !strings.Contains(answer.Result.Message, "spec.replicatedJobs[18]")) {
			t.Errorf("%d pod sets: allowed %t, %v", n, answer.Allowed, answer.Result)
		}
	}
}

// TestRulesOfServices: a RayService whose clusters are not suspended counts as running, even if one change suspends the service itself.
func TestRulesOfServices(t *testing.T) {
	d := ray.Service(ray.Settings{})
	service := func(nested, queue string) *unstructured.Unstructured {
		o := d.New().(*unstructured.Unstructured)
		o.SetLabels(map[string]string{kueue.MaxExecTimeSecondsLabel: "5"})
		o.Object["spec"] = map[string]any{"suspend": true, "rayClusterConfig": map[string]any{}}
		if nested != "" {
			o.Object["spec"].(map[string]any)["rayClusterConfig"] = map[string]any{"suspend": nested == "true"}
		}
		if queue != "" {
			o.SetLabels(map[string]string{kueue.QueueNameLabel: queue})
		}
		return o
	}
	const queueName, maxTime = "metadata.labels[kueue.x-k8s.io/queue-name]", "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]"
	for name, tc := range map[string]struct {
		nested, queue string
		want          []string
	}{
		"suspended as a whole":           {nested: "true"},
		"not said":                       {},
		"its clusters are not":           {nested: "false", want: []string{queueName, maxTime}},
		"its clusters are not, it stays": {nested: "false", queue: "lq"},
	} {
		rules := jobRules{cfg: testOptions().Jobs, d: d, job: service(tc.nested, tc.queue), old: service("true", "lq")}
		var got []string
		for _, e := range rules.update() {
			got = append(got, e.Field)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}
