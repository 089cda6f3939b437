// Command bench measures the engine alone, on one core and in memory, and prints `name: value` lines: `make bench-core`. Each figure has
// a world of its own, described where it is built. A decision is the outcome of one head of a cycle (cycle.Result.Heads): a look, which is
// an evaluation of a workload with its verdict, or that others took its quota before its turn. Times are processor time, of the engine
// and of the generator's small part; allocations are the engine's alone.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// figure is one line of the output.
type figure struct {
	name  string
	value float64
}

// group is the figures that come of one world.
type group struct {
	name string
	run  func(*bench) error
	long bool // it runs only if -only names it
}

// groups are in the order of the output.
var groups = []group{
	{name: "steady", run: (*bench).steady},
	{name: "steady_preempting", run: (*bench).steadyPreempting},
	{name: "burst", run: (*bench).burst},
	{name: "parked", run: (*bench).inadmissible},
	{name: "preempt", run: (*bench).preempt},
	{name: "fair", run: (*bench).fair},
	{name: "memory", run: (*bench).memory},
	{name: "ask", run: (*bench).ask},
	{name: "tas", run: (*bench).places},
	{name: "scaling", run: (*bench).scaling},
	{name: "turn", run: (*bench).turns},
	{name: "forecast", run: (*bench).forecasts},
	{name: "copies", run: (*bench).copies},
	{name: "whatif", run: (*bench).whatIf},
	{name: "explain", run: (*bench).explain},
	{name: "million", run: (*bench).million, long: true},
}

// bench collects figures.
type bench struct {
	progress io.Writer
	started  time.Time
	figures  []figure
	profile  io.Writer // where a processor profile goes, nil for nowhere
	profiled bool      // it runs
	allocs   bool      // allocations are profiled from the first measurement on
	events   int       // in a steady round, 0 for as many as there is time for
}

func main() {
	runtime.GOMAXPROCS(1)
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	only := flags.String("only", "", "comma-separated groups to run: "+strings.Join(names(), ", "))
	cpu := flags.String("cpuprofile", "", "file for a processor profile from the first measurement on")
	mem := flags.String("memprofile", "", "file for a profile of the allocations from the first measurement on")
	events := flags.Int("events", 0, "events in each round of the steady figures, instead of as many as there is time for; to count what they cost")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := parseGroups(*only)
	if err != nil {
		return err
	}
	b := &bench{progress: progress, started: clock(), allocs: *mem != "", events: *events}
	if b.allocs {
		runtime.MemProfileRate = 0
	}
	if *cpu != "" {
		f, err := os.Create(*cpu)
		if err != nil {
			return err
		}
		defer f.Close()
		b.profile = f
	}
	for _, g := range wanted {
		b.say("%s", g.name)
		from := len(b.figures)
		if err := g.run(b); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		for _, f := range b.figures[from:] {
			fmt.Fprintf(out, "%s: %s\n", f.name, number(f.value))
		}
	}
	pprof.StopCPUProfile()
	b.say("done")
	if *mem != "" {
		return writeAllocs(*mem)
	}
	return nil
}

func names() (all []string) {
	for _, g := range groups {
		all = append(all, g.name)
	}
	return all
}

// parseGroups returns the groups of a comma-separated list, all but the long ones for none.
func parseGroups(list string) (wanted []group, err error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.long }), nil
	}
	ask := strings.Split(list, ",")
	for _, name := range ask {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("-only %s: no group %q; there are %s", list, name, strings.Join(names(), ", "))
		}
	}
	for _, g := range groups {
		if slices.Contains(ask, g.name) {
			wanted = append(wanted, g)
		}
	}
	return wanted, nil
}

func writeAllocs(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return pprof.Lookup("allocs").WriteTo(f, 0)
}

// say reports progress, with the seconds since the start.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%6.1fs  %s\n", since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) figure(name string, value float64) {
	b.figures = append(b.figures, figure{name, value})
}

// measuring is called before each measurement: earlier work is in no profile, and its
// garbage is collected first. Not so once a processor profile runs, which would show that
// collection as part of the measurement.
func (b *bench) measuring() error {
	if b.allocs {
		runtime.MemProfileRate = 16 << 10
	}
	if b.profiled {
		return nil
	}
	runtime.GC()
	if b.profile == nil {
		return nil
	}
	b.profiled = true
	return pprof.StartCPUProfile(b.profile)
}
func clock() time.Time { return time.Now() }

func since(t time.Time) time.Duration { return clock().Sub(t) }

// spent is the processor time of this process so far, in steps of a microsecond. Unlike
// the clock it does not run while others have the core; on an idle machine the two agree.
func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only its arguments can be wrong
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mallocs is how many objects were allocated so far.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
