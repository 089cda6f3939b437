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
	"github.com/berth-project/berth/internal/foresight/offline/change"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/wire"
)

func (c *command) open(cmd *cobra.Command) (*change.Base, error) {
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

func (c *command) fromLive(cmd *cobra.Command) (*change.Base, error) {
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
func (c *command) newBase(w *offline.World, source string, settings []byte, more []state.Event) (*change.Base, error) {
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
	made, events, err := w.NewState(wire.StateOptions(&o), wire.Requests(&o), more)
	if err != nil {
		return nil, err
	}
	return change.New(change.Base{Settings: wire.ChangeSettings(&o), State: made, World: w, Now: now, Begin: workload.Instant(now.UnixNano()), Notes: c.notes}, events)
}

// fromRecord makes the state that a flight record ends with.
func (c *command) fromRecord() (*change.Base, error) {
	from := c.in
	if c.record != "-" {
		file, err := os.Open(c.record)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	b := change.Base{Recorded: true, Now: c.now()}
	s, _, err := sim.Replay(from, func(step state.Step, _ cycle.Result) { b.Begin = max(b.Begin, step.Now) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.record, err)
	}
	for def := range s.Overview() { // in case there was no step
		b.Begin = max(b.Begin, def.Created, def.ReservedAt)
	}
	b.State = s
	o, err := options.Parse("", nil, "")
	if err != nil {
		return nil, err
	}
	b.Settings = wire.ChangeSettings(&o)
	b.World = standIns(s.Checkpoint().Snapshot())
	b.Notes = append(c.notes, "a flight record does not have the run times of Workloads, their limit ranges and runtime classes")
	return change.New(b, nil)
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
