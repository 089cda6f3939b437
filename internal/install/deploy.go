package install

import (
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/config"
)

// Deploy says how the manager runs in the cluster.
type Deploy struct {
	// Image of the container; its entry point is berth.
	Image string
	// Config is the text of the configuration file.
	Config string
	// Args are those of `berth manager` beside --config.
	Args []string
}

// Names of what the manager runs as. spec: 70 §4.14.
const (
	configMapName = "kueue-manager-config"
	configMapKey  = "controller_manager_config.yaml"
	// metricsService is the name of the Service of the metrics.
	MetricsService = "kueue-controller-manager-metrics-service"
)

// ShippedConfig is the text of the configuration file that the packages come with.
func ShippedConfig() string {
	text, err := fs.ReadFile(config.FS, "manager/"+configMapKey)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// services are those of the webhooks, of the metrics and of training, for a manager in the cluster.
func services(o *Options) []runtime.Object {
	var out []runtime.Object
	if !o.Groups.Has(Training) || o.service() != o.Options.Trainer.StatusService { // else that of training is for the webhooks too
		out = append(out, service(o.namespace(), o.service(), "webhook-service", 443, o.Options.Webhook.Port))
	}
	if port := portOf(o.Options.Metrics.Address); port > 0 {
		metrics := service(o.namespace(), MetricsService, "metrics-service", 8443, port)
		metrics.Labels["control-plane"] = "controller-manager"
		out = append(out, metrics)
	}
	if o.Groups.Has(Training) {
		out = append(out, trainingService(o))
	}
	return out
}

func service(namespace, name, component string, port int32, target int) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": component},
		},
		Spec: corev1.ServiceSpec{
			Selector: managerPods(),
			Ports:    []corev1.ServicePort{servicePort("https", port, target)},
		},
	}
}

// portOf is the port of an address; 0 if that is off.
func portOf(address string) int {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(text) // the options have checked it
	return port
}

// deployment are the manager and its configuration file.
func deployment(o *Options) ([]*unstructured.Unstructured, error) {
	if o.Deploy == nil {
		return nil, nil
	}
	text, err := fs.ReadFile(config.FS, "manager/manager.yaml")
	if err != nil {
		return nil, err
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		return nil, fmt.Errorf("manifest of the manager: %w", err)
	}
	d.Namespace = o.namespace()
	c := &d.Spec.Template.Spec.Containers[0]
	c.Image, c.Args = o.Deploy.Image, slices.Concat(c.Args, o.Deploy.Args)
	listeners := map[string]int{
		"webhook-server": o.Options.Webhook.Port, "metrics": portOf(o.Options.Metrics.Address),
		"visibility": portOf(o.Options.VisibilityAddress), "health": portOf(o.Options.Health.Address),
	}
	c.Ports = slices.DeleteFunc(c.Ports, func(p corev1.ContainerPort) bool { return listeners[p.Name] == 0 })
	for i := range c.Ports {
		c.Ports[i].ContainerPort = int32(listeners[c.Ports[i].Name])
	}
	if port := listeners["health"]; port == 0 {
		c.LivenessProbe, c.ReadinessProbe = nil, nil
	} else {
		health := o.Options.Health
		c.LivenessProbe.HTTPGet.Port, c.LivenessProbe.HTTPGet.Path = intstr.FromInt(port), health.LivenessPath
		c.ReadinessProbe.HTTPGet.Port, c.ReadinessProbe.HTTPGet.Path = intstr.FromInt(port), health.ReadinessPath
	}
	file := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace(), Name: configMapName},
		Data:       map[string]string{configMapKey: o.Deploy.Config},
	}
	var out []*unstructured.Unstructured
	for _, object := range []runtime.Object{file, priorityClass(), disruptionBudget(o), networkPolicy(o, listeners), &d} {
		if out, err = toUnstructured(out, object); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// priorityClass is that of the manager: jobs must not take its place, as none would start without it. That of the system is
// restricted to kube-system in some clusters.
func priorityClass() *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: schedulingv1.SchemeGroupVersion.String(), Kind: "PriorityClass"},
		ObjectMeta: metav1.ObjectMeta{Name: managerAccount}, Value: 1_000_000_000,
		Description: "For the manager of Berth, without which jobs are neither accepted nor started",
	}
}

// managerPods are the labels of the manager's pods.
func managerPods() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
}

// disruptionBudget keeps a replica while nodes are drained.
func disruptionBudget(o *Options) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace(), Name: managerAccount},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt(1)), Selector: &metav1.LabelSelector{MatchLabels: managerPods()}},
	}
}

// networkPolicy says who may connect to the manager: the API server, whose address is not known, and the kubelet from anywhere,
// and pods of the cluster to what is for them. What the manager connects to is not limited.
func networkPolicy(o *Options, listeners map[string]int) *networkingv1.NetworkPolicy {
	open := func(ports ...int) (out networkingv1.NetworkPolicyIngressRule) {
		for _, port := range ports {
			if port > 0 {
				out.Ports = append(out.Ports, networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt(port)), Protocol: new(corev1.ProtocolTCP)})
			}
		}
		return out
	}
	var progress, dashboard int
	if o.Groups.Has(Training) {
		progress = o.Options.Trainer.StatusPort
	}
	if o.Options.Dashboard.Served() {
		dashboard = portOf(o.Options.Dashboard.Address)
	}
	inside := open(listeners["metrics"], progress, dashboard)
	inside.From = []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}
	out := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace(), Name: managerAccount},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: managerPods()}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	for _, rule := range []networkingv1.NetworkPolicyIngressRule{open(listeners["webhook-server"], listeners["visibility"]), open(listeners["health"]), inside} {
		if len(rule.Ports) > 0 { // a rule without ports is for all of them
			out.Spec.Ingress = append(out.Spec.Ingress, rule)
		}
	}
	return out
}

// DefaultCertSecret is where those who make certificates in our place put them.
const DefaultCertSecret = "kueue-webhook-server-cert"

// trainingService is the Service under the name that an upstream controller has: for its metrics, and for reports of
// progress (spec: 50 §4.11).
func trainingService(o *Options) *corev1.Service {
	s := service(o.namespace(), o.Options.Trainer.StatusService, "trainer-service", 443, o.Options.Webhook.Port)
	if port := portOf(o.Options.Metrics.Address); port > 0 {
		s.Spec.Ports = append(s.Spec.Ports, servicePort("metrics", 8443, port))
	}
	status := o.Options.Trainer.StatusPort
	s.Spec.Ports = append(s.Spec.Ports, servicePort("status-server", int32(status), status))
	return s
}

func servicePort(name string, port int32, target int) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt(target)}
}
