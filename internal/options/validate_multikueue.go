package options

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/declare"
)

// maxDispatcherName bounds the name of a dispatcher, which is used as a label
// value.
const maxDispatcherName = 63

var interactiveModes = []configv1beta2.ExecInteractiveMode{
	configv1beta2.NeverInteractive, configv1beta2.IfAvailableInteractive, configv1beta2.AlwaysInteractive,
}

// validateMultiKueue checks the section on worker clusters (spec: 70 §3.3,
// 40 §3).
func validateMultiKueue(c *configv1beta2.Configuration, path *field.Path) field.ErrorList {
	m := c.MultiKueue
	errs := notNegative(m.GCInterval, path.Child("gcInterval"))
	errs = append(errs, notNegative(m.WorkerLostTimeout, path.Child("workerLostTimeout"))...)
	if msgs := validation.IsValidLabelValue(*m.Origin); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path.Child("origin"), *m.Origin, strings.Join(msgs, "; ")))
	}
	errs = append(errs, validateDispatcher(m, path)...)
	errs = append(errs, validateAdapters(m.ExternalFrameworks, c.Integrations.Frameworks, path.Child("externalFrameworks"))...)
	if profile, at := m.ClusterProfile, path.Child("clusterProfile"); profile != nil {
		errs = append(errs, validateProviders(profile.AccessProviders, at.Child("accessProviders"))...)
		if old := at.Child("credentialsProviders"); len(profile.AccessProviders) > 0 && len(profile.CredentialsProviders) > 0 {
			errs = append(errs, field.Forbidden(old, "may not be set together with accessProviders; move its entries there"))
		} else {
			errs = append(errs, validateProviders(profile.CredentialsProviders, old)...)
		}
	}
	return errs
}

func validateDispatcher(m *configv1beta2.MultiKueue, path *field.Path) field.ErrorList {
	errs := validation.IsDomainPrefixedPath(path.Child("dispatcherName"), *m.DispatcherName)
	if len(*m.DispatcherName) > maxDispatcherName {
		errs = append(errs, field.TooLong(path.Child("dispatcherName"), *m.DispatcherName, maxDispatcherName))
	}
	steps, at := m.IncrementalDispatcherConfig, path.Child("incrementalDispatcherConfig")
	switch {
	case steps == nil:
	case *m.DispatcherName != configv1beta2.DispatcherIncremental:
		errs = append(errs, field.Invalid(at, *m.DispatcherName, "may be set only with dispatcherName "+configv1beta2.DispatcherIncremental))
	case *steps.StepSize < 1:
		errs = append(errs, field.Invalid(at.Child("stepSize"), *steps.StepSize, "must be at least 1"))
	}
	return errs
}

// validateAdapters checks the kinds for the generic adapter. A built-in kind
// may be taken over only while its framework is not enabled.
func validateAdapters(list []configv1beta2.MultiKueueExternalFramework, enabled []string, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	seen := map[schema.GroupVersionKind]bool{}
	for i, entry := range list {
		at := path.Index(i).Child("name")
		kind, ok := declare.ParseName(entry.Name)
		if !ok {
			errs = append(errs, field.Invalid(at, entry.Name, "must have the form Kind.version.group, such as PipelineRun.v1.tekton.dev"))
			continue
		}
		if seen[kind] {
			errs = append(errs, field.Duplicate(at, entry.Name))
		}
		seen[kind] = true
		for _, f := range frameworks {
			if f.MultiKueue && f.GVK == kind && slices.Contains(enabled, f.Name) {
				errs = append(errs, field.Invalid(at, entry.Name, fmt.Sprintf(
					"is served by the framework %s of integrations.frameworks; remove it here", f.Name)))
			}
		}
	}
	return errs
}

// validateProviders checks credential plugins as far as their kubeconfig
// counterpart is checked.
func validateProviders(list []configv1beta2.ClusterProfileProvider, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	for i, p := range list {
		at := path.Index(i)
		exec := at.Child("execConfig")
		required := func(value string, at *field.Path) {
			if value == "" {
				errs = append(errs, field.Required(at, ""))
			}
		}
		required(p.Name, at.Child("name"))
		required(p.ExecConfig.Command, exec.Child("command"))
		required(p.ExecConfig.APIVersion, exec.Child("apiVersion"))
		for j, env := range p.ExecConfig.Env {
			required(env.Name, exec.Child("env").Index(j).Child("name"))
		}
		mode, modeAt := p.ExecConfig.InteractiveMode, exec.Child("interactiveMode")
		if mode == "" {
			errs = append(errs, field.Required(modeAt, "one of Never, IfAvailable, Always"))
		} else if !slices.Contains(interactiveModes, mode) {
			errs = append(errs, field.NotSupported(modeAt, mode, interactiveModes))
		}
	}
	return errs
}
