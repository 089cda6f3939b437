// Package config holds the generated manifests and embeds those that `berth install`
// applies.
package config

import "embed"

// FS has crd/, rbac/, runtimes/ and training/.
//
//go:embed crd/*.yaml rbac/*.yaml runtimes/*.yaml runtimes/optional/*.yaml training/*.yaml
var FS embed.FS
