package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/declare"
	"github.com/berth-project/berth/internal/options/strict"
)

func covers(outer, path string) bool {
	rest, below := strings.CutPrefix(path, outer)
	return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// warningsOf returns warnings about a valid configuration that may be a mistake.
func warningsOf(c *configv1beta2.Configuration, d *decoder) []string {
	var warnings []string
	if d.Lines["metrics.localQueueMetrics"] > 0 && d.Lines["metrics.localQueueMetrics.enable"] == 0 {
		warnings = append(warnings, "metrics.localQueueMetrics has no enable, which turns the series of LocalQueues off; add enable: true, or remove localQueueMetrics")
	}
	for i, key := range c.Integrations.LabelKeysToCopy {
		if len(validation.IsQualifiedName(key)) > 0 {
			warnings = append(warnings, fmt.Sprintf("integrations.labelKeysToCopy[%d]: %q can be no label key and is never copied", i, key))
		}
	}
	if afs := c.AdmissionFairSharing; afs != nil {
		switch {
		case d.Lines["admissionFairSharing.usageHalfLifeTime"] == 0:
			warnings = append(warnings, fmt.Sprintf("admissionFairSharing has no usageHalfLifeTime; past usage counts half after %s", afs.UsageHalfLifeTime.Duration))
		case afs.UsageHalfLifeTime.Duration == 0:
			warnings = append(warnings, "admissionFairSharing.usageHalfLifeTime is 0s: usage never counts, and Workloads go by priority and age")
		}
	}
	known := reconciledKinds()
	for _, k := range c.Integrations.DeclaredKinds {
		gvk, _ := declare.ParseName(k.Name)
		known = append(known, gvk.GroupKind().String())
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Controller.GroupKindConcurrency)) {
		if !slices.Contains(known, kind) {
			warnings = append(warnings, fmt.Sprintf("controller.groupKindConcurrency[%s]: no such kind is reconciled; %s", kind, strict.DidYouMean(kind, known)))
		}
	}
	if p := c.ObjectRetentionPolicies; p != nil && p.Workloads != nil && p.Workloads.AfterDeactivatedByKueue != nil {
		warnings = append(warnings, fmt.Sprintf("objectRetentionPolicies.workloads.afterDeactivatedByKueue deletes jobs %s after their Workload was deactivated by the manager",
			p.Workloads.AfterDeactivatedByKueue.Duration))
	}
	return warnings
}
