// Package simulate is `berth simulate`: a workload trace against a cluster, under one or several configurations side by side.
package simulate

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/foresight/simulation"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/wire"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

const help = `Runs a workload trace against a cluster, in seconds for days of it, and shows how long jobs wait, how much of the quota is used and how
often jobs are preempted. The decisions are the manager's own; nothing is written anywhere.

  berth simulate                                             100,000 made-up jobs on 10,000 GPUs
  berth simulate --config now.yaml --config fair.yaml        two configurations side by side
  berth simulate --trace jobs.csv --cluster cluster.yaml
  berth simulate --trace LOG.swf --cluster cluster.yaml --processor cpu=1
  berth simulate --live --trace jobs.csv --config bigger-quota.yaml
  berth simulate --config now.yaml --config fair.yaml -o html > report.html

--cluster is a file with ClusterQueues, LocalQueues, Cohorts, ResourceFlavors, Topologies, Nodes and Namespaces, as kubectl apply takes them;
other objects in it do not matter. --live reads them from the cluster of your kubeconfig instead. Each --config is objects that are added,
or that replace those of the same name, and settings of the manager (apiVersion config.kueue.x-k8s.io/v1beta2), or one of the two.

A trace is CSV, or the Standard Workload Format if its name ends in .swf. The first line of CSV names the columns: submit and run in seconds
(submit may be a date); optional are name, queue (as namespace/name), class, priority, pods, owner, limit, the time limit in seconds that
stops a job, required or preferred, the level of a topology in one domain of which all pods have to be, or should be, and slice with
slice-size, the level in one domain of which each so many pods have to be; every other column is a resource, with the request of one pod:

  submit,run,queue,pods,nvidia.com/gpu
  0,3600,research/research,4,8
  30,120,students/students,1,1

Jobs without a queue are spread over the LocalQueues by their owners, in SWF the users. Without a trace, jobs are made up: --jobs of them in
--days, whose work is --load times what the quota can do; --seed makes others.

A wait is from the submission to the first start. A slowdown is the wait and the run time as a multiple of the run time, of 10 s at least.
REPEATED is work that preempted jobs had to do again. IDLE is quota that was free while something waited. FAIRNESS is 1 where the mean
slowdowns of all queues are equal, and 1/n where one of n bears all. FRAGMENTED is 0 % while one domain of the level is free, or has all that
is free, and near 100 % while each has a little.`

// command is the command line.
type command struct {
	trace, cluster, processor, format string
	configs                           []string
	jobs                              int
	days, load                        float64
	seed                              uint64
	until, grace                      time.Duration
	live                              bool
	required, preferred               string

	connection cluster.Connection
	version    string
	out, errs  io.Writer
}

// New makes the command.
func New(version string) *cobra.Command {
	c := &command{version: version}
	cmd := &cobra.Command{
		Use: "simulate", Short: "what a workload trace would come to, under one or several configurations", Long: help,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cluster.Usage("simulate takes no argument: a trace is --trace %s", args[0])
			}
			c.out, c.errs = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return c.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.trace, "trace", "", "`FILE` of jobs, CSV or .swf, or - for CSV on the standard input (default: jobs are made up)")
	f.StringVar(&c.cluster, "cluster", "", "`FILE` of the objects of a cluster (default: 10,000 GPUs)")
	f.BoolVar(&c.live, "live", false, "take the objects from the cluster of the kubeconfig")
	f.StringArrayVar(&c.configs, "config", nil, "`FILE` of changes and settings; several are compared")
	f.IntVar(&c.jobs, "jobs", 100_000, "how many jobs are made up")
	f.Float64Var(&c.days, "days", 7, "in how many days these come")
	f.Float64Var(&c.load, "load", 0.9, "their work, as a share of what the quota can do meanwhile")
	f.StringVar(&c.required, "required", "", "the `LEVEL` of a topology in one domain of which made-up jobs of several pods have to be")
	f.StringVar(&c.preferred, "preferred", "", "the `LEVEL` in one domain of which they should be")
	f.Uint64Var(&c.seed, "seed", 1, "of the jobs that are made up")
	f.StringVar(&c.processor, "processor", "cpu=1", "what a processor of an SWF trace is, as `RESOURCE=AMOUNT`")
	f.DurationVar(&c.until, "until", 0, "stop so long after the first submission (default: when nothing more happens)")
	f.DurationVar(&c.grace, "grace", 30*time.Second, "how long the pods of a preempted job take to end")
	f.StringVarP(&c.format, "output", "o", "text", "text, json or html")
	c.connection.Add(cmd)
	f.SortFlags = false
	return cmd
}

//go:embed cluster.yaml
var usual []byte

// side is one configuration.
type side struct {
	name   string
	events []state.Event // that build its world
	queues []*kueue.LocalQueue
	state  state.Options
}

