// Package all is the list of job kinds that Berth integrates.
package all

import (
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/integration/appwrapper"
	"github.com/berth-project/berth/internal/integration/declared"
	"github.com/berth-project/berth/internal/integration/deployment"
	"github.com/berth-project/berth/internal/integration/job"
	"github.com/berth-project/berth/internal/integration/jobset"
	"github.com/berth-project/berth/internal/integration/kubeflow"
	"github.com/berth-project/berth/internal/integration/leaderworkerset"
	"github.com/berth-project/berth/internal/integration/pod"
	"github.com/berth-project/berth/internal/integration/ray"
	"github.com/berth-project/berth/internal/integration/spark"
	"github.com/berth-project/berth/internal/integration/statefulset"
	"github.com/berth-project/berth/internal/integration/trainjob"
	"github.com/berth-project/berth/internal/options/declare"
	plan "github.com/berth-project/berth/internal/plan/job"
	"github.com/berth-project/berth/internal/plan/train"
)

// Descriptors are the kinds, sorted by framework name, with everything at its default.
func Descriptors() []*plan.Descriptor { return DescriptorsWith(train.DefaultConfig(), nil) }

// DescriptorsWith are the kinds for a manager that makes JobSets of TrainJobs as trains says, since the queue counts the
// pods that there will be, and with the kinds that its configuration declares.
func DescriptorsWith(trains *train.Config, kinds []*declare.Kind) []*plan.Descriptor {
	out := []*plan.Descriptor{
		appwrapper.Descriptor(),
		deployment.Descriptor(),
		job.Descriptor(),
		jobset.Descriptor(),
		leaderworkerset.Descriptor(),
		pod.Descriptor(),
		ray.Cluster(),
		ray.Job(),
		ray.Service(),
		statefulset.Descriptor(),
		spark.Descriptor(),
		trainjob.Descriptor(trains),
	}
	out = append(out, kubeflow.Descriptors()...)
	out = append(out, declared.Descriptors(kinds)...)
	slices.SortFunc(out, func(a, b *plan.Descriptor) int { return strings.Compare(a.Framework, b.Framework) })
	return out
}
