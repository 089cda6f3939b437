// Package all is the list of job kinds that Berth integrates. It registers the catalogue of frameworks.
package all

import (
	"slices"
	"strings"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/appwrapper"
	"github.com/berth-project/berth/internal/job/kind/declared"
	"github.com/berth-project/berth/internal/job/kind/deployment"
	"github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/job/kind/jobset"
	"github.com/berth-project/berth/internal/job/kind/kubeflow"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	"github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/kind/ray"
	"github.com/berth-project/berth/internal/job/kind/spark"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
	"github.com/berth-project/berth/internal/job/kind/trainjob"
	"github.com/berth-project/berth/internal/options"
)

// kinds is the list, in the order of the catalogue (spec: 30 §2.2). The first is the default of integrations.frameworks. A folder
// describes one kind, or several similar ones. A nil configuration is the default one.
var kinds = []func(*options.Options) []*plan.Descriptor{
	one(job.Descriptor),
	pod.Descriptors,
	one(deployment.Descriptor),
	one(statefulset.Descriptor),
	leaderworkerset.Descriptors,
	one(jobset.Descriptor),
	func(*options.Options) []*plan.Descriptor { return kubeflow.Descriptors() },
	trainjob.Descriptors,
	ray.Descriptors,
	one(appwrapper.Descriptor),
	spark.Descriptors,
	declared.Descriptors, // declared in the configuration
}

// one is the entry of a single kind that does not depend on the configuration.
func one(describe func() *plan.Descriptor) func(*options.Options) []*plan.Descriptor {
	return func(*options.Options) []*plan.Descriptor { return []*plan.Descriptor{describe()} }
}

// The catalogue is registered before a configuration is read.
func init() { //nolint:gochecknoinits // options cannot import the kinds, and every program reads its configuration by this list
	var list []options.Framework
	for _, d := range inOrder(nil) {
		list = append(list, options.Framework{
			Name: d.Framework, GVK: d.GVK, MultiKueue: d.Remote != nil, Gate: d.Listing.Gate, Workers: d.Listing.Workers, Serves: d.Serving,
		})
	}
	options.SetFrameworks(list)
}

func inOrder(o *options.Options) []*plan.Descriptor {
	var out []*plan.Descriptor
	for _, describe := range kinds {
		out = append(out, describe(o)...)
	}
	return out
}

// InOrder returns the kinds in the order of the catalogue, with the default configuration.
func InOrder() []*plan.Descriptor { return inOrder(nil) }

// Descriptors returns the kinds, sorted by framework name, with the default configuration.
func Descriptors() []*plan.Descriptor { return DescriptorsWith(nil) }

// DescriptorsWith returns the kinds of a manager with the given configuration, nil for the default, and its declared kinds, sorted
// by framework name.
func DescriptorsWith(o *options.Options) []*plan.Descriptor {
	out := inOrder(o)
	slices.SortFunc(out, func(a, b *plan.Descriptor) int { return strings.Compare(a.Framework, b.Framework) })
	return out
}