func (c *command) run(cmd *cobra.Command) error {
	if err := c.check(); err != nil {
		return err
	}
	base, settings, err := c.base(cmd)
	if err != nil {
		return err
	}
	sides, err := c.sides(base, settings)
	if err != nil {
		return err
	}
	jobs, notes, err := c.jobsFor(sides[0])
	if err != nil {
		return err
	}
	for _, s := range sides {
		if err := check(c.trace, jobs, s); err != nil {
			return err
		}
	}
	for _, note := range notes {
		fmt.Fprintln(c.errs, note)
	}
	var results []named
	for _, s := range sides {
		r, err := c.simulate(cmd.Context(), s, jobs)
		if err != nil {
			return err
		}
		results = append(results, named{s.name, r})
	}
	switch c.format {
	case "json":
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"configurations": results})
	case "html":
		return writeHTML(c.out, results)
	}
	return writeText(c.out, results)
}

// named is the result of a side.
type named struct {
	Name string `json:"name"`
	*simulation.Result
}

func (c *command) check() error {
	switch {
	case c.format != "text" && c.format != "json" && c.format != "html":
		return cluster.Usage("-o %s: must be text, json or html", c.format)
	case c.live && c.cluster != "":
		return cluster.Usage("--live and --cluster: give one of them")
	case c.grace <= 0:
		return cluster.Usage("--grace %s: must be above 0, as in 30s", c.grace)
	case c.until < 0:
		return cluster.Usage("--until %s: must not be negative", c.until)
	}
	return c.checkMadeUp()
}

// checkMadeUp checks the flags about jobs that are made up.
func (c *command) checkMadeUp() error {
	switch {
	case c.jobs < 1 || c.jobs > 10_000_000:
		return cluster.Usage("--jobs %d: must be from 1 to 10,000,000", c.jobs)
	case !(c.days > 0 && c.days <= 3660):
		return cluster.Usage("--days %v: must be above 0, and at most 3660", c.days)
	case !(c.load > 0 && c.load <= 100):
		return cluster.Usage("--load %v: must be above 0, and at most 100", c.load)
	case c.required != "" && c.preferred != "":
		return cluster.Usage("--required and --preferred: give one of them")
	case c.trace != "" && c.required+c.preferred != "":
		return cluster.Usage("--required and --preferred are for jobs that are made up; a trace has columns of these names")
	}
	return nil
}

// base reads the objects that all sides have.
func (c *command) base(cmd *cobra.Command) (w *offline.World, settings []byte, err error) {
	switch {
	case c.live:
		s, err := c.connection.Open(cmd, c.version, time.Now)
		if err != nil {
			return nil, nil, err
		}
		if w, err = offline.Live(cmd.Context(), s.Client); err != nil {
			return nil, nil, s.Advise(cmd.Context(), err)
		}
		return w, nil, nil
	case c.cluster != "":
		return readFile(c.cluster)
	}
	return offline.Read("the cluster that comes with Berth", usual)
}

func readFile(name string) (*offline.World, []byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	return offline.Read(name, data)
}

