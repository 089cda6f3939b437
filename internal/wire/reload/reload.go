// Package reload follows the configuration file while a manager runs: it applies the fields that need no restart, and logs the others.
package reload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// every is the interval between reads of the configuration file: not all systems notify of changes of a mounted ConfigMap.
const every = 5 * time.Second

// takesEffect are the fields whose changes apply to a running manager. All others need a restart. spec: 70 §6 #5.
var takesEffect = []string{"clientConnection.burst", "clientConnection.qps", afterDeactivated, afterFinished, deviceClassMappings}

const (
	afterDeactivated = "objectRetentionPolicies.workloads.afterDeactivatedByKueue"
	afterFinished    = "objectRetentionPolicies.workloads.afterFinished"

	deviceClassMappings = "resources.deviceClassMappings"
)

// Reloader is a runnable that follows the configuration file on every replica.
type Reloader struct {
	// Rules receives changed rules of Workloads, Deactivated the changed retention of deactivated jobs. They are nil without a file.
	Rules       chan lifecycle.Rules
	Deactivated chan *time.Duration
	// Mappings, unless nil, is called with changed mappings of DeviceClasses (spec: 20 §6 #26). Set it before Start.
	Mappings func([]configv1beta2.DeviceClassMapping)

	load    func() (options.Options, error)
	started options.Options
	limit   inflight.Throttle
	log     logr.Logger

	last   []string // the fields that needed a restart at the last read
	kept   options.Retention
	mapped []configv1beta2.DeviceClassMapping
	client options.Client
	failed string // the error of the last read, empty for none
}

// New returns a Reloader of a manager that was started with some options. load reads the file again, with the flags of the start; nil
// is no file. limit is the rate of the manager's requests.
func New(started *options.Options, load func() (options.Options, error), limit inflight.Throttle, log logr.Logger) *Reloader {
	r := &Reloader{load: load, started: *started, kept: started.Retention, mapped: started.Resources.DeviceClassMappings, client: started.Client, limit: limit, log: log}
	if load != nil {
		r.Rules, r.Deactivated = make(chan lifecycle.Rules, 1), make(chan *time.Duration, 1)
	}
	return r
}

// NeedLeaderElection is false: standbys follow the file, too.
func (r *Reloader) NeedLeaderElection() bool { return false }

// Start follows the file until ctx ends.
func (r *Reloader) Start(ctx context.Context) error {
	if r.load == nil {
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.reload()
		}
	}
}

func (r *Reloader) reload() {
	now, err := r.load()
	if err != nil {
		if r.failed != err.Error() {
			r.log.Error(errors.New("the configuration file is wrong"), "Going on with the configuration as it was", "problems", err.Error())
		}
		r.failed = err.Error()
		return
	}
	if r.failed != "" {
		r.log.Info("The configuration file is right again")
		r.failed = ""
	}
	changed := options.Changes(&r.started, &now)
	waiting := slices.DeleteFunc(slices.Clone(changed), func(path string) bool { return slices.Contains(takesEffect, path) })
	if !slices.Equal(waiting, r.last) {
		r.last = waiting
		if len(waiting) > 0 {
			r.log.Info("The configuration file was changed: for these fields to take effect install again with it, or restart a manager that installs by itself; "+
				"after a restart alone webhooks, rights and Services stay as they are", "fields", strings.Join(waiting, ", "))
		} else {
			r.log.Info("No field of the configuration file waits for a restart any more")
		}
	}
	r.retain(now.Retention)
	if r.Mappings != nil && !equality.Semantic.DeepEqual(now.Resources.DeviceClassMappings, r.mapped) {
		r.mapped = now.Resources.DeviceClassMappings
		r.Mappings(r.mapped)
		r.logApplied(deviceClassMappings)
	}
	if now.Client != r.client {
		r.client = now.Client
		r.limit.Set(now.Client.QPS, now.Client.Burst)
		r.logApplied("clientConnection")
	}
}

func (r *Reloader) retain(now options.Retention) {
	before := r.kept
	r.kept = now
	if !sameDuration(now.Finished, before.Finished) {
		with := r.started
		with.Retention = now
		replace(r.Rules, lookup.Rules(&with))
		r.logApplied(afterFinished)
	}
	if !sameDuration(now.Deactivated, before.Deactivated) {
		replace(r.Deactivated, now.Deactivated)
		r.logApplied(afterDeactivated)
		if now.Deactivated != nil {
			r.log.Info("Jobs are deleted some time after their Workload was deactivated by the manager", "after", now.Deactivated.String())
		}
	}
}

// replace sends a value to a channel with capacity 1, and drops an unreceived older one.
func replace[T any](into chan T, value T) {
	select {
	case <-into:
	default:
	}
	into <- value
}

func (r *Reloader) logApplied(field string) {
	r.log.Info("The configuration file was changed, which takes effect now", "field", field)
}

func sameDuration(a, b *time.Duration) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}
