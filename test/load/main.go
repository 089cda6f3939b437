// Command load puts a real API server and a manager, each a process of its own, under
// load: `make load SHAPE=one-cohort`. It creates Workloads, runs the admitted ones for
// their time, finishes them and gives back the quota of evicted ones, as the owner of
// each would, and prints `name: value` lines, a table by class and a drawing of the
// utilisation. It fails if quota or a node is ever exceeded or a Workload is lost. A run that an
// eviction ends starts anew; that work is done twice and not part of the limit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// settle is how long after the last finish statuses and events of the load may still be written.
const settle = 3 * time.Second

// options are the command line.
type options struct {
	shape      string
	scale      float64
	seed       uint64
	berth      string // the program
	against    string // an earlier build of it, empty for none
	rounds     int    // of both
	dir        string // empty for one that is removed afterwards
	manager    string // extra arguments
	plain      bool   // no webhooks, one version of the API
	draw       string // file for the drawing
	cpuProfile string
	memProfile string
	restart    bool
	dashboard  time.Duration // pages are open and closed for so long, in turn; 0 for never open
	writes     int
	variant    string // of the CRD, for writes; empty for all
	stall      time.Duration
	timeout    time.Duration
}

func main() {
	log.SetLogger(logr.Discard()) // of the clients: failures are returned
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var o options
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&o.shape, "shape", "one-cohort", "what to create: one-cohort, five-cohorts, thousand-queues, deep, topology, or gangs, which is topology without nodes")
	flags.Float64Var(&o.scale, "scale", 1, "share of the shape's workloads, to shorten it")
	flags.Uint64Var(&o.seed, "seed", 1, "for the order of what is created at one time")
	flags.StringVar(&o.berth, "berth", "bin/berth", "the program to be measured")
	flags.StringVar(&o.against, "against", "", "an earlier build of the program, which is measured in turn: prints the means of both and their ratios")
	flags.IntVar(&o.rounds, "rounds", 1, "measurements of each program with -against")
	flags.StringVar(&o.dir, "dir", "", "empty folder for data and logs, which stay (default a temporary one, which does not)")
	flags.StringVar(&o.manager, "manager", "", "extra arguments of the manager as --name=value, such as --controllers=-webhooks")
	flags.BoolVar(&o.plain, "plain", false, "without webhooks, and with the newest version of the API alone")
	flags.StringVar(&o.draw, "draw", "", "file for the drawing: .svg for a picture, otherwise text")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", fmt.Sprintf("prefix of files for processor profiles of the manager, .000 and so on, of %s each; go tool pprof adds them up", profilePiece))
	flags.StringVar(&o.memProfile, "memprofile", "", "file for a profile of the manager's allocations at the end")
	flags.BoolVar(&o.restart, "restart", false, "kill the manager at the end, finish a few workloads, and measure another one until it has admitted others")
	flags.DurationVar(&o.dashboard, "dashboard", 0, "measure what open pages of the dashboard cost the manager: they are closed and open in turn, for so long each")
	flags.IntVar(&o.writes, "writes", 0, "measure what a write of a Workload costs the API server instead, by so many of each sort; -cpuprofile profiles the API server then")
	flags.StringVar(&o.variant, "variant", "", "with -writes: only this variant of the CRD, both, v1beta2 or v1beta2-no-rules")
	flags.DurationVar(&o.stall, "stall", time.Minute, "give up if nothing is created, evicted or finished for so long")
	flags.DurationVar(&o.timeout, "timeout", time.Hour, "give up altogether")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if o.writes > 0 {
		return measureWrites(ctx, &o, out, progress)
	}
	s, err := parseShape(o.shape, o.scale)
	if err != nil {
		return err
	}
	if o.against != "" {
		return compare(ctx, &o, &s, out, progress)
	}
	m, err := measure(ctx, &o, &s, progress)
	if err != nil {
		return err
	}
	if err := m.print(out, o.draw); err != nil {
		return err
	}
	return m.kept()
}

