package install

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/admission/conversion"
	"github.com/berth-project/berth/internal/job/kind/all"
	jobwebhook "github.com/berth-project/berth/internal/job/webhook"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/visibility"
)

// Options configure the manager's address and its groups.
type Options struct {
	// WebhookURL is the base URL of the webhooks; "" is the Service of the manager's namespace.
	WebhookURL string
	// CABundle is the authority of the serving certificate, in PEM. Empty keeps the present one: the manager fills it in when it starts.
	CABundle []byte
	// VisibilityCABundle is the same for the visibility API.
	VisibilityCABundle []byte
	// Namespace of the manager; "" is the one of Options.
	Namespace string
	Options   options.Options
	Groups    Groups
	// OnlyV1beta2 has the API server not serve v1beta1 of the queueing API, which then costs nothing.
	OnlyV1beta2 bool
	// Deploy, if not nil, runs the manager in the cluster.
	Deploy *Deploy
}

func (o *Options) namespace() string { return cmp.Or(o.Namespace, o.Options.Namespace) }

// service returns the name of the webhooks' Service. External issuers of certificates know it by the usual name.
func (o *Options) service() string {
	return cmp.Or(o.Options.Certs.Service, "kueue-webhook-service")
}

// conversionClient tells the API server how to call the webhook that converts between the versions of an object.
func (o *Options) conversionClient() apiextensionsv1.WebhookClientConfig {
	c := apiextensionsv1.WebhookClientConfig{CABundle: o.CABundle}
	if o.WebhookURL != "" {
		c.URL = new(strings.TrimSuffix(o.WebhookURL, "/") + conversion.Path)
	} else {
		c.Service = &apiextensionsv1.ServiceReference{
			Namespace: o.namespace(), Name: o.service(), Path: new(conversion.Path), Port: new(int32(443)),
		}
	}
	return c
}

// Manifests returns all objects to install, in the order of their application: the namespace, CRDs, RBAC, the Services of a manager in
// the cluster, roles for people, the objects of training, the visibility API, the manager itself, webhook configurations and the policy
// about queue labels. The name of the webhooks' Service, less "-webhook-service", is the prefix of their names (spec: 70 §4.4).
func Manifests(o Options) ([]*unstructured.Unstructured, error) {
	out, err := manifests(&o)
	if err != nil {
		return nil, err
	}
	for _, u := range out {
		rename(u, PrefixOf(o.service()))
	}
	return out, nil
}

func manifests(o *Options) ([]*unstructured.Unstructured, error) {
	namespace := &corev1.Namespace{}
	namespace.APIVersion, namespace.Kind, namespace.Name = "v1", "Namespace", o.namespace()
	out, err := toUnstructured(nil, namespace)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"crd", "rbac"} {
		objects, err := load(dir)
		if err != nil {
			return nil, err
		}
		objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return leftOut(u, o.Groups) })
		for _, u := range objects {
			rehome(u, o.namespace())
			if err := conversion.Configure(u, o.conversionClient(), !o.OnlyV1beta2, o.Groups.Has(Webhooks)); err != nil {
				return nil, fmt.Errorf("CRD %s: %w", u.GetName(), err)
			}
		}
		out = append(out, objects...)
	}
	if o.WebhookURL == "" {
		if out, err = toUnstructured(out, services(o)...); err != nil {
			return nil, err
		}
	}
	for _, more := range []func(*Options) ([]*unstructured.Unstructured, error){managerRights, fence, userRoles, kindAccess, trainingObjects, visibilityObjects, deployment} {
		objects, err := more(o)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	if !o.Groups.Has(Webhooks) {
		return out, nil
	}
	configurations, err := toUnstructured(nil, webhookConfigurations(o)...)
	for _, u := range configurations {
		everyScope(u)
	}
	return append(out, configurations...), err
}

// everyScope sets the scope of webhook rules to the API server's default: otherwise two appliers of the same rules would see a
// difference.
func everyScope(u *unstructured.Unstructured) {
	hooks, _ := u.Object["webhooks"].([]any)
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		rules, _ := hook["rules"].([]any)
		for _, r := range rules {
			if rule, ok := r.(map[string]any); ok && rule["scope"] == nil {
				rule["scope"] = "*"
			}
		}
	}
}

// webhookConfigurations returns the configurations of all groups that run, and the policy that warns of ignored queue labels.
func webhookConfigurations(o *Options) []runtime.Object {
	target := admission.Target{URL: o.WebhookURL, Service: o.service(), Namespace: o.namespace(), CABundle: o.CABundle}
	hooks := WebhookOptions(&o.Options, o.Groups)
	mutating, validating := admission.Configurations(target, hooks)
	out := []runtime.Object{mutating, validating}
	if o.Groups.Has(Integrations) {
		policy, binding := jobwebhook.QueueLabelPolicy(&hooks.Options)
		out = append(out, policy, binding)
	}
	if o.Groups.Has(JobSet) {
		mutating, validating = admission.JobSetConfigurations(target)
		out = append(out, mutating, validating)
	}
	if o.Groups.Has(Training) {
		mutating, validating = admission.TrainingConfigurations(target)
		out = append(out, mutating, validating)
	}
	return out
}

// WebhookOptions returns the options of the webhooks of queues and jobs.
func WebhookOptions(o *options.Options, groups Groups) admission.Options {
	out := admission.NewOptions(o, all.DescriptorsWith(o))
	out.Training = groups.Has(Training)
	return out
}

// leftOut reports whether an object belongs to a group that another controller handles, whose object of that name must not change.
func leftOut(u *unstructured.Unstructured, groups Groups) bool {
	if u.GetKind() != "CustomResourceDefinition" {
		return false
	}
	of := func(group string) bool { return strings.HasSuffix(u.GetName(), "."+group) }
	return (of(jobsetv1alpha2.GroupVersion.Group) && !groups.Has(JobSet)) || (of(trainerv1alpha1.GroupVersion.Group) && !groups.Has(Training))
}

