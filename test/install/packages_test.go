// Package install compares the installation methods: the Helm chart, the kustomize bases and `berth install` make the same objects, a
// real API server accepts them, and they replace another installation's.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.MainOfClusters(m)) }

const (
	namespace = "berth-system"
	image     = "ghcr.io/berth-project/berth:v0.1.0"
	configKey = "controller_manager_config.yaml"
)

// program is one that `make` has built.
func program(t *testing.T, name, how string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built: run `make %s`", path, how)
	}
	return path
}

// render runs Helm or kustomize, and returns its output or its error.
func render(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program(t, "tools/render", "packages"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join("..", ".."), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", errors.New(stderr.String())
	}
	return stdout.String(), nil
}

// chart renders the chart with values.
func chart(t *testing.T, values string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return render(t, "chart", "charts/berth", "-n", namespace, "-f", file)
}

// parsed are documents by their text: most cases of the chart have the same CRDs, which are two megabytes.
var parsed sync.Map

// parse returns the object of a document, nil if it has none. It must not be changed.
func parse(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	if u, have := parsed.Load(doc); have {
		return u.(*unstructured.Unstructured)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatalf("%v in\n%.2000s", err, doc)
	}
	parsed.Store(doc, u)
	return u
}

// objects are the objects of a text, by kind and name.
func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		u := parse(t, doc)
		if len(u.Object) == 0 {
			continue
		}
		u = u.DeepCopy()
		key := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		if out[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		out[key] = u
	}
	return out
}

// installed are the objects that `berth install --image` applies.
func installed(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	return installedWith(t, install.ShippedConfig(), "")
}

