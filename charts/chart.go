package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/webhook"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

const chartDir = "charts/berth/templates"

// Placeholders for the chart's values in the objects, which do not occur otherwise.
const (
	aPrefix     = "berth-chart-prefix"
	aNamespace  = "berth-chart-namespace"
	aLabel      = "berth-chart-labels"
	aAnnotation = "berth-chart-annotations"
	aSelector   = "berth-chart-selector"
	aPolicy     = "berth-chart-policy-"
	aManaged    = "berth-chart-managed"
	aKinds      = "berth-chart-kinds"
	aLease      = "berth-chart-lease"
	aJobSets    = "berth-chart-jobsets"
	aHome       = "berth-chart-home"
	aServed     = "berth-chart-served"
	webhookPort = 29443
	visiblePort = 28082
)

// placeholders replaces placeholders by template expressions. A placeholder comes before its own prefixes.
var placeholders = strings.NewReplacer(
	aPrefix+"-webhook-server-cert", `{{ include "berth.webhookSecret" . }}`,
	aServed, `{{ .Values.crds.v1beta1 }}`,
	aLease, `{{ dig "leaderElection" "resourceName" "c1f6bfd2.kueue.x-k8s.io" (include "berth.config" . | fromYaml) }}`,
	aJobSets, `{{ include "berth.leaseOfJobSets" . }}`,
	aHome, `{{ dig "leaderElection" "resourceNamespace" "" (include "berth.config" . | fromYaml) | default .Release.Namespace }}`,
	aPrefix+"-webhook-service", `{{ include "berth.webhookService" . }}`,
	aPrefix, `{{ include "berth.fullname" . }}`,
	aNamespace, `{{ .Release.Namespace }}`,
	"    "+aLabel+`: ""`, `    {{- include "berth.labels" . | nindent 4 }}`,
	"  annotations:\n    "+aAnnotation+": crd\n", "  {{- include \"berth.crdAnnotations\" (list . false) | nindent 2 }}\n",
	"  annotations:\n    "+aAnnotation+": converted\n", "  {{- include \"berth.crdAnnotations\" (list . true) | nindent 2 }}\n",
	"  annotations:\n    "+aAnnotation+": webhook\n", "  {{- include \"berth.injectCA\" (list . \"webhook\") | nindent 2 }}\n",
	"  annotations:\n    "+aAnnotation+": visibility\n", "  {{- include \"berth.injectCA\" (list . \"visibility\") | nindent 2 }}\n",
	"namespaceSelector: "+aSelector, `namespaceSelector: {{- include "berth.managedNamespaces" . | nindent 4 }}`,
	"expression: "+aManaged, "expression: |-\n      {{- include \"berth.managedExpression\" . | nindent 6 }}",
	"expression: "+aKinds, "expression: "+unlistedKinds(),
	"failurePolicy: "+aPolicy, `failurePolicy: {{ include "berth.failurePolicy" (list . FRAMEWORKS) }}`,
	"reinvocationPolicy: "+aPolicy, `reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy }}`,
	fmt.Sprint(webhookPort), `{{ include "berth.port" (list . "webhook") }}`,
	fmt.Sprint(visiblePort), `{{ include "berth.port" (list . "visibility") }}`,
)

// gated are the feature gates that decide about objects, and about webhooks in them.
var gated = []feature.Gate{
	feature.MultiKueue, feature.ElasticJobsViaWorkloadSlices, feature.TopologyAwareScheduling, feature.FailureRecoveryPolicy, feature.VisibilityOnDemand,
	feature.RayServiceUpgradeGating,
}

// stages are the gates that switch all features of a stage.
var stages = map[feature.Stage]string{feature.Alpha: "AllAlpha", feature.Beta: "AllBeta"}

// modes are the answers of the template berth.jobs: which jobs the webhooks of job kinds must see, and when.
var modes = func() map[string]func(*install.Options) {
	out := map[string]func(*install.Options){}
	for jobs, all := range map[string]bool{"marked": false, "all": true} {
		for stop, users := range map[string]bool{"": false, "-stop": true} {
			for others, foreign := range map[string]bool{"": false, "-queued": true} {
				out[jobs+stop+others] = func(o *install.Options) {
					o.Options.ManageJobsWithoutQueueName, o.Options.HonourUserSuspend = all, users
					if foreign {
						o.Groups = maps.Clone(o.Groups)
						delete(o.Groups, install.Training)
					}
				}
			}
		}
	}
	return out
}()

