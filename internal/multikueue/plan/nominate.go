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

// dispatch (rule 9) nominates clusters, and makes and removes copies accordingly (spec: 40 §4.5).
func (d *decider) dispatch() bool {
	for _, c := range d.w.Status.AdmissionChecks {
		if c.Name != d.o.Check && c.State != kueue.CheckStateReady {
			return true // its own event brings the Workload back
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
		d.wakeAfter(c)
		switch {
		case !c.Connected:
		case !nominated:
			d.remove(c)
		case c.Copy == nil && !slices.Contains(d.leaving, c.Name) && !c.skipped():
			d.do(Step{Do: CreateCopy, Cluster: c.Name, Workload: d.newCopy(), Dispatched: true})
		case slices.Contains(d.leaving, c.Name):
			d.remove(c) // nothing, if it was removed before
			d.wake(deferred)
		}
	}
	d.report()
	return true
}

// nominations are the clusters that may hold a copy, brought up to date if they are ours to say.
func (d *decider) nominations() []string {
	switch {
	case d.o.Job.Siblings != nil:
		return d.nominateTogether(d.o.Job.Siblings)
	case d.w.Status.ClusterName != "": // an elastic slice goes where the one before it is
		return []string{d.w.Status.ClusterName}
	case d.Mode == AllAtOnce:
		return d.nominateAll()
	case d.Mode == Incremental:
		return d.nominateNext()
	}
	return d.w.Status.NominatedClusterNames
}

// leaveEarlierRuns removes copies with a job from clusters that are not nominated: a worker that came back brought them along.
func (d *decider) leaveEarlierRuns() {
	for i := range d.clusters {
		c := &d.clusters[i]
		if c.Connected && c.HasJob && c.Name != d.w.Status.ClusterName && !slices.Contains(d.w.Status.NominatedClusterNames, c.Name) {
			d.remove(c)
			d.leaving = append(d.leaving, c.Name)
			d.wake(deferred)
		}
	}
}

// wakeAfter asks for a look when a cluster that is left out counts again.
func (d *decider) wakeAfter(c *Cluster) {
	if c.Listed && c.skipped() && !c.Fault.Until.IsZero() {
		d.wake(c.Fault.Until.Sub(d.o.Now.Time))
	}
}

func (c *Cluster) skipped() bool { return c.Fault != nil && c.Fault.Skip }

// answersSoon says whether nothing is known of the cluster only for a moment.
func (c *Cluster) answersSoon() bool { return c.Slow || c.Busy }

// stays says whether a cluster that was nominated can be used, or will be in a moment.
func (c *Cluster) stays() bool { return c.usable() || (c.answersSoon() && c.Listed && !c.skipped()) }

// usable says whether our dispatchers nominate the cluster.
func (c *Cluster) usable() bool { return c.Listed && c.Connected && !c.Lacks && !c.skipped() }

// refused asks for another try of a job that every cluster refused, or that cannot be made for any of them, and rejects it in the end. One that
// cannot be reached just now has not refused it.
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

// isTransform says whether a fault is that of a transform.
func isTransform(code string) bool {
	switch code {
	case external.Failed, external.CostExceeded, external.Forbidden, external.UnsupportedList, external.TooLarge:
		return true
	}
	return false
}

// NominateAtOnce are the clusters that the Workload may be written to be nominated to with its reservation: those that rule 9 would
// nominate. None means that rule 9 has to look at it: something of an earlier run is left, another mode decides, or it goes where others
// of its job are.
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

// nextOf are the clusters of the next round behind those that are nominated already.
func (c *Config) nextOf(clusters []Cluster, have []string) []string {
	rest := c.rest(clusters, have)
	return rest[:min(c.StepSize, len(rest))]
}

// rest are the clusters that can be nominated and are not yet, in the order of rounds.
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

// usableNames are the clusters that can be used, by name. One that has not answered for a moment stays among those that were nominated.
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

// nominateAll nominates all clusters that can be used. A list that has them in another order stays as it is.
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
	d.w = next // what is written later in this plan is made of it
}

// nominateNext adds the next clusters when a round is over: at its time, or when none of those that were nominated can be
// reached. What was nominated stays.
func (d *decider) nominateNext() []string {
	have := d.w.Status.NominatedClusterNames
	rest := d.rest(d.clusters, have)
	reachable := slices.ContainsFunc(d.clusters, func(c Cluster) bool { return slices.Contains(have, c.Name) && c.stays() })
	if len(have) > 0 && reachable {
		start := d.roundStart(len(have) <= d.StepSize)
		if left := d.RoundTimeout - d.o.Now.Sub(start); left > 0 {
			if len(rest) > 0 {
				d.wake(left)
			}
			return have
		}
	}
	if len(rest) == 0 {
		return have // more may come by and by, and bring the Workload back
	}
	names := slices.Concat(have, d.nextOf(d.clusters, have))
	d.startRound()
	d.nominate(names)
	if len(rest) > d.StepSize {
		d.wake(d.RoundTimeout)
	}
	return names
}

// roundStart is when the last round began: when it was noted, but not before the reservation, which makes the first round with it and notes
// nothing. If a later round has lost its note it begins anew.
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

// startRound notes on the Workload that a round begins. It comes before the nominations, so that a crash between the two makes a
// round longer, never shorter.
func (d *decider) startRound() {
	d.annotate(RoundStartAnnotation, d.o.Now.UTC().Format(time.RFC3339))
}

// annotate writes something down on the Workload before what comes after it is done.
func (d *decider) annotate(key, value string) {
	next := d.w.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	d.do(Step{Do: Annotate, Workload: next, Blocks: true})
	d.w = next // what is written later in this plan is made of it
}
