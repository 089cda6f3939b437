package whatif

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/foresight/whatif"
)

// words are the effects as the table names them, and as the summary counts them.
var words = []struct {
	effect         whatif.Effect
	cell, one, all string
}{
	{whatif.Evicted, "preempted", "is preempted", "are preempted"},
	{whatif.NotStarted, "does not start", "does not start any more", "do not start any more"},
	{whatif.Stranded, "loses its node", "loses a node without a replacement", "lose a node without a replacement"},
	{whatif.Later, "waits longer", "waits longer", "wait longer"},
	{whatif.Moved, "moves", "moves to another node", "move to other nodes"},
	{whatif.New, "new", "is new", "are new"},
	{whatif.Removed, "removed", "is removed", "are removed"},
	{whatif.Starts, "starts", "starts that would not", "start that would not"},
	{whatif.Earlier, "waits less", "waits less", "wait less"},
	{whatif.Spared, "not preempted", "is not preempted any more", "are not preempted any more"},
}

func (c *command) writeTable(r *whatif.Report) error {
	fmt.Fprintf(c.out, "%s\n", c.summary(r))
	if len(r.Workloads) > 0 {
		fmt.Fprintln(c.out)
		if err := c.writeWorkloads(r); err != nil {
			return err
		}
	}
	if err := c.writeUse(r); err != nil {
		return err
	}
	if text := runTimes(r.RunTimes); text != "" {
		fmt.Fprintf(c.out, "\n%s\n", text)
	}
	for _, note := range c.notes {
		fmt.Fprintf(c.out, "note: %s\n", note)
	}
	return nil
}

// summary is the answer in one sentence.
func (c *command) summary(r *whatif.Report) string {
	within := "Within " + foresight.Length(r.Horizon)
	if len(r.Workloads) == 0 {
		return within + " the change makes no difference to any workload."
	}
	counts := map[whatif.Effect]int{}
	for i := range r.Workloads {
		counts[r.Workloads[i].Effect]++
	}
	var parts []string
	for _, word := range words {
		switch n := counts[word.effect]; {
		case n == 1:
			parts = append(parts, "1 "+word.one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, word.all))
		}
	}
	return fmt.Sprintf("%s, of the workloads: %s. Starts: %d (%d without the change); waiting at the end: %d (%d).", within, strings.Join(parts, ", "),
		r.After.Starts, r.Before.Starts, r.After.Waiting, r.Before.Waiting)
}

func tabs(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 6, 1, 3, ' ', 0) }

