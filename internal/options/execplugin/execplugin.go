// Package execplugin checks the credential plugins of ClusterProfiles.
package execplugin

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

var interactiveModes = []configv1beta2.ExecInteractiveMode{
	configv1beta2.NeverInteractive, configv1beta2.IfAvailableInteractive, configv1beta2.AlwaysInteractive,
}

// Validate applies the rules for credential plugins of a kubeconfig.
func Validate(list []configv1beta2.ClusterProfileProvider, path *field.Path) field.ErrorList {
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
