package toppage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	"github.com/berth-project/berth/internal/cli/ctl/terminal"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local)

// three are queues of which each is the first by another column.
func three() *Figures {
	return &Figures{
		At: noon, LastHour: &berthv1alpha1.Activity{Admitted: 12, Finished: 9, Failed: 1, Evicted: 2},
		Resources: []Resource{
			{Name: "nvidia.com/gpu", Use: Use{Quota: 20, Reserved: 12, Admitted: 10}, Amount: "12 of 20"},
			{Name: "cpu", Use: Use{Quota: 100, Reserved: 5, Admitted: 5}, Amount: "5 of 100"},
		},
		Queues: []Queue{
			{Name: "a", Fullest: "spot/cpu", Use: Use{Quota: 10, Reserved: 9, Admitted: 9}, Pending: 2, Waits: noon.Add(-time.Hour), Starts: "~12:20", Why: "WaitingForQuota: 1 more cpu"},
			{Name: "b", Cohort: "org", Fullest: "a100/nvidia.com/gpu", Use: Use{Quota: 10, Reserved: 15, Admitted: 10}, Borrowed: "5 gpu", Borrows: 0.5, Admitted: 3},
			{Name: "c", Off: "stopped", Pending: 7, Waits: noon.Add(-2 * time.Hour), Why: "Suspended: stopped"},
		},
	}
}

func newState(columns, lines int, f *Figures) *State {
	return New(Options{Server: "https://server:6443", Interval: 2 * time.Second}, f, columns, lines)
}

// thousand queues.
func thousand() *Figures {
	f := &Figures{At: noon}
	for i := range 1000 {
		f.Queues = append(f.Queues, Queue{
			Name: fmt.Sprintf("team-%03d", i), Cohort: fmt.Sprint("department-", i%7), Fullest: "a100/nvidia.com/gpu",
			Use: Use{Quota: 100, Reserved: float64(i % 101)}, Pending: i % 13, Waits: noon.Add(-time.Duration(i) * time.Minute), Why: "WaitingForQuota: nothing is left",
		})
	}
	return f
}

func press(s *State, keys ...terminal.Key) {
	for _, k := range keys {
		s.Press(k)
	}
}

func page(s *State, now time.Time) string {
	var b strings.Builder
	for _, line := range s.Lines(now) {
		b.WriteString(line.Text + "\n")
	}
	return b.String()
}

// chosen is the row that Enter would open.
func chosen(s *State, now time.Time) string {
	for _, line := range s.Lines(now) {
		if line.Style == terminal.Selected {
			return strings.Fields(line.Text)[0]
		}
	}
	return ""
}

func TestOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		keys []terminal.Key
		want string
	}{
		"by waiting at first": {nil, "c a b"},
		"by name":             {[]terminal.Key{"s"}, "a b c"},
		"by use":              {[]terminal.Key{">", terminal.Right}, "b a c"},
		"by what is borrowed": {[]terminal.Key{"<", "<"}, "b a c"},
		"by pending":          {[]terminal.Key{terminal.Left}, "c a b"},
		"names reversed":      {[]terminal.Key{"s", "r"}, "c b a"},
		"reversed":            {[]terminal.Key{"r"}, "b a c"},
		"around":              {[]terminal.Key{"s", "s", "s", "s", "s"}, "c a b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(100, 30, three())
			press(s, tc.keys...)
			if got := strings.Join(s.names(), " "); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestHeadingsShowTheOrder(t *testing.T) {
	s := newState(160, 30, three())
	for _, want := range []string{"WAITS▼", "CLUSTERQUEUE▲", "USE▼", "BORROWED▼", "PENDING▼"} {
		if text := page(s, noon); strings.Count(text, want) != 1 || strings.Count(text, "▼")+strings.Count(text, "▲") != 1 {
			t.Errorf("%s:\n%s", want, text)
		}
		press(s, "s")
	}
	if press(s, "r"); !strings.Contains(page(s, noon), "WAITS▲") {
		t.Error(page(s, noon))
	}
}

func TestFilter(t *testing.T) {
	s := newState(80, 24, thousand())
	press(s, "/", "-", "0", "q", terminal.Backspace, "1", terminal.Down)
	if got := len(s.names()); got != 10 || !strings.Contains(page(s, noon), "names with: -01█") || chosen(s, noon) != "team-018" {
		t.Errorf("%d, %s\n%s", got, chosen(s, noon), page(s, noon))
	}
	press(s, terminal.Enter, "s")
	if got := s.names(); len(got) != 10 || got[0] != "team-010" || !strings.Contains(page(s, noon), "Esc clears it") {
		t.Errorf("sorted: %s\n%s", got, page(s, noon))
	}
	press(s, "/", terminal.CtrlU, "x", "x")
	if !strings.Contains(page(s, noon), "no ClusterQueue has such a name") {
		t.Error(page(s, noon))
	}
	press(s, terminal.Down, terminal.PageUp, terminal.End, terminal.Enter, terminal.Enter)
	if queue, _ := s.Opened(); queue != "" {
		t.Errorf("%s was opened, which is not shown", queue)
	}
	if press(s, terminal.Esc); len(s.names()) != 1000 {
		t.Error("Esc does not clear the filter")
	}
	for range 400 {
		press(s, "/", "y")
	}
	if n := len(s.queues.filter); n > maxFilter {
		t.Errorf("a filter of %d characters", n)
	}
}

func TestScroll(t *testing.T) {
	s := newState(80, 24, thousand())
	rows := s.rows()
	if want := 24 - 6; rows != want {
		t.Fatalf("%d rows, want %d", rows, want)
	}
	for _, step := range []struct {
		key    terminal.Key
		chosen string
	}{
		{"", "team-999"},
		{terminal.Up, "team-999"},
		{terminal.Down, "team-998"},
		{"j", "team-997"},
		{terminal.PageDown, fmt.Sprintf("team-%d", 997-rows+1)},
		{terminal.PageUp, "team-997"},
		{terminal.End, "team-000"},
		{terminal.PageDown, "team-000"},
		{"k", "team-001"},
		{terminal.Home, "team-999"},
	} {
		press(s, step.key)
		text := page(s, noon)
		if got := chosen(s, noon); got != step.chosen {
			t.Fatalf("after %q: %s, want %s\n%s", step.key, got, step.chosen, text)
		}
		if got := strings.Count(text, "team-"); got != rows {
			t.Errorf("after %q: %d rows of %d\n%s", step.key, got, rows, text)
		}
	}
	if press(s, terminal.End); !strings.Contains(page(s, noon), fmt.Sprintf("%d-1000 of 1000", 1001-rows)) {
		t.Error(page(s, noon))
	}
}

// TestChosenStays: a queue that was chosen is still chosen when the order changes, and the first place is when none was.
func TestChosenStays(t *testing.T) {
	s := newState(80, 24, three())
	press(s, "s")
	if got := chosen(s, noon); got != "a" {
		t.Fatal(got)
	}
	press(s, terminal.Down, "s", "s")
	if got := chosen(s, noon); got != "b" {
		t.Errorf("%s, want b", got)
	}
	after := three()
	after.Queues = slices.Delete(after.Queues, 1, 2)
	if s.Refreshed(after); chosen(s, noon) != "a" {
		t.Errorf("%s, want the first: b is gone", chosen(s, noon))
	}
}

func TestWorkloads(t *testing.T) {
	s := newState(110, 24, three())
	press(s, "s", terminal.Down, terminal.Down, terminal.Up, terminal.Enter)
	queue, known := s.Opened()
	if queue != "b" || known || !strings.Contains(page(s, noon), "asking...") {
		t.Fatalf("%q %v\n%s", queue, known, page(s, noon))
	}
	f := three()
	f.Workloads = &PendingList{Queue: "b", Note: "the first 2", Workloads: []Workload{
		{Name: "red/train", JobQueue: "main", Position: "0", Priority: "5", Waits: noon.Add(-time.Minute), Starts: "~12:30", Why: "WaitingForQuota: 2 more"},
		{Name: "blue/eval", JobQueue: "night", Position: "1", Priority: "0", Waits: noon.Add(-time.Hour), Starts: "?"},
	}}
	s.Refreshed(f)
	text := page(s, noon)
	for _, want := range []string{"Workloads in line of ClusterQueue b", "red/train", "~12:30", "60s", "WaitingForQuota: 2 more", "the first 2", "1-2 of 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if press(s, terminal.Down, "s", "r"); chosen(s, noon) != "blue/eval" {
		t.Error("a line has one order")
	}
	s.Refreshed(three()) // of a refresh that began before the queue was opened
	if press(s, "/", "r", "e", "d", terminal.Enter); strings.Join(s.names(), " ") != "red/train" {
		t.Errorf("%s", s.names())
	}
	press(s, terminal.Esc)
	if queue, _ := s.Opened(); queue != "b" {
		t.Error("the first Esc clears the filter")
	}
	press(s, terminal.Esc)
	if queue, _ := s.Opened(); queue != "" || chosen(s, noon) != "b" {
		t.Errorf("%q is open, and %s chosen", queue, chosen(s, noon))
	}
}

func TestLeave(t *testing.T) {
	for name, tc := range map[string]struct {
		keys  []terminal.Key
		leave bool
	}{
		"q":                      {[]terminal.Key{"q"}, true},
		"Ctrl-C":                 {[]terminal.Key{terminal.CtrlC}, true},
		"Ctrl-C in a filter":     {[]terminal.Key{"/", terminal.CtrlC}, true},
		"q in a filter":          {[]terminal.Key{"/", "q"}, false},
		"q of a queue":           {[]terminal.Key{terminal.Enter, "q"}, true},
		"Ctrl-C in the help":     {[]terminal.Key{"?", terminal.CtrlC}, true},
		"Esc":                    {[]terminal.Key{terminal.Esc}, false},
		"q in the help leaves":   {[]terminal.Key{"?", "q"}, true},
		"a key without a use":    {[]terminal.Key{"x"}, false},
		"a key of the help only": {[]terminal.Key{"?", "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, leave := newState(80, 24, three()), false
			for _, k := range tc.keys {
				leave = s.Press(k)
			}
			if leave != tc.leave {
				t.Error(leave)
			}
			if text := page(s, noon); name == "a key of the help only" && strings.Contains(text, "Any key returns") {
				t.Error(text)
			}
		})
	}
}

func TestHelpFits(t *testing.T) {
	s := newState(80, 24, three())
	press(s, "?")
	text := page(s, noon)
	if strings.Contains(text, "…") && !strings.Contains(text, "until fg") || !strings.Contains(text, "Any key returns.") {
		t.Error(text)
	}
	for _, line := range helpText {
		if n := terminal.Cells(line); n > 80 {
			t.Errorf("%d cells: %s", n, line)
		}
	}
}

// TestAsksStarts: starts are asked for the queues on the page in which Workloads wait, if it has room for them.
func TestAsksStarts(t *testing.T) {
	s := newState(140, 24, three())
	if got := strings.Join(s.AsksStarts(), " "); got != "c a" { // in their order; nothing waits in b
		t.Errorf("asked for %q", got)
	}
	press(s, "/", "c", terminal.Enter)
	if got := strings.Join(s.AsksStarts(), " "); got != "c" {
		t.Errorf("asked for %q, of the queues that the filter passes", got)
	}
	s.Resize(80, 24)
	if got := s.AsksStarts(); got != nil {
		t.Errorf("asked for %v without room", got)
	}
	s = newState(140, 24, thousand())
	if got := len(s.AsksStarts()); got == 0 || got > 24 {
		t.Errorf("asked for %d queues on a page of 24 lines", got)
	}
	press(s, terminal.Enter)
	if got := s.AsksStarts(); got != nil {
		t.Errorf("asked for %v beside the Workloads of a queue", got)
	}
}

// TestColumns: where there is little room, columns are dropped in an order of their own, and none is wider than the screen.
func TestColumns(t *testing.T) {
	headers := []string{"CLUSTERQUEUE", "COHORT", "USE", "OF", "BORROWED", "ADMITTED", "PENDING", "WAITS", "STARTS", "WHY THE FIRST"}
	for width, want := range map[int]string{
		200: "CLUSTERQUEUE COHORT USE OF BORROWED ADMITTED PENDING WAITS STARTS WHY THE FIRST",
		110: "CLUSTERQUEUE COHORT USE BORROWED ADMITTED PENDING WAITS STARTS WHY THE FIRST",
		80:  "CLUSTERQUEUE USE BORROWED PENDING WAITS WHY THE FIRST",
		60:  "CLUSTERQUEUE USE BORROWED PENDING WAITS",
		50:  "CLUSTERQUEUE USE PENDING WAITS",
		35:  "CLUSTERQUEUE PENDING WAITS",
		30:  "CLUSTERQUEUE PENDING",
		15:  "CLUSTERQUEUE",
	} {
		s := newState(width, 24, three())
		var got []string
		for _, line := range s.Lines(noon) {
			if line.Style == terminal.Bold && strings.HasPrefix(line.Text, "CLUSTERQUEUE") {
				for _, h := range headers {
					if slices.Contains(strings.FieldsFunc(strings.ReplaceAll(line.Text, "WHY THE FIRST", "WHY_THE_FIRST"), func(r rune) bool { return r == ' ' || r == '▼' }),
						strings.ReplaceAll(h, " ", "_")) {
						got = append(got, h)
					}
				}
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d columns: %s, want %s\n%s", width, strings.Join(got, " "), want, page(s, noon))
		}
	}
}

// TestEightyColumns is the page as a user sees it.
func TestEightyColumns(t *testing.T) {
	s := newState(80, 14, three())
	for i := range 3 {
		f := three()
		f.At = noon.Add(time.Duration(i+1) * 2 * time.Second)
		f.Resources[0].Use.Reserved = float64(4 * i)
		s.Refreshed(f)
	}
	want := `
12:00:06  berth top  https://server:6443  every 2s           3 queues, 9 pending
nvidia.com/gpu  █████░░░░░░░     40%  12 of 20  ▅▁▂▄
cpu             █░░░░░░░░░░░      5%  5 of 100  ▁▁▁▁
pending         9, most 9                       ████
last hour       12 started, 9 finished, 1 failed, 2 evicted

CLUSTERQUEUE   USE              BORROWED    PENDING  WAITS▼  WHY THE FIRST
c (stopped)                                       7    120m  Suspended: stopped
a              ███████░    90%                    2     60m  WaitingForQuota: 1…
b              ████████+  150%  5 gpu             0



q leave  ? help  / filter  s sort  r reverse  Enter Workloads           1-3 of 3
`
	got := page(s, noon.Add(6*time.Second))
	var trimmed []string
	for line := range strings.Lines(got) {
		trimmed = append(trimmed, strings.TrimRight(line, " \n"))
	}
	if got := "\n" + strings.Join(trimmed, "\n") + "\n"; got != want {
		t.Errorf("%s\nwant%s", got, want)
	}
}

// TestLastHour: counts that are unknown are not zero, and a low page has room for queues instead.
func TestLastHour(t *testing.T) {
	unknown := three()
	unknown.LastHour = nil
	if s := newState(80, 24, unknown); !strings.Contains(page(s, noon), "last hour       unknown") {
		t.Error(page(s, noon))
	}
	if s := newState(80, 13, three()); strings.Contains(page(s, noon), lastHour) || s.rows() != 7 {
		t.Errorf("%d rows:\n%s", s.rows(), page(s, noon))
	}
}

// TestStale: figures that are not refreshed stay, with the time and the reason.
func TestStale(t *testing.T) {
	s := newState(100, 24, three())
	stale := func(now time.Time) string {
		for _, line := range s.Lines(now) {
			if line.Style == terminal.Alert {
				return strings.TrimSpace(line.Text)
			}
		}
		return ""
	}
	s.Asking(noon.Add(2 * time.Second))
	if got := stale(noon.Add(4 * time.Second)); got != "" {
		t.Errorf("after 2 s: %s", got)
	}
	if got := stale(noon.Add(14 * time.Second)); got != "stale since 12:00:00: no answer for 12s" {
		t.Errorf("after 12 s: %q", got)
	}
	s.Waits("still waiting for https://server:6443 to answer (12s)")
	if got := stale(noon.Add(14 * time.Second)); got != "stale since 12:00:00: still waiting for https://server:6443 to answer (12s)" {
		t.Errorf("with its reason: %q", got)
	}
	s.Failed("connection refused")
	if got := stale(noon.Add(15 * time.Second)); got != "stale since 12:00:00, trying again: connection refused" {
		t.Errorf("refused: %q", got)
	}
	s.Asking(noon.Add(16 * time.Second))
	if got := stale(noon.Add(17 * time.Second)); got == "" || !strings.Contains(page(s, noon), "WaitingForQuota") {
		t.Errorf("the figures are gone, or no longer stale: %q", got)
	}
	after := three()
	after.At = noon.Add(20 * time.Second)
	s.Refreshed(after)
	if got := stale(noon.Add(20 * time.Second)); got != "" {
		t.Errorf("after an answer: %q", got)
	}
	if got, want := s.waiting.sparkline(after.At, 2*time.Second, 20, 9), "█         █"; got != want {
		t.Errorf("%q, want %q: a gap while there was no answer", got, want)
	}
}

func TestSparkline(t *testing.T) {
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	for name, tc := range map[string]struct {
		values []float64
		cells  int
		most   float64
		want   string
	}{
		"none":             {nil, 10, 1, ""},
		"no room":          {[]float64{1, 1}, 0, 1, ""},
		"negative room":    {[]float64{1, 1}, -3, 1, ""},
		"one":              {[]float64{1}, 10, 1, "█"},
		"from none to all": {[]float64{0, 0.25, 0.5, 0.75, 1}, 10, 1, "▁▂▄▆█"},
		"more than all":    {[]float64{3, 3}, 10, 1, "██"},
		"all zero":         {[]float64{0, 0, 0}, 10, 0, "▁▁▁"},
	} {
		t.Run(name, func(t *testing.T) {
			var h history
			for i, v := range tc.values {
				h.add(at(i), v, true)
			}
			if got := h.sparkline(at(max(len(tc.values)-1, 0)), time.Second, tc.cells, tc.most); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	// A day in few cells: the whole course is there, in bounded memory.
	var h history
	const day = 43_200
	for i := range day {
		h.add(at(2*i), float64(i)/day, true)
	}
	got := []rune(h.sparkline(at(2*day), 2*time.Second, 16, 1))
	if len(h.samples) > maxSamples || len(got) != 16 || !slices.IsSorted(got) || got[0] != '▁' || got[15] != '█' {
		t.Errorf("%d samples: %s", len(h.samples), string(got))
	}
}

// TestAnyScreen: whatever is shown and pressed, no line is longer than the screen and there are not more of them.
func TestAnyScreen(t *testing.T) {
	keys := []terminal.Key{
		terminal.Up, terminal.Down, terminal.PageUp, terminal.PageDown, terminal.Home, terminal.End, terminal.Enter, terminal.Esc, terminal.Backspace, terminal.Left,
		terminal.Right, "s", "r", "/", "?", "a", "日",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 60, -1)
		f := &Figures{At: noon, Note: text.Draw(t, "note")}
		for i := range rapid.IntRange(0, 40).Draw(t, "queues") {
			f.Queues = append(f.Queues, Queue{
				Name: text.Draw(t, "name") + fmt.Sprint(i), Cohort: text.Draw(t, "cohort"), Fullest: text.Draw(t, "fullest"), Borrowed: text.Draw(t, "borrowed"), Why: text.Draw(t, "why"),
				Use: Use{Quota: 4, Reserved: rapid.Float64Range(0, 1e9).Draw(t, "reserved")}, Pending: rapid.IntRange(0, 1<<40).Draw(t, "pending"), Waits: noon.Add(-time.Hour * 99999),
			})
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "resources") {
			f.Resources = append(f.Resources, Resource{Name: text.Draw(t, "resource") + fmt.Sprint(i), Use: Use{Quota: 2, Reserved: 1}, Amount: text.Draw(t, "amount")})
		}
		size := func() (columns, lines int) {
			return rapid.IntRange(0, 200).Draw(t, "columns"), rapid.IntRange(0, 60).Draw(t, "lines")
		}
		columns, lines := size()
		s := New(Options{Server: text.Draw(t, "server"), Interval: time.Second, NoHeaders: rapid.Bool().Draw(t, "no headers")}, f, columns, lines)
		for range 12 {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				columns, lines = size()
				s.Resize(columns, lines)
			case 1:
				s.Failed(text.Draw(t, "why"))
			case 2:
				opened, _ := s.Opened()
				again := *f
				again.Workloads = &PendingList{Queue: opened, Note: text.Draw(t, "note"), Workloads: []Workload{{Name: text.Draw(t, "workload"), Starts: text.Draw(t, "starts"), Why: text.Draw(t, "why")}}}
				s.Refreshed(&again)
			default:
				s.Press(rapid.SampledFrom(keys).Draw(t, "key"))
			}
			page := s.Lines(noon.Add(time.Hour))
			if len(page) > lines {
				t.Fatalf("%d lines on a screen of %d", len(page), lines)
			}
			for _, line := range page {
				if n := terminal.Cells(line.Text); n != columns || line.Text != terminal.Fit(line.Text, columns) {
					t.Fatalf("%d cells on a screen of %d: %q", n, columns, line.Text)
				}
			}
		}
	})
}
