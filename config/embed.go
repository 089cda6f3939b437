// Package config contains the generated manifests, and embeds the ones of `berth install`.
package config

import "embed"

// FS has crd/, rbac/, manager/, runtimes/ and training/, without files that only kustomize uses.
//
//go:embed crd/*_*.yaml rbac/role.yaml rbac/manager.yaml manager/manager.yaml manager/controller_manager_config.yaml
//go:embed runtimes/*-*.yaml runtimes/optional/*.yaml training/access.yaml training/version.yaml
var FS embed.FS
