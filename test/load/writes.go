package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/crd"
	"github.com/berth-project/berth/internal/embedded"
)

const (
	writers        = 4 // requests of measured writes, at once
	writeNamespace = "writes"
)

// variant is a change of the CRD of Workloads.
type variant struct {
	name   string
	change func(*apiextensionsv1.CustomResourceDefinition)
}

// variants are the CRDs that writes are measured with. None converts: that is the manager's work.
var variants = []variant{
	{"both", func(*apiextensionsv1.CustomResourceDefinition) {}},
	{"v1beta2", onlyStored},
	{"v1beta2-no-rules", func(d *apiextensionsv1.CustomResourceDefinition) {
		onlyStored(d)
		for i := range d.Spec.Versions {
			withoutRules(d.Spec.Versions[i].Schema.OpenAPIV3Schema)
		}
	}},
}

// onlyStored serves the stored version alone.
func onlyStored(d *apiextensionsv1.CustomResourceDefinition) {
	for i := range d.Spec.Versions {
		d.Spec.Versions[i].Served = d.Spec.Versions[i].Storage
	}
}

// withoutRules removes the validation rules of a schema.
func withoutRules(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations = nil
	for name, p := range s.Properties {
		withoutRules(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		withoutRules(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		withoutRules(s.AdditionalProperties.Schema)
	}
}

// size is the shape of a measured Workload.
type size struct {
	name                       string
	podSets, containers, perOf int // perOf: environment variables of a container
}

var sizes = []size{{"small", 1, 1, 0}, {"large", 4, 2, 20}}

// workload is a Workload of the size.
func (s size) workload(name string) *kueue.Workload {
	w := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.GroupVersion.String(), Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Namespace: writeNamespace, Name: name},
		Spec:       kueue.WorkloadSpec{QueueName: "any", Priority: new(int32)},
	}
	for p := range s.podSets {
		spec := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}
		for c := range s.containers {
			container := corev1.Container{
				Name: fmt.Sprint("c", c), Image: "any",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(1, resource.DecimalSI)}},
			}
			for e := range s.perOf {
				container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("NAME_", e), Value: "a value of some length"})
			}
			spec.Containers = append(spec.Containers, container)
		}
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{
			Name: kueue.PodSetReference(fmt.Sprint("p", p)), Count: 1, Template: corev1.PodTemplateSpec{Spec: spec},
		})
	}
	return w
}

// admitted is the Workload with the status of an admission.
func admitted(w *kueue.Workload) *kueue.Workload {
	w = w.DeepCopy()
	w.APIVersion, w.Kind = kueue.GroupVersion.String(), "Workload" // a decoded answer has none
	a := &kueue.Admission{ClusterQueue: "any"}
	for i := range w.Spec.PodSets {
		s := &w.Spec.PodSets[i]
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: s.Name, Count: &s.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "any"},
			ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(1, resource.DecimalSI)},
		})
	}
	w.Status.Admission = a
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: "in ClusterQueue any", LastTransitionTime: metav1.Now(), ObservedGeneration: 1,
		})
	}
	return w
}

// verbs are the ways to write a status.
var verbs = []string{"apply", "merge", "put"}

