package whatif

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/standalone"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/foresight/whatif"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/wire"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// base is the state before the change.
type base struct {
	state *state.State
	now   workload.Instant
	// world is the objects that the state is made of. For a flight record they are stand-ins, without ClusterQueues and Workloads.
	world    *offline.World
	recorded bool
	options  options.Options
	events   []state.Event    // of the world
	times    map[string]times // before the change, by UID
	changed  map[string]times // of the Workloads that the change adds or replaces
}

// times are how long a Workload runs, 0 for unknown.
type times struct{ expected, bound workload.Instant }

// runTime returns the run times of Workloads; otherwise is that of those which do not say, 0 for none.
func (b *base) runTime(otherwise workload.Instant, after bool) whatif.RunTime {
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
		if ran := b.now - def.ReservedAt; def.Reserved && ran >= length { // its time counts from now on
			length += ran
		}
		if t.bound > 0 {
			length = min(length, t.bound)
		}
		return length, from
	}
}

func (c *command) open(cmd *cobra.Command) (*base, error) {
	c.namespace, _ = cmd.Flags().GetString("namespace")
	switch {
	case c.record != "":
		return c.fromRecord()
	case c.cluster != "":
		w, settings, err := c.readCluster()
		if err != nil {
			return nil, err
		}
		return c.newBase(w, c.cluster, settings, nil)
	}
	return c.fromLive(cmd)
}

func (c *command) fromLive(cmd *cobra.Command) (*base, error) {
	s, err := c.connection.Open(cmd, c.version, c.now)
	if err != nil {
		return nil, err
	}
	c.namespace = s.Namespace
	w, err := standalone.Read(cmd.Context(), s)
	if err != nil {
		return nil, s.Advise(cmd.Context(), err)
	}
	c.notes = append(c.notes, w.Left...)
	var settings []byte
	if c.config != "" {
		if settings, err = os.ReadFile(c.config); err != nil {
			return nil, err
		}
	}
	return c.newBase(w.World, c.config, settings, w.Foreign)
}

// readCluster reads the files of --cluster.
func (c *command) readCluster() (w *offline.World, settings []byte, err error) {
	names := []string{c.cluster}
	if info, err := os.Stat(c.cluster); err == nil && info.IsDir() {
		names = nil
		for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
			some, _ := filepath.Glob(filepath.Join(c.cluster, pattern)) // the pattern is right
			names = append(names, some...)
		}
		if len(names) == 0 {
			return nil, nil, fmt.Errorf("--cluster %s: has no .yaml, .yml or .json files", c.cluster)
		}
		slices.Sort(names)
	}
	w = &offline.World{}
	for _, name := range names {
		data, err := c.readFile(name)
		if err != nil {
			return nil, nil, err
		}
		some, own, err := offline.Read(name, data)
		if err != nil {
			return nil, nil, err
		}
		if own != nil && settings != nil {
			return nil, nil, fmt.Errorf("%s: settings of the manager are in another file of %s already", name, c.cluster)
		}
		if own != nil {
			settings, c.cluster = own, name
		}
		w = w.With(some)
	}
	return w, settings, nil
}

func (c *command) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(name)
}

// newBase makes the state of a world. source is the file of the settings.
func (c *command) newBase(w *offline.World, source string, settings []byte, more []state.Event) (*base, error) {
	if settings == nil {
		source = "" // all settings have their defaults
	}
	o, err := options.Parse(source, settings, "")
	if err != nil {
		return nil, err
	}
	now := c.now()
	w.Stamp(metav1.NewTime(now))
	if len(offline.All[*kueue.ClusterQueue](w)) == 0 {
		return nil, errors.New("there is no ClusterQueue: a what-if needs the queues, as objects of kueue.x-k8s.io/v1beta2")
	}
	b := &base{now: workload.Instant(now.UnixNano()), world: w, options: o, times: map[string]times{}, changed: map[string]times{}}
	if b.state, b.events, err = w.NewState(wire.StateOptions(&o), wire.Requests(&o), more); err != nil {
		return nil, err
	}
	for _, of := range offline.All[*kueue.Workload](w) {
		b.times[string(of.UID)] = c.timesOf(of)
	}
	return b, nil
}

// requests returns how Workloads are converted among the objects of a world.
func (b *base) requests(w *offline.World) convert.Requests {
	r := wire.Requests(&b.options)
	r.Around = w.Around()
	return r
}

// timesOf returns how long a Workload runs.
func (c *command) timesOf(w *kueue.Workload) times {
	expected, err := convert.ExpectedRun(w)
	if err != nil {
		c.note("Workload %s/%s: %v: it counts as unknown", w.Namespace, w.Name, err)
	}
	return times{expected, convert.RunLimit(w)}
}

// fromRecord makes the state that a flight record ends with.
func (c *command) fromRecord() (*base, error) {
	from := c.in
	if c.record != "-" {
		file, err := os.Open(c.record)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	b := &base{recorded: true, changed: map[string]times{}}
	s, _, err := sim.Replay(from, func(step state.Step, _ cycle.Result) { b.now = max(b.now, step.Now) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.record, err)
	}
	for def := range s.Overview() { // in case there was no step
		b.now = max(b.now, def.Created, def.ReservedAt)
	}
	b.state = s
	if b.options, err = options.Parse("", nil, ""); err != nil {
		return nil, err
	}
	b.world = standIns(s.Checkpoint().Snapshot())
	b.events, err = b.world.Events(false)
	c.note("a flight record does not have the run times of Workloads, their limit ranges and runtime classes")
	return b, err
}

// standIns are objects with the names and relations that changes of a flight record need.
func standIns(from *state.Snapshot) *offline.World {
	w := &offline.World{}
	name := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	for i := range from.Flavors {
		f := &from.Flavors[i]
		rf := &kueue.ResourceFlavor{ObjectMeta: name("", f.Name)}
		rf.Spec.NodeLabels = f.Labels
		if f.Topology != "" {
			rf.Spec.TopologyName = kueue.TopologyReference(f.Topology)
			t := &kueue.Topology{ObjectMeta: name("", f.Topology)}
			for _, level := range f.Levels {
				t.Spec.Levels = append(t.Spec.Levels, kueue.TopologyLevel{NodeLabel: level})
			}
			w.Add(t)
		}
		w.Add(rf)
	}
	for i := range from.Cohorts {
		co := &kueue.Cohort{ObjectMeta: name("", from.Cohorts[i].Name)}
		co.Spec.ParentName = kueue.CohortReference(from.Cohorts[i].Parent)
		w.Add(co)
	}
	for _, lq := range from.LocalQueues {
		o := &kueue.LocalQueue{ObjectMeta: name(lq.Namespace, lq.Name)}
		o.Spec.ClusterQueue = kueue.ClusterQueueReference(lq.Queue)
		w.Add(o)
	}
	for _, n := range from.Namespaces {
		w.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
	}
	return w
}

// knownQueues returns the ClusterQueues of the state by name.
func (b *base) knownQueues() map[string]state.Queue {
	out := map[string]state.Queue{}
	for _, q := range b.state.QueueDefinitions() {
		out[q.Name] = q
	}
	return out
}