func installedWith(t *testing.T, config, controllers string) map[string]*unstructured.Unstructured {
	t.Helper()
	o, err := options.Parse("config", []byte(config), "")
	if err != nil {
		t.Fatal(err)
	}
	groups, err := install.ParseGroups(controllers)
	if err != nil {
		t.Fatal(err)
	}
	made, err := install.Manifests(install.Options{Options: o, Groups: groups, Deploy: &install.Deploy{Image: image, Config: config}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, u := range made {
		out[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = u
	}
	return out
}

// The packages contain what berth install applies, as the API server would store it.
func TestPackagesAgree(t *testing.T) {
	c, err := client.New(embeddedtest.Config(t), client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	makeNamespaces(t, c)
	want := stored(t, c, installed(t))
	for name, how := range map[string][]string{
		"chart":     {"chart", "charts/berth", "-n", namespace},
		"kustomize": {"kustomize", "config/default"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, how...)
			if err != nil {
				t.Fatal(err)
			}
			if name == "kustomize" { // which comes in two, as it cannot wait for the CRDs
				runtimes, err := render(t, "kustomize", "config/runtimes")
				if err != nil {
					t.Fatal(err)
				}
				text += "---\n" + runtimes
			}
			got := stored(t, c, objects(t, text))
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Fatalf("objects (-berth install +%s):\n%s", name, diff)
			}
			for key, w := range want {
				if diff := cmp.Diff(w, got[key]); diff != "" {
					t.Errorf("%s (-berth install +%s):\n%s", key, name, diff)
				}
			}
		})
	}
}

// makeNamespaces creates namespaces for real, so that the other objects have one to be in.
func makeNamespaces(t *testing.T, c client.Client) {
	t.Helper()
	for _, name := range []string{namespace, "kubeflow-system"} {
		if err := c.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
}

// What a configuration changes is changed in the chart as well: webhooks, rights, the visibility API, ports, the file of the manager.
func TestChartFollowsTheConfiguration(t *testing.T) {
	c, err := client.New(embeddedtest.Config(t), client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	makeNamespaces(t, c)
	chosen := func(all map[string]*unstructured.Unstructured) map[string]map[string]any {
		for key, u := range all {
			switch u.GetKind() {
			case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ClusterRoleBinding", "RoleBinding", "APIService",
				"ConfigMap", "Service", "NetworkPolicy":
				callable(u)
			default:
				delete(all, key)
			}
		}
		return stored(t, c, all)
	}
	const kinds = "\nintegrations: {frameworks: [batch/job, pod, deployment, ray.io/raycluster], honourUserSuspend: "
	var names []string
	for _, f := range options.Frameworks() {
		if f.Gate == "" {
			names = append(names, f.Name)
		}
	}
	everyKind := "integrations: {frameworks: [" + strings.Join(names, ", ") + "]}\n"
	for name, of := range map[string]struct{ config, controllers string }{
		"all jobs":                 {"manageJobsWithoutQueueName: true" + kinds + "false}", ""},
		"users may stop jobs":      {"manageJobsWithoutQueueName: false" + kinds + "true}", ""},
		"both":                     {"manageJobsWithoutQueueName: true" + kinds + "true}", ""},
		"recovery":                 {"featureGates: {FailureRecoveryPolicy: true}", ""},
		"all alpha features":       {"featureGates: {AllAlpha: true}", ""},
		"no beta features but":     {"featureGates: {AllBeta: false, MultiKueue: true}", ""},
		"no beta features of all":  {everyKind + "featureGates: {AllBeta: false}", ""},
		"no elastic jobs":          {everyKind + "featureGates: {ElasticJobsViaWorkloadSlices: false}", ""},
		"no gates in RayServices":  {everyKind + "featureGates: {RayServiceUpgradeGating: false}", ""},
		"no visibility":            {"featureGates: {VisibilityOnDemand: false}", ""},
		"another Lease of JobSets": {"jobSet: {leaderElection: {resourceName: mine.example.com}}", ""},
		"keys without values": {
			"manageJobsWithoutQueueName:\nfeatureGates:\njobSet:\nintegrations:\nhealth:\nmetrics:\n  # bindAddress: :8443\nwebhook: {port: }\n" +
				"leaderElection:\ninternalCertManagement: # as it is\n  # enable: true\nvisibilityServer: {bindPort: }\ntrainer: {statusServer: {port: }}\n---\n" +
				"apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\nstatusServer:\nfeatureGates:", "",
		},
		"a document of JobSet's": {
			"namespace: " + namespace + "\n---\napiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\nleaderElection: {leaderElect: true, resourceName: mine.example.com}", "",
		},
		"a document of Trainer's": {
			"namespace: " + namespace + "\njobSet: {leaderElection: {resourceName: mine.example.com}}\n---\napiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n" +
				"leaderElection: {leaderElect: true, resourceName: trainer.kubeflow.org}\nstatusServer: {port: 1445}\n" +
				"featureGates: {FailureRecoveryPolicy: true, MultiKueue: false}", "",
		},
		"TrainJobs belong to others": {"integrations: {frameworks: [batch/job, trainer.kubeflow.org/trainjob]}", "-training"},
		"no checks":                  {"namespace: " + namespace, "-checks"},
		"JobSets belong to others":   {"namespace: " + namespace, "-jobset"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n" + of.config + "\n"
			got, err := chart(t, config(of.config)+"controllerManager: {manager: {controllers: '"+of.controllers+"'}}\n")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(chosen(installedWith(t, text, of.controllers)), chosen(objects(t, got))); diff != "" {
				t.Errorf("(-berth install +chart):\n%s", diff)
			}
		})
	}
}

// callable removes webhooks that are never called, and sorts the others.
func callable(u *unstructured.Unstructured) {
	hooks, found, _ := unstructured.NestedSlice(u.Object, "webhooks")
	if !found {
		return
	}
	text := func(h any, path ...string) string {
		value, _, _ := unstructured.NestedFieldNoCopy(h.(map[string]any), path...)
		return fmt.Sprint(value)
	}
	hooks = slices.DeleteFunc(hooks, func(h any) bool { return strings.Contains(text(h, "matchConditions"), "not-enabled") })
	slices.SortFunc(hooks, func(a, b any) int { return strings.Compare(text(a, "name"), text(b, "name")) })
	u.Object["webhooks"] = hooks
}

// stored returns new objects as the API server would store them, without fields about their origin.
func stored(t *testing.T, c client.Client, objects map[string]*unstructured.Unstructured) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for key, u := range objects {
		if u.GetKind() == "Namespace" {
			continue // every user of a chart names it
		}
		u = u.DeepCopy()
		if u.GetKind() == "ClusterTrainingRuntime" { // whose CRD is not there
			forget(u, "labels", "helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance")
			forget(u, "annotations", "helm.sh/hook")
			out[key] = u.Object
			continue
		}
		if err := c.Create(context.Background(), u, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		for _, field := range []string{"managedFields", "uid", "creationTimestamp", "generation", "resourceVersion"} {
			unstructured.RemoveNestedField(u.Object, "metadata", field)
		}
		delete(u.Object, "status")
		for _, field := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
		forget(u, "labels", "helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance")
		forget(u, "annotations", "helm.sh/resource-policy", "controller-gen.kubebuilder.io/version")
		unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "annotations", "charts.kueue.x-k8s.io/config-checksum")
		// A chart sets it explicitly, because the kubelet's default depends on the tag.
		if containers, found, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers"); found {
			delete(containers[0].(map[string]any), "imagePullPolicy")
			_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
		}
		if u.GetKind() == "ConfigMap" && u.GetNamespace() == namespace {
			text, _, _ := unstructured.NestedString(u.Object, "data", configKey)
			_ = unstructured.SetNestedField(u.Object, effective(t, text), "data", configKey)
		}
		out[key] = u.Object
	}
	return out
}

