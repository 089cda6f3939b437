package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/crd"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/goldentest"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// at is when the Leases of testdata/world.yaml were renewed.
func at() time.Time { return time.Date(2026, time.November, 27, 12, 0, 1, 0, time.UTC) }

// preflight runs the command.
func preflight(t *testing.T, now func() time.Time, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	root := &cobra.Command{Use: "berth", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newCommand(&command{version: "test", now: now}))
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(append([]string{"preflight"}, args...))
	err := root.ExecuteContext(t.Context())
	if err != nil {
		code = 1
		fmt.Fprintf(&errs, "error: %v\n", err)
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		code = coded.ExitCode()
	}
	return code, out.String(), errs.String()
}

type world struct {
	*testing.T
	c client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	embeddedtest.Quiet()
	kubeconfig := embeddedtest.Start(t)
	t.Setenv("KUBECONFIG", kubeconfig)
	c, err := client.New(embeddedtest.ConfigOf(t, kubeconfig), client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, c}
}

func (w *world) create(o client.Object) {
	w.Helper()
	wait.Until(w.T, "it can be created", func() error { // a new kind is served after a while
		err := w.c.Create(w.Context(), o)
		if apimeta.IsNoMatchError(err) {
			return err
		}
		if err != nil {
			w.Fatalf("%s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
		}
		return nil
	})
}

// define creates one of our CRDs, as another release has it.
func (w *world) define(name string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.Helper()
	of := crd.Definitions()[name].DeepCopy()
	of.Spec.Conversion = nil
	change(of)
	w.create(of)
	wait.Until(w.T, name+" is served", func() error {
		var is apiextensionsv1.CustomResourceDefinition
		if err := w.c.Get(w.Context(), client.ObjectKey{Name: name}, &is); err != nil {
			return err
		}
		for _, c := range is.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

// others makes the world of other controllers.
func (w *world) others() {
	w.Helper()
	text, err := os.ReadFile("testdata/world.yaml")
	if err != nil {
		w.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			w.Fatal(err)
		}
		w.create(o)
	}
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}
	w.define("resourceflavors.kueue.x-k8s.io", func(of *apiextensionsv1.CustomResourceDefinition) { // an older and a newer version, and any field
		for i := range of.Spec.Versions {
			of.Spec.Versions[i].Schema = anything
		}
		of.Spec.Versions = append(of.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v9", Served: true, Schema: anything})
	})
	w.define("cohorts.kueue.x-k8s.io", func(of *apiextensionsv1.CustomResourceDefinition) { // an old release
		of.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true, Schema: anything}}
	})
	w.define("topologies.kueue.x-k8s.io", func(of *apiextensionsv1.CustomResourceDefinition) { of.Spec.Scope = apiextensionsv1.NamespaceScoped })
	w.define("multikueueclusters.kueue.x-k8s.io", func(*apiextensionsv1.CustomResourceDefinition) {})
	for name, source := range map[string]map[string]any{
		"here": {"location": "here"}, "far": {"location": "far", "locationType": "Secret"}, "file": {"location": "/etc/multikueue/kubeconfigs/file", "locationType": "Path"},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "spec": map[string]any{"clusterSource": map[string]any{"kubeConfig": source}},
		}}
		o.SetName(name)
		w.create(o)
	}
	own := options.Default().Namespace
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}})
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "here"}, Data: map[string][]byte{"kubeconfig": []byte("x")}})
	w.create(embeddedtest.LooseCRD(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1", Kind: "Gadget"}, "gadgets"))
	flavor := func(name string, spec map[string]any) {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "spec": spec}}
		o.SetName(name)
		w.create(o)
	}
	flavor("plain", map[string]any{"nodeLabels": map[string]any{"pool": "a"}})
	for _, name := range []string{"a", "b", "c", "d"} {
		flavor(name, map[string]any{"color": "red"})
	}
	flavor("wrong", map[string]any{"nodeTaints": []any{map[string]any{"key": "k", "effect": "Sometimes"}}})
}

// TestOtherControllers reads a cluster of other controllers with all rights, as a reader, and without rights.
func TestOtherControllers(t *testing.T) {
	w := newWorld(t)
	w.others()
	code, stdout, stderr := preflight(t, at)
	if code != exitFound || !strings.HasPrefix(stderr, "error: 7 things are in the way") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	goldentest.Check(t, "testdata/others.txt", stdout)

	_, planned, _ := preflight(t, at, "--plan")
	goldentest.Check(t, "testdata/plan.txt", strings.TrimPrefix(planned, strings.TrimSuffix(stdout, lastLine(stdout))))

	if _, reader, _ := preflight(t, at, "--as=reader"); reader != stdout {
		t.Errorf("a reader sees (-all rights +reader):\n%s", cmp.Diff(stdout, reader))
	}
	code, nothing, stderr := preflight(t, at, "--as=nobody", "--fail-on=differs", "-o=json")
	var r Report
	if err := json.Unmarshal([]byte(nothing), &r); err != nil {
		t.Fatalf("%v: %s%s", err, nothing, stderr)
	}
	if code != exitFound || r.count(Differs) != 4 || len(r.Findings) != 4 {
		t.Errorf("exit code %d without rights: %+v", code, r.Findings)
	}
	if code, _, stderr = preflight(t, at, "--fail-on=never"); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// A Lease that is not renewed is not held.
	if _, later, _ := preflight(t, func() time.Time { return at().Add(time.Hour) }); strings.Contains(later, "Lease/") {
		t.Errorf("an old Lease is reported:\n%s", later)
	}
}

// lastLine is the last line of a text, with the empty line before it.
func lastLine(text string) string {
	return text[strings.LastIndex(strings.TrimSpace(text), "\n")-1:]
}

// TestOurs: nothing is in the way of Berth where Berth is installed, or nothing is.
func TestOurs(t *testing.T) {
	newWorld(t)
	code, stdout, stderr := preflight(t, at)
	if code != 0 || !strings.Contains(stdout, "0 things are in the way") {
		t.Errorf("an empty cluster: exit code %d: %s%s", code, stdout, stderr)
	}
	o := install.Options{Options: options.Default(), Deploy: &install.Deploy{Image: "registry.example.com/berth:v1", Config: install.ShippedConfig()}}
	groups, err := install.ParseGroups("")
	if err != nil {
		t.Fatal(err)
	}
	o.Groups = groups
	if err := install.Apply(context.WithoutCancel(t.Context()), embeddedtest.ConfigOf(t, os.Getenv("KUBECONFIG")), o, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = preflight(t, at, "--fail-on=differs")
	if code != 0 || !strings.Contains(stdout, "this is Berth already") {
		t.Errorf("Berth's own cluster: exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-o=xml":          "-o xml: must be text, json or yaml",
		"--fail-on=notes": "--fail-on notes: must be blocks, differs or never",
	} {
		if code, _, stderr := preflight(t, at, args); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}
