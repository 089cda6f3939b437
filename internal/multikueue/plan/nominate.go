package plan

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// dispatch (rule 9) nominates clusters, and creates and removes copies accordingly (spec: 40 §4.5).
func (d *decider) dispatch() bool {
	for _, c := range d.w.Status.AdmissionChecks {
		if c.Name != d.o.Check && c.State != kueue.CheckStateReady {
			return true // the event of that write requeues the Workload
		}
	}
	if d.refused() {
		return true
	}
	d.leaveEarlierRuns()
	names := d.nominations()
	for i := range d.clusters {
		c := &d.clusters[i]
		nominated := c.Listed && slices.Contains(names, c.Name)
		d.requeueAfterSkip(c)
		switch {
		case !c.Connected:
		case !nominated:
			d.remove(c)
		case c.Copy == nil && !slices.Contains(d.leaving, c.Name) && !c.Lacks && !c.skipped():
			d.do(Step{Do: CreateCopy, Cluster: c.Name, Workload: d.newCopy()})
		case d.lacksGate(c) || slices.Contains(d.leaving, c.Name):
			d.remove(c) // nothing to do if it was removed before
			d.requeueAfter(deferred)
		}
	}
	d.report()
	return true
}

// lacksGate reports whether a waiting copy was created again without its gate, before the Workload was evicted and got quota again: it
// would preempt although no gate was opened. Copies whose worker cluster does not store gates stay.
func (d *decider) lacksGate(c *Cluster) bool {
	return d.Orchestrated && c.Copy != nil && c.Copy.Annotations[WithoutGateAnnotation] != "" && !lifecycle.IsReserved(c.Copy)
}

// nominations returns the clusters that may have a copy, updated unless an external dispatcher decides.
func (d *decider) nominations() []string {
	switch {
	case d.o.Job.Siblings != nil:
		return d.nominateTogether(d.o.Job.Siblings)
	case d.w.Status.ClusterName != "": // an elastic slice follows the one that it replaces
		return []string{d.w.Status.ClusterName}
	}
	return d.nominateByMode()
}

func (d *decider) nominateByMode() []string {
	switch d.Mode {
	case AllAtOnce:
		return d.nominateAll()
	case Incremental:
		return d.nominateNext()
	case External:
	}
	return d.w.Status.NominatedClusterNames
}

// leaveEarlierRuns removes copies with a job from clusters that are not nominated: they return with lost clusters.
func (d *decider) leaveEarlierRuns() {
	for i := range d.clusters {
		c := &d.clusters[i]
		if c.Connected && c.HasJob && c.Name != d.w.Status.ClusterName && !slices.Contains(d.w.Status.NominatedClusterNames, c.Name) {
			d.remove(c)
			d.leaving = append(d.leaving, c.Name)
			d.requeueAfter(deferred)
		}
	}
}

func (d *decider) requeueAfterSkip(c *Cluster) {
	if c.Listed && c.skipped() && !c.Fault.Until.IsZero() {
		d.requeueAfter(c.Fault.Until.Sub(d.o.Now.Time))
	}
}

func (c *Cluster) skipped() bool { return c.Fault != nil && c.Fault.Skip }

// answersSoon reports whether the state of the cluster is unknown only for a moment.
func (c *Cluster) answersSoon() bool { return c.Slow || c.Busy }

// stays reports whether a nomination of the cluster remains. A manager that has just started removes none: it would nominate the same
// clusters again a moment later.
func (c *Cluster) stays() bool {
	return c.usable() || ((c.answersSoon() || c.Untried) && c.Listed && !c.skipped())
}

func (c *Cluster) usable() bool { return c.Listed && c.Connected && !c.Lacks && !c.skipped() }

// refused retries a job that every cluster refused, or that no copy can be created of, and rejects it in the end. A disconnected cluster
// has not refused it.
func (d *decider) refused() bool {
	var message strings.Builder
	message.WriteString("Every worker cluster refused the job")
	refusals, transforms := 0, 0
	for i := range d.clusters {
		c := &d.clusters[i]
		if !c.Listed || c.Lacks {
			continue
		}
		switch {
		case !c.skipped(), c.Fault.Waits:
			return false
		case isTransform(c.Fault.Code):
			transforms++
		case c.Fault.Code != CreateRejected:
			return false
		}
		refusals++
		message.WriteString("; " + c.Fault.on(c.Name))
	}
	switch {
	case refusals == 0:
		return false
	case transforms == refusals && !d.o.Job.RetryRefused, d.check.RetryCount != nil && *d.check.RetryCount >= maxRejections && transforms == 0:
		d.removeAll()
		d.writeCheck(kueue.CheckStateRejected, message.String(), lifecycle.Event{Warning: true, Reason: EventReason, Note: message.String()})
	default:
		d.removeAll()
		d.retry(message.String(), true)
	}
	return true
}

