package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/install/upstream"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// oldest is the oldest API server that Berth works with.
var oldest = utilversion.MustParseGeneric("1.30")

// looker reads a cluster into a report.
type looker struct {
	*cluster.Session
	*Report
	inputs
}

// look reads a cluster, and makes the plan of a takeover if asked to. What may not be read is a finding; any other failure ends it.
func look(ctx context.Context, s *cluster.Session, plan bool) (*Report, error) {
	l := &looker{Session: s, Report: &Report{Controllers: []string{}, Objects: map[string]int{}, Findings: []Finding{}}}
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
	if plan {
		l.Plan = l.plan()
	}
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

// controllers finds the controllers that run.
func (l *looker) controllers(ctx context.Context) (err error) {
	if l.deployments, err = upstream.Deployments(ctx, l); err != nil {
		return err
	}
	for i := range l.deployments {
		d := &l.deployments[i]
		images := make([]string, 0, 1)
		for i := range d.Spec.Template.Spec.Containers {
			images = append(images, d.Spec.Template.Spec.Containers[i].Image)
		}
		l.Controllers = append(l.Controllers, fmt.Sprintf("%s/%s (%s)", d.Namespace, d.Name, strings.Join(images, ", ")))
		switch {
		case d.Berth:
			l.add(Note, d.String(), "", "", "this is Berth already")
		case d.Wants():
			l.add(Blocks, d.String(), "spec.replicas", d.Stop()+", right before Berth starts", "the controller runs, and would work on the same objects")
		}
	}
	return nil
}

// leases finds controllers that have other names, or run outside of the cluster.
func (l *looker) leases(ctx context.Context) error {
	var err error
	if l.held, err = upstream.Leases(ctx, l, l.Now()); err != nil {
		return err
	}
	for i := range l.held {
		lease := &l.held[i]
		if !slices.ContainsFunc(l.deployments, func(d upstream.Deployment) bool { return d.Namespace == lease.Namespace }) {
			l.add(Blocks, lease.String(), "spec.holderIdentity", "stop it", "%s holds it, so a controller runs", lease.Holder())
		}
	}
	return nil
}

// configurations reads the files and feature gates with which the controllers run as Berth would.
func (l *looker) configurations(ctx context.Context) error {
	for i := range l.deployments {
		d := &l.deployments[i]
		if d.Berth {
			continue
		}
		gates := gatesOf(d)
		l.gates = append(l.gates, gates...)
		before := len(l.files)
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
		if len(l.files) == before {
			l.parse(d.String(), nil, gates)
		}
	}
	l.together()
	return nil
}

// gatesOf returns the feature gates on the command line of a controller, such as A=true.
func gatesOf(d *upstream.Deployment) (gates []string) {
	for _, c := range d.Spec.Template.Spec.Containers {
		args := slices.Concat(c.Command, c.Args)
		for i, arg := range args {
			name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if name != "feature-gates" {
				continue
			}
			if !joined && i+1 < len(args) {
				value = args[i+1]
			}
			for gate := range strings.SplitSeq(value, ",") {
				if gate = strings.Join(strings.Fields(gate), ""); gate != "" {
					gates = append(gates, gate)
				}
			}
		}
	}
	return gates
}

// ownNamespace is the namespace of Berth with the configuration that was read.
func (l *looker) ownNamespace() string { return cmp.Or(l.namespace, options.Default().Namespace) }

func (l *looker) configuration(m *corev1.ConfigMap, key string, gates []string) {
	text := m.Data[key]
	if !strings.Contains(text, "kind: Configuration") {
		return
	}
	f := file{m.Namespace, m.Name, key, text}
	if slices.Contains(l.files, f) {
		return
	}
	l.files = append(l.files, f)
	o, ok := l.parse(f.object(), []options.File{{Name: key, Data: []byte(text)}}, gates)
	if !ok {
		return
	}
	if strings.Contains(text, "config.kueue.x-k8s.io/") { // other documents have no namespace
		l.namespace = o.Namespace
		l.lease = types.NamespacedName{Namespace: o.LeaderElection.Namespace, Name: o.LeaderElection.Name}
	}
	for _, warning := range o.Warnings {
		l.add(Note, f.object(), key, "", "%s", warning)
	}
	for _, gate := range o.InertGates() {
		l.add(Note, f.object(), "featureGates."+gate, "", "the gate changes nothing in Berth")
	}
	l.add(Note, f.object(), key, f.save("FILE")+", for berth install --config FILE", "Berth runs with this file")
}

// parse reads files and gates as berth install would, which fails with what is wrong about them. It reports whether nothing is.
func (l *looker) parse(object string, files []options.File, gates []string) (options.Options, bool) {
	o, err := options.ParseFiles(files, strings.Join(gates, ","))
	wrong, _ := errors.AsType[*options.Error](err)
	if wrong == nil {
		return o, true
	}
	l.refused = true
	for _, p := range wrong.Problems {
		do := "change it in the file for berth install --config"
		if p.Source == feature.Flag {
			do = "change it in " + feature.Flag + " of berth install"
		}
		l.add(l.unfit(), object, p.Source, do, "%s", p.String())
	}
	return o, false
}

// unfit is how much it matters that Berth cannot run with a configuration. Berth's own Deployment is made with one that it runs with.
func (l *looker) unfit() Severity {
	if slices.ContainsFunc(l.deployments, func(d upstream.Deployment) bool { return d.Berth }) {
		return Differs
	}
	return Blocks
}

// together checks the files and gates of all controllers as the one configuration that they are for Berth.
func (l *looker) together() {
	if l.refused || len(l.files) == 0 {
		return
	}
	files, objects := make([]options.File, len(l.files)), make([]string, len(l.files))
	for i := range l.files {
		files[i], objects[i] = options.File{Name: fileName(i), Data: []byte(l.files[i].text)}, l.files[i].object()
	}
	all := strings.Join(objects, ", ")
	if o, ok := l.parse(all, files, l.gates); ok && !o.Certs.Internal {
		l.add(l.unfit(), all, "internalCertManagement", "take it out of the file for berth install --config, or install with the chart and enableCertManager, "+
			"or with config/certmanager", "the webhooks get no certificate from Berth, and none is in the pod of berth install: the manager would not start")
	}
}

// webhooks finds the webhook configurations of other controllers. Installing Berth replaces the ones with the names of its own.
func (l *looker) webhooks(ctx context.Context) error {
	groups, err := install.ParseGroups("")
	if err != nil {
		return err
	}
	replaced, err := upstream.Replaced(install.Options{Options: options.Default(), Groups: groups})
	if err != nil {
		return err
	}
	all, err := upstream.Configurations(ctx, l, l.deployments, upstream.Groups())
	if err != nil {
		return err
	}
	for i := range all {
		c := &all[i]
		if replaced[c.String()] {
			l.add(Note, c.String(), "", "", "installing takes its place")
		} else {
			l.hooks = append(l.hooks, *c)
			l.add(Blocks, c.String(), "", c.Delete()+", when its controller is stopped",
				"%s would go on to call a controller that is stopped, and so refuse writes", c.Webhooks())
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