// forget removes keys of labels or annotations, and the field if nothing is left.
func forget(u *unstructured.Unstructured, field string, keys ...string) {
	have, _, _ := unstructured.NestedStringMap(u.Object, "metadata", field)
	for _, k := range keys {
		delete(have, k)
	}
	if len(have) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	} else {
		_ = unstructured.SetNestedStringMap(u.Object, have, "metadata", field)
	}
}

// effective is the effective configuration of a file.
func effective(t *testing.T, text string) string {
	t.Helper()
	o, err := options.Parse("config", []byte(text), "")
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	out, err := o.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every overlay builds, and has its documented effect.
func TestOverlays(t *testing.T) {
	for dir, want := range map[string][]string{
		"dev":                       {"image: berth:dev", "--zap-log-level=3"},
		"alpha-enabled":             {"--feature-gates=AllAlpha=true"},
		"v1beta2":                   {"    served: false\n"},
		"prometheus":                {"kind: ServiceMonitor", "kind: Role\n", "  namespace: monitoring\n", "name: kueue-metrics-reader"},
		"visibility-apf":            {"kind: FlowSchema", "kind: PriorityLevelConfiguration"},
		"mutating-admission-policy": {"kind: MutatingAdmissionPolicy\n", "kind: MutatingAdmissionPolicyBinding"},
		"certmanager":               {"kind: Certificate", "secretName: kueue-webhook-server-cert", "mountPath: /visibility"},
		"kueueviz":                  {"--dashboard-bind-address=:8080", "--dashboard-allowed-origins=http://localhost:8080", "name: kueue-kueueviz-backend", "    - port: 8080\n      protocol: TCP\n"},
	} {
		t.Run(dir, func(t *testing.T) {
			text, err := render(t, "kustomize", "config/"+dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range want {
				if !strings.Contains(text, w) {
					t.Errorf("there is no %q", w)
				}
			}
			if dir == "certmanager" {
				injected(t, objects(t, text))
			}
			if dir == "v1beta2" {
				servesV1beta2Alone(t, objects(t, text))
			}
		})
	}
}

// servesV1beta2Alone checks that no CRD serves v1beta1, and the CRDs of the queueing API serve v1beta2.
func servesV1beta2Alone(t *testing.T, all map[string]*unstructured.Unstructured) {
	t.Helper()
	served := map[string]int{}
	for _, u := range all {
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		for _, v := range versions {
			if version := v.(map[string]any); version["served"] == true && strings.HasSuffix(u.GetName(), ".kueue.x-k8s.io") {
				served[version["name"].(string)]++
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"v1beta2": 11}, served); diff != "" {
		t.Errorf("CRDs by served version (-want +got):\n%s", diff)
	}
}

// injected checks that cert-manager is configured for every place that must trust one of its certificates.
func injected(t *testing.T, all map[string]*unstructured.Unstructured) {
	t.Helper()
	const annotation = "cert-manager.io/inject-ca-from"
	for key, u := range all {
		want := ""
		switch u.GetKind() {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			want = namespace + "/kueue-webhook-server-cert"
		case "APIService":
			want = namespace + "/kueue-visibility-server-cert"
		case "CustomResourceDefinition":
			if _, converts, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook"); converts {
				want = namespace + "/kueue-webhook-server-cert"
			}
		case "ConfigMap":
			if u.GetNamespace() != namespace {
				continue
			}
			text, _, _ := unstructured.NestedString(u.Object, "data", configKey)
			if o, err := options.Parse("config", []byte(text), ""); err != nil || o.Certs.Internal {
				t.Errorf("the manager makes certificates of its own (%v)", err)
			}
		}
		if got := u.GetAnnotations()[annotation]; got != want {
			t.Errorf("%s: %s is %q, want %q", key, annotation, got, want)
		}
	}
	for key := range all {
		if strings.Contains(key, "Binding") && strings.Contains(key, "-certificates-") {
			t.Errorf("%s lets the manager write certificates that are not its own", key)
		}
	}
	for _, cert := range []string{"webhook", "metrics", "visibility"} {
		if all["Certificate "+namespace+"/kueue-"+cert+"-server-cert"] == nil {
			t.Errorf("there is no certificate for %s", cert)
		}
	}
}
