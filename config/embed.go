// Package config holds the generated manifests and embeds those that `berth install`
// applies.
package config

import "embed"

// FS has crd/, rbac/, manager/, runtimes/ and training/, without what is only for kustomize.
//
//go:embed crd/*_*.yaml rbac/role.yaml rbac/manager.yaml manager/manager.yaml manager/controller_manager_config.yaml
//go:embed runtimes/*-*.yaml runtimes/optional/*.yaml training/access.yaml training/version.yaml
var FS embed.FS
