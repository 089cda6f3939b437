package ray

import (
	"sync/atomic"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// Settings are the configuration of the kinds, and the capabilities of the cluster's KubeRay. The kinds of one manager share them.
type Settings struct {
	Gating       bool         // upgrades of RayServices wait for quota: gate RayServiceUpgradeGating
	GatedPods    bool         // the pods of upgrades wait, not the clusters: integrations.rayService.upgradeHold
	DeferCleanup bool         // gate DeferRayServiceFinalizationForRedisCleanup
	Forward      bool         // copies on worker clusters get changes that cannot need quota: gate MultiKueueRemoteSpecSync
	FreeLeaving  bool         // not gate ValidateRayAndSparkJobUpdates
	Legacy       *atomic.Bool // this KubeRay has no spec.suspend of RayServices; nil: it has
}

// Descriptors returns the kinds that KubeRay runs, in the order of the catalogue, for a manager with the given configuration; nil
// is the default configuration.
func Descriptors(o *options.Options) []*plan.Descriptor {
	s, gates := Settings{Legacy: &atomic.Bool{}}, feature.Default()
	if o != nil {
		gates = o.Gates
		service := o.Effective.Integrations.RayService
		s.GatedPods = service != nil && service.UpgradeHold == configv1beta2.GatedPods
	}
	s.Gating, s.DeferCleanup = gates.On(feature.RayServiceUpgradeGating), gates.On(feature.DeferRayServiceFinalizationForRedisCleanup)
	s.Forward, s.FreeLeaving = gates.On(feature.MultiKueueRemoteSpecSync), !gates.On(feature.ValidateRayAndSparkJobUpdates)
	return []*plan.Descriptor{Job(s), Cluster(s), Service(s)}
}

// isLegacy reports whether RayServices have no spec.suspend.
func (r *Settings) isLegacy() bool { return r.Legacy != nil && r.Legacy.Load() }

// learn reads from the CRD of RayServices whether they have spec.suspend (spec: 30 §4.10.3).
func (r *Settings) learn(crd map[string]any) (news string) {
	legacy := !stores(crd, "v1", "suspend")
	if r.Legacy == nil || r.Legacy.Swap(legacy) == legacy || !legacy {
		return ""
	}
	return "This KubeRay has no spec.suspend of RayServices: upgrades do not wait for quota, and a service that is preempted keeps " +
		"what its clusters hold until they are gone. KubeRay 1.7 has it"
}

// stores reports whether a version of a CRD stores a field of the spec.
func stores(crd map[string]any, version, field string) bool {
	for _, v := range view.Maps(crd, "spec", "versions") {
		if view.String(v, "name") != version {
			continue
		}
		spec := view.Map(v, "schema", "openAPIV3Schema", "properties", "spec")
		return view.Bool(spec, "x-kubernetes-preserve-unknown-fields") || view.Map(spec, "properties", field) != nil
	}
	return false
}
