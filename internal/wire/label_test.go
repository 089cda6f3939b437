package wire

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	planjob "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/options"
)

// warnings collects the warnings of one client's requests.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, text)
}

// drain returns the warnings since the last call.
func (w *warnings) drain() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.lines, "\n")
	w.lines = nil
	return all
}

// queuedMeta is the metadata of an object, in a queue unless that is empty.
func queuedMeta(namespace, name, queue string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if queue != "" {
		m.Labels = map[string]string{kueue.QueueNameLabel: queue}
	}
	return m
}

func onePod(restart corev1.RestartPolicy) corev1.PodSpec {
	return corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
}

func aPod(m metav1.ObjectMeta) client.Object {
	return &corev1.Pod{ObjectMeta: m, Spec: onePod(corev1.RestartPolicyNever)}
}

func aJob(m metav1.ObjectMeta) client.Object {
	return &batchv1.Job{ObjectMeta: m, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: onePod(corev1.RestartPolicyNever)}}}
}

func aJobSet(m metav1.ObjectMeta) client.Object {
	return &jobsetv1alpha2.JobSet{ObjectMeta: m, Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{
		Name: "a", Replicas: new(int32(1)),
		Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: onePod(corev1.RestartPolicyNever)}}},
	}}}}
}

func aDeployment(m metav1.ObjectMeta) client.Object {
	in := map[string]string{"app": "x"}
	return &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: in},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: in}, Spec: onePod(corev1.RestartPolicyAlways)},
	}}
}

// TestIgnoredQueueLabels creates objects with an ignored queue label, and some with an effective one: the former get a warning and one
// event, and are otherwise untouched.
func TestIgnoredQueueLabels(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	o, err := options.Parse("test", []byte(`{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, integrations: {frameworks: [batch/job]},
managedJobsNamespaceSelector: {matchExpressions: [{key: queueing, operator: NotIn, values: ["off", "out"]}], matchLabels: {tier: test}}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	admin := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	manage(t, admin, o)
	seen := &warnings{}
	cfg := rest.CopyConfig(admin)
	cfg.WarningHandler = seen
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, labels := range map[string]map[string]string{
		"on": {"tier": "test"}, "off": {"tier": "test", "queueing": "off"}, "other": {},
	} {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	child := queuedMeta("on", "child", "lq")
	child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u", Controller: new(true)}}
	for name, tc := range map[string]struct {
		object client.Object
		want   string // of the warning and the event; "" for none
	}{
		"a kind that is queued":                  {aJob(queuedMeta("on", "queued", "lq")), ""},
		"its namespace is excluded":              {aJob(queuedMeta("off", "excluded", "lq")), planjob.UnmanagedNote("off")},
		"its namespace is not selected":          {aJob(queuedMeta("other", "other", "lq")), planjob.UnmanagedNote("other")},
		"a kind that is not listed":              {aJobSet(queuedMeta("on", "jobset", "lq")), planjob.UnlistedNote("jobset.x-k8s.io/jobset")},
		"neither listed nor managed":             {aJobSet(queuedMeta("off", "jobset", "lq")), planjob.UnmanagedNote("off")},
		"a pod":                                  {aPod(queuedMeta("on", "pod", "lq")), planjob.UnlistedNote("pod")},
		"a pod of a Job":                         {aPod(child), ""},
		"a Deployment":                           {aDeployment(queuedMeta("on", "deployment", "lq")), planjob.UnlistedNote("deployment")},
		"no label, a kind that is not listed":    {aJobSet(queuedMeta("on", "plain", "")), ""},
		"no label, a namespace that is not ours": {aJob(queuedMeta("off", "plain", "")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen.drain()
			if err := c.Create(ctx, tc.object); err != nil {
				t.Fatal(err)
			}
			switch got := seen.drain(); {
			case tc.want == "" && strings.Contains(got, "ignored"):
				t.Errorf("it comes with the warning %q", got)
			case strings.Count(got, "ignored") != strings.Count(tc.want, "ignored") || !strings.Contains(got, tc.want):
				t.Errorf("it comes with the warnings %q, want %q", got, tc.want)
			}
		})
	}
	about := func(uid types.UID) (notes []string, err error) {
		var list eventsv1.EventList
		err = c.List(ctx, &list)
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.UID == uid && e.Reason == planjob.ReasonQueueLabelIgnored {
				notes = append(notes, e.Note)
			}
		}
		return notes, err
	}
	t.Run("one event each", func(t *testing.T) { testIgnoredEvents(ctx, t, c, about) })
}

// testIgnoredEvents checks all objects.
func testIgnoredEvents(ctx context.Context, t *testing.T, c client.Client, about func(types.UID) ([]string, error)) {
	t.Helper()
	for key, want := range map[string]string{
		"on/queued": "", "on/child": "", "on/plain": "", "off/plain": "",
		"off/excluded": planjob.UnmanagedNote("off"), "other/other": planjob.UnmanagedNote("other"), "off/jobset": planjob.UnmanagedNote("off"),
		"on/jobset": planjob.UnlistedNote("jobset.x-k8s.io/jobset"), "on/pod": planjob.UnlistedNote("pod"), "on/deployment": planjob.UnlistedNote("deployment"),
	} {
		namespace, name, _ := strings.Cut(key, "/")
		var object client.Object
		for _, o := range []client.Object{&batchv1.Job{}, &jobsetv1alpha2.JobSet{}, &corev1.Pod{}, &appsv1.Deployment{}} {
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err == nil {
				object = o
			}
		}
		if object == nil {
			t.Errorf("%s is gone", key)
			continue
		}
		wait.Until(t, key+" has the event that it should have", func() error {
			notes, err := about(object.GetUID())
			if err != nil {
				return err
			}
			if strings.Join(notes, "\n") != want {
				return fmt.Errorf("events %q, want %q", notes, want)
			}
			return nil
		})
		if want == "" {
			continue
		}
		for _, m := range object.GetManagedFields() {
			if strings.HasPrefix(m.Manager, "kueue") && namespace != "on" {
				t.Errorf("%s was written by %s", key, m.Manager)
			}
		}
		embeddedtest.Edit(t, c, object, func(o client.Object) { o.SetAnnotations(map[string]string{"changed": "yes"}) })
		if notes, err := about(object.GetUID()); err != nil || len(notes) != 1 {
			t.Errorf("%s changed and has the events %q (%v)", key, notes, err)
		}
	}
}
