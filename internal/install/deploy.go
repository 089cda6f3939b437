package install

import (
	"crypto/sha256"
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

// Deploy describes the manager's Deployment in the cluster.
type Deploy struct {
	// Image of the container; its entry point is berth.
	Image string
	// Config is the text of the configuration file.
	Config string
	// Args are added to the arguments of `berth manager`, after --config.
	Args []string
}

// Names of the manager's objects. spec: 70 §4.14.
const (
	configMapName = "kueue-manager-config"
	configMapKey  = "controller_manager_config.yaml"
	// configChecksum is the annotation of the pod template with the hash of the configuration file, as the chart has it.
	configChecksum = "charts.kueue.x-k8s.io/config-checksum"
	// MetricsService is the name of the Service of the metrics.
	MetricsService = "kueue-controller-manager-metrics-service"
)

// ShippedConfig returns the configuration file of the packages.
func ShippedConfig() string {
	text, err := fs.ReadFile(config.FS, "manager/"+configMapKey)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

func services(o *Options) []runtime.Object {
	var out []runtime.Object
	if !o.Groups.Has(Training) || o.service() != o.Options.Trainer.StatusService { // else the Service of training covers the webhooks
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

// portOf returns the port of an address; 0 if that is off.
func portOf(address string) int {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(text) // the options have checked it
	return port
}

// deployment returns the manager's Deployment and everything it runs with, such as its configuration file.
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
	// Another file makes other pods: webhooks and rights follow the file at once, a running manager does not.
	metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, configChecksum, fmt.Sprintf("%x", sha256.Sum256([]byte(o.Deploy.Config))))
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
	return toUnstructured(nil, file, priorityClass(), disruptionBudget(o), networkPolicy(o, listeners), &d)
}

// priorityClass protects the manager from preemption by jobs: without it no job would start. Some clusters restrict the system's priority
// classes to kube-system.
func priorityClass() *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: schedulingv1.SchemeGroupVersion.String(), Kind: "PriorityClass"},
		ObjectMeta: metav1.ObjectMeta{Name: managerAccount}, Value: 1_000_000_000,
		Description: "For the manager of Berth, without which jobs are neither accepted nor started",
	}
}

// managerPods returns the labels of the manager's pods.
func managerPods() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
}

// disruptionBudget keeps one replica running while nodes are drained.
func disruptionBudget(o *Options) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace(), Name: managerAccount},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt(1)), Selector: &metav1.LabelSelector{MatchLabels: managerPods()}},
	}
}

// networkPolicy limits connections to the manager: the API server, whose address is unknown, and the kubelet may connect from anywhere,
// and pods of the cluster to the ports meant for them. Outgoing connections are not limited.
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
		if len(rule.Ports) > 0 { // a rule without ports allows all of them
			out.Spec.Ingress = append(out.Spec.Ingress, rule)
		}
	}
	return out
}

// DefaultCertSecret is the Secret of certificates that another controller, such as cert-manager, issues.
const DefaultCertSecret = "kueue-webhook-server-cert"

// trainingService has the name of an upstream controller's Service: for its metrics, and for reports of progress (spec: 50 §4.11).
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
