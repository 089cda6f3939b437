package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/goldentest"
)

// world is an API server and a user that types commands.
type world struct {
	*testing.T
	kubeconfig string
	cfg        *rest.Config
	c          client.Client
	managed    bool // a manager runs
}

// answered runs a command line; while a manager runs, again until that answers: the API server may find it unavailable for a moment.
func (w *world) answered(now func() time.Time, input string, args ...string) (code int, stdout, stderr string) {
	w.Helper()
	wait.Until(w.T, "the manager answers", func() error {
		if code, stdout, stderr = berthAt(w.Context(), now, input, args...); w.managed && strings.Contains(stderr, noManager) {
			return errors.New(stderr)
		}
		return nil
	})
	return code, stdout, stderr
}

func newWorld(t *testing.T) *world {
	t.Helper()
	kubeconfig := embeddedtest.Start(t)
	cfg := embeddedtest.ConfigOf(t, kubeconfig)
	t.Setenv("KUBECONFIG", kubeconfig)
	c, err := client.New(cfg, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, kubeconfig: kubeconfig, cfg: cfg, c: c}
}

// later is so much later than the test that ages are the same in every run.
func later() time.Time { return time.Now().AddDate(20, 1, 0) }

// berth runs a command line, much later.
func berth(ctx context.Context, input string, args ...string) (code int, stdout, stderr string) {
	return berthAt(ctx, later, input, args...)
}

// berthAt runs a command line at a time.
func berthAt(ctx context.Context, now func() time.Time, input string, args ...string) (code int, stdout, stderr string) {
	root := &cobra.Command{Use: "berth", SilenceErrors: true, SilenceUsage: true}
	addTo(root, &tool{version: "test", now: now})
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0, out.String(), errs.String()
	}
	fmt.Fprintf(&errs, "error: %v\n", err)
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coded.ExitCode(), out.String(), errs.String()
	}
	return 1, out.String(), errs.String()
}

// split splits a command line like a shell, with single quotes.
func split(line string) (args []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args[len(args)-1] += part
			continue
		}
		fields := strings.Fields(part)
		if i > 0 && len(fields) > 0 && !strings.HasPrefix(part, " ") {
			args[len(args)-1] += fields[0]
			fields = fields[1:]
		}
		args = append(args, fields...)
		if strings.HasSuffix(part, " ") {
			args = append(args, "")
		}
	}
	out := args[:0]
	for _, a := range args {
		if a != "" {
			out = append(out, a)
		}
	}
	return out
}

var unstable = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "https://SERVER"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`creationTimestamp: "[^"]*"`), "creationTimestamp: TIME"},
	{regexp.MustCompile(`resourceVersion: "\d+"`), "resourceVersion: VERSION"},
	{regexp.MustCompile(`(~|about |between |and )([A-Z][a-z]{2} \d+ )?\d\d:\d\d\b`), "${1}HH:MM"},
	{regexp.MustCompile(`KUBECONFIG=\S+kubeconfig`), "KUBECONFIG=FILE"},
}

// transcript runs commands and compares their output with testdata/NAME.txt. A line "y
//
// delete …" is typed into the command.
func (w *world) transcript(name string, lines ...string) {
	w.Helper()
	var b strings.Builder
	for _, line := range lines {
		input, command, piped := strings.Cut(line, " | ")
		if !piped {
			input, command = "", line
		}
		code, stdout, stderr := w.answered(later, input, split(command)...)
		prompt := "berth "
		if piped {
			prompt = "echo " + input + " | berth "
		}
		fmt.Fprintf(&b, "$ %s%s\n%s", prompt, command, stdout)
		for text := range strings.Lines(stderr) {
			fmt.Fprintf(&b, "! %s", text)
		}
		if code != 0 {
			fmt.Fprintf(&b, "exit code %d\n", code)
		}
		b.WriteString("\n")
	}
	text := b.String()
	for _, u := range unstable {
		text = u.pattern.ReplaceAllString(text, u.instead)
	}
	goldentest.Check(w.T, "testdata/"+name+".txt", text)
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		status, _ := o.DeepCopyObject().(client.Object)
		if err := w.c.Create(w.Context(), o); err != nil {
			w.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
		switch with := status.(type) {
		case *kueue.ClusterQueue:
			if len(with.Status.Conditions) == 0 {
				continue // a manager may be writing
			}
			o.(*kueue.ClusterQueue).Status = with.Status
		case *kueue.LocalQueue:
			if len(with.Status.Conditions) == 0 {
				continue
			}
			o.(*kueue.LocalQueue).Status = with.Status
		case *kueue.Workload:
			if len(with.Status.Conditions) == 0 {
				continue
			}
			o.(*kueue.Workload).Status = with.Status
		case *kueue.AdmissionCheck:
			o.(*kueue.AdmissionCheck).Status = with.Status
		default:
			continue
		}
		if err := w.c.Status().Update(w.Context(), o); err != nil {
			w.Fatalf("status of %T %s: %v", o, o.GetName(), err)
		}
	}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}
}

func quota(flavor string, pairs ...string) kueue.FlavorQuotas {
	out := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor)}
	for i := 0; i < len(pairs); i += 2 {
		out.Resources = append(out.Resources, kueue.ResourceQuota{Name: corev1.ResourceName(pairs[i]), NominalQuota: resource.MustParse(pairs[i+1])})
	}
	return out
}

func groupOf(flavors ...kueue.FlavorQuotas) []kueue.ResourceGroup {
	out := kueue.ResourceGroup{Flavors: flavors}
	for _, r := range flavors[0].Resources {
		out.CoveredResources = append(out.CoveredResources, r.Name)
	}
	return []kueue.ResourceGroup{out}
}

func job(namespace, name, queue string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: meta(namespace, name), Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{Spec: podSpec()}}}
	if queue != "" {
		j.Labels = map[string]string{kueue.QueueNameLabel: queue}
	}
	return j
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "any", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
	}}}
}

func workload(namespace, name, queue string, conditions ...metav1.Condition) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: meta(namespace, name),
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), PodSets: []kueue.PodSet{{
			Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: podSpec()},
		}}},
		Status: kueue.WorkloadStatus{Conditions: conditions},
	}
}

func owned(w *kueue.Workload, apiVersion, kind, name string, uid types.UID) *kueue.Workload {
	w.OwnerReferences = append(w.OwnerReferences, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid})
	return w
}
