package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	"github.com/berth-project/berth/internal/cli/ctl/terminal"
	"github.com/berth-project/berth/internal/core/trace"
)

// clock is a time of today, or of another day.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("Jan 2 15:04")
}

// starts is the column STARTS: the median, the time that it is after, or ? where it is unknown.
func starts(e *berthv1alpha1.ExpectedStart, now time.Time) string {
	switch {
	case e == nil:
		return ""
	case e.Unknown != "" || e.Until == nil:
		return "?"
	case e.P50 == nil:
		return "after " + clock(e.Until.Time, now)
	}
	return "~" + clock(notBefore(e.P50.Time, now), now)
}

// notBefore returns the later of two times: a start that was expected earlier is expected now.
func notBefore(t, now time.Time) time.Time {
	if t.Before(now) {
		return now
	}
	return t
}

// startInWords describes when a pending Workload starts, its limits, and how long it runs. Times are local.
func startInWords(e *berthv1alpha1.Explanation, now time.Time) string {
	var b strings.Builder
	if s := e.Start; s != nil {
		fmt.Fprintf(&b, "  %s\n", terminal.Printable(strings.Join(append([]string{expected(s, now)}, limits(e)...), "; ")))
		if s.Endless > 0 && s.Unknown == "" {
			fmt.Fprintf(&b, "  assumes no end of %s in its cohort whose run time is unknown\n", trace.Plural(int(s.Endless), "Workload"))
		}
	}
	if e.RunTime != "" {
		fmt.Fprintf(&b, "  %s\n", terminal.Printable(e.RunTime))
	}
	return b.String()
}

func expected(s *berthv1alpha1.ExpectedStart, now time.Time) string {
	end := func(t *metav1.Time) string {
		if t == nil {
			return "some time after " + clock(s.Until.Time, now)
		}
		return clock(notBefore(t.Time, now), now)
	}
	switch {
	case s.Unknown != "" && s.By != nil:
		return "starts by " + end(s.By) + "; when before that is unknown: " + s.Unknown
	case s.Unknown != "" || s.Until == nil:
		return "when it starts is unknown: " + s.Unknown
	case s.P10 == nil:
		return "starts after " + clock(s.Until.Time, now)
	case s.P50 == nil:
		return "starts after " + clock(s.Until.Time, now) + ", or with luck from " + end(s.P10) + " on"
	}
	return "starts about " + end(s.P50) + ", between " + end(s.P10) + " and " + end(s.P90)
}

// limits are the obstacles of a Workload: the quota that is short, and the jobs ahead of it.
func limits(e *berthv1alpha1.Explanation) (out []string) {
	var short []string
	for i := range e.Shortfalls {
		f := &e.Shortfalls[i]
		if f.LimitedBy == "" {
			continue
		}
		if text := f.LimitedBy + ", " + f.Resource; !slices.Contains(short, text) {
			short = append(short, text)
		}
	}
	if len(short) > 0 {
		out = append(out, "limited by "+strings.Join(short, " and "))
	}
	if p := e.PositionInClusterQueue; p != nil && *p > 0 {
		out = append(out, trace.Plural(int(*p), "job")+" ahead")
	}
	return out
}
