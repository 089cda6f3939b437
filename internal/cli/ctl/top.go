package ctl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/ctl/toppage"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/placement/plan/nodequota"
)

const topHelp = `Shows how much of every quota is in use: cohorts with the ClusterQueues in them, a line for each resource of each flavor.

  berth top
  berth top --watch                      # a page: what is full, what waits and why; ? for its keys
  berth top clusterqueue gpus
  berth top cohort -r nvidia.com/gpu
  berth top flavor
  berth top --fair

  berth top --topology                   # what is free in each rack
  berth top --topology --hosts -r nvidia.com/gpu

In the bar, █ is used by what runs, and ▒ is reserved for what is about to run; what goes beyond QUOTA is borrowed. The line of a cohort
is the sum of all in and below it, with the quota that the cohort itself adds. RESERVED is ADMITTED and what is about to be.
(90% of nodes) marks a ClusterQueue or Cohort whose own quota follows its nodes.

--topology shows nodes instead of quota: for each flavor with a topology what is free, used and there in every domain of every level. LARGEST
is what is free in one domain; a gang that has to stay together gets no more than that. FRAGMENTED is how far LARGEST is below what it would
be if all that is free were packed together. NODES that do not count are not ready, cordoned, or without a label of the topology.
A second table has the pods in use, by their requests, with the biggest gang of further ones that fits into one domain of each level: there
node selectors, affinity and taints count as well. Names of topologies may follow, as in --topology gpus.

--watch in a terminal, also for ClusterQueues by name, is a page: all quota and its use since the page was opened, how many Workloads
started, finished, failed and were evicted in the last hour, and a table of ClusterQueues with their fullest resource, how many Workloads
wait, how long the oldest has, when the first is expected to start (if there is room), and why it still waits. Keys sort, filter and scroll;
Enter shows the Workloads in line of a queue, with their positions and starts, and ? explains the keys. Figures that are not refreshed stay,
with a line that says since when and why. NO_COLOR is respected. Elsewhere --watch prints the tables again and again.

Where no manager answers, the figures are computed here from the objects of the API, and a line says so.

With --fair: the LocalQueues of each ClusterQueue that is shared by past usage, in the order in which their Workloads are admitted, as of their
statuses. USAGE is what the manager orders by, if resources have the weights of its configuration here as well (--weight).`

// top is the command line of `berth top`.
type top struct {
	watch    bool
	interval time.Duration
	resource string
	what     string   // kind of the names
	names    []string // empty for all
	seen     []string // existing names
	view     func(*top, *forest, *table)
	output
	topology, hosts bool
	fair            fairTop
}

func (t *tool) newTop() *cobra.Command {
	cmd := t.newTopOf("top", "how much of every quota is in use, or of the nodes of a topology", topHelp, nil, (*top).tree)
	queues := t.newTopOf("clusterqueue [NAME...]", "the use of ClusterQueues", "Shows how much of the quota of ClusterQueues is in use.\n\n  berth top clusterqueue gpus\n  berth top cq --watch", cluster.ClusterQueue, (*top).queues)
	cohorts := t.newTopOf("cohort [NAME...]", "the use of cohorts", "Shows how much of the quota of cohorts is in use, with all in and below them.\n\n  berth top cohort research", cluster.Cohort, (*top).cohorts)
	flavors := t.newTopOf("flavor [NAME...]", "the use of flavors", "Shows how much of the quota of each flavor is in use, over all queues.\n\n  berth top flavor a100", cluster.ResourceFlavor, (*top).flavors)
	flavors.Aliases = append([]string{"flavors", cluster.ResourceFlavor.Name}, cluster.ResourceFlavor.Aliases...)
	cmd.AddCommand(queues, cohorts, flavors)
	return cmd
}

func (t *tool) newTopOf(use, short, help string, k *cluster.Kind, view func(*top, *forest, *table)) *cobra.Command {
	o := top{view: view, what: strings.Fields(use)[0]}
	o.fair.output = &o.output
	cmd := &cobra.Command{
		Use: use, Short: short, Long: help,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.interval <= 0 {
				return cluster.Usage("--interval %s: must be more than 0, as in 2s", o.interval)
			}
			if err := o.check(); err != nil {
				return err
			}
			o.names = args
			at := o.pager(cmd)
			if at == nil {
				return t.run(cmd, o.run)
			}
			cmd.SetErr(at.messages)
			return t.run(cmd, func(ctx context.Context, s *session) error { return o.page(ctx, s, at) })
		},
	}
	if k != nil {
		cmd.Aliases = k.Aliases
		cmd.ValidArgsFunction = t.complete(k, nil)
	} else if use == "top" {
		t.addViews(cmd, &o)
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "a page that is kept up to date, or the tables again and again, until Ctrl-C")
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "with --watch: how often")
	cmd.Flags().StringVarP(&o.resource, "resource", "r", "", "only this resource, as in nvidia.com/gpu")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print the table without its header")
	t.addSettings(cmd)
	return cmd
}

