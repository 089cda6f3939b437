// Package whatif is the command that shows what a change of queues, workloads or nodes would do. It writes nothing to a cluster.
package whatif

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight/whatif"
)

const help = `Shows what a change would do before it is made: who starts, who is preempted, who waits longer and by how much. The queues run forward
twice on copies, without the change and with it; what differs is the answer. Nothing is written, and only lists are read: no manager has
to run, and the queues may be those of another controller of the same API.

  berth whatif --quota research=nvidia.com/gpu:+16                   16 more GPUs for one ClusterQueue
  berth whatif -f change.yaml --fail-on preemption                   in CI: exit code 3 if the change preempts any workload
  berth whatif --submit job.yaml --queue main -n team-a              when would this job start, and at whose cost?
  berth whatif --drain node-7 --horizon 8h
  berth whatif --cluster dump.yaml -f change.yaml --run-time 1h      objects from files instead of a cluster
  berth whatif --record flight.jsonl --quota research=cpu:=64        from a manager's flight record

The state is that of the cluster of the kubeconfig, or of files: kubectl get -o yaml of namespaces, nodes, resourceflavors, topologies,
admissionchecks, cohorts, clusterqueues, localqueues, workloadpriorityclasses, workloads, limitranges. A file may have settings of
the manager (kind Configuration); --config gives those of a live one, whose defaults count otherwise.

A change is objects that are added, or replace those of the same kind and name (-f): queues, cohorts, flavors, topologies, priority classes,
nodes, limit ranges, Workloads, and jobs with the label kueue.x-k8s.io/queue-name. Deleting is --delete KIND/NAME.

How long workloads run decides who starts when. A Workload says it with the label or annotation berth.dev/expected-run-seconds;
spec.maximumExecutionTimeSeconds is an upper bound; --run-time counts for all others. A workload without any of them holds its quota up to the
horizon, and the report counts these. A workload that has already run longer than expected is taken to run for as long again from now on.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a condition of --fail-on holds: preemption (a workload is preempted or evicted), wait (one waits
longer), never (one does not start within the horizon, or not again, and would without the change; or a new one does not).`

// exitFound is the exit code if a condition of --fail-on holds.
const exitFound = 3

// found is that a condition of --fail-on holds.
type found struct{ error }

func (found) ExitCode() int { return exitFound }

// command is the command line.
type command struct {
	cluster, record, config string
	live                    bool
	files, deletes          []string
	quotas, drains          []string
	submits                 []string
	queue                   string
	horizon, runTime, grace time.Duration
	failOn                  []string
	format                  string
	rows                    int
	connection              cluster.Connection
	version                 string
	now                     func() time.Time
	namespace               string
	in                      io.Reader
	out, errs               io.Writer
	notes                   []string // about the input, for the report
}

// New makes the command.
func New(version string) *cobra.Command { return newCommand(&command{version: version, now: time.Now}) }

func newCommand(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use: "whatif", Short: "what a change of queues, workloads or nodes would do: who starts, is preempted, waits longer", Long: help,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cluster.Usage("whatif takes no argument: a file of changes is -f %s", args[0])
			}
			c.in, c.out, c.errs = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return c.run(cmd)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.live, "live", false, "take the state from the cluster of the kubeconfig (the default)")
	f.StringVar(&c.cluster, "cluster", "", "take the state from a `FILE` of objects, or from the .yaml, .yml and .json files of a directory")
	f.StringVar(&c.record, "record", "", "take the state from a flight record, a `FILE` or - for the standard input")
	f.StringVar(&c.config, "config", "", "`FILE` with the settings of the manager of a live cluster (default: the defaults)")
	f.StringArrayVarP(&c.files, "filename", "f", nil, "`FILE` of objects that are added or replaced, or -; may be repeated")
	f.StringArrayVar(&c.quotas, "quota", nil, "change of a nominal quota, as `QUEUE=[FLAVOR/]RESOURCE:AMOUNT` with +16, -8 or =32; may be repeated")
	f.StringArrayVar(&c.submits, "submit", nil, "`FILE` of new jobs or Workloads, or -; may be repeated")
	f.StringVar(&c.queue, "queue", "", "the LocalQueue of what --submit adds (default: the one that it names)")
	f.StringArrayVar(&c.drains, "drain", nil, "`NODE` to drain, for flavors with a topology; may be repeated")
	f.StringArrayVar(&c.deletes, "delete", nil, "object to delete, as `KIND/NAME` or KIND/NAMESPACE/NAME; may be repeated")
	f.DurationVar(&c.horizon, "horizon", 2*time.Hour, "how far ahead to look")
	f.DurationVar(&c.runTime, "run-time", 0, "how long workloads run that do not say so (default: up to the horizon)")
	f.DurationVar(&c.grace, "grace", 30*time.Second, "how long the pods of a preempted workload take to end")
	f.StringSliceVar(&c.failOn, "fail-on", nil, "exit with 3 on `CONDITIONS`: preemption, wait, never; several with commas")
	f.IntVar(&c.rows, "rows", 40, "how many workloads and quotas a table lists at most")
	f.StringVarP(&c.format, "output", "o", "table", "table, json or yaml")
	c.connection.Add(cmd)
	f.SortFlags = false
	return cmd
}

