package whatif

import (
	"fmt"
	"math"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/foresight"
)

// words are the effects as tables name them, and as the summary counts them.
var words = []struct {
	effect         Effect
	cell, one, all string
}{
	{Evicted, "preempted", "is preempted", "are preempted"},
	{NotStarted, "does not start", "does not start any more", "do not start any more"},
	{Stranded, "loses its node", "loses a node without a replacement", "lose a node without a replacement"},
	{Later, "waits longer", "waits longer", "wait longer"},
	{Moved, "moves", "moves to another node", "move to other nodes"},
	{New, "new", "is new", "are new"},
	{Removed, "removed", "is removed", "are removed"},
	{Starts, "starts", "starts that would not", "start that would not"},
	{Earlier, "waits less", "waits less", "wait less"},
	{Shifted, "other times", "starts or stops at other times", "start or stop at other times"},
	{Spared, "not preempted", "is not preempted any more", "are not preempted any more"},
}

// Summary is the answer in one sentence.
func (r *Report) Summary() string {
	within := "Within " + foresight.Length(r.Horizon)
	if len(r.Workloads) == 0 {
		return within + " the change makes no difference to any workload."
	}
	counts := map[Effect]int{}
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

// Words names an effect in a table.
func (e Effect) Words() string {
	for _, word := range words {
		if word.effect == e {
			return word.cell
		}
	}
	return string(e)
}

// Words is what happens to a Workload in one future.
func (c *Course) Words() string {
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
		case c.Cause == ByNodes:
			what = "evicted " + after(*c.Preempted) + " as a node failed"
		case c.Cause == ByChange:
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

// WaitWords is how much longer or shorter a Workload waits, empty for as long.
func (w *Workload) WaitWords() string {
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

// UseRow is a row of a table of quotas that change, or whose use does.
type UseRow struct {
	ClusterQueue string `json:"clusterQueue"`
	Flavor       string `json:"flavor"`
	Resource     string `json:"resource"`
	Quota        string `json:"quota"`
	Before       string `json:"before"`
	After        string `json:"after"`
}

// UseRows returns the rows of the quotas that change, or whose use does.
func (r *Report) UseRows() (rows []UseRow) {
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
		rows = append(rows, UseRow{u.ClusterQueue, u.Flavor, u.Resource, quota, before, after})
	}
	return rows
}

func amount(u *Use, n int64) string {
	if n < 0 {
		return "unlimited"
	}
	return resource.Amount(n).Format(u.Resource)
}

// share is the use of a quota: an amount, and a share where there is a quota.
func share(u *Use, f Fraction) string {
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

// RunTimeWords is on what run times the answer depends, empty if nothing runs. setting is the name of what sets assumed ones.
func (r *Report) RunTimeWords(setting string) string {
	all, known := 0, 0
	for _, n := range r.RunTimes { //berth:unordered a sum
		all += n
	}
	if all == 0 {
		return ""
	}
	var parts []string
	for _, part := range []struct {
		from Source
		text string
	}{
		{Expected, "%d as expected"}, {Bound, "%d up to their maximum execution time"}, {Assumed, "%d for the " + setting},
	} {
		if n := r.RunTimes[part.from]; n > 0 {
			known += n
			parts = append(parts, fmt.Sprintf(part.text, n))
		}
	}
	if n := all - known; n > 0 {
		parts = append(parts, fmt.Sprintf("%d up to the horizon, as their run times are unknown (%s gives them one)", n, setting))
	}
	return fmt.Sprintf("%s run: %s.", trace.Plural(all, "workload"), strings.Join(parts, ", "))
}