func (c *command) writeWorkloads(r *whatif.Report) error {
	t := tabs(c.out)
	fmt.Fprintln(t, "WORKLOAD\tQUEUE\tPRIORITY\tEFFECT\tWITHOUT THE CHANGE\tWITH IT\tWAIT")
	for i := range r.Workloads {
		if i == c.rows {
			break
		}
		w := &r.Workloads[i]
		fmt.Fprintln(t, strings.Join([]string{
			w.Namespace + "/" + w.Name, w.LocalQueue, fmt.Sprint(w.Priority), cellOf(w.Effect), course(w.Before), course(w.After), longer(w),
		}, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	c.more(len(r.Workloads), "workloads")
	return nil
}

func (c *command) more(n int, what string) {
	if n > c.rows {
		fmt.Fprintf(c.out, "and %d more %s: --rows %d, or -o json\n", n-c.rows, what, n)
	}
}

func cellOf(e whatif.Effect) string {
	for _, word := range words {
		if word.effect == e {
			return word.cell
		}
	}
	return string(e)
}

// course is what happens to a Workload in one future, in words.
func course(c *whatif.Course) string {
	if c == nil {
		return "-"
	}
	var parts []string
	switch {
	case c.Running:
		parts = append(parts, "runs")
	case c.Starts != nil:
		parts = append(parts, "starts "+after(*c.Starts))
	}
	if c.Preempted != nil {
		what := "preempted " + after(*c.Preempted)
		switch {
		case c.By != "":
			what += " by " + c.By
		case c.Cause == whatif.ByNodes:
			what = "evicted " + after(*c.Preempted) + " as a node failed"
		case c.Cause == whatif.ByChange:
			what = "evicted " + after(*c.Preempted)
		}
		if c.Preemptions > 1 {
			what += fmt.Sprintf(" (%d times in all)", c.Preemptions)
		}
		parts = append(parts, what)
		if c.StartsAgain != nil {
			parts = append(parts, "starts again "+after(*c.StartsAgain))
		}
	}
	if c.Moved != nil {
		parts = append(parts, "moves "+after(*c.Moved))
	}
	if c.Waiting {
		parts = append(parts, "waits")
	}
	return strings.Join(parts, ", ")
}

func after(s float64) string {
	if s == 0 {
		return "now"
	}
	return "+" + foresight.Length(s)
}

// longer is how much longer a Workload waits.
func longer(w *whatif.Workload) string {
	if w.Longer == 0 {
		return ""
	}
	sign, more := "+", ""
	if w.Longer < 0 {
		sign = "-"
	}
	if w.AtLeast {
		more = " or more"
	}
	return sign + foresight.Length(math.Abs(w.Longer)) + more
}

// writeUse writes the quotas that change, or whose use does.
func (c *command) writeUse(r *whatif.Report) error {
	var rows []string
	for i := range r.Use {
		u := &r.Use[i]
		before, after := share(u, u.Before), share(u, u.After)
		if u.Before.Quota == u.After.Quota && before == after {
			continue
		}
		quota := amount(u, u.After.Quota)
		if u.Before.Quota != u.After.Quota {
			quota = amount(u, u.Before.Quota) + " -> " + quota
		}
		rows = append(rows, strings.Join([]string{u.ClusterQueue, u.Flavor, u.Resource, quota, before, after}, "\t"))
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	t := tabs(c.out)
	fmt.Fprintln(t, "CLUSTERQUEUE\tFLAVOR\tRESOURCE\tQUOTA\tMEAN USE\tWITH THE CHANGE")
	for _, row := range rows[:min(len(rows), c.rows)] {
		fmt.Fprintln(t, row)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	c.more(len(rows), "quotas")
	return nil
}

func amount(u *whatif.Use, n int64) string {
	if n < 0 {
		return "unlimited"
	}
	return resource.Amount(n).Format(u.Resource)
}

// share is the use of a quota: an amount, and a share where there is a quota.
func share(u *whatif.Use, f whatif.Fraction) string {
	used := fmt.Sprintf("%.1f", f.Used)
	switch {
	case u.Resource == "cpu":
		used = fmt.Sprintf("%.1f", f.Used/1000)
	case f.Used >= 1<<20 && resource.Amount(1<<30).Format(u.Resource) == "1Gi":
		used = fmt.Sprintf("%.1fMi", f.Used/(1<<20))
		if f.Used >= 1<<30 {
			used = fmt.Sprintf("%.1fGi", f.Used/(1<<30))
		}
	}
	if f.Quota <= 0 {
		return used
	}
	return fmt.Sprintf("%s (%.0f %%)", used, 100*f.Used/float64(f.Quota))
}

// runTimes is on what run times the answer depends.
func runTimes(counts map[whatif.Source]int) string {
	all, known := 0, 0
	for _, n := range counts { //berth:unordered a sum
		all += n
	}
	if all == 0 {
		return ""
	}
	var parts []string
	for _, part := range []struct {
		from whatif.Source
		text string
	}{
		{whatif.Expected, "%d as expected"}, {whatif.Bound, "%d up to their maximum execution time"}, {whatif.Assumed, "%d for the --run-time"},
	} {
		if n := counts[part.from]; n > 0 {
			known += n
			parts = append(parts, fmt.Sprintf(part.text, n))
		}
	}
	if n := all - known; n > 0 {
		parts = append(parts, fmt.Sprintf("%d up to the horizon, as their run times are unknown (--run-time gives them one)", n))
	}
	return fmt.Sprintf("%s run: %s.", plural(all, "workload"), strings.Join(parts, ", "))
}
