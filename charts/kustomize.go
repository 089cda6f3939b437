package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/install"
)

// kustomize returns the generated files of the bases: roles, services, webhooks, the visibility API, and the list of CRDs with the patch for
// conversion.
func kustomize() (map[string]string, error) {
	objects, err := manifests(install.ShippedConfig(), func(o *install.Options) { o.Deploy = &install.Deploy{} })
	if err != nil {
		return nil, err
	}
	accounts, err := fs.ReadFile(config.FS, "rbac/manager.yaml")
	if err != nil {
		return nil, err
	}
	rules, err := fs.ReadFile(config.FS, "rbac/role.yaml")
	if err != nil {
		return nil, err
	}
	written := string(accounts) + string(rules)
	parts := map[string][]*unstructured.Unstructured{}
	var crds, converted []string
	var conversion any
	for _, u := range objects {
		name := part(u)
		if name == "crd" {
			crds = append(crds, u.GetName())
			if c, found, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "conversion"); found {
				conversion = c
				converted = append(converted, regexp.QuoteMeta(u.GetName()))
			}
			continue
		}
		if !isWritten(name, u.GetName(), written) {
			parts[name] = append(parts[name], u)
		}
	}
	out := map[string]string{}
	for name, file := range map[string]string{
		"rbac": "config/rbac/roles.yaml", "services": "config/manager/services.yaml", "webhook": "config/webhook/manifests.yaml",
		"visibility": "config/visibility/manifests.yaml", "availability": "config/manager/availability.yaml",
	} {
		if out[file], err = join(parts[name]); err != nil {
			return nil, err
		}
	}
	out["config/certmanager/controller_manager_config.yaml"] = install.ShippedConfig() + "internalCertManagement:\n  enable: false\n"
	patch, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "any"},
		"spec": map[string]any{"conversion": conversion},
	})
	if err != nil {
		return nil, err
	}
	out["config/crd/kustomization.yaml"], err = crdKustomization(crds, converted, string(patch))
	return out, err
}

// isWritten reports whether an object of a part is in a file that berth install reads: the manager's role, and the objects of training.
func isWritten(part, name, rules string) bool {
	switch part {
	case "runtimes", "training":
		return true
	case "rbac":
		return strings.Contains(rules, "name: "+name+"\n") || strings.HasPrefix(name, "kubeflow-trainer-")
	default:
		return part != "services" && strings.HasPrefix(name, "kubeflow-trainer-")
	}
}

// crdKustomization returns the kustomization of config/crd, with a patch for the CRDs that the manager converts. The patch is inline: as a
// file, tools that read CRDs from the folder would read it as one.
func crdKustomization(crds, converted []string, patch string) (string, error) {
	var files []string
	for _, name := range crds {
		plural, group, _ := strings.Cut(name, ".")
		file := group + "_" + plural + ".yaml"
		if _, err := fs.Stat(config.FS, "crd/"+file); err != nil {
			return "", fmt.Errorf("CRD %s is in no file of its own: %w", name, err)
		}
		files = append(files, file)
	}
	slices.Sort(files)
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": files,
		"patches": []any{map[string]any{
			"patch": patch, "target": map[string]any{"kind": "CustomResourceDefinition", "name": strings.Join(converted, "|")},
		}},
	})
	return string(text), err
}
