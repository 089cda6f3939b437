package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Configuration is a webhook configuration that belongs to another controller.
type Configuration struct {
	Kind, Name string
	hooks      []hook // of the other controller
}

// hook is the part of a webhook that decides whose it is, and whether it refuses writes.
type hook struct {
	name   string
	client *admissionv1.WebhookClientConfig
	rules  []admissionv1.RuleWithOperations
	policy *admissionv1.FailurePolicyType
}

// String returns the object as Kind/name.
func (c *Configuration) String() string { return c.Kind + "/" + c.Name }

// Webhooks returns the names of the webhooks in it that belong to the other controller.
func (c *Configuration) Webhooks() string {
	names := make([]string, 0, len(c.hooks))
	for i := range c.hooks {
		names = append(names, c.hooks[i].name)
	}
	return strings.Join(names, ", ")
}

// Delete returns the command that deletes the configuration.
func (c *Configuration) Delete() string {
	return fmt.Sprintf("kubectl delete %s %s", strings.ToLower(c.Kind), c.Name)
}

// Configurations returns the webhook configurations that belong to other controllers of some API groups, given all Deployments of
// controllers of these.
func Configurations(ctx context.Context, c client.Reader, deployments []Deployment, groups []string) ([]Configuration, error) {
	var mutating admissionv1.MutatingWebhookConfigurationList
	var validating admissionv1.ValidatingWebhookConfigurationList
	if err := c.List(ctx, &mutating); err != nil {
		return nil, err
	}
	if err := c.List(ctx, &validating); err != nil {
		return nil, err
	}
	var out []Configuration
	add := func(kind, name string, hooks []hook) {
		hooks = slices.DeleteFunc(hooks, func(h hook) bool { return !h.belongsToOther(deployments, groups) })
		if len(hooks) > 0 {
			out = append(out, Configuration{kind, name, hooks})
		}
	}
	for i := range mutating.Items {
		m := &mutating.Items[i]
		var hooks []hook
		for j := range m.Webhooks {
			w := &m.Webhooks[j]
			hooks = append(hooks, hook{w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy})
		}
		add("MutatingWebhookConfiguration", m.Name, hooks)
	}
	for i := range validating.Items {
		v := &validating.Items[i]
		var hooks []hook
		for j := range v.Webhooks {
			w := &v.Webhooks[j]
			hooks = append(hooks, hook{w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy})
		}
		add("ValidatingWebhookConfiguration", v.Name, hooks)
	}
	return out, nil
}

// belongsToOther reports whether a webhook belongs to another controller: it calls a Service in the namespace of one, or it is about objects
// of the API groups and does not call Berth.
func (h *hook) belongsToOther(deployments []Deployment, groups []string) bool {
	if s := h.client.Service; s != nil {
		if slices.ContainsFunc(deployments, func(d Deployment) bool { return d.Berth && d.Namespace == s.Namespace }) {
			return false
		}
		if slices.ContainsFunc(deployments, func(d Deployment) bool { return d.Namespace == s.Namespace }) {
			return true
		}
	}
	return slices.ContainsFunc(h.rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.ContainsFunc(r.APIGroups, func(group string) bool { return slices.Contains(groups, group) })
	})
}

// refusesWrites reports whether a webhook of the configuration refuses all writes that it is asked about: its failure policy is Fail, and no
// pod answers at its Service.
func (c *Configuration) refusesWrites(ctx context.Context, reader client.Reader) (bool, error) {
	for i := range c.hooks {
		h := &c.hooks[i]
		if h.client.Service == nil || (h.policy != nil && *h.policy == admissionv1.Ignore) {
			continue
		}
		var list discoveryv1.EndpointSliceList
		err := reader.List(ctx, &list, client.InNamespace(h.client.Service.Namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: h.client.Service.Name})
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(list.Items, answers) {
			return true, nil
		}
	}
	return false, nil
}

// answers reports whether a pod of the slice is ready, which nil is as well.
func answers(s discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready })
}
