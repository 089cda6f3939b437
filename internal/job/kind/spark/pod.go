package spark

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// Defaults of Spark.
const (
	defaultCores  = 1
	defaultMemory = 1 << 30

	leastOverhead  = 384 << 20
	overheadOfJVM  = 0.1
	overheadOfRest = 0.4 // Python and R, which use memory beside the virtual machine
)

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// assemble builds the pod template of a role: its own template, if any, overlaid with the role's fields. With overhead it requests
// the overhead memory that Spark adds.
func assemble(app view.Object, name string, overhead bool) (*corev1.PodTemplateSpec, error) {
	role := view.Map(app.Object, "spec", name)
	out := &corev1.PodTemplateSpec{}
	if err := decode(view.Map(role, "template"), out); err != nil {
		return nil, podset.Permanent("spec.%s.template is no pod template: %s", name, err)
	}
	var f fields
	if err := decode(role, &f); err != nil {
		return nil, podset.Permanent("spec.%s: %s", name, err)
	}
	out.Labels = podset.Completed(f.Labels, out.Labels)
	out.Annotations = podset.Completed(f.Annotations, out.Annotations)
	s := &out.Spec
	var global map[string]string
	if err := decodeMap(view.Map(app.Object, "spec", "nodeSelector"), &global); err != nil {
		return nil, podset.Permanent("spec.nodeSelector: %s", err)
	}
	s.NodeSelector = podset.Completed(f.NodeSelector, podset.Completed(global, s.NodeSelector))
	if f.Affinity != nil {
		s.Affinity = f.Affinity
	}
	s.PriorityClassName = ptr.Deref(f.PriorityClassName, s.PriorityClassName)
	if len(f.Tolerations) > 0 {
		s.Tolerations = f.Tolerations
	}
	var volumes struct {
		Volumes []corev1.Volume `json:"volumes"`
	}
	if err := decode(view.Map(app.Object, "spec"), &volumes); err != nil {
		return nil, podset.Permanent("spec.volumes: %s", err)
	}
	s.Volumes = append(s.Volumes, volumes.Volumes...)
	s.InitContainers = append(s.InitContainers, f.InitContainers...)
	at := mainContainer(s, "spark-kubernetes-"+name)
	s.Containers = append(s.Containers, f.Sidecars...)
	c := &s.Containers[at]
	c.Image = cmp.Or(f.Image, view.String(app.Object, "spec", "image"), c.Image)
	c.VolumeMounts = append(c.VolumeMounts, f.VolumeMounts...)
	c.Env = append(c.Env, f.Env...)
	c.EnvFrom = append(c.EnvFrom, f.EnvFrom...)
	return out, f.request(app, name, c, overhead)
}

// fields are the fields of a role that affect its pods.
type fields struct {
	Image             string                 `json:"image"`
	Cores             *int32                 `json:"cores"`
	CoreRequest       string                 `json:"coreRequest"`
	CoreLimit         string                 `json:"coreLimit"`
	Memory            string                 `json:"memory"`
	MemoryLimit       string                 `json:"memoryLimit"`
	MemoryOverhead    string                 `json:"memoryOverhead"`
	GPU               *gpu                   `json:"gpu"`
	Labels            map[string]string      `json:"labels"`
	Annotations       map[string]string      `json:"annotations"`
	NodeSelector      map[string]string      `json:"nodeSelector"`
	Affinity          *corev1.Affinity       `json:"affinity"`
	Tolerations       []corev1.Toleration    `json:"tolerations"`
	PriorityClassName *string                `json:"priorityClassName"`
	InitContainers    []corev1.Container     `json:"initContainers"`
	Sidecars          []corev1.Container     `json:"sidecars"`
	VolumeMounts      []corev1.VolumeMount   `json:"volumeMounts"`
	Env               []corev1.EnvVar        `json:"env"`
	EnvFrom           []corev1.EnvFromSource `json:"envFrom"`
}

type gpu struct {
	Name     string `json:"name"`
	Quantity int64  `json:"quantity"`
}

// decode reads a tree into a Go value. Unknown fields are ignored.
func decode(tree map[string]any, into any) error {
	if tree == nil {
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(tree, into)
}

func decodeMap(tree map[string]any, into *map[string]string) error {
	out := map[string]string{}
	for key, value := range tree { //berth:unordered copies a map
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%s is not a text", key)
		}
		out[key] = text
	}
	*into = out
	return nil
}