// sides are the configurations to compare, one without --config.
func (c *command) sides(base *offline.World, settings []byte) ([]*side, error) {
	if len(c.configs) == 0 {
		s, err := newSide("as it is", base, c.cluster, settings)
		return []*side{s}, err
	}
	var out []*side
	for _, file := range c.configs {
		changes, own, err := readFile(file)
		if err != nil {
			return nil, err
		}
		source := file
		if own == nil {
			own, source = settings, c.cluster
		}
		s, err := newSide(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), base.With(changes), source, own)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func newSide(name string, w *offline.World, source string, settings []byte) (*side, error) {
	if settings == nil {
		source = "" // no file: all settings have their defaults
	}
	o, err := options.Parse(source, settings, "")
	if err != nil {
		return nil, err
	}
	s := &side{name: name, queues: offline.All[*kueue.LocalQueue](w), state: wire.StateOptions(&o)}
	if len(s.queues) == 0 {
		return nil, fmt.Errorf("%s: there is no LocalQueue to submit jobs to", name)
	}
	s.events, err = w.Events(o.Gates.On(feature.ConcurrentAdmission))
	return s, err
}

// jobsFor reads the trace, or makes one up for the quotas of a side.
func (c *command) jobsFor(s *side) (jobs []simulation.Job, notes []string, err error) {
	switch c.trace {
	case "":
		jobs, err = c.makeUp(s)
		return jobs, nil, err
	case "-":
		jobs, err = simulation.ReadCSV("standard input", os.Stdin)
	default:
		file, failed := os.Open(c.trace)
		if failed != nil {
			return nil, nil, failed
		}
		defer file.Close()
		if strings.HasSuffix(c.trace, ".swf") {
			jobs, notes, err = c.readSWF(file)
		} else {
			jobs, err = simulation.ReadCSV(c.trace, file)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if len(jobs) == 0 {
		return nil, nil, fmt.Errorf("%s has no jobs", c.trace)
	}
	spread(jobs, s.queues)
	return jobs, notes, nil
}

func (c *command) readSWF(from io.Reader) ([]simulation.Job, []string, error) {
	name, text, both := strings.Cut(c.processor, "=")
	amount, err := apiresource.ParseQuantity(text)
	if !both || err != nil || amount.Sign() <= 0 {
		return nil, nil, cluster.Usage("--processor %s: must be RESOURCE=AMOUNT, such as cpu=1 or nvidia.com/gpu=1", c.processor)
	}
	jobs, left, err := simulation.ReadSWF(c.trace, from, simulation.Processor{Resource: name, Amount: convert.Amount(corev1.ResourceName(name), amount)})
	if left > 0 {
		return jobs, []string{fmt.Sprintf("%s: left out, as they never ran: %d", c.trace, left)}, err
	}
	return jobs, nil, err
}

// spread gives jobs without a queue one.
func spread(jobs []simulation.Job, queues []*kueue.LocalQueue) {
	for i := range jobs {
		if j := &jobs[i]; j.LocalQueue == "" {
			q := queues[j.Owner%int64(len(queues))]
			j.Namespace, j.LocalQueue = q.Namespace, q.Name
		}
	}
}

// check refuses jobs whose queue, or whose level of a topology, a side does not have.
func check(source string, jobs []simulation.Job, s *side) error {
	known := map[string]bool{}
	var names []string
	for _, q := range s.queues {
		names = append(names, q.Namespace+"/"+q.Name)
		known[names[len(names)-1]] = true
	}
	levels := s.levels()
	for i := range jobs {
		j := &jobs[i]
		if err := checkLevel(source, j, s, levels); err != nil {
			return err
		}
		switch name := j.Namespace + "/" + j.LocalQueue; {
		case known[name]:
		case j.Line == 0:
			return fmt.Errorf("%s: there is no LocalQueue %s, which the first configuration has", s.name, name)
		default:
			return fmt.Errorf("%s:%d: queue: %s: there is no LocalQueue %s; %s", source, j.Line, s.name, name, strict.OrAll(name, names))
		}
	}
	return nil
}

// levels are the levels of the flavors of a side.
func (s *side) levels() (all []string) {
	for _, e := range s.events {
		if f, is := e.(state.SetFlavor); is && s.state.Topology != nil {
			all = append(all, f.Levels...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func checkLevel(source string, j *simulation.Job, s *side, levels []string) error {
	for _, of := range []struct{ column, level string }{{"required", j.Required}, {"preferred", j.Preferred}, {"slice", j.Slice}} {
		if of.level == "" || slices.Contains(levels, of.level) {
			continue
		}
		where := fmt.Sprintf("%s:%d: %s", source, j.Line, of.column)
		if j.Line == 0 {
			where = "--" + of.column
		}
		if len(levels) == 0 {
			return fmt.Errorf("%s: %s: no flavor has a topology", where, s.name)
		}
		return fmt.Errorf("%s: %s: no flavor has a topology with the level %s; %s", where, s.name, of.level, strict.OrAll(of.level, levels))
	}
	return nil
}

// makeUp makes jobs that ask for the main resource of the quotas.
func (c *command) makeUp(s *side) ([]simulation.Job, error) {
	quota := simulation.Quota(s.events)
	g := simulation.Generator{
		Jobs: c.jobs, Over: workload.Instant(c.days * 24 * 3600 * float64(simulation.Second)), Load: c.load, Seed: c.seed,
		Resource: simulation.Main(quota), Unit: 1, Required: c.required, Preferred: c.preferred,
	}
	if g.Quota = quota[g.Resource]; g.Resource == "cpu" {
		g.Unit = 1000
	}
	if g.Quota < g.Unit {
		return nil, fmt.Errorf("%s: no ClusterQueue has quota that jobs could be made up for; give a --trace", s.name)
	}
	weights := map[string]float64{}
	for _, e := range s.events {
		if q, is := e.(state.SetQueue); is {
			weights[q.Name] = float64(simulation.Quota([]state.Event{q})[g.Resource])
		}
	}
	for _, q := range s.queues {
		g.Queues = append(g.Queues, simulation.Share{
			Namespace: q.Namespace, Name: q.Name, Weight: max(weights[string(q.Spec.ClusterQueue)], float64(g.Quota)/1000),
		})
	}
	return g.Make(), nil
}

// simulate runs one side, with its progress.
func (c *command) simulate(ctx context.Context, s *side, jobs []simulation.Job) (*simulation.Result, error) {
	last := time.Now()
	return simulation.Run(ctx, state.New(s.state), s.events, jobs, simulation.Options{
		Start: workload.Instant(time.Unix(0, 0).AddDate(50, 0, 0).UnixNano()), Until: workload.Instant(c.until), Grace: workload.Instant(c.grace),
		Progress: func(submitted int) {
			if time.Since(last) > 2*time.Second {
				last = time.Now()
				fmt.Fprintf(c.errs, "%s: %d of %d jobs submitted (%d %%)\n", s.name, submitted, len(jobs), int(math.Floor(100*float64(submitted)/float64(len(jobs)))))
			}
		},
	})
}
