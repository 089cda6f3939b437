package worker

import (
	"context"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const reviewAgain = time.Minute

// reviewAccess asks the worker cluster whether the credentials may create and delete jobs of every kind, which watches do not show, until
// they may, and again when a kind becomes available. Denied kinds count as not served. A cluster that does not answer reviews counts as
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
		verbs = append(verbs, "patch")
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

func forbiddenText(kind string, verbs []string) string {
	return kind + " (no permission to " + strings.Join(verbs, " or ") + ")"
}
