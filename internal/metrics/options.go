package metrics

import (
	"time"

	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/state"
)

// Options are the enabled families and the sources of a Recorder.
type Options struct {
	// Metrics is the configuration: quota series, LocalQueues, custom labels.
	Metrics options.Metrics
	// Families that feature gates and the rest of the configuration enable.
	Cohorts, Hashes, Unadmitted, CreationLatency, FairSharing, UsageSharing, Topologies bool

	// LeaderElection is true if replicas elect a leader; Elected is closed once this one leads. They define the label replica_role.
	LeaderElection bool
	Elected        <-chan struct{}
	// Model returns the read model of the engine, see engine.Engine.Model; nil if there is none.
	Model func() *state.Model
	// Places is what is free in the domains of topologies; nil without topologies.
	Places *occupancy.Map
	// Forecast returns the last forecast, nil before the first one, and Forecasting the time that all of them took; nil without forecasts.
	Forecast    func() *foresight.Forecast
	Forecasting func() time.Duration
	Build       Build
}

// Build identifies the program that runs, in the labels of the series build_info; empty fields are read from the binary.
type Build struct {
	Version, Commit, Date string
}

// NewOptions returns the options of a configuration.
func NewOptions(o *options.Options) Options {
	on := o.Gates.On
	return Options{
		Metrics: o.Metrics, Cohorts: on(feature.MetricsForCohorts), Hashes: on(feature.SchedulingEquivalenceHashing),
		Unadmitted: on(feature.UnadmittedWorkloadsObservability), CreationLatency: on(feature.MetricForWorkloadCreationLatency),
		Topologies:  on(feature.TopologyAwareScheduling),
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
