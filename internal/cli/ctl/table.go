package ctl

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/berth-project/berth/internal/cli/ctl/terminal"
)

// column of a table; a wide one is shown with -o wide only.
type column struct {
	header string
	wide   bool
}

// columns makes columns from headers; a leading + marks wide output.
func columns(headers ...string) []column {
	out := make([]column, 0, len(headers))
	for _, h := range headers {
		name, wide := strings.CutPrefix(h, "+")
		out = append(out, column{name, wide})
	}
	return out
}

// table is text in columns, laid out like kubectl's.
type table struct {
	columns []column
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// Widths of kubectl's columns. spec: 70 §4.9.
const (
	minWidth = 6
	padding  = 3
)

func (t *table) write(w io.Writer, wide, headers bool) error {
	lines := tabwriter.NewWriter(w, minWidth, 1, padding, ' ', 0)
	put := func(cell func(i int) string) {
		var cells []string
		for i, c := range t.columns {
			if wide || !c.wide {
				cells = append(cells, terminal.Printable(cell(i)))
			}
		}
		fmt.Fprintln(lines, strings.Join(cells, "\t"))
	}
	if headers {
		put(func(i int) string { return t.columns[i].header })
	}
	for _, row := range t.rows {
		put(func(i int) string { return row[i] })
	}
	return lines.Flush()
}