// compare measures the program and an earlier build in turn, and prints the means of the figures of both, and their ratios.
func compare(ctx context.Context, o *options, s *shape, out, progress io.Writer) error {
	if o.dir != "" || o.cpuProfile+o.memProfile+o.draw != "" {
		return errors.New("-against makes several measurements: leave out -dir, -draw and the profiles")
	}
	var order []string
	sums := map[string]*[2]float64{}
	programs := []string{o.berth, o.against}
	for round := range o.rounds {
		for i, program := range programs {
			fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, o.rounds, program)
			one := *o
			one.berth = program
			m, err := measure(ctx, &one, s, progress)
			if err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			if err := m.kept(); err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			m.figures(func(name string, value float64) {
				if sums[name] == nil {
					sums[name] = &[2]float64{}
					order = append(order, name)
				}
				sums[name][i] += value / float64(o.rounds)
			})
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\t%s\t%s\tratio\t\n", programs[0], programs[1])
	for _, name := range order {
		f := sums[name]
		ratio := "-"
		if f[1] != 0 {
			ratio = number(f[0] / f[1])
		}
		fmt.Fprintf(table, "%s:\t%s\t%s\t%s\t\n", name, number(f[0]), number(f[1]), ratio)
	}
	return table.Flush()
}

// measure starts everything, runs the load, and stops everything.
func measure(ctx context.Context, o *options, s *shape, progress io.Writer) (_ *measurement, err error) {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after %s (-timeout)", o.timeout))
	defer cancel()
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "berth-load-"); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	berth, err := filepath.Abs(o.berth)
	if err != nil {
		return nil, err
	}
	say("starting a control plane and the manager")
	extra := strings.Fields(o.manager)
	if s.nodes > 0 {
		extra = append(extra, "--feature-gates=TASBalancedPlacement=true")
	}
	sys, err := startSystem(ctx, dir, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sys.stop()) }()
	arrivals := s.arrivals(o.seed)
	if s.finishes > 0 {
		if err := createBefore(ctx, sys.config, s, arrivals, say); err != nil {
			return nil, err
		}
	}
	if err := sys.startManager(ctx, dir, berth, extra, o); err != nil {
		return nil, err
	}
	if !o.restart { // that ends a manager on purpose
		var release context.CancelFunc
		ctx, release = sys.guard(ctx)
		defer release()
	}
	if err := buildWorld(ctx, sys.config, s); err != nil {
		return nil, err
	}
	say("%s: %d cohorts of %d queues are ready", s.name, s.cohorts, s.queues)
	return load(ctx, o, sys, s, arrivals, say)
}

// load runs the load and measures.
func load(ctx context.Context, o *options, sys *system, s *shape, arrivals []arrival, say func(string, ...any)) (*measurement, error) {
	own, err := newOwner(sys.config, s)
	if err != nil {
		return nil, err
	}
	g := newGenerator(own, arrivals, o.stall, say)
	m := &measurement{shape: s, ledger: g.ledger}
	profiled, looked, enough := make(chan error, 1), make(chan error, 1), make(chan struct{})
	var requestsBefore requests
	var before usage
	g.measured = func() (err error) {
		if requestsBefore, err = countRequests(ctx, own.rest); err == nil {
			before, err = sys.usage()
		}
		go func() {
			var err error
			if o.dashboard > 0 {
				m.looks, err = sys.look(ctx, queueName(0, 0), o.dashboard, enough)
			}
			looked <- err
		}()
		return err
	}
	go func() { profiled <- sys.profileUntil(ctx, enough, o.cpuProfile) }()
	if err := g.run(ctx); err != nil {
		return nil, err
	}
	close(enough)
	if !sleep(ctx, settle) {
		return nil, context.Cause(ctx)
	}
	after, err := sys.usage()
	if err != nil {
		return nil, err
	}
	requestsAfter, err := countRequests(ctx, own.rest)
	if err != nil {
		return nil, err
	}
	m.requests, m.start, m.usage = requestsAfter.since(requestsBefore), before, after
	if err := errors.Join(<-profiled, <-looked); err != nil {
		return nil, err
	}
	if o.memProfile != "" {
		if err := sys.profile(ctx, "allocs", o.memProfile); err != nil {
			return nil, err
		}
	}
	if o.restart {
		if m.restart, err = measureRestart(ctx, o, sys, g); err != nil {
			return nil, err
		}
	}
	if n, err := own.count(ctx); err != nil {
		return nil, err
	} else if n != len(arrivals) {
		m.ledger.problem("%d workloads were created, and there are %d", len(arrivals), n)
	}
	return m, nil
}

// usage is what the processes have used so far.
type usage struct {
	manager, apiServer, etcd, generator, machine time.Duration
	peakRSS                                      float64 // of the manager, in MB
}

func (s *system) usage() (u usage, err error) {
	u.generator = ownCPU()
	for _, p := range []struct {
		pid int
		cpu *time.Duration
	}{{s.manager.Process.Pid, &u.manager}, {s.apiServer, &u.apiServer}, {s.etcd, &u.etcd}} {
		if *p.cpu, err = cpuOf(p.pid); err != nil {
			return u, err
		}
	}
	if u.machine, err = machineCPU(); err != nil {
		return u, err
	}
	u.peakRSS, err = peakRSS(s.manager.Process.Pid)
	return u, err
}