// measureWrites prints the processor time of the API server and etcd for one write of a Workload, in ms, by variant of the CRD, size,
// number of watches of each served version, and verb. With a prefix of files it writes profiles of the API server.
func measureWrites(ctx context.Context, o *options, out, progress io.Writer) error {
	var names []string
	for _, v := range variants {
		names = append(names, v.name)
	}
	if o.variant != "" && !slices.Contains(names, o.variant) {
		return fmt.Errorf("-variant %q: there are %s", o.variant, strings.Join(names, ", "))
	}
	for _, v := range variants {
		if o.variant != "" && o.variant != v.name {
			continue
		}
		if err := measureVariant(ctx, o, v, out, progress); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

func measureVariant(ctx context.Context, o *options, v variant, out, progress io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "berth-writes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	plane, err := embedded.Start(ctx, embedded.Config{Dir: dir, Bare: true, Stderr: progress})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		err = errors.Join(err, plane.Stop(stopping))
	}()
	w, err := newWriteTest(ctx, plane, v)
	if err != nil {
		return err
	}
	w.count, w.profile = o.writes, o.cpuProfile
	if w.profile != "" {
		w.profile += "." + v.name
	}
	for _, s := range sizes {
		for _, watches := range []int{0, 2} {
			if err := w.measure(ctx, s, watches, func(name string, ms float64) {
				fmt.Fprintf(out, "write_ms[%s,%s,watches=%d,%s]: %s\n", v.name, s.name, watches, name, number(ms))
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTest measures writes on one control plane.
type writeTest struct {
	rest            rest.Interface
	versions        []string // that are served
	apiServer, etcd int      // pids
	count           int
	profile         string
	round           int
}

func newWriteTest(ctx context.Context, plane *embedded.ControlPlane, v variant) (w *writeTest, err error) {
	w = &writeTest{}
	if w.apiServer, err = child(plane.PID(), "kube-apiserver"); err != nil {
		return nil, err
	}
	if w.etcd, err = child(plane.PID(), "etcd"); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	if err != nil {
		return nil, err
	}
	d := crd.Definitions()["workloads."+kueue.GroupVersion.Group].DeepCopy()
	v.change(d)
	if err := installCRDs(cfg, d); err != nil {
		return nil, err
	}
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Served {
			w.versions = append(w.versions, d.Spec.Versions[i].Name)
		}
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: writeNamespace}}); err != nil {
		return nil, err
	}
	cfg.GroupVersion, cfg.APIPath = &kueue.GroupVersion, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.QPS = -1
	w.rest, err = rest.RESTClientFor(cfg)
	return w, err
}

// installCRDs installs CRDs without their conversions.
func installCRDs(cfg *rest.Config, definitions ...*apiextensionsv1.CustomResourceDefinition) error {
	for _, d := range definitions {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: definitions, MaxTime: readyLimit})
	return err
}

// measure creates Workloads of a size, and writes the status of each once, by every verb in turn.
func (t *writeTest) measure(ctx context.Context, s size, watches int, line func(name string, ms float64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, version := range t.versions {
		for range watches {
			if err := t.watch(ctx, version); err != nil {
				return err
			}
		}
	}
	for _, verb := range verbs {
		t.round++
		objects := make([]*kueue.Workload, t.count)
		created, err := t.cost(ctx, "", func(i int) error {
			objects[i] = &kueue.Workload{}
			w := s.workload(fmt.Sprintf("r%d-%d", t.round, i))
			return t.rest.Post().Namespace(writeNamespace).Resource("workloads").Body(w).Do(ctx).Into(objects[i])
		})
		if err != nil {
			return err
		}
		if verb == verbs[0] {
			line("create", created)
		}
		bodies := make([][]byte, t.count)
		for i, w := range objects {
			if bodies[i], err = statusBody(verb, admitted(w)); err != nil {
				return err
			}
		}
		profile := ""
		if t.profile != "" {
			profile = fmt.Sprintf("%s.%s.%d.%s", t.profile, s.name, watches, verb)
		}
		ms, err := t.cost(ctx, profile, func(i int) error { return t.writeStatus(ctx, verb, objects[i].Name, bodies[i]) })
		if err != nil {
			return err
		}
		line("status-"+verb, ms)
	}
	return nil
}

// statusBody is the body of a write of a status.
func statusBody(verb string, w *kueue.Workload) ([]byte, error) {
	switch verb {
	case "put":
		return json.Marshal(w)
	case "merge":
		return json.Marshal(map[string]any{"status": w.Status})
	}
	return json.Marshal(map[string]any{
		"apiVersion": w.APIVersion, "kind": w.Kind, "metadata": map[string]any{"name": w.Name, "namespace": w.Namespace, "uid": w.UID}, "status": w.Status,
	})
}

func (t *writeTest) writeStatus(ctx context.Context, verb, name string, body []byte) error {
	var r *rest.Request
	switch verb {
	case "put":
		r = t.rest.Put().SetHeader("Content-Type", "application/json")
	case "merge":
		r = t.rest.Patch(types.MergePatchType)
	default:
		r = t.rest.Patch(types.ApplyYAMLPatchType).Param("fieldManager", "kueue-admission").Param("force", "true")
	}
	return r.Namespace(writeNamespace).Resource("workloads").Name(name).SubResource("status").Body(body).Do(ctx).Error()
}

// watch follows the Workloads of a version until ctx ends, without a look at them.
func (t *writeTest) watch(ctx context.Context, version string) error {
	stream, err := t.rest.Get().AbsPath("/apis", kueue.GroupVersion.Group, version, "workloads").Param("watch", "true").Stream(ctx)
	if err != nil {
		return err
	}
	go func() {
		defer stream.Close()
		_, _ = io.Copy(io.Discard, stream) // ends with ctx
	}()
	return nil
}

// cost makes one write for each number, a few at a time, and returns the processor time of the API server and etcd for each, in ms.
func (t *writeTest) cost(ctx context.Context, profile string, write func(i int) error) (float64, error) {
	before, err := t.used()
	if err != nil {
		return 0, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers + 1)
	if profile != "" {
		group.Go(func() error { return t.fetchProfile(groupCtx, profile) })
	}
	for i := range t.count {
		group.Go(func() error { return write(i) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	after, err := t.used()
	return (after - before).Seconds() * 1000 / float64(t.count), err
}

func (t *writeTest) used() (time.Duration, error) {
	server, err := cpuOf(t.apiServer)
	if err != nil {
		return 0, err
	}
	etcd, err := cpuOf(t.etcd)
	return server + etcd, err
}

// fetchProfile writes a profile of the API server's next seconds.
func (t *writeTest) fetchProfile(ctx context.Context, file string) error {
	data, err := t.rest.Get().AbsPath("/debug/pprof/profile").Param("seconds", "3").DoRaw(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
