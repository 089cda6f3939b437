// Package all is the list of job kinds that Berth integrates.
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
	"github.com/berth-project/berth/internal/options/declare"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
)

// Descriptors are the kinds, sorted by framework name, with everything at its default.
func Descriptors() []*plan.Descriptor { return DescriptorsWith(trainingplan.DefaultConfig(), nil) }

// DescriptorsWith are the kinds for a manager that makes JobSets of TrainJobs as trains says, since the queue counts the
// pods that there will be, and with the kinds that its configuration declares.
func DescriptorsWith(trains *trainingplan.Config, kinds []*declare.Kind) []*plan.Descriptor {
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
