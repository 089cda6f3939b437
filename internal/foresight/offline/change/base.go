// Package change makes the events of a change of queues, workloads or nodes, for a what-if: of objects, quotas, drained nodes, new workloads
// and deletions, as the command and the dashboard take them.
package change

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/foresight/whatif"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Settings are the settings of a manager that decide about new objects.
type Settings struct {
	Requests convert.Requests
	Kinds    []*job.Descriptor
	Jobs     *job.Config
	// IgnoreUndeclared: requests of resources that a ClusterQueue does not offer do not count.
	IgnoreUndeclared bool
}

// JobKind returns the kind of jobs of a name such as job or jobs, nil for none.
func (s *Settings) JobKind(name string) *job.Descriptor {
	name = strings.ToLower(name)
	for _, d := range s.Kinds {
		if name == strings.ToLower(d.GVK.Kind) || name == d.Resource {
			return d
		}
	}
	return nil
}

// Base is the state before a change.
type Base struct {
	Settings
	State *state.State
	// World is the objects that the State is made of. For a flight record they are stand-ins, without ClusterQueues and Workloads.
	World    *offline.World
	Recorded bool
	// Now is the time of new objects, and Begin when the futures begin.
	Now   time.Time
	Begin workload.Instant
	// Notes are remarks on the objects that an answer should contain.
	Notes []string

	events  []state.Event    // of the world
	times   map[string]times // before the change, by UID
	changed map[string]times // of the Workloads that the change adds or replaces
}

// times are how long a Workload runs, 0 for unknown.
type times struct{ expected, bound workload.Instant }

// New completes a Base. events are the events of its World, nil if they are not known.
func New(b Base, events []state.Event) (*Base, error) {
	b.events, b.times, b.changed = events, map[string]times{}, map[string]times{}
	if events == nil {
		var err error
		if b.events, err = b.World.Events(b.Requests.Variants); err != nil {
			return nil, err
		}
	}
	for _, of := range offline.All[*kueue.Workload](b.World) {
		b.times[string(of.UID)] = b.timesOf(of)
	}
	return &b, nil
}

// RunTime returns the run times of Workloads, before the change or after it. otherwise is the run time of Workloads without one, 0 for none.
func (b *Base) RunTime(otherwise workload.Instant, after bool) whatif.RunTime {
	return func(def *state.Workload) (workload.Instant, whatif.Source) {
		t := b.times[def.UID]
		if changed, is := b.changed[def.UID]; is && after {
			t = changed
		}
		length, from := t.expected, whatif.Expected
		if length == 0 && t.bound > 0 {
			return t.bound, whatif.Bound
		}
		if length == 0 {
			length, from = otherwise, whatif.Assumed
		}
		if length == 0 {
			return 0, whatif.Unknown
		}
		if ran := b.Begin - def.ReservedAt; def.Reserved && ran >= length { // its time counts from now on
			length += ran
		}
		if t.bound > 0 {
			length = min(length, t.bound)
		}
		return length, from
	}
}

// timesOf returns how long a Workload runs.
func (b *Base) timesOf(w *kueue.Workload) times {
	expected, err := convert.ExpectedRun(w)
	if err != nil {
		b.note("Workload %s/%s: %v: it counts as unknown", w.Namespace, w.Name, err)
	}
	return times{expected, convert.RunLimit(w)}
}

func (b *Base) note(format string, args ...any) {
	b.Notes = append(b.Notes, fmt.Sprintf(format, args...))
}

// requests returns how Workloads are converted among the objects of a world.
func (b *Base) requests(w *offline.World) convert.Requests {
	r := b.Requests
	r.Around = w.Around()
	return r
}

// knownQueues returns the ClusterQueues of the state by name.
func (b *Base) knownQueues() map[string]state.Queue {
	out := map[string]state.Queue{}
	for _, q := range b.State.QueueDefinitions() {
		out[q.Name] = q
	}
	return out
}

func (b *Base) stamp() metav1.Time { return metav1.NewTime(b.Now) }