// chartConfig returns a configuration with placeholders and all job kinds.
func chartConfig() (string, error) {
	gates := map[string]bool{}
	for _, g := range gated {
		gates[g.String()] = true
	}
	var frameworks []string
	for _, f := range options.Frameworks() {
		frameworks = append(frameworks, f.Name)
		if f.Gate != "" {
			gates[f.Gate] = true
		}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": aNamespace, "featureGates": gates,
		"integrations": map[string]any{"frameworks": frameworks}, "webhook": map[string]any{"port": webhookPort},
		"visibilityServer":       map[string]any{"bindPort": visiblePort},
		"internalCertManagement": map[string]any{"webhookServiceName": aPrefix + "-webhook-service", "webhookSecretName": aPrefix + "-webhook-server-cert"},
		"leaderElection":         map[string]any{"resourceName": aLease, "resourceNamespace": aHome},
		"jobSet":                 map[string]any{"leaderElection": map[string]any{"resourceName": aJobSets}},
	})
	return string(text), err
}

func chart() (map[string]string, error) {
	config, err := chartConfig()
	if err != nil {
		return nil, err
	}
	objects, err := manifests(config, func(o *install.Options) { o.Options.Dashboard.Address = ":8080" })
	if err != nil {
		return nil, err
	}
	switches, err := conditions(config, objects)
	if err != nil {
		return nil, err
	}
	hooks, err := hooksByMode(config)
	if err != nil {
		return nil, err
	}
	kinds, err := kindsOfHooks(config)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, u := range objects {
		name := part(u)
		if name == "" || name == "services" { // they have values of their own, as the manager has
			continue
		}
		file := chartDir + "/" + name + ".yaml"
		if name == "crd" {
			file = chartDir + "/crds/" + u.GetName() + ".yaml"
		}
		text, err := template(u, hooks[key(u)], kinds, switches)
		if err != nil {
			return nil, err
		}
		text = onlyIf(text, switches[key(u)]...)
		if value := switchOf(u, name); value != "" {
			text = onlyIf(text, ".Values."+value)
		}
		out[file] += text
	}
	return out, nil
}

// onlyIf returns the template of a text under conditions.
func onlyIf(text string, conditions ...string) string {
	for _, condition := range conditions {
		text = "{{- if " + condition + " }}\n" + text + "{{- end }}\n"
	}
	return text
}

// switchOf returns the value of the chart that enables an object of a part; "" for none.
func switchOf(u *unstructured.Unstructured, part string) string {
	switch {
	case u.GetKind() == "ClusterRoleBinding" && strings.HasSuffix(u.GetName(), "-training-secrets-rolebinding"):
		return "rights.trainJobSecrets"
	case u.GetKind() == "RoleBinding" && part == "visibility":
		return "enableVisibilityAuthReaderRoleBinding"
	case part == "runtimes":
		return "runtimes.enabled"
	case part == "crd":
		return "crds.enabled"
	}
	return ""
}

// conditions returns the template conditions of objects that are only installed with a group of controllers, a job kind, a feature gate,
// internal certificates, or the dashboard, by their keys. A webhook that such an object has only with a feature gate has
// conditions of its own, by the object's key and its name.
func conditions(config string, all []*unstructured.Unstructured) (map[string][]string, error) {
	type choice struct {
		condition string
		without   func(*install.Options)
		ofHooks   bool
	}
	choices := []choice{
		{"not .Values.enableCertManager", func(o *install.Options) { o.Options.Certs.Internal = false }, false},
		{fmt.Sprintf("ne (include \"berth.leaseOfJobSets\" .) %q", options.JobSetLease), func(o *install.Options) { o.Options.JobSet.Lease.Name = options.JobSetLease }, false},
		{".Values.enableKueueViz", func(o *install.Options) { o.Options.Dashboard.Address = "" }, false},
	}
	defaults := feature.Default()
	for _, gate := range gated {
		choices = append(choices, choice{
			fmt.Sprintf("include \"berth.gate\" (list . %q %q %t)", gate, stages[gate.Stage()], defaults.On(gate)),
			func(o *install.Options) { o.Options.Gates = o.Options.Gates.With(gate, false) }, true,
		})
	}
	for _, f := range options.Frameworks() {
		choices = append(choices, choice{
			fmt.Sprintf("include \"berth.enabled\" (list . %q)", f.Name), func(o *install.Options) { withoutFramework(o, f.Name) }, false,
		})
	}
	for _, group := range []install.Group{install.Queues, install.Integrations, install.JobSet, install.Training, install.Checks, install.MultiKueue} {
		choices = append(choices, choice{
			fmt.Sprintf("include \"berth.runs\" (list . %q)", group), func(o *install.Options) { delete(o.Groups, group) }, false,
		})
	}
	out := map[string][]string{}
	for _, c := range choices {
		rest, err := manifests(config, func(o *install.Options) {
			o.Options.Dashboard.Address = ":8080"
			c.without(o)
		})
		if err != nil {
			return nil, err
		}
		for _, u := range all {
			if !slices.ContainsFunc(rest, func(r *unstructured.Unstructured) bool { return key(r) == key(u) }) {
				out[key(u)] = append(out[key(u)], c.condition)
			}
		}
		if c.ofHooks {
			remain := hooksOf(rest)
			for name := range hooksOf(all) { //berth:unordered a map
				if !remain[name] {
					out[name] = append(out[name], c.condition)
				}
			}
		}
	}
	return out, nil
}