func isTransform(code string) bool {
	switch code {
	case external.Failed, external.CostExceeded, external.Forbidden, external.UnsupportedList, external.TooLarge:
		return true
	}
	return false
}

// NominateAtOnce returns the nominations of rule 9 that may be written with the reservation. Nil means that rule 9 decides: objects of an
// earlier run remain, another mode nominates, or the Workload follows others of its job.
func (c *Config) NominateAtOnce(w *kueue.Workload, clusters []Cluster) []string {
	if c.Mode == External || (c.Elastic && job.IsElastic(w)) || w.Annotations[kueue.ComponentWorkloadIndexAnnotation] != "" ||
		w.Status.ClusterName != "" || len(w.Status.NominatedClusterNames) > 0 ||
		slices.ContainsFunc(clusters, func(c Cluster) bool { return c.Copy != nil || c.HasJob }) {
		return nil
	}
	if c.Mode == Incremental {
		return c.nextOf(clusters, nil)
	}
	return usableNames(clusters, nil)
}

func (c *Config) nextOf(clusters []Cluster, have []string) []string {
	rest := c.rest(clusters, have)
	return rest[:min(c.StepSize, len(rest))]
}

func (c *Config) rest(clusters []Cluster, have []string) []string {
	var rest []string
	for i := range clusters {
		if clusters[i].usable() && !slices.Contains(have, clusters[i].Name) {
			rest = append(rest, clusters[i].Name)
		}
	}
	if !c.ConfigOrder {
		slices.Sort(rest)
	}
	return rest
}

// usableNames returns the usable clusters by name. One that may answer soon and was nominated stays.
func usableNames(clusters []Cluster, before []string) []string {
	names := []string{}
	for i := range clusters {
		c := &clusters[i]
		if c.usable() || (c.stays() && slices.Contains(before, c.Name)) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (d *decider) nominateAll() []string {
	names := usableNames(d.clusters, d.w.Status.NominatedClusterNames)
	if slices.Equal(slices.Sorted(slices.Values(d.w.Status.NominatedClusterNames)), names) {
		return names
	}
	d.nominate(names)
	return names
}

func (d *decider) nominate(names []string) {
	next := d.w.DeepCopy()
	next.Status.NominatedClusterNames = names
	if len(names) == 0 {
		next.Status.NominatedClusterNames = nil
	}
	d.do(Step{Do: WriteStatus, Workload: next, Blocks: true})
	d.w = next // later writes of this plan start from it
}

// nominateNext adds the next clusters when a round is over: in time, or when no nominated cluster is connected. Earlier nominations stay,
// except for clusters that left the configuration.
func (d *decider) nominateNext() []string {
	have := d.listed(d.w.Status.NominatedClusterNames)
	rest := d.rest(d.clusters, have)
	reachable := slices.ContainsFunc(d.clusters, func(c Cluster) bool { return slices.Contains(have, c.Name) && c.stays() })
	if len(have) > 0 && reachable {
		start := d.roundStart(len(d.w.Status.NominatedClusterNames) <= d.StepSize)
		if left := d.RoundTimeout - d.o.Now.Sub(start); left > 0 {
			if len(rest) > 0 {
				d.requeueAfter(left)
			}
			return have
		}
	}
	if len(rest) == 0 {
		return have // later clusters requeue the Workload
	}
	names := slices.Concat(have, d.nextOf(d.clusters, have))
	d.startRound()
	d.nominate(names)
	if len(rest) > d.StepSize {
		d.requeueAfter(d.RoundTimeout)
	}
	return names
}

// listed returns the names of clusters of the configuration.
func (d *decider) listed(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		c := d.cluster(name)
		return c == nil || !c.Listed
	})
}

// roundStart returns when the last round began: as recorded, but not before the reservation, which starts the first round without a
// record. A later round without a record begins anew.
func (d *decider) roundStart(first bool) time.Time {
	reserved := lifecycle.Condition(d.w, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
	start, err := time.Parse(time.RFC3339, d.w.Annotations[RoundStartAnnotation])
	switch {
	case err == nil && start.After(reserved):
		return start
	case err == nil || first:
		return reserved
	}
	d.startRound()
	return d.o.Now.Time
}

// startRound records that a round begins, before the nominations: a crash in between makes a round longer, never shorter.
func (d *decider) startRound() {
	d.annotate(RoundStartAnnotation, d.o.Now.UTC().Format(time.RFC3339))
}

func (d *decider) annotate(key, value string) {
	next := d.w.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	d.do(Step{Do: Annotate, Workload: next, Blocks: true})
	d.w = next // later writes of this plan start from it
}