// mainContainer is the container of Spark: by its name, else the first of the template, else a new one.
func mainContainer(s *corev1.PodSpec, name string) int {
	at := slices.IndexFunc(s.Containers, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 && len(s.Containers) > 0 {
		at = 0
	}
	if at < 0 {
		s.Containers = append(s.Containers, corev1.Container{Name: name})
		at = len(s.Containers) - 1
	}
	return at
}

// request sets the requests of the main container.
func (f *fields) request(app view.Object, name string, c *corev1.Container, implicit bool) error {
	requests, limits := cloneList(c.Resources.Requests), cloneList(c.Resources.Limits)
	cpu := *resource.NewQuantity(defaultCores, resource.DecimalSI)
	if f.Cores != nil {
		cpu = *resource.NewQuantity(int64(*f.Cores), resource.DecimalSI)
	}
	if f.CoreRequest != "" {
		var err error
		if cpu, err = resource.ParseQuantity(f.CoreRequest); err != nil {
			return podset.Permanent("spec.%s.coreRequest %q is no quantity", name, f.CoreRequest)
		}
	}
	requests[corev1.ResourceCPU] = cpu
	if f.CoreLimit != "" {
		limit, err := resource.ParseQuantity(f.CoreLimit)
		if err != nil {
			return podset.Permanent("spec.%s.coreLimit %q is no quantity", name, f.CoreLimit)
		}
		limits[corev1.ResourceCPU] = limit
	}
	memory, err := f.memory(app, implicit)
	if err != nil {
		return podset.Permanent("spec.%s.%s", name, err)
	}
	requests[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	if f.MemoryLimit != "" {
		limit, err := bytes(f.MemoryLimit)
		if err != nil {
			return podset.Permanent("spec.%s.memoryLimit %s", name, err)
		}
		limits[corev1.ResourceMemory] = *resource.NewQuantity(limit, resource.BinarySI)
	}
	if f.GPU != nil && f.GPU.Name != "" {
		n := *resource.NewQuantity(f.GPU.Quantity, resource.DecimalSI)
		requests[corev1.ResourceName(f.GPU.Name)], limits[corev1.ResourceName(f.GPU.Name)] = n, n
	}
	c.Resources.Requests, c.Resources.Limits = requests, limits
	if len(limits) == 0 {
		c.Resources.Limits = nil
	}
	return nil
}

func cloneList(l corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(l)
	if out == nil {
		out = corev1.ResourceList{}
	}
	return out
}

// memory is the memory of the virtual machine and its overhead, in bytes. Unrequested overhead counts only if the configuration
// says so, since it affects which applications fit.
func (f *fields) memory(app view.Object, implicit bool) (int64, error) {
	memory := int64(defaultMemory)
	if f.Memory != "" {
		var err error
		if memory, err = bytes(f.Memory); err != nil {
			return 0, fmt.Errorf("memory %w", err)
		}
	}
	switch {
	case f.MemoryOverhead != "":
		overhead, err := bytes(f.MemoryOverhead)
		if err != nil {
			return 0, fmt.Errorf("memoryOverhead %w", err)
		}
		return memory + overhead, nil
	case implicit:
		return memory + max(leastOverhead, int64(math.Ceil(float64(memory)*overheadFactor(app)))), nil
	}
	return memory, nil
}

func overheadFactor(app view.Object) float64 {
	if text := view.String(app.Object, "spec", "memoryOverheadFactor"); text != "" {
		if factor, err := strconv.ParseFloat(text, 64); err == nil && factor >= 0 && factor < 100 {
			return factor
		}
	}
	switch view.String(app.Object, "spec", "type") {
	case "Python", "R":
		return overheadOfRest
	}
	return overheadOfJVM
}

// javaMemory is a size in Java's format: 512m, 2g. Without a unit it is in mebibytes.
var javaMemory = regexp.MustCompile(`^(\d{1,12})([kmgtp]?)b?$`)

// bytes parses a size, Java's or Kubernetes'.
func bytes(text string) (int64, error) {
	if m := javaMemory.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text))); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		unit := m[2]
		if unit == "" {
			unit = "m"
		}
		shift := 10 * (strings.Index("kmgtp", unit) + 1)
		if err == nil && n <= math.MaxInt64>>shift {
			return n << shift, nil
		}
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("%q is no size such as 512m or 2g", text)
	}
	return q.Value(), nil
}
