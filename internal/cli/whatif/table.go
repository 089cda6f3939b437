package whatif

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/berth-project/berth/internal/foresight/whatif"
)

func (c *command) writeTable(r *whatif.Report) error {
	fmt.Fprintf(c.out, "%s\n", r.Summary())
	if len(r.Workloads) > 0 {
		fmt.Fprintln(c.out)
		if err := c.writeWorkloads(r); err != nil {
			return err
		}
	}
	if err := c.writeUse(r); err != nil {
		return err
	}
	if text := r.RunTimeWords("--run-time"); text != "" {
		fmt.Fprintf(c.out, "\n%s\n", text)
	}
	for _, note := range c.notes {
		fmt.Fprintf(c.out, "note: %s\n", note)
	}
	return nil
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
			w.Namespace + "/" + w.Name, w.LocalQueue, fmt.Sprint(w.Priority), w.Effect.Words(), w.Before.Words(), w.After.Words(), w.WaitWords(),
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

// writeUse writes the quotas that change, or whose use does.
func (c *command) writeUse(r *whatif.Report) error {
	rows := r.UseRows()
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	t := tabs(c.out)
	fmt.Fprintln(t, "CLUSTERQUEUE\tFLAVOR\tRESOURCE\tQUOTA\tMEAN USE\tWITH THE CHANGE")
	for _, row := range rows[:min(len(rows), c.rows)] {
		fmt.Fprintln(t, strings.Join([]string{row.ClusterQueue, row.Flavor, row.Resource, row.Quota, row.Before, row.After}, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	c.more(len(rows), "quotas")
	return nil
}