// CrdNames returns the names of the CRDs of the groups that run. It derives them from the file names, without reading schemas.
func CrdNames(groups Groups) ([]string, error) {
	files, err := fs.Glob(config.FS, "crd/*_*.yaml")
	if err != nil {
		return nil, err
	}
	runs := map[string]bool{
		kueue.GroupVersion.Group: groups.Has(Queues), jobsetv1alpha2.GroupVersion.Group: groups.Has(JobSet), trainerv1alpha1.GroupVersion.Group: groups.Has(Training),
	}
	var out []string
	for _, file := range files {
		group, plural, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".yaml"), "_")
		if runs[group] {
			out = append(out, plural+"."+group)
		}
	}
	return out, nil
}

// load reads the manifests of one folder, in the order of their names.
func load(dir string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	err := fs.WalkDir(config.FS, dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != dir {
			return fs.SkipDir // subfolders are for optional manual use
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		data, err := fs.ReadFile(config.FS, path)
		if err != nil {
			return err
		}
		docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			u := &unstructured.Unstructured{}
			if err := docs.Decode(u); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("manifest %s: %w", path, err)
			}
			if len(u.Object) > 0 {
				out = append(out, u)
			}
		}
	})
	return out, err
}

// defaultPrefix begins the names of installed objects; JobSets and TrainJobs have other names.
const defaultPrefix = "kueue"

// PrefixOf returns the prefix of all names that the name of the webhooks' Service implies.
func PrefixOf(service string) string {
	prefix, ok := strings.CutSuffix(service, "-webhook-service")
	if !ok || prefix == "" {
		return defaultPrefix
	}
	return prefix
}

// Prefixed returns a name with another prefix.
func Prefixed(name, prefix string) string {
	if rest, ok := strings.CutPrefix(name, defaultPrefix+"-"); ok {
		return prefix + "-" + rest
	}
	return name
}

// rename changes the prefix in the name of an object and in its references.
func rename(u *unstructured.Unstructured, prefix string) {
	if prefix == defaultPrefix || u.GetKind() == "Namespace" {
		return
	}
	u.SetName(Prefixed(u.GetName(), prefix))
	for _, path := range [][]string{
		{"roleRef", "name"},
		{"spec", "service", "name"},
		{"spec", "template", "spec", "serviceAccountName"},
		{"spec", "template", "spec", "priorityClassName"},
		{"spec", "policyName"},
	} {
		if name, found, _ := unstructured.NestedString(u.Object, path...); found {
			_ = unstructured.SetNestedField(u.Object, Prefixed(name, prefix), path...) // its parent was found
		}
	}
	for _, path := range [][]string{{"subjects"}, {"spec", "template", "spec", "volumes"}} {
		entries, _, _ := unstructured.NestedSlice(u.Object, path...)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			if volume, ok := entry["configMap"].(map[string]any); ok {
				entry = volume
			}
			if name, ok := entry["name"].(string); ok {
				entry["name"] = Prefixed(name, prefix)
			}
		}
		if len(entries) > 0 {
			_ = unstructured.SetNestedSlice(u.Object, entries, path...) // the same place
		}
	}
}

// rehome moves an object and its subjects from the default namespace to another one.
func rehome(u *unstructured.Unstructured, namespace string) {
	if u.GetNamespace() != "" {
		u.SetNamespace(namespace)
	}
	subjects, found, err := unstructured.NestedSlice(u.Object, "subjects")
	if !found || err != nil {
		return
	}
	for _, s := range subjects {
		if subject, ok := s.(map[string]any); ok && subject["namespace"] != nil {
			subject["namespace"] = namespace
		}
	}
	u.Object["subjects"] = subjects
}

func toUnstructured(to []*unstructured.Unstructured, objects ...runtime.Object) ([]*unstructured.Unstructured, error) {
	for _, o := range objects {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, err
		}
		delete(m, "status")
		unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
		to = append(to, &unstructured.Unstructured{Object: m})
	}
	return to, nil
}

// trainingObjects returns the shipped runtimes and the objects that clients of training look for. Runtimes are applied without the
// webhook, which may not answer yet (spec: 50 §2.5, §4.11).
func trainingObjects(o *Options) ([]*unstructured.Unstructured, error) {
	if !o.Groups.Has(Training) {
		return nil, nil
	}
	public, err := load("training")
	if err != nil {
		return nil, err
	}
	runtimes, err := load("runtimes")
	return append(public, runtimes...), err
}

// ServesVisibility reports whether the visibility API is to be served.
func ServesVisibility(o *options.Options) bool {
	return o.Gates.On(feature.VisibilityOnDemand) && o.VisibilityAddress != "0"
}

// visibilityObjects registers the visibility API, which has the same host as the webhooks. spec: 70 §4.6.
func visibilityObjects(o *Options) ([]*unstructured.Unstructured, error) {
	if !ServesVisibility(&o.Options) {
		return nil, nil
	}
	_, text, err := net.SplitHostPort(o.Options.VisibilityAddress)
	if err != nil {
		return nil, fmt.Errorf("the address of the visibility API: %w", err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("the port of the visibility API: %w", err)
	}
	target := visibility.Target{Namespace: o.namespace(), Port: int32(port), CABundle: o.VisibilityCABundle}
	if o.WebhookURL != "" {
		u, err := url.Parse(o.WebhookURL)
		if err != nil {
			return nil, fmt.Errorf("webhook URL %q: %w", o.WebhookURL, err)
		}
		target.Host = u.Hostname()
	}
	return visibility.Objects(target)
}
