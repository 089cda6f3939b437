// Package all is the list of job kinds that Berth integrates.
package all

import (
	"github.com/berth-project/berth/internal/integration/job"
	"github.com/berth-project/berth/internal/integration/jobset"
	plan "github.com/berth-project/berth/internal/plan/job"
)

// Descriptors are the kinds, sorted by framework name.
func Descriptors() []*plan.Descriptor {
	return []*plan.Descriptor{
		job.Descriptor(),
		jobset.Descriptor(),
	}
}
