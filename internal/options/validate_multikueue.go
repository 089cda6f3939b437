package options

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/declare"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/transform"
)

// maxDispatcherName bounds the name of a dispatcher, which is a label value.
const maxDispatcherName = 63

// validateMultiKueue checks the section multiKueue (spec: 70 §3.3, 40 §3).
func validateMultiKueue(c *configv1beta2.Configuration, gates feature.Gates, path *field.Path) field.ErrorList {
	m := c.MultiKueue
	errs := notNegative(m.GCInterval, path.Child("gcInterval"))
	for i, origin := range m.PreviousOrigins {
		errs = append(errs, validateOrigin(origin, append(m.PreviousOrigins[:i:i], *m.Origin), path.Child("previousOrigins").Index(i))...)
	}
	errs = append(errs, notNegative(m.RemoteRetentionAfterFinish, path.Child("remoteRetentionAfterFinish"))...)
	if t := m.SingleClusterPreemptionTimeout; t != nil {
		errs = append(errs, positive(t.Duration, path.Child("singleClusterPreemptionTimeout"))...)
	}
	errs = append(errs, notNegative(m.WorkerLostTimeout, path.Child("workerLostTimeout"))...)
	errs = append(errs, invalidIf(validation.IsValidLabelValue(*m.Origin), *m.Origin, path.Child("origin"))...)
	errs = append(errs, validateDispatcher(m, path)...)
	errs = append(errs, validateAdapters(m.ExternalFrameworks, c.Integrations.Frameworks, path.Child("externalFrameworks"))...)
	_, invalid := transform.Compile(m.ExternalFrameworks, gates.On(feature.MultiKueueExternalTransforms), path.Child("externalFrameworks"))
	errs = append(errs, invalid...)
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

func validateOrigin(origin string, others []string, at *field.Path) field.ErrorList {
	if msgs := validation.IsValidLabelValue(origin); len(msgs) > 0 || origin == "" {
		return field.ErrorList{field.Invalid(at, origin, strings.Join(append(msgs, "must be a value that origin had"), "; "))}
	}
	if slices.Contains(others, origin) {
		return field.ErrorList{field.Duplicate(at, origin)}
	}
	return nil
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
	if steps != nil && steps.RoundTimeout != nil {
		errs = append(errs, positive(steps.RoundTimeout.Duration, at.Child("roundTimeout"))...)
	}
	return errs
}

// validateAdapters checks the kinds for the generic adapter. A built-in kind is allowed only if its framework is not enabled.
func validateAdapters(list []configv1beta2.MultiKueueExternalFramework, enabled []string, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	seen := map[schema.GroupVersionKind]bool{}
	for i, entry := range list {
		at := path.Index(i).Child("name")
		kind, ok := declare.ParseName(entry.Name)
		if !ok {
			errs = append(errs, field.Invalid(at, entry.Name, declare.WantedName))
			continue
		}
		if seen[kind] {
			errs = append(errs, field.Duplicate(at, entry.Name))
		}
		seen[kind] = true
		for _, f := range Frameworks() {
			if f.MultiKueue && f.GVK == kind && slices.Contains(enabled, f.Name) {
				errs = append(errs, field.Invalid(at, entry.Name, fmt.Sprintf(
					"is served by the framework %s of integrations.frameworks; remove it here", f.Name)))
			}
		}
	}
	return errs
}

var interactiveModes = []configv1beta2.ExecInteractiveMode{
	configv1beta2.NeverInteractive, configv1beta2.IfAvailableInteractive, configv1beta2.AlwaysInteractive,
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// withoutIndex returns the path of a field as it is shown: that of a plugin of ClusterProfiles has no list index (spec: 40 §3). The line
// identifies the entry.
func withoutIndex(path string) string {
	if strings.HasPrefix(path, "multiKueue.clusterProfile.") {
		return listIndex.ReplaceAllString(path, "")
	}
	return path
}

// validateProviders applies the rules for credential plugins of a kubeconfig to the plugins of ClusterProfiles.
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
