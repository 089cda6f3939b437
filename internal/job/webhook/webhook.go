// Package webhook is the one webhook of all job kinds, and the policy that warns of queue labels without effect.
//
//	jobs ─► the hard gate ─► defaults, or rules of all kinds + the kind's own
//
// spec: 30 §3
package webhook

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/review"
)

// Options configure the webhooks of jobs.
type Options struct {
	// Jobs is the configuration of jobs. Descriptors are all known kinds; the enabled ones get webhooks.
	Jobs        *job.Config
	Descriptors []*job.Descriptor
	// Namespaces selects the managed namespaces, for webhook configurations. It must match as Jobs.ManagedNamespaces does.
	Namespaces metav1.LabelSelector
	// LabelledOnly restricts the webhooks of pods, Deployments and StatefulSets to objects with a queue mark. Unmarked ones get no
	// default queue.
	LabelledOnly bool
	// Gated is the cache of what depends on jobs with gated children, if this process has one. Nil: the API server is read.
	Gated *lookup.Source
	// Self is the user name of the manager, whose suspensions are not user stops, and which takes gates off pods. Empty: others may, too.
	Self string
}

// server answers the webhooks.
type server struct {
	o      *Options
	gate   *lookup.Gate
	reader client.Reader
	cache  client.Reader // also of kinds without Go types
	live   client.Reader // on the webhooks' own budget
	// descriptors are the enabled kinds of jobs.
	descriptors []*job.Descriptor
}

// Webhooks returns the webhooks of the enabled kinds, in the order of their descriptors. r is nil if they are not served, as for a
// webhook configuration.
func Webhooks(o *Options, r *review.Readers) []review.Webhook {
	s := &server{o: o}
	s.descriptors = slices.DeleteFunc(slices.Clone(o.Descriptors), func(d *job.Descriptor) bool { return !o.Jobs.Kinds[d.GVK] })
	if r != nil {
		s.reader, s.cache, s.live = r.Client, r.Cache, r.Live
		s.gate = lookup.NewGate(o.Jobs, o.Descriptors, r.Cache, r.Live)
	}
	var out []review.Webhook
	for _, d := range s.descriptors {
		out = append(append(out, s.ofKind(d)...), s.ofChildPods(d)...)
	}
	return out
}

// ofKind returns the two webhooks of a kind.
func (s *server) ofKind(d *job.Descriptor) []review.Webhook {
	when := marked(s.o, d)
	h := review.Webhook{
		GVK: d.GVK, Resources: []string{d.Resource}, New: func() client.Object { return d.New() },
		Namespaces: s.o.Namespaces.DeepCopy(), When: review.OnlyIf(when),
	}
	kind := strings.ToLower(d.GVK.Kind)
	if d.Declared != nil { // its name may not be unique
		kind += "." + d.GVK.Group
	}
	mutating, validating := h, h
	mutating.Name, validating.Name = review.NewName(kind, true), review.NewName(kind, false)
	mutating.Defaults, mutating.Updates = s.defaultJob(d), d.Serving || hasUserStop(s.o, d) || d.Guard != nil
	mutating.Open = when != "" && !(s.o.LabelledOnly && slices.Contains(builtIn, d.GVK.Group))
	validating.Validate, validating.Updates = s.validateJob(d), true
	validating.Warn = func(o client.Object) []string { return review.WarnElastic(o, s.o.Jobs) }
	return []review.Webhook{mutating, validating}
}

// builtIn are the groups of kinds that Kubernetes itself creates frequently.
var builtIn = []string{corev1.GroupName, appsv1.GroupName}

// marked is the match condition of the webhooks of an open kind: true for objects with a queue mark, on themselves or on a pod
// template, now or before an update, and for pods that had a gate before it. It is empty where unmarked objects matter too: with ManageAll, and where users may stop jobs.
func marked(o *Options, d *job.Descriptor) string {
	if d.Open == nil || o.Jobs.ManageAll || hasUserStop(o, d) {
		return ""
	}
	places := []string{"?metadata"}
	for _, path := range d.Open.Templates {
		places = append(places, "?"+strings.ReplaceAll(path, ".", ".?")+".?metadata")
	}
	in := func(object string) string {
		var out []string
		for _, place := range places {
			for _, names := range []string{"labels", "annotations"} {
				out = append(out, object+"."+place+".?"+names+".orValue({}).exists(k, "+ourKey+")")
			}
		}
		return strings.Join(out, " ||\n")
	}
	before := in("oldObject")
	if d.Once != nil { // a user may take the marks off a pod first, and then its gates
		before += " ||\noldObject.?spec.?schedulingGates.orValue([]).exists(g, g.name.startsWith('kueue.x-k8s.io/'))"
	}
	return in("object") + " ||\noldObject != null && (" + before + ")"
}

// ourKey matches the key of a label or an annotation for a queue.
const ourKey = `k.startsWith('kueue.x-k8s.io/')`
