package preflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// groups are the APIs that Berth serves.
var groups = []string{kueue.GroupVersion.Group, jobsetv1alpha2.GroupVersion.Group, trainerv1alpha1.GroupVersion.Group}

// oldest is the oldest API server that Berth works with.
var oldest = utilversion.MustParseGeneric("1.30")

// deployments are the usual names of the controllers, of which a release of Helm may put its own before.
var deployments = []string{"kueue-controller-manager", "jobset-controller-manager", "kubeflow-trainer-controller-manager", "trainer-controller-manager"}

// leases are the names of the controllers' Leases. spec: 70 §2.
var leases = []string{"c1f6bfd2.kueue.x-k8s.io", "6d4f6a47.jobset.x-k8s.io", "trainer.kubeflow.org"}

// looker reads a cluster into a report.
type looker struct {
	*cluster.Session
	*Report
	// others are the Deployments of other controllers, and ours the namespaces in which Berth runs.
	others []appsv1.Deployment
	ours   map[string]bool
}

// look reads a cluster. What may not be read is a finding; any other failure ends it.
func look(ctx context.Context, s *cluster.Session) (*Report, error) {
	l := &looker{Session: s, Report: &Report{Controllers: []string{}, Objects: map[string]int{}, Findings: []Finding{}}, ours: map[string]bool{}}
	for _, part := range []struct {
		what string
		read func(context.Context) error
	}{
		{"the API server", l.server},
		{"Deployments", l.controllers},
		{"Leases", l.leases},
		{"ConfigMaps", l.configurations},
		{"webhook configurations", l.webhooks},
		{"CustomResourceDefinitions", l.definitions},
	} {
		if err := l.mayRead(part.what, part.read(ctx)); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(l.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	return l.Report, nil
}

// mayRead turns a refusal into a finding.
func (l *looker) mayRead(what string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	l.add(Differs, what, "", "ask for a role that may read "+what, "unknown: you may not read them")
	return nil
}

func (l *looker) server(context.Context) error {
	d, err := l.Discovery()
	if err != nil {
		return err
	}
	info, err := d.ServerVersion()
	if err != nil {
		return err
	}
	is, err := utilversion.ParseGeneric(info.GitVersion)
	if err != nil {
		return fmt.Errorf("the version of the API server, %q: %w", info.GitVersion, err)
	}
	if is.LessThan(oldest) {
		l.add(Blocks, "the API server", "", "upgrade Kubernetes", "it is %s, and Berth needs %s", info.GitVersion, oldest)
	}
	return nil
}

// controllers finds what runs.
func (l *looker) controllers(ctx context.Context) error {
	var list appsv1.DeploymentList
	if err := l.Pages(ctx, &list, &client.ListOptions{}); err != nil {
		return err
	}
	for i := range list.Items {
		d := &list.Items[i]
		if !slices.ContainsFunc(deployments, func(name string) bool { return d.Name == name || strings.HasSuffix(d.Name, "-"+name) }) {
			continue
		}
		images := make([]string, 0, 1)
		isOurs := false
		for i := range d.Spec.Template.Spec.Containers {
			c := &d.Spec.Template.Spec.Containers[i]
			images = append(images, c.Image)
			isOurs = isOurs || (len(c.Args) > 0 && c.Args[0] == "manager") // see config/manager
		}
		name := d.Namespace + "/" + d.Name
		l.Controllers = append(l.Controllers, fmt.Sprintf("%s (%s)", name, strings.Join(images, ", ")))
		if isOurs {
			l.ours[d.Namespace] = true
			l.add(Note, "Deployment/"+name, "", "", "this is Berth already")
			continue
		}
		l.others = append(l.others, *d)
		if d.Spec.Replicas == nil || *d.Spec.Replicas > 0 {
			l.add(Blocks, "Deployment/"+name, "spec.replicas", fmt.Sprintf("kubectl scale -n %s deployment/%s --replicas=0, right before Berth starts", d.Namespace, d.Name),
				"the controller runs, and would work on the same objects")
		}
	}
	return nil
}

// leases finds controllers that have other names, or run outside of the cluster.
func (l *looker) leases(ctx context.Context) error {
	for _, name := range leases {
		var list coordinationv1.LeaseList
		if err := l.List(ctx, &list, client.MatchingFields{"metadata.name": name}); err != nil {
			return err
		}
		for i := range list.Items {
			l.lease(&list.Items[i])
		}
	}
	return nil
}

func (l *looker) lease(lease *coordinationv1.Lease) {
	s := &lease.Spec
	known := slices.ContainsFunc(l.others, func(d appsv1.Deployment) bool { return d.Namespace == lease.Namespace })
	if known || l.ours[lease.Namespace] || s.HolderIdentity == nil || *s.HolderIdentity == "" || strings.HasPrefix(*s.HolderIdentity, "berth/") ||
		s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return
	}
	if age := l.Now().Sub(s.RenewTime.Time); age.Seconds() < float64(*s.LeaseDurationSeconds) {
		l.add(Blocks, "Lease/"+lease.Namespace+"/"+lease.Name, "spec.holderIdentity", "stop it", "%s holds it, so a controller runs", *s.HolderIdentity)
	}
}

// configurations reads the files with which the controllers run as Berth would.
func (l *looker) configurations(ctx context.Context) error {
	for i := range l.others {
		d := &l.others[i]
		gates := ""
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, arg := range c.Args {
				if value, is := strings.CutPrefix(arg, "--feature-gates="); is {
					gates = value
				}
			}
		}
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			var m corev1.ConfigMap
			err := l.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: v.ConfigMap.Name}, &m)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			for _, key := range slices.Sorted(maps.Keys(m.Data)) {
				l.configuration(&m, key, gates)
			}
		}
	}
	return nil
}

