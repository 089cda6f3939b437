package wire

import (
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	metricsService = "kueue-controller-manager-metrics-service"
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
func services(o *InstallOptions) []runtime.Object {
	var out []runtime.Object
	if !o.Groups.Has(Training) || o.service() != o.Options.Trainer.StatusService { // else that of training is for the webhooks too
		out = append(out, service(o.namespace(), o.service(), "webhook-service", 443, o.Options.Webhook.Port))
	}
	if port := portOf(o.Options.Metrics.Address); port > 0 {
		metrics := service(o.namespace(), metricsService, "metrics-service", 8443, port)
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
			Selector: map[string]string{"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"},
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
func deployment(o *InstallOptions) ([]*unstructured.Unstructured, error) {
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
	out, err := toUnstructured(nil, file)
	if err != nil {
		return nil, err
	}
	return toUnstructured(out, &d)
}
