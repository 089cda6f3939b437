package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/visibility"
)

type all = map[string]*unstructured.Unstructured

// at reads a field of an object of the chart; list indexes are numbers.
func at(t *testing.T, objects all, key string, path ...any) any {
	t.Helper()
	u := objects[key]
	if u == nil {
		t.Fatalf("there is no %s", key)
	}
	var value any = u.Object
	for _, p := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[fmt.Sprint(p)]
		case []any:
			i, ok := p.(int)
			if !ok || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// hook finds a webhook by name.
func hook(t *testing.T, objects all, configuration, name string) map[string]any {
	t.Helper()
	hooks, _ := at(t, objects, configuration, "webhooks").([]any)
	for _, h := range hooks {
		if found, _ := h.(map[string]any); found["name"] == name {
			return found
		}
	}
	return nil
}

const (
	deployment = "Deployment berth-system/kueue-controller-manager"
	mutating   = "MutatingWebhookConfiguration /kueue-mutating-webhook-configuration"
)

// config is a value of the chart that sets the configuration file.
func config(body string) string {
	return "managerConfig:\n  controllerManagerConfigYaml: |\n    apiVersion: config.kueue.x-k8s.io/v1beta2\n    kind: Configuration\n    " +
		strings.ReplaceAll(body, "\n", "\n    ") + "\n"
}

// allDocuments sets a configuration file with a document of each kind, the manager's second.
const allDocuments = "managerConfig:\n  controllerManagerConfigYaml: |\n" +
	"    # JobSets\n    apiVersion: config.jobset.x-k8s.io/v1alpha1\n    kind: Configuration\n    leaderElection: {leaderElect: true, resourceName: mine.example.com}\n" +
	"    ---\n    apiVersion: config.kueue.x-k8s.io/v1beta2\n    kind: Configuration\n    health: {readinessEndpointName: up}\n" +
	"    ---\n    apiVersion: config.trainer.kubeflow.org/v1alpha1\n    kind: Configuration\n    statusServer: {port: 1445}\n"

// told returns the options that the manager reads from its ConfigMap.
func told(t *testing.T, o all, prefix string) options.Options {
	t.Helper()
	text, _ := at(t, o, "ConfigMap "+namespace+"/"+prefix+"-manager-config", "data", configKey).(string)
	c, err := options.Parse("config", []byte(text), "")
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c
}

// Each value has its documented effect. spec: 70 §5.8.
func TestChartValues(t *testing.T) {
	equal := func(key string, want any, path ...any) func(*testing.T, all) {
		return func(t *testing.T, o all) {
			t.Helper()
			if got := at(t, o, key, path...); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s %v is %v, want %v", key, path, got, want)
			}
		}
	}
	manager := func(want any, path ...any) func(*testing.T, all) {
		return equal(deployment, want, append([]any{"spec", "template", "spec", "containers", 0}, path...)...)
	}
	pod := func(want any, path ...any) func(*testing.T, all) {
		return equal(deployment, want, append([]any{"spec", "template", "spec"}, path...)...)
	}
	absent := func(keys ...string) func(*testing.T, all) {
		return func(t *testing.T, o all) {
			t.Helper()
			for _, k := range keys {
				if o[k] != nil {
					t.Errorf("there is a %s", k)
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		values string
		check  func(*testing.T, all)
	}{
		"image":     {"controllerManager: {manager: {image: {repository: r/berth, tag: v1, pullPolicy: Always}}}", manager("r/berth:v1", "image")},
		"replicas":  {"controllerManager: {replicas: 3}", equal(deployment, 3, "spec", "replicas")},
		"gates":     {"controllerManager: {featureGates: [{name: A, enabled: true}, {name: B, enabled: false}]}", manager("--feature-gates=A=true,B=false", "args", 3)},
		"log level": {"controllerManager: {manager: {logLevel: 5}}", manager("--zap-log-level=5", "args", 2)},
		"resources": {"controllerManager: {manager: {resources: {limits: {memory: 1Gi}}}}", manager("1Gi", "resources", "limits", "memory")},
		"priority": {"controllerManager: {manager: {priorityClassName: system-cluster-critical}}", func(t *testing.T, o all) {
			pod("system-cluster-critical", "priorityClassName")(t, o)
			absent("PriorityClass /kueue-controller-manager")(t, o)
		}},
		"host network": {"controllerManager: {hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet}", func(t *testing.T, o all) {
			pod(true, "hostNetwork")(t, o)
			pod("ClusterFirstWithHostNet", "dnsPolicy")(t, o)
		}},
		"node":         {"controllerManager: {nodeSelector: {a: b}}", pod("b", "nodeSelector", "a")},
		"tolerations":  {"controllerManager: {tolerations: [{operator: Exists}]}", pod("Exists", "tolerations", 0, "operator")},
		"spread":       {"controllerManager: {topologySpreadConstraints: [{topologyKey: zone}]}", pod("zone", "topologySpreadConstraints", 0, "topologyKey")},
		"pull secrets": {"controllerManager: {imagePullSecrets: [{name: s}]}", pod("s", "imagePullSecrets", 0, "name")},
		"strategy":     {"controllerManager: {strategy: {type: Recreate}}", equal(deployment, "Recreate", "spec", "strategy", "type")},
		"probe":        {"controllerManager: {readinessProbe: {failureThreshold: 9}}", manager(9, "readinessProbe", "failureThreshold")},
		"annotations":  {"controllerManager: {manager: {podAnnotations: {a: b}}}", equal(deployment, "b", "spec", "template", "metadata", "annotations", "a")},
		"disruptions": {
			"controllerManager: {podDisruptionBudget: {enabled: true, minAvailable: 2}}",
			equal("PodDisruptionBudget berth-system/kueue-controller-manager", 2, "spec", "minAvailable"),
		},
		"a single replica": {"controllerManager: {replicas: 1}", absent("PodDisruptionBudget berth-system/kueue-controller-manager")},
		"no disruptions":   {"controllerManager: {podDisruptionBudget: {enabled: false}}", absent("PodDisruptionBudget berth-system/kueue-controller-manager")},
		"digest":           {"controllerManager: {manager: {image: {digest: 'sha256:ab'}}}", manager("ghcr.io/berth-project/berth@sha256:ab", "image")},
		"memory":           {"", manager("1Gi", "resources", "limits", "memory")},
		"priority of ours": {"fullnameOverride: fleet", equal("PriorityClass /fleet-controller-manager", 1000000000, "value")},
		"network":          {"", equal("NetworkPolicy berth-system/kueue-controller-manager", nil, "spec", "ingress", 0, "from")},
		"no network":       {"networkPolicy: {enabled: false}", absent("NetworkPolicy berth-system/kueue-controller-manager")},
		"network from": {
			"networkPolicy: {apiServerCIDRs: [10.0.0.0/28]}",
			equal("NetworkPolicy berth-system/kueue-controller-manager", "10.0.0.0/28", "spec", "ingress", 0, "from", 0, "ipBlock", "cidr"),
		},
		"kinds that are off": {config("integrations: {frameworks: [batch/job]}"), func(t *testing.T, o all) {
			absent("ClusterRoleBinding /kueue-manager-framework-pod-rolebinding", "ClusterRoleBinding /kueue-manager-framework-rayjob-rolebinding")(t, o)
			equal("ClusterRoleBinding /kueue-manager-framework-job-rolebinding", "kueue-manager-framework-job-role", "roleRef", "name")(t, o)
		}},
		"groups that are off": {"controllerManager: {manager: {controllers: '-training,-multikueue,-jobset'}}", absent(
			"ClusterRoleBinding /kueue-manager-training-rolebinding", "ClusterRoleBinding /kueue-manager-training-secrets-rolebinding",
			"ClusterRoleBinding /kueue-manager-multikueue-rolebinding", "RoleBinding berth-system/kueue-manager-multikueue-secrets-rolebinding",
			"ClusterRoleBinding /kueue-manager-jobset-rolebinding", "ClusterRoleBinding /kueue-manager-dashboard-rolebinding")},
		"no Secrets of TrainJobs":    {"rights: {trainJobSecrets: false}", absent("ClusterRoleBinding /kueue-manager-training-secrets-rolebinding")},
		"a lease elsewhere":          {config("leaderElection: {resourceNamespace: theirs}"), equal("RoleBinding theirs/kueue-leader-election-rolebinding", "berth-system", "subjects", 0, "namespace")},
		"gates that are off":         {"controllerManager: {featureGates: [{name: MultiKueue, enabled: false}]}", absent("ClusterRoleBinding /kueue-manager-multikueue-rolebinding")},
		"certificates of others":     {"enableCertManager: true", absent("ClusterRoleBinding /kueue-manager-certificates-rolebinding", "RoleBinding berth-system/kueue-manager-certificates-secret-rolebinding")},
		"rights of the dashboard":    {dashboard(""), equal("ClusterRoleBinding /kueue-manager-dashboard-rolebinding", "kueue-manager-dashboard-role", "roleRef", "name")},
		"names of what it may write": {"fullnameOverride: fleet", equal("ClusterRole /fleet-manager-certificates-role", "fleet-mutating-webhook-configuration", "rules", 0, "resourceNames", 0)},
		"name of its lease":          {config("leaderElection: {resourceName: mine}"), equal("Role berth-system/kueue-leader-election-role", "mine", "rules", 0, "resourceNames", 0)},
		"reinvocation":               {"mutatingWebhook: {reinvocationPolicy: IfNeeded}", equal(mutating, "IfNeeded", "webhooks", 0, "reinvocationPolicy")},
		"other names": {"fullnameOverride: fleet", func(t *testing.T, o all) {
			for key := range o {
				if strings.Contains(key, "/kueue-") {
					t.Errorf("%s keeps its name", key)
				}
			}
			equal("MutatingWebhookConfiguration /fleet-mutating-webhook-configuration", "fleet-webhook-service", "webhooks", 0, "clientConfig", "service", "name")(t, o)
			equal("ClusterRoleBinding /fleet-manager-rolebinding", "fleet-controller-manager", "subjects", 0, "name")(t, o)
			equal("APIService /v1beta2.visibility.kueue.x-k8s.io", "fleet-visibility-server", "spec", "service", "name")(t, o)
			if c := told(t, o, "fleet"); c.Certs.Service != "fleet-webhook-service" || c.Certs.Secret != "fleet-webhook-server-cert" {
				t.Errorf("the manager is told %+v", c.Certs)
			}
		}},
		"cert-manager":  {"enableCertManager: true", injected},
		"issuer":        {"enableCertManager: true\ncertManager: {issuerRef: {name: mine}}", equal("Certificate berth-system/kueue-webhook-server-cert", "mine", "spec", "issuerRef", "name")},
		"domain":        {"enableCertManager: true\nkubernetesClusterDomain: corp", equal("Certificate berth-system/kueue-webhook-server-cert", "kueue-webhook-service.berth-system.svc.corp", "spec", "dnsNames", 1)},
		"no CRDs":       {"crds: {enabled: false}", absent("CustomResourceDefinition /workloads.kueue.x-k8s.io")},
		"CRDs are kept": {"", equal("CustomResourceDefinition /workloads.kueue.x-k8s.io", "keep", "metadata", "annotations", "helm.sh/resource-policy")},
		"v1beta2 alone": {"crds: {v1beta1: false}", func(t *testing.T, o all) { t.Helper(); servesV1beta2Alone(t, o) }},
		"CRDs are not":  {"crds: {keep: false}", equal("CustomResourceDefinition /workloads.kueue.x-k8s.io", nil, "metadata", "annotations", "helm.sh/resource-policy")},
		// A Trainer that takes over the TrainJobs, or anything else, may be in it.
		"a namespace of others": {"", equal("Namespace /kubeflow-system", "keep", "metadata", "annotations", "helm.sh/resource-policy")},
		"without JobSets":       {"controllerManager: {manager: {controllers: -jobset}}", absent("ClusterRole /jobset-editor-role")},
		"with JobSets":          {"controllerManager: {manager: {controllers: -training}}", equal("ClusterRole /jobset-editor-role", "jobsets", "rules", 0, "resources", 0)},
		"only some groups":      {"controllerManager: {manager: {controllers: 'webhooks,queues'}}", absent("ClusterRole /jobset-editor-role", "ClusterRole /kubeflow-trainer-view")},
		"monitor":               {"enablePrometheus: true", equal("ServiceMonitor berth-system/kueue-controller-manager-metrics-monitor", "kueue-webhook-server-cert", "spec", "endpoints", 0, "tlsConfig", "ca", "secret", "name")},
		"monitor's TLS":         {"enablePrometheus: true\nmetrics: {serviceMonitor: {tlsConfig: {insecureSkipVerify: true}}}", equal("ServiceMonitor berth-system/kueue-controller-manager-metrics-monitor", "map[insecureSkipVerify:true]", "spec", "endpoints", 0, "tlsConfig")},
		"prometheus":            {"metrics: {prometheusNamespace: mon}", equal("ClusterRoleBinding /kueue-prometheus-k8s", "mon", "subjects", 0, "namespace")},
		"prometheus by default": {"enablePrometheus: true", equal("ClusterRoleBinding /kueue-prometheus-k8s", "monitoring", "subjects", 0, "namespace")},
		"no prometheus":         {"", absent("ClusterRoleBinding /kueue-prometheus-k8s")},
		"fairness":              {"enableVisibilityAPF: true", fairness},
		"policy": {"enableMutatingAdmissionPolicy: true", func(t *testing.T, o all) {
			for name, want := range policy(t) {
				if diff := cmp.Diff(want, o[name]); diff != "" {
					t.Errorf("%s (-kustomize +chart):\n%s", name, diff)
				}
			}
		}},
		"no policy":    {"", absent("MutatingAdmissionPolicy /clear-nominated-cluster-names", "MutatingAdmissionPolicyBinding /clear-nominated-cluster-names-binding")},
		"no dashboard": {"", absent("Service berth-system/kueue-kueueviz-backend")},
		"dashboard": {dashboard(""), func(t *testing.T, o all) {
			manager("--dashboard-bind-address=:8080", "args", 3)(t, o)
			manager("KUEUEVIZ_ALLOWED_ORIGINS", "env", 0, "name")(t, o)
			manager(8080, "ports", 4, "containerPort")(t, o)
			equal("Service berth-system/kueue-kueueviz-backend", 8080, "spec", "ports", 0, "targetPort")(t, o)
		}},
		"dashboard elsewhere": {dashboard(", {name: KUEUEVIZ_PORT, value: '9090'}"), func(t *testing.T, o all) {
			manager("--dashboard-bind-address=:9090", "args", 3)(t, o)
			equal("Service berth-system/kueue-kueueviz-backend", 9090, "spec", "ports", 0, "targetPort")(t, o)
			equal("Service berth-system/kueue-kueueviz-backend", 8080, "spec", "ports", 0, "port")(t, o)
		}},
		"no auth reader":  {"enableVisibilityAuthReaderRoleBinding: false", absent("RoleBinding kube-system/kueue-visibility-server-auth-reader")},
		"dual stack":      {"webhookService: {ipDualStack: {enabled: true}}", equal("Service berth-system/kueue-webhook-service", "PreferDualStack", "spec", "ipFamilyPolicy")},
		"webhook service": {"webhookService: {type: NodePort, ports: [{port: 443, targetPort: 1}]}", equal("Service berth-system/kueue-webhook-service", 1, "spec", "ports", 0, "targetPort")},
		"metrics service": {"metricsService: {labels: {a: b}, annotations: {c: d}}", equal("Service berth-system/kueue-controller-manager-metrics-service", "b", "metadata", "labels", "a")},
		"ports of the file": {config("webhook: {port: 1443}\nmetrics: {bindAddress: ':1444'}\nvisibilityServer: {bindPort: 1445}\nhealth: {healthProbeBindAddress: ':1446', readinessEndpointName: up}"), func(t *testing.T, o all) {
			equal("Service berth-system/kueue-webhook-service", 1443, "spec", "ports", 0, "targetPort")(t, o)
			equal("Service berth-system/kueue-controller-manager-metrics-service", 1444, "spec", "ports", 0, "targetPort")(t, o)
			equal("Service berth-system/kueue-visibility-server", 1445, "spec", "ports", 0, "targetPort")(t, o)
			manager("/up", "readinessProbe", "httpGet", "path")(t, o)
			manager(1446, "livenessProbe", "httpGet", "port")(t, o)
		}},
		"listeners off": {config("metrics: {bindAddress: '0'}\nhealth: {healthProbeBindAddress: '0'}"), absent("Service berth-system/kueue-controller-manager-metrics-service")},
		"namespaces":    {config("managedJobsNamespaceSelector: {matchLabels: {team: a}}"), func(t *testing.T, o all) { equalHook(t, o, "mjob.kb.io", "map[matchLabels:map[team:a]]") }},
		"namespaces of Kueue": {config("managedJobsNamespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}]}"), func(t *testing.T, o all) {
			equalHook(t, o, "mjob.kb.io", "map[matchExpressions:[map[key:kubernetes.io/metadata.name operator:NotIn values:[kube-system kueue-system berth-system]]]]")
		}},
		"namespaces by default": {config(""), func(t *testing.T, o all) {
			selector := fmt.Sprint(hook(t, o, mutating, "mjob.kb.io")["namespaceSelector"])
			for _, name := range []string{"kube-system ", " calico-system ", " cert-manager ", " berth-system]"} {
				if !strings.Contains(selector, name) {
					t.Errorf("the webhook of Jobs is called for %s: %s", name, selector)
				}
			}
		}},
		"without Jobs": {config("integrations: {frameworks: [pod]}"), func(t *testing.T, o all) {
			if hook(t, o, mutating, "mjob.kb.io") != nil {
				t.Error("Jobs wait for a webhook that does nothing for them")
			}
		}},
		"pods that are not wanted": {config(""), func(t *testing.T, o all) {
			h := hook(t, o, mutating, "mpod.kb.io")
			if got := fmt.Sprint(h["failurePolicy"], h["matchConditions"]); got != "Ignore[map[expression:false name:not-enabled]]" {
				t.Errorf("pods wait for %s", got)
			}
		}},
		"pods that are": {"", func(t *testing.T, o all) {
			h := hook(t, o, mutating, "mpod.kb.io")
			if got := fmt.Sprint(h["failurePolicy"], h["matchConditions"]); !strings.HasPrefix(got, "Fail[map[expression:object.") || strings.Contains(got, "not-enabled") {
				t.Errorf("pods wait for %s", got)
			}
			if h = hook(t, o, mutating, "default.mpod.kb.io"); h["failurePolicy"] != "Ignore" {
				t.Errorf("pods without a queue wait for %v", h)
			}
		}},
		"documents of every kind": {"fullnameOverride: fleet\n" + allDocuments, func(t *testing.T, o all) {
			c := told(t, o, "fleet")
			if !c.Certs.Internal || c.Certs.Service != "fleet-webhook-service" || c.JobSet.Lease.Name != "mine.example.com" {
				t.Errorf("the manager is told %+v, %+v", c.Certs, c.JobSet)
			}
			equal("Deployment berth-system/fleet-controller-manager", "/up", "spec", "template", "spec", "containers", 0, "readinessProbe", "httpGet", "path")(t, o)
			equal("Service berth-system/kubeflow-trainer-controller-manager", 1445, "spec", "ports", 2, "targetPort")(t, o)
			equal("NetworkPolicy berth-system/fleet-controller-manager", 1445, "spec", "ingress", 2, "ports", 1, "port")(t, o)
		}},
		"documents of every kind, with cert-manager": {"enableCertManager: true\n" + allDocuments, injected},
		"file of v1beta1": {strings.ReplaceAll(config("namespace: x"), "v1beta2", "v1beta1"), func(t *testing.T, o all) {
			if c := told(t, o, "kueue"); !c.Certs.Internal {
				t.Errorf("the manager is told %+v", c.Certs)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := chart(t, tc.values)
			if err != nil {
				t.Fatal(err)
			}
			tc.check(t, objects(t, text))
		})
	}
}

// dashboard are values with one, and more of its variables.
func dashboard(more string) string {
	return "enableKueueViz: true\nkueueViz: {backend: {env: [{name: KUEUEVIZ_ALLOWED_ORIGINS, value: 'https://berth.example.org'}" + more + "]}}"
}

// fairness checks that the FlowSchema covers every group of the aggregated API, and that chart and kustomize have the same one.
func fairness(t *testing.T, o all) {
	t.Helper()
	if got := fmt.Sprint(at(t, o, "FlowSchema /visibility", "spec", "matchingPrecedence")); got != "9000" {
		t.Errorf("its precedence is %s", got)
	}
	var groups []string
	for _, gv := range visibility.GroupVersions() {
		groups = append(groups, gv.Group)
	}
	slices.Sort(groups)
	covered, _ := at(t, o, "FlowSchema /visibility", "spec", "rules", 0, "resourceRules", 0, "apiGroups").([]any)
	var got []string
	for _, group := range covered {
		got = append(got, fmt.Sprint(group))
	}
	slices.Sort(got)
	if want := slices.Compact(groups); !slices.Equal(got, want) {
		t.Errorf("the FlowSchema covers %v, but %v are served", got, want)
	}
	text, err := render(t, "kustomize", "config/visibility-apf")
	if err != nil {
		t.Fatal(err)
	}
	other := objects(t, text)
	for _, name := range []string{"FlowSchema /visibility", "PriorityLevelConfiguration /visibility"} {
		if other[name] == nil || o[name] == nil {
			t.Fatalf("there is no %s", name)
		}
		if diff := cmp.Diff(other[name].Object["spec"], o[name].Object["spec"]); diff != "" {
			t.Errorf("%s (-kustomize +chart):\n%s", name, diff)
		}
	}
}

func equalHook(t *testing.T, o all, name, want string) {
	t.Helper()
	if got := fmt.Sprint(hook(t, o, mutating, name)["namespaceSelector"]); got != want {
		t.Errorf("%s selects %s, want %s", name, got, want)
	}
}

// The chart refuses values that it cannot honour, and names them.
func TestChartRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ values, want string }{
		"a key that is not known": {"replicas: 3", "replicas"},
		"one further down":        {"controllerManager: {manager: {imge: {tag: x}}}", "imge"},
		"the wrong type":          {"enablePrometheus: 3", "enablePrometheus"},
		"a dashboard for anybody": {"enableKueueViz: true", "KUEUEVIZ_ALLOWED_ORIGINS"},
		"a port not known before": {"enableKueueViz: true\nkueueViz: {backend: {env: [{name: KUEUEVIZ_ALLOWED_ORIGINS, value: 'https://a.org'}, {name: KUEUEVIZ_PORT, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}}", "KUEUEVIZ_PORT"},
		"a dashboard of its own":  {"kueueViz: {frontend: {image: x}}", "frontend"},
		"no webhooks":             {"controllerManager: {manager: {controllers: -webhooks}}", "controllers"},
		"neither they nor others": {"controllerManager: {manager: {controllers: '-jobset, -webhooks'}}", "controllers"},
		"others than they":        {"controllerManager: {manager: {controllers: 'queues,scheduler'}}", "controllers"},
		"two minds about certificates": {
			"enableCertManager: true\n" + config("internalCertManagement: {enable: true}"), "internalCertManagement.enable",
		},
		"minds by default":       {"enableCertManager: true\n" + config("internalCertManagement: {webhookSecretName: mine}"), "internalCertManagement.enable"},
		"no file of the manager": {"managerConfig: {controllerManagerConfigYaml: 'apiVersion: config.jobset.x-k8s.io/v1alpha1'}", "has no document of config.kueue"},
		"a file that is no YAML": {"managerConfig: {controllerManagerConfigYaml: 'a: [b'}", "controllerManagerConfigYaml"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := chart(t, tc.values)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error that names %s, got %v\n%.200s", tc.want, err, text)
			}
		})
	}
}