func (l *looker) configuration(m *corev1.ConfigMap, key, gates string) {
	text := m.Data[key]
	if !strings.Contains(text, "kind: Configuration") {
		return
	}
	object := "ConfigMap/" + m.Namespace + "/" + m.Name
	o, err := options.Parse(key, []byte(text), gates)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			l.add(Differs, object, key, "change it in the file for berth install --config", "%s", line)
		}
		return
	}
	for _, warning := range o.Warnings {
		l.add(Note, object, key, "", "%s", warning)
	}
	for _, gate := range o.InertGates() {
		l.add(Note, object, "featureGates."+gate, "", "the gate changes nothing in Berth")
	}
	l.add(Note, object, key, fmt.Sprintf("kubectl get -n %s configmap %s -o jsonpath='{.data.%s}' > FILE, for berth install --config FILE", m.Namespace, m.Name,
		strings.ReplaceAll(key, ".", `\.`)), "Berth runs with this file")
}

// hook is what matters of a webhook.
type hook struct {
	name   string
	client *admissionv1.WebhookClientConfig
	rules  []admissionv1.RuleWithOperations
}

// webhooks finds the webhook configurations of other controllers. Installing Berth replaces the ones with the names of its own.
func (l *looker) webhooks(ctx context.Context) error {
	taken, err := taken()
	if err != nil {
		return err
	}
	var mutating admissionv1.MutatingWebhookConfigurationList
	var validating admissionv1.ValidatingWebhookConfigurationList
	if err := l.List(ctx, &mutating); err != nil {
		return err
	}
	if err := l.List(ctx, &validating); err != nil {
		return err
	}
	for i := range mutating.Items {
		m := &mutating.Items[i]
		var hooks []hook
		for j := range m.Webhooks {
			w := &m.Webhooks[j]
			hooks = append(hooks, hook{w.Name, &w.ClientConfig, w.Rules})
		}
		l.webhook("MutatingWebhookConfiguration/"+m.Name, hooks, taken)
	}
	for i := range validating.Items {
		v := &validating.Items[i]
		var hooks []hook
		for j := range v.Webhooks {
			w := &v.Webhooks[j]
			hooks = append(hooks, hook{w.Name, &w.ClientConfig, w.Rules})
		}
		l.webhook("ValidatingWebhookConfiguration/"+v.Name, hooks, taken)
	}
	return nil
}

// taken are the objects that installing Berth makes or replaces, as Kind/name.
func taken() (map[string]bool, error) {
	o := options.Default()
	all, err := install.ParseGroups("")
	if err != nil {
		return nil, err
	}
	objects, err := install.Manifests(install.Options{Options: o, Groups: all})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, u := range objects {
		out[u.GetKind()+"/"+u.GetName()] = true
	}
	return out, nil
}

func (l *looker) webhook(object string, hooks []hook, taken map[string]bool) {
	var theirs []string
	for _, h := range hooks {
		if l.isTheirs(&h) {
			theirs = append(theirs, h.name)
		}
	}
	switch {
	case len(theirs) == 0:
	case taken[object]:
		l.add(Note, object, "", "", "installing takes its place")
	default:
		kind, name, _ := strings.Cut(object, "/")
		l.add(Blocks, object, "", fmt.Sprintf("kubectl delete %s %s, when its controller is stopped", strings.ToLower(kind), name),
			"%s would go on to call a controller that is stopped, and so refuse writes", strings.Join(theirs, ", "))
	}
}

// isTheirs reports whether a webhook belongs to another controller: it calls a Service in the namespace of one, or it is about objects of
// our groups and does not call Berth.
func (l *looker) isTheirs(h *hook) bool {
	if s := h.client.Service; s != nil {
		if l.ours[s.Namespace] {
			return false
		}
		if slices.ContainsFunc(l.others, func(d appsv1.Deployment) bool { return d.Namespace == s.Namespace }) {
			return true
		}
	}
	return slices.ContainsFunc(h.rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.ContainsFunc(r.APIGroups, func(group string) bool { return slices.Contains(groups, group) })
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
