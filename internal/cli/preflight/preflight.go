// Package preflight is berth preflight: it reads a cluster, and reports obstacles to Berth there, and differences under it.
package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

const help = `Reads a cluster that Kueue, JobSet or Trainer run, in any mixture, and says what is in the way of Berth there, and what would be different
under it: controllers that run, webhooks and stored versions that would refuse writes, configuration files, and fields of objects that
Berth does not have or would refuse. Nothing is written, and nothing has to be installed.

  berth preflight
  berth preflight --plan                    then the takeover step by step, with the commands for this cluster, and the way back
  berth preflight --context production -o json
  berth preflight --fail-on differs         in CI: exit code 3 also for what is merely different

It needs to read CRDs, Deployments, ConfigMaps, Leases and webhook configurations, and the objects of the queueing, JobSet and training APIs.
What it may not read it names.

Exit codes: 0 nothing is in the way, 1 failed, 2 wrong usage, 3 something is (see --fail-on).`

// exitFound is the exit code if there is something of --fail-on.
const exitFound = 3

type found struct{ error }

func (found) ExitCode() int { return exitFound }

type command struct {
	format, failOn string
	plan           bool
	connection     cluster.Connection
	version        string
	now            func() time.Time
}

// New makes the command.
func New(version string) *cobra.Command { return newCommand(&command{version: version, now: time.Now}) }

func newCommand(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use: "preflight", Short: "what is in the way of Berth on a cluster, and what would be different; writes nothing", Long: help,
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&c.failOn, "fail-on", string(Blocks), "exit with 3 on findings of a `SEVERITY`: blocks; differs, which includes blocks; or never")
	f.BoolVar(&c.plan, "plan", false, "also print the steps of the takeover, and of the way back")
	f.StringVarP(&c.format, "output", "o", "text", "text, json or yaml")
	c.connection.Add(cmd)
	f.SortFlags = false
	return cmd
}

func (c *command) run(cmd *cobra.Command) error {
	switch {
	case !slices.Contains([]string{"text", "json", "yaml"}, c.format):
		return cluster.Usage("-o %s: must be text, json or yaml", c.format)
	case !slices.Contains([]string{string(Blocks), string(Differs), "never"}, c.failOn):
		return cluster.Usage("--fail-on %s: must be blocks, differs or never", c.failOn)
	}
	s, err := c.connection.Open(cmd, c.version, c.now)
	if err != nil {
		return err
	}
	r, err := look(cmd.Context(), s, c.plan)
	if err != nil {
		return s.Advise(cmd.Context(), err)
	}
	if err := c.write(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	if n := r.count(Blocks); n > 0 && c.failOn != "never" {
		return found{fmt.Errorf("%s in the way", of(n, "thing is", "things are"))}
	}
	if n := r.count(Differs); n > 0 && c.failOn == string(Differs) {
		return found{fmt.Errorf("--fail-on differs: %s different", of(n, "thing is", "things are"))}
	}
	return nil
}

func of(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Severity is how much a finding matters.
type Severity string

// Severities, the worst first.
const (
	// Blocks is in the way: Berth would not work, or something would be lost.
	Blocks Severity = "blocks"
	// Differs would behave in another way than now.
	Differs Severity = "differs"
	// Note is worth to know, and needs nothing.
	Note Severity = "note"
)

var severities = []Severity{Blocks, Differs, Note}

// Finding is one thing about a cluster.
type Finding struct {
	Severity Severity `json:"severity"`
	// Object is Kind/name or Kind/namespace/name; several objects of a kind are Kind (number: some names).
	Object string `json:"object"`
	// Field is a path in the object, "" for all of it.
	Field string `json:"field,omitempty"`
	Text  string `json:"text"`
	// Do is what to do, "" for nothing.
	Do string `json:"do,omitempty"`
}

// Report is the result.
type Report struct {
	// Controllers are what runs now, with images.
	Controllers []string `json:"controllers"`
	// Objects are the numbers of objects by CRD, of the CRDs that Berth has.
	Objects  map[string]int `json:"objects"`
	Findings []Finding      `json:"findings"`
	// Plan is the takeover of this cluster and the way back, with --plan.
	Plan []Step `json:"plan,omitempty"`
}

func (r *Report) add(severity Severity, object, field, do, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{severity, object, field, fmt.Sprintf(format, args...), do})
}

func (r *Report) count(severity Severity) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Severity == severity {
			n++
		}
	}
	return n
}

func (c *command) write(to io.Writer, r *Report) error {
	if c.format == "text" {
		return r.writeText(to)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil && c.format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, strings.TrimSuffix(string(text), "\n"))
	return err
}

// writeText writes what there is, then the findings, the worst first.
func (r *Report) writeText(to io.Writer) error {
	runs := "no controller of queues, JobSets or TrainJobs"
	if len(r.Controllers) > 0 {
		runs = strings.Join(r.Controllers, ", ")
	}
	fmt.Fprintf(to, "Runs now: %s.\n", runs)
	var objects []string
	for _, name := range sortedKeys(r.Objects) {
		if n := r.Objects[name]; n > 0 {
			objects = append(objects, fmt.Sprintf("%d %s", n, name))
		}
	}
	if len(objects) > 0 {
		fmt.Fprintf(to, "Objects:  %s.\n", strings.Join(objects, ", "))
	}
	const width = len(Differs) + 3
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(to, "\n%-*s%s\n", width, f.Severity, strings.TrimSpace(f.Object+"  "+f.Field))
		fmt.Fprintf(to, "%*s%s\n", width, "", f.Text)
		if f.Do != "" {
			fmt.Fprintf(to, "%*s-> %s\n", width, "", f.Do)
		}
	}
	writePlan(to, r.Plan)
	_, err := fmt.Fprintf(to, "\n%s in the way, %s different, %s.\n", of(r.count(Blocks), "thing is", "things are"), of(r.count(Differs), "is", "are"),
		of(r.count(Note), "note", "notes"))
	return err
}
