package preflight

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/install/upstream"
)

// TestPlanNamespace: the commands name the namespace of the Kueue document, whatever document is read first.
func TestPlanNamespace(t *testing.T) {
	l := &looker{Report: &Report{}}
	for name, text := range map[string]string{
		"jobset": "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n", "kueue": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnamespace: queueing\n",
		"trainer": "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n",
	} {
		l.configuration(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "config"}, Data: map[string]string{"config.yaml": text}}, "config.yaml", nil)
	}
	for _, step := range l.plan() {
		for _, command := range step.Commands {
			if strings.Contains(command, "deployment/kueue-controller-manager") && !strings.Contains(command, "-n queueing ") {
				t.Error(command)
			}
		}
	}
	if l.ownNamespace() != "queueing" {
		t.Errorf("the namespace is %q", l.ownNamespace())
	}
}

// TestPlanReturnsLease: the way back deletes the Lease of Berth's leader where another controller looks for it.
func TestPlanReturnsLease(t *testing.T) {
	for setting, want := range map[string]bool{
		"": false, "namespace: kueue-system\n": true, "leaderElection: {resourceNamespace: kueue-system}\n": true, "leaderElection: {resourceNamespace: leases}\n": false,
	} {
		l := &looker{Report: &Report{}}
		l.deployments = []upstream.Deployment{{Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "kueue-controller-manager"}}}}
		l.configuration(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "config"},
			Data:       map[string]string{"config.yaml": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n" + setting},
		}, "config.yaml", nil)
		steps := l.plan()
		found := slices.ContainsFunc(steps, func(s Step) bool {
			return s.Back && slices.Contains(s.Commands, "kubectl delete lease -n kueue-system c1f6bfd2.kueue.x-k8s.io --ignore-not-found")
		})
		if found != want || !strings.HasPrefix(steps[len(steps)-1].Text, "Start the other") {
			t.Errorf("%q: the Lease is deleted: %t, want %t:\n%+v", setting, found, want, steps)
		}
	}
}

// TestPlanConfiguration: the commands that install Berth have the files and the feature gates of all controllers, and what Berth does not run
// with is in the way, as a part and as a whole, unless Berth is installed already.
func TestPlanConfiguration(t *testing.T) {
	const (
		kueue  = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
		jobSet = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"
	)
	for name, c := range map[string]struct {
		args  []string
		files []string
		ours  bool
		want  string // of the command
		wrong []string
	}{
		"nothing":          {nil, nil, false, "berth install --image", nil},
		"a file":           {nil, []string{kueue}, false, "berth install --config berth.yaml --image", nil},
		"two files":        {nil, []string{kueue, jobSet}, false, "berth install --config berth.yaml --config berth-2.yaml --image", nil},
		"gates":            {[]string{"--feature-gates=PriorityBoost=true, PartialAdmission=false"}, nil, false, "berth install --feature-gates=PartialAdmission=false,PriorityBoost=true --image", nil},
		"two arguments":    {[]string{"--feature-gates", "PriorityBoost=true", "-feature-gates=PriorityBoost=true"}, nil, false, "berth install --feature-gates=PriorityBoost=true --image", nil},
		"no value":         {[]string{"--feature-gates"}, nil, false, "berth install --image", nil},
		"gates and a file": {[]string{"--feature-gates=DisableWaitForPodsReady=true"}, []string{kueue}, false, "berth install --config berth.yaml --feature-gates=DisableWaitForPodsReady=true --image", nil},
		"an unknown gate":  {[]string{"--feature-gates=Flying=true"}, nil, false, "berth install --feature-gates=Flying=true --image", []string{"blocks --feature-gates: Flying: unknown feature gate"}},
		"not a gate":       {[]string{"--feature-gates=$(date)=true"}, nil, false, "berth install --image", []string{"blocks --feature-gates: $(date): unknown feature gate"}},
		"a wrong field":    {nil, []string{kueue + "a: b\n"}, false, "berth install --config berth.yaml --image", []string{"blocks config.yaml:3: a: unknown field"}},
		"installed": {
			nil, []string{kueue + "a: b\n"}, true, "berth install --config berth.yaml --image", []string{"differs config.yaml:3: a: unknown field"},
		},
		"two of a kind": {
			nil,
			[]string{kueue, kueue + "---\n" + jobSet},
			false, "berth install --config berth.yaml --config berth-2.yaml --image",
			[]string{"blocks berth-2.yaml:1: berth.yaml has a Configuration of this group, too"},
		},
		"provided certificates": {
			nil,
			[]string{kueue + "internalCertManagement: {enable: false}\n"},
			false, "berth install --config berth.yaml --image",
			[]string{"blocks the webhooks get no certificate from Berth"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "kueue-controller-manager"}}
			d.Spec.Selector = &metav1.LabelSelector{}
			pod := &d.Spec.Template.Spec
			pod.Containers = []corev1.Container{{Command: []string{"/manager"}, Args: c.args}}
			build := fake.NewClientBuilder()
			for i, text := range c.files {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: fmt.Sprint("m", i)}, Data: map[string]string{"config.yaml": text}}
				build.WithObjects(m)
				v := corev1.Volume{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: m.Name}}}}
				pod.Volumes = append(pod.Volumes, v, v)
			}
			l := &looker{Session: &cluster.Session{Client: build.Build()}, Report: &Report{}}
			l.deployments = []upstream.Deployment{{Deployment: d}}
			if c.ours {
				l.deployments = append(l.deployments, upstream.Deployment{Deployment: &appsv1.Deployment{}, Berth: true})
			}
			if err := l.configurations(t.Context()); err != nil {
				t.Fatal(err)
			}
			var wrong []string
			for _, f := range l.Findings {
				if f.Severity != Note {
					wrong = append(wrong, fmt.Sprintf("%s %s", f.Severity, f.Text))
				}
			}
			if !slices.EqualFunc(wrong, c.wrong, strings.HasPrefix) {
				t.Errorf("findings %q, want %q", wrong, c.wrong)
			}
			steps := l.plan()
			if c.wrong != nil && !c.ours && !strings.HasPrefix(steps[0].Text, "Remove the obstacles") {
				t.Errorf("the first step is %+v", steps[0])
			}
			install := ""
			for _, s := range steps {
				for _, command := range s.Commands {
					if strings.HasPrefix(command, "berth install") {
						install = command
					}
				}
			}
			if install != c.want+" REGISTRY/berth:TAG" {
				t.Errorf("the command is %s\nwant %s", install, c.want)
			}
		})
	}
}