func key(u *unstructured.Unstructured) string {
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// markCRD marks in a CRD what depends on values.
func markCRD(u *unstructured.Unstructured) error {
	kind := "crd"
	if _, found, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "conversion"); found {
		kind = "converted"
	}
	u.SetAnnotations(map[string]string{aAnnotation: kind}) // the generator's annotation is of no use to users
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["name"] == kueuev1beta1.GroupVersion.Version {
			version["served"] = aServed
		}
	}
	return unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
}

// hooksByMode returns the webhooks of each configuration by mode.
func hooksByMode(config string) (map[string]map[string][]any, error) {
	out := map[string]map[string][]any{}
	for mode, set := range modes {
		objects, err := manifests(config, func(o *install.Options) {
			o.Options.Dashboard.Address = ":8080"
			set(o)
		})
		if err != nil {
			return nil, err
		}
		for _, u := range objects {
			if hooks, found, _ := unstructured.NestedSlice(u.Object, "webhooks"); found {
				if out[key(u)] == nil {
					out[key(u)] = map[string][]any{}
				}
				out[key(u)][mode] = hooks
			}
		}
	}
	return out, nil
}

// kindsOfHooks returns the frameworks of webhooks, by the keys of their objects and their names: the webhook exists if one of them is enabled. Others have none.
func kindsOfHooks(config string) (map[string][]string, error) {
	out := map[string][]string{}
	always := map[string]bool{}
	for _, f := range append(options.Frameworks(), options.Framework{}) {
		for _, mode := range []string{"marked", "marked-queued"} {
			objects, err := manifests(config, func(o *install.Options) {
				o.Options.Frameworks = []string{f.Name}
				modes[mode](o)
			})
			if err != nil {
				return nil, err
			}
			for name := range hooksOf(objects) { //berth:unordered a set
				if f.Name == "" {
					always[name] = true
				} else if !slices.Contains(out[name], f.Name) {
					out[name] = append(out[name], f.Name)
				}
			}
		}
	}
	maps.DeleteFunc(out, func(name string, _ []string) bool { return always[name] })
	return out, nil
}

// hooksOf returns the keys of objects with webhooks, with the names of these.
func hooksOf(objects []*unstructured.Unstructured) map[string]bool {
	out := map[string]bool{}
	for _, u := range objects {
		hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, h := range hooks {
			out[key(u)+nameOf(h)] = true
		}
	}
	return out
}

func withoutFramework(o *install.Options, framework string) {
	o.Options.Frameworks = slices.DeleteFunc(slices.Clone(o.Options.Frameworks), func(name string) bool { return name == framework })
}

// nameOf returns the name of a webhook.
func nameOf(hook any) string {
	h, _ := hook.(map[string]any)
	name, _ := h["name"].(string)
	return name
}

// template returns the template of an object; hooks are its webhooks by mode, kinds and switches the frameworks and conditions of webhooks.
func template(u *unstructured.Unstructured, hooks map[string][]any, kinds, switches map[string][]string) (string, error) {
	u = u.DeepCopy()
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[aLabel] = ""
	u.SetLabels(labels)
	switch u.GetKind() {
	case "CustomResourceDefinition":
		if err := markCRD(u); err != nil {
			return "", err
		}
	case "Namespace": // others may be in it, such as a Trainer that takes the place of this one
		u.SetAnnotations(map[string]string{"helm.sh/resource-policy": "keep"})
	case "ClusterTrainingRuntime":
		// After the CRD, once the webhook of the manager answers.
		u.SetAnnotations(map[string]string{"helm.sh/hook": "post-install,post-upgrade"})
	case "APIService":
		u.SetAnnotations(map[string]string{aAnnotation: "visibility"})
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		u.SetAnnotations(map[string]string{aAnnotation: "webhook"})
		delete(u.Object, "webhooks")
	case "ValidatingAdmissionPolicy":
		if err := openVariables(u); err != nil {
			return "", err
		}
	}
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		return "", err
	}
	out := "---\n" + escape(string(text))
	if hooks == nil {
		return placeholders.Replace(out), nil
	}
	list, err := webhooksTemplate(u, hooks, kinds, switches)
	return placeholders.Replace(out + "webhooks:\n" + list), err
}