var conditions = []string{"preemption", "wait", "never"}

func (c *command) check() error {
	if err := c.checkNumbers(); err != nil {
		return err
	}
	sources := []bool{c.live, c.cluster != "", c.record != ""}
	sources = slices.DeleteFunc(sources, func(given bool) bool { return !given })
	switch {
	case len(sources) > 1:
		return cluster.Usage("--live, --cluster and --record: give one of them")
	case c.config != "" && (c.cluster != "" || c.record != ""):
		return cluster.Usage("--config %s: is for a live cluster; the files of --cluster may have settings, and a record has them", c.config)
	case len(c.files)+len(c.quotas)+len(c.submits)+len(c.drains)+len(c.deletes) == 0:
		return cluster.Usage("no change is given: use -f, --quota, --submit, --drain or --delete, see --help")
	case c.queue != "" && len(c.submits) == 0:
		return cluster.Usage("--queue %s: is for what --submit adds", c.queue)
	case !slices.Contains([]string{"table", "json", "yaml"}, c.format):
		return cluster.Usage("-o %s: must be table, json or yaml", c.format)
	}
	for _, of := range c.failOn {
		if !slices.Contains(conditions, of) {
			return cluster.Usage("--fail-on %s: must be %s; several with commas", of, strings.Join(conditions, ", "))
		}
	}
	return nil
}

func (c *command) checkNumbers() error {
	if err := whatif.CheckHorizon(c.horizon); err != nil {
		return cluster.Usage("--horizon %s: %w", c.horizon, err)
	}
	switch {
	case c.runTime < 0:
		return cluster.Usage("--run-time %s: must not be negative, as in 1h", c.runTime)
	case c.grace < time.Second:
		return cluster.Usage("--grace %s: must be 1s or more, as in 30s", c.grace)
	case c.rows < 1:
		return cluster.Usage("--rows %d: must be 1 or more", c.rows)
	}
	return nil
}

func (c *command) run(cmd *cobra.Command) error {
	if err := c.check(); err != nil {
		return err
	}
	b, err := c.open(cmd)
	if err != nil {
		return err
	}
	events, err := c.change(b)
	if err != nil {
		return err
	}
	c.notes = b.Notes
	r, err := whatif.Compare(b.State.Checkpoint(), events, whatif.Options{
		Now: b.Begin, Horizon: workload.Instant(c.horizon), Grace: workload.Instant(c.grace), Both: together,
		RunTime: b.RunTime(workload.Instant(c.runTime), false), RunTimeAfter: b.RunTime(workload.Instant(c.runTime), true),
	})
	if err != nil {
		return err
	}
	if err := c.write(r); err != nil {
		return err
	}
	return c.judge(r)
}

// together calls two functions at the same time.
func together(a, b func()) {
	var done sync.WaitGroup
	done.Go(a)
	done.Go(b)
	done.Wait()
}

func (c *command) write(r *whatif.Report) error {
	if c.format == "table" {
		return c.writeTable(r)
	}
	text, err := json.MarshalIndent(struct {
		*whatif.Report
		Notes []string `json:"notes,omitempty"`
	}{r, c.notes}, "", "  ")
	if err == nil && c.format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out, strings.TrimSuffix(string(text), "\n"))
	return err
}

// judge returns an error for the conditions of --fail-on that hold.
func (c *command) judge(r *whatif.Report) error {
	counts := map[string]int{}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		if w.Effect == whatif.Evicted {
			counts["preemption"]++
		}
		if w.Longer > 0 && w.Effect != whatif.New {
			counts["wait"]++
		}
		isStuck := w.After != nil && w.After.Waiting && (w.Effect == whatif.New || !w.Before.Waiting)
		if isStuck || w.Effect == whatif.Stranded {
			counts["never"]++
		}
	}
	var why []string
	for _, of := range conditions {
		if n := counts[of]; n > 0 && slices.Contains(c.failOn, of) {
			why = append(why, fmt.Sprintf("--fail-on %s: %s", of, trace.Plural(n, "workload")))
		}
	}
	if len(why) > 0 {
		return found{errors.New(strings.Join(why, "; "))}
	}
	return nil
}