func (o *top) run(ctx context.Context, s *session) error {
	text, err := o.look(ctx, s)
	if err != nil || !o.watch {
		_, _ = s.Out.Write(text)
		return err
	}
	terminal := isTerminal(s.Out)
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for {
		switch {
		case err != nil:
			fmt.Fprintf(s.Errs, "%v; trying again\n", s.Advise(ctx, err))
		case terminal:
			// Moves the cursor home, and clears the rest of each line and of the screen, which avoids flicker.
			fmt.Fprintf(s.Out, "\x1b[H%s\x1b[J", strings.ReplaceAll(s.title(o)+string(text), "\n", "\x1b[K\n"))
		default:
			fmt.Fprintf(s.Out, "%s%s\n", s.title(o), text)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if text, err = o.look(ctx, s); ctx.Err() != nil {
			return nil // Ctrl-C ends the command
		}
	}
}

func (s *session) title(o *top) string {
	return fmt.Sprintf("%s, %s, every %s\n\n", s.Now().Format("15:04:05"), s.Config.Host, o.interval)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// look reads all queues and cohorts, or topologies, or past usage, and renders them.
func (o *top) look(ctx context.Context, s *session) ([]byte, error) {
	s.forget()
	switch {
	case o.topology:
		return o.lookAtNodes(ctx, s)
	case o.fair.on:
		return o.fair.look(ctx, s)
	}
	f, err := s.forest(ctx)
	if err != nil {
		return nil, err
	}
	out := &table{columns: columns("NAME", "FLAVOR", "RESOURCE", "USE", "", "RESERVED", "ADMITTED", "QUOTA", "BORROWED", "WORKLOADS")}
	o.seen = nil
	o.view(o, f, out)
	if err := o.missing(); err != nil {
		return nil, err
	}
	if len(out.rows) == 0 {
		fmt.Fprintln(s.Errs, "No resources found")
		return nil, nil
	}
	var b bytes.Buffer
	err = out.write(&b, false, !o.noHeaders)
	return b.Bytes(), err
}

// missing refuses a name that does not exist.
func (o *top) missing() error {
	for _, name := range o.names {
		if !slices.Contains(o.seen, name) {
			return fmt.Errorf("there is no %s %q: %s", o.what, name, strict.OrAll(name, o.seen))
		}
	}
	return nil
}

// draw adds the lines of one object; the first has its name.
func (o *top) draw(out *table, name string, shares []share, workloads string, borrows bool) {
	shares = slices.DeleteFunc(slices.Clone(shares), func(s share) bool { return o.resource != "" && s.resource != o.resource })
	if len(shares) == 0 && o.resource == "" {
		out.add(name, "", "", "", "", "", "", "", "", workloads)
	}
	for i := range shares {
		s := &shares[i]
		borrowed := ""
		if borrows && !s.borrowed.IsZero() {
			borrowed = s.borrowed.String()
		}
		drawn, percent := bar(s)
		out.add(name, s.flavor, s.resource, drawn, percent, s.reserved.String(), s.admitted.String(), s.nominal.String(), borrowed, workloads)
		name, workloads = "", ""
	}
}

// tally returns the column WORKLOADS.
func tally(admitted, pending int32) string {
	return fmt.Sprintf("%d admitted, %d pending", admitted, pending)
}

// ofNodes marks a quota that follows nodes.
func ofNodes(percent int64) string {
	if percent == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d%% of nodes)", percent)
}

// wants reports whether an object of this name is shown.
func (o *top) wants(name string) bool {
	o.seen = append(o.seen, name)
	return len(o.names) == 0 || slices.Contains(o.names, name)
}

func (o *top) queue(out *table, indent string, q *kueue.ClusterQueue) {
	name := indent + q.Name
	if why := off(q); why != "" {
		name += " (" + why + ")"
	}
	percent, _ := nodequota.ShareOf(q.Annotations)
	o.draw(out, name+ofNodes(percent), sharesOf(q.Spec.ResourceGroups, &q.Status), tally(q.Status.AdmittedWorkloads, q.Status.PendingWorkloads), true)
}

func (o *top) tree(f *forest, out *table) {
	seen := map[string]bool{}
	var visit func(indent string, n *node)
	visit = func(indent string, n *node) {
		if seen[n.name] {
			return
		}
		seen[n.name] = true
		o.draw(out, indent+n.name+ofNodes(n.ofNodes), n.shares, tally(n.admitted, n.pending), false)
		for _, q := range n.queues {
			o.queue(out, indent+"  ", q)
		}
		for _, child := range n.children {
			visit(indent+"  ", f.nodes[child])
		}
	}
	for _, root := range f.roots() {
		visit("", root)
	}
	for _, q := range f.alone {
		o.queue(out, "", q)
	}
}

func (o *top) queues(f *forest, out *table) {
	for _, q := range f.queues() {
		if o.wants(q.Name) {
			o.queue(out, "", q)
		}
	}
}

func (o *top) cohorts(f *forest, out *table) {
	for _, name := range f.names() {
		if n := f.nodes[name]; o.wants(name) {
			o.draw(out, name+ofNodes(n.ofNodes), n.shares, tally(n.admitted, n.pending), false)
		}
	}
}

// flavors sums all roots, in the order of the names.
func (o *top) flavors(f *forest, out *table) {
	total := f.total()
	for i := 0; i < len(total.shares); {
		end := i
		for end < len(total.shares) && total.shares[end].flavor == total.shares[i].flavor {
			end++
		}
		if flavor := total.shares[i].flavor; o.wants(flavor) {
			o.draw(out, flavor, total.shares[i:end], "", false)
		}
		i = end
	}
}

// barWidth is the number of cells of a full quota.
const barWidth = 20

// bar draws a share of its quota, and its percentage. Above the quota it ends in a plus.
func bar(s *share) (drawn, percent string) {
	u := s.use()
	return u.Bar(barWidth), u.Percent()
}

// use is the share in numbers, for a bar.
func (s *share) use() toppage.Use {
	return toppage.Use{Quota: s.nominal.AsApproximateFloat64(), Reserved: s.reserved.AsApproximateFloat64(), Admitted: s.admitted.AsApproximateFloat64()}
}
