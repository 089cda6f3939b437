package worker

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const reviewAgain = time.Minute

const patchVerb = "patch"

// reviewAccess asks the worker cluster whether the credentials may create and delete jobs of every kind, which watches do not show, until
// they may, and again when a kind becomes available. Denied kinds count as not served, see keepAway. A cluster that does not answer reviews counts as
// allowing everything (spec: 40 §4.2, §4.12).
func (c *Connection) reviewAccess() {
	for {
		var again <-chan time.Time
		for gvk, s := range c.stores {
			if gvk == WorkloadKind || s.queues || c.Lack(gvk) != "" && len(c.deniedOf(gvk)) == 0 {
				continue
			}
			denied := c.denies(gvk)
			if len(denied) > 0 {
				again = time.After(reviewAgain)
			}
			c.setDenied(gvk, denied)
		}
		select {
		case <-c.ctx.Done():
			return
		case <-again:
		case <-c.appeared:
		}
	}
}

func (c *Connection) denies(gvk schema.GroupVersionKind) []string {
	d := c.fleet.Kinds[gvk]
	if d == nil || d.Remote == nil { // a child of jobs: read only
		return nil
	}
	verbs := []string{"create", "delete"}
	if f := c.fleet.Plan.External[gvk]; f != nil && len(f.SpecPaths) > 0 || d.Remote.Follow != nil {
		verbs = append(verbs, patchVerb)
	}
	var out []string
	for _, verb := range verbs {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: gvk.Group, Version: gvk.Version, Resource: d.Resource, Verb: verb},
		}}
		ctx, done := context.WithTimeout(c.ctx, callTimeout)
		err := c.client.Create(ctx, review)
		done()
		if err == nil && !review.Status.Allowed {
			out = append(out, verb)
		}
	}
	return out
}

func (c *Connection) deniedOf(gvk schema.GroupVersionKind) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.denied[gvk]
}

// MayPatch reports whether the credentials may patch jobs of a kind there, as far as that was reviewed.
func (c *Connection) MayPatch(gvk schema.GroupVersionKind) bool {
	return !slices.Contains(c.deniedOf(gvk), patchVerb)
}

func (c *Connection) setDenied(gvk schema.GroupVersionKind, verbs []string) {
	c.mu.Lock()
	was := c.denied[gvk]
	c.denied[gvk] = verbs
	c.mu.Unlock()
	if !slices.Equal(was, verbs) {
		c.fleet.requeue(c.name)
		c.fleet.ClusterChanged(c.ctx, c.name, false)
	}
}

var reviewKind = authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")

// keepAway reports whether denied verbs keep jobs of a kind from the cluster. A job whose changes cannot be forwarded runs all the same: the
// documented credential of a worker may not patch RayServices (spec: 40 §4.2, §4.12).
func (f *Fleet) keepAway(gvk schema.GroupVersionKind, verbs []string) bool {
	d := f.Kinds[gvk]
	follows := d != nil && d.Remote != nil && d.Remote.Follow != nil
	return slices.ContainsFunc(verbs, func(verb string) bool { return verb != patchVerb || !follows })
}

const reasonAvailable = "Available"

// frameworks is the condition FrameworksAvailable.
func (c *Connection) frameworks() metav1.Condition {
	c.mu.Lock()
	lacks, denied := maps.Clone(c.lacks), maps.Clone(c.denied)
	c.mu.Unlock()
	var away, frozen []string
	for gvk, verbs := range denied {
		switch text := gvk.Kind + " (no permission to " + strings.Join(verbs, " or ") + ")"; {
		case len(verbs) == 0 || lacks[gvk] != "":
		case c.fleet.keepAway(gvk, verbs):
			away = append(away, text)
		default:
			frozen = append(frozen, text)
		}
	}
	out := metav1.Condition{Type: kueue.MultiKueueClusterFrameworksAvailable, Status: metav1.ConditionTrue, Reason: reasonAvailable, Message: "Every kind of jobs can be sent there"}
	reason := kueue.ReasonForbidden
	for gvk, why := range lacks {
		if c.stores[gvk].queues {
			continue // no jobs
		}
		away = append(away, gvk.Kind)
		if why == kueue.ReasonMissingCRD {
			reason = why
		}
	}
	var texts []string
	for _, list := range []struct {
		text  string
		kinds []string
	}{{"These kinds of jobs cannot be sent there: ", away}, {"Changes of these kinds of jobs cannot be forwarded there: ", frozen}} {
		if slices.Sort(list.kinds); len(list.kinds) > 0 {
			texts = append(texts, list.text+strings.Join(list.kinds, ", "))
		}
	}
	if len(texts) > 0 {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, reason, strings.Join(texts, "; ")
	}
	return out
}
