package metrics

import (
	"context"
	"time"

	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/state"
)

// Options say what is exported and where it comes from.
type Options struct {
	// Metrics is the configuration: quota series, LocalQueues, custom labels.
	Metrics options.Metrics
	// What feature gates and the rest of the configuration turn on.
	Cohorts, Hashes, Unadmitted, CreationLatency, FairSharing, UsageSharing bool
	// Gates: the annotation admission-gated-by keeps Workloads out of their queue.
	Gates bool

	// LeaderElection reports whether replicas elect a leader; Elected is closed once this one
	// leads. They make the label replica_role.
	LeaderElection bool
	Elected        <-chan struct{}
	// Ask runs a function in the goroutine that owns the state, as engine.Ask does.
	Ask func(context.Context, func(*state.State)) error
	// Usage returns the admission fair sharing usage of a LocalQueue, false for none.
	// Nil: there is none.
	Usage func(state.Name) (float64, bool)
	Build Build
}

// Build is what the series build_info tells; empty fields are taken from the binary.
type Build struct {
	Version, Commit, Date string
}

// NewOptions is what a configuration says about metrics.
func NewOptions(o *options.Options) Options {
	on := o.Gates.On
	return Options{
		Metrics: o.Metrics, Cohorts: on(feature.MetricsForCohorts), Hashes: on(feature.SchedulingEquivalenceHashing),
		Unadmitted: on(feature.UnadmittedWorkloadsObservability), CreationLatency: on(feature.MetricForWorkloadCreationLatency),
		Gates:       on(feature.AdmissionGatedBy),
		FairSharing: o.FairSharing.Enabled, UsageSharing: o.AdmissionFairSharing.Enabled, LeaderElection: o.LeaderElection.Enabled,
	}
}

// localQueues reports whether any LocalQueue may have series.
func (o *Options) localQueues() bool {
	if o.Metrics.LocalQueues == nil {
		return false
	}
	_, selectable := o.Metrics.LocalQueues.Requirements()
	return selectable
}

// lookTimeout is how long a scrape waits for its look at the state.
const lookTimeout = 5 * time.Second

// Values of the label replica_role. spec: 70 §4.3.
const (
	leader     = "leader"
	follower   = "follower"
	standalone = "standalone"
)

func (o *Options) role() string {
	if !o.LeaderElection {
		return standalone
	}
	select {
	case <-o.Elected:
		return leader
	default:
		return follower
	}
}
