// Package config holds the generated manifests and embeds those that `berth install`
// applies.
package config

import "embed"

// FS has crd/ and rbac/.
//
//go:embed crd/*.yaml rbac/*.yaml
var FS embed.FS