// webhooksTemplate returns the templates of the webhooks of a configuration. A webhook that is not the same in all modes has one for each
// of its forms.
func webhooksTemplate(u *unstructured.Unstructured, byMode map[string][]any, kinds, switches map[string][]string) (string, error) {
	type form struct {
		text  string
		modes []string
	}
	forms := map[string][]*form{}
	var names []string
	for _, h := range byMode["marked"] { // the order of a default installation
		names = append(names, nameOf(h))
	}
	for _, mode := range slices.Sorted(maps.Keys(byMode)) {
		for _, h := range byMode[mode] {
			hook, _ := h.(map[string]any)
			name := nameOf(h)
			text, err := webhookTemplate(hook, kinds[key(u)+name], u.GetKind() == "MutatingWebhookConfiguration")
			if err != nil {
				return "", err
			}
			text = onlyIf(text, switches[key(u)+name]...)
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			at := slices.IndexFunc(forms[name], func(f *form) bool { return f.text == text })
			if at < 0 {
				at = len(forms[name])
				forms[name] = append(forms[name], &form{text: text})
			}
			forms[name][at].modes = append(forms[name][at].modes, mode)
		}
	}
	var out strings.Builder
	for _, name := range names {
		for _, f := range forms[name] {
			if len(f.modes) == len(byMode) { // the configuration itself may depend on the mode
				out.WriteString(f.text)
				continue
			}
			out.WriteString(onlyIf(f.text, fmt.Sprintf("has (include \"berth.jobs\" .) (list %s)", quoted(f.modes))))
		}
	}
	return out.String(), nil
}

// openVariables sets placeholders in the variables of a policy that depend on the configuration.
func openVariables(policy *unstructured.Unstructured) error {
	variables, found, err := unstructured.NestedSlice(policy.Object, "spec", "variables")
	if err != nil || !found {
		return err
	}
	for _, v := range variables {
		variable, _ := v.(map[string]any)
		switch variable["name"] {
		case webhook.ManagedVariable:
			variable["expression"] = aManaged
		case webhook.UnlistedVariable:
			variable["expression"] = aKinds
		}
	}
	return unstructured.SetNestedSlice(policy.Object, variables, "spec", "variables")
}

// unlistedKinds returns the template of the policy's variable with the disabled kinds.
func unlistedKinds() string {
	var b strings.Builder
	b.WriteString("|-\n      {\n")
	for _, d := range all.Descriptors() {
		fmt.Fprintf(&b, "      {{- if not (include \"berth.enabled\" (list . %q)) }}\n      %s\n      {{- end }}\n",
			d.Framework, webhook.UnlistedEntry(d.GVK.Group, d.Resource, d.Framework))
	}
	return b.String() + "      }"
}

// escape escapes template delimiters in texts.
func escape(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

// isUnusable reports whether Kubernetes itself creates objects of one of the kinds: if they are disabled, the webhook ignores failures. The
// webhooks of other disabled kinds are left out. spec: 70 §4.5.
func isUnusable(frameworks []string) bool {
	return slices.ContainsFunc(frameworks, func(name string) bool {
		f, known := options.FindFramework(name)
		return known && (f.GVK.Group == corev1.GroupName || f.GVK.Group == appsv1.GroupName)
	})
}

func webhookTemplate(hook map[string]any, frameworks []string, mutating bool) (string, error) {
	if mutating {
		hook["reinvocationPolicy"] = aPolicy
	}
	if len(frameworks) > 0 {
		hook["namespaceSelector"] = aSelector
		if isUnusable(frameworks) && hook["failurePolicy"] != "Ignore" {
			hook["failurePolicy"] = aPolicy
		}
	}
	conditions := hook["matchConditions"]
	if isUnusable(frameworks) {
		delete(hook, "matchConditions")
	}
	text, err := yaml.Marshal([]any{hook})
	if err != nil {
		return "", err
	}
	out := strings.ReplaceAll(placeholders.Replace(string(text)), "FRAMEWORKS", quoted(frameworks))
	switch {
	case len(frameworks) == 0:
	case isUnusable(frameworks):
		text, err := yaml.Marshal(map[string]any{"matchConditions": conditions})
		if err != nil {
			return "", err
		}
		enabled := "  " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ")
		out += fmt.Sprintf("{{- if include \"berth.enabled\" (list . %s) }}\n%s\n{{- else }}\n  matchConditions: # never\n  - name: not-enabled\n    expression: \"false\"\n{{- end }}\n",
			quoted(frameworks), enabled)
	default:
		out = fmt.Sprintf("{{- if include \"berth.enabled\" (list . %s) }}\n%s{{- end }}\n", quoted(frameworks), out)
	}
	return out, nil
}

// quoted returns words as arguments of a template function.
func quoted(words []string) string { return strings.Trim(fmt.Sprintf("%q", words), "[]") }
