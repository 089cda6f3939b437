package dash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/state"
)

// newWhatIfs is the full line, whose ClusterQueue red preempts workloads of lower priority, with a dashboard that answers what-ifs.
func newWhatIfs(t *testing.T, change func(*Server)) *line {
	t.Helper()
	var l *line
	l = newLine(t, func(s *Server) {
		s.WhatIf = WhatIf{Ready: func() error { return nil }, Checkpoint: func(context.Context) (*state.Checkpoint, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.s.Checkpoint(), nil
		}}
		change(s)
	})
	for _, q := range l.s.QueueDefinitions() {
		q.Preemption.Within = preempt.LowerPriority
		l.apply(state.SetQueue(q))
	}
	l.full()
	l.settled(l.red, l.blue)
	return l
}

// lister makes an account that may list kinds of kueue.x-k8s.io in all namespaces.
func (l *line) lister(name string, kinds ...string) (token string) {
	l.Helper()
	token = l.account(name)
	l.create(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: l.red + "-" + name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kueue.x-k8s.io"}, Resources: kinds, Verbs: []string{"list"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: l.red + "-" + name}, Subjects: []rbacv1.Subject{l.subject(name)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: l.red + "-" + name},
		})
	l.granted(name, "")
	return token
}

// question opens a socket and sends a question; %s stands for the name red.
func (l *line) question(token, text string) *socket {
	l.Helper()
	s := l.dial(token, "/ws/what-if/answer")
	l.must(s.WriteMessage(websocket.TextMessage, []byte(strings.ReplaceAll(text, "RED", l.red))))
	return s
}

// reply returns the next reply to a question, in which the name red is RED.
func (s *socket) reply() (r reply) {
	s.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(string(s.next()), s.red, "RED"), s.blue, "BLUE")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		s.Fatalf("%s: %v", text, err)
	}
	return r
}

// last returns the last reply to a question, after progress.
func (s *socket) last() (r reply) {
	s.Helper()
	for r = s.reply(); r.Waiting || r.Done != nil; {
		r = s.reply()
	}
	return r
}

const (
	urgent = `{"submit": {"namespace": "RED", "queue": "main", "pods": "1", "requests": "cpu=3", "priority": "100", "runTime": "1h"}}`
	more   = `{"quotas": [{"queue": "RED", "resource": "cpu", "amount": "+8"}]}`
)

// TestWhatIf: an answer has the workloads that a change preempts and starts, in the words of the command, and the engine stays as it is.
func TestWhatIf(t *testing.T) {
	l := newWhatIfs(t, asIs)
	admin := l.administrator()
	content := func() string {
		text, err := json.Marshal(l.s.Checkpoint().Snapshot())
		l.must(err)
		return string(text)
	}
	before := content()
	for _, tc := range []struct {
		question, summary string
		workloads         []string
	}{
		{
			urgent, "Within 2h00m, of the workloads: 1 is preempted, 1 is new, 1 starts that would not. Starts: 2 (0 without the change); waiting at the end: 1 (1).",
			[]string{
				"RED/own preempted: runs | runs, preempted now by RED/what-if, waits |  +2h00m or more true", "RED/what-if new: - | starts +30s |   false",
				"RED/train starts: waits | starts +1h00m |  -59m30s or more true",
			},
		},
		{
			more, "Within 2h00m, of the workloads: 1 starts that would not. Starts: 1 (0 without the change); waiting at the end: 0 (1).",
			[]string{"RED/train starts: waits | starts now |  -2h00m or more true"},
		},
		{
			`{"quotas": [{"queue": "RED", "resource": "cpu", "amount": "=3"}], "horizon": "90m"}`, "Within 1h30m the change makes no difference to any workload.", nil,
		},
		{
			`{"yaml": "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: second, namespace: RED}\nspec: {clusterQueue: RED}\n",
			"submit": {"namespace": "RED", "queue": "second", "pods": "2", "requests": "cpu=1"}, "horizon": "1h"}`,
			"Within 1h00m, of the workloads: 1 is new. Starts: 1 (0 without the change); waiting at the end: 1 (1).",
			[]string{"RED/what-if new: - | starts now |   false"},
		},
	} {
		s := l.question(admin, tc.question)
		r := s.last()
		if r.Answer == nil {
			t.Errorf("%s: %+v", tc.question, r)
			continue
		}
		var got []string
		for _, w := range r.Answer.Workloads {
			got = append(got, fmt.Sprint(w.Namespace, "/", w.Name, " ", w.Words, ": ", w.Before, " | ", w.After, " |  ", w.Wait, " ", w.Exists))
		}
		if diff := cmp.Diff(tc.summary, r.Answer.Summary) + cmp.Diff(tc.workloads, got); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", tc.question, diff)
		}
		if code, why := s.closed(); code != websocket.CloseNormalClosure {
			t.Errorf("closed with %d %s", code, why)
		}
	}
	if diff := cmp.Diff(before, content()); diff != "" {
		t.Errorf("the engine has changed:\n%s", diff)
	}
}

// TestWhatIfMistakes: each mistake comes with the field that it is about, and what no user could send ends the connection.
func TestWhatIfMistakes(t *testing.T) {
	l := newWhatIfs(t, asIs)
	admin := l.administrator()
	for text, want := range map[string]string{
		`{}`:              `: there is no change: change a quota, drain a node, submit a workload, or give objects`,
		`{"horizon":"x"}`: `horizon: must be from 1s to a year, as in 2h; : there is no change: change a quota, drain a node, submit a workload, or give objects`,
		`{"quotas": [{"queue": "RED", "resource": "cpu", "amount": "+x"}, {"queue": "RED", "resource": "gpu", "amount": "+1"}], "drains": ["n"]}`: `quotas.0.amount: x is no amount, such as 16 or 64Gi; quotas.1.resource: ClusterQueue RED has no quota of gpu: there are RED/cpu; drains.0: there is no such node: there are none`,
		`{"submit": {"namespace": "RED", "queue": "main", "pods": "1", "requests": "nvidia.com/gpu=1", "priority": "high"}}`:                      `submit.priority: "high" is not a whole number, such as 100; submit.requests: ClusterQueue RED does not offer nvidia.com/gpu: it offers cpu`,
		`{"yaml": "kind: ClusterQueue\n", "runTime": "1h"}`:                                                                                       `yaml: YAML:1: ClusterQueue : an object needs apiVersion and kind`,
		`{"yaml": "a: b", "runTime": "-1h"}`:                                                  `runTime: must be a time such as 1h30m`,
		`{"drains": [` + strings.TrimSuffix(strings.Repeat(`"n",`, mostDrains+1), ",") + `]}`: fmt.Sprintf(`drains: there are more than %d nodes`, mostDrains),
		`{"quotas": [` + strings.TrimSuffix(strings.Repeat(`{},`, mostQuotas+1), ",") + `]}`:  fmt.Sprintf(`quotas: there are more than %d changes of quotas`, mostQuotas),
	} {
		var got []string
		for _, e := range l.question(admin, text).last().Errors {
			got = append(got, e.Field+": "+e.Message)
		}
		if diff := cmp.Diff(want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", text, diff)
		}
	}
	s := l.question(admin, `{"quota": []}`)
	if r := s.last(); !strings.Contains(r.Error, `unknown field "quota"`) {
		t.Errorf("an unknown field: %+v", r)
	}
	if code, _ := s.closed(); code != websocket.ClosePolicyViolation {
		t.Errorf("closed with %d", code)
	}
	if code, _ := l.question(admin, strings.Repeat(" ", questionLimit+1)).closed(); code != websocket.CloseMessageTooBig {
		t.Errorf("a message that is too large: closed with %d", code)
	}
}

// TestWhatIfRights: an answer is about all queues, so the caller must be permitted to list all that may be named in it.
func TestWhatIfRights(t *testing.T) {
	l := newWhatIfs(t, asIs)
	viewer := l.viewer()
	if code, why := l.dial(viewer, "/ws/what-if").closed(); code != websocket.ClosePolicyViolation || !strings.HasSuffix(why, "may not list workloads in all namespaces") {
		t.Errorf("the form: closed with %d %q", code, why)
	}
	for _, tc := range []struct {
		name     string
		kinds    []string
		question string
		want     string
	}{
		{"w", []string{"workloads"}, more, "may not list clusterqueues"},
		{"wq", []string{"workloads", "clusterqueues"}, urgent, "may not list localqueues in all namespaces"},
		{"wl", []string{"workloads", "clusterqueues", "localqueues"}, `{"yaml": "a: b", "drains": ["n"]}`, "may not list nodes"},
		{"wt", []string{"workloads", "clusterqueues", "localqueues"}, strings.Replace(urgent, `"1h"`, `"1h", "topology": "required", "level": "rack"`, 1), "may not list topologies"},
		{"wc", []string{"workloads", "clusterqueues"}, more, ""},
	} {
		s := l.question(l.lister(tc.name, tc.kinds...), tc.question)
		r := s.last()
		if tc.want == "" {
			if r.Answer == nil {
				t.Errorf("%v: %+v", tc.kinds, r)
			}
			continue
		}
		if code, _ := s.closed(); !strings.HasSuffix(r.Error, tc.want) || code != websocket.ClosePolicyViolation {
			t.Errorf("%v: %+v, closed with %d", tc.kinds, r, code)
		}
	}
	s := l.question(viewer, more)
	if r := s.last(); !strings.HasSuffix(r.Error, "may not list workloads in all namespaces") || r.Answer != nil {
		t.Errorf("the viewer of one namespace: %+v", r)
	}
	l.must(l.c.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: l.red, Name: "view"}}))
}

// TestWhatIfForm: the form suggests the names that the caller may list.
func TestWhatIfForm(t *testing.T) {
	l := newWhatIfs(t, asIs)
	admin, poor := l.administrator(), l.lister("poor", "workloads", "clusterqueues")
	has := func(d document, key, name string) bool {
		for _, of := range list3(d, key) {
			if of["name"] == name || of["namespace"] == name {
				return true
			}
		}
		return false
	}
	all := l.dial(admin, "/ws/what-if").document()
	if !has(all, "clusterQueues", l.red) || !has(all, "localQueues", l.red) || all["topology"] != false {
		t.Errorf("the administrator sees %v", all)
	}
	some := l.dial(poor, "/ws/what-if").document()
	if !has(some, "clusterQueues", l.red) || len(list3(some, "localQueues")) != 0 {
		t.Errorf("a caller who may not list LocalQueues sees %v", some)
	}
}

// held is an engine that makes no checkpoint before it is released.
type held struct {
	mu       sync.Mutex
	entered  int
	left     int
	released chan struct{}
}

func (h *held) hold(s *Server) {
	h.released = make(chan struct{})
	of := s.WhatIf.Checkpoint
	s.WhatIf.Checkpoint = func(ctx context.Context) (*state.Checkpoint, error) {
		h.count(&h.entered)
		select {
		case <-h.released:
			return of(ctx)
		case <-ctx.Done():
			h.count(&h.left)
			return nil, ctx.Err()
		}
	}
}

func (h *held) count(n *int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*n++
}

// are waits until so many questions have reached the engine and have left it without an answer.
func (h *held) are(t *testing.T, entered, left int) {
	t.Helper()
	wait.Until(t, "the questions arrive and leave", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.entered != entered || h.left != left {
			return fmt.Errorf("%d have entered, %d have left", h.entered, h.left)
		}
		return nil
	})
}

// TestWhatIfTurns: one what-if is answered at a time, one of each user waits, both with their progress, and leaving ends each.
func TestWhatIfTurns(t *testing.T) {
	h := &held{}
	l := newWhatIfs(t, func(s *Server) {
		s.pace.progress = 10 * time.Millisecond
		h.hold(s)
	})
	admin, other := l.administrator(), l.lister("other", "workloads", "clusterqueues")
	first := l.question(admin, more)
	h.are(t, 1, 0)
	r := first.reply()
	for r.Waiting { // its turn had not come yet
		r = first.reply()
	}
	if r.Done == nil || *r.Done != 0 {
		t.Errorf("the first is told %+v", r)
	}
	waits := func(token string) *socket {
		asked := l.question(token, more)
		for range 10 { // the first reply may come before the question is in line
			if r := asked.reply(); !r.Waiting {
				t.Errorf("one that waits is told %+v", r)
			}
		}
		return asked
	}
	second, third := waits(admin), waits(other)
	refused := l.question(admin, more)
	if r := refused.last(); !strings.Contains(r.Error, "waits already") {
		t.Errorf("a third of one user is told %+v", r)
	}
	if code, _ := refused.closed(); code != websocket.CloseTryAgainLater {
		t.Errorf("closed with %d", code)
	}
	l.must(first.Close())
	h.are(t, 2, 1) // it has ended, and the next is under way
	l.must(second.Close())
	h.are(t, 3, 2)
	close(h.released)
	if r := third.last(); r.Answer == nil {
		t.Errorf("the last is told %+v", r)
	}
}

// TestWhatIfTime: a what-if ends when its time is over, and none begins before the engine knows everything.
func TestWhatIfTime(t *testing.T) {
	h := &held{}
	var starting atomic.Bool
	l := newWhatIfs(t, func(s *Server) {
		s.pace.whatIf = 10 * time.Millisecond
		s.WhatIf.Ready = func() error {
			if starting.Load() {
				return errors.New("not yet")
			}
			return nil
		}
		h.hold(s)
	})
	admin := l.administrator()
	if r := l.question(admin, more).last(); r.Error != "there is no answer within 10ms: ask for a shorter time" {
		t.Errorf("%+v", r)
	}
	starting.Store(true)
	if r := l.question(admin, more).last(); r.Error != errNotReady.Error() {
		t.Errorf("before it is ready: %+v", r)
	}
}

// focus puts the keyboard on the control of a label, and typed types with it.
func (b *browser) focus(label string) {
	b.Helper()
	if !find[bool](b, fmt.Sprintf(`(() => {
		const label = [...document.querySelectorAll("main label")].find((l) => l.textContent === %q);
		document.getElementById(label?.htmlFor)?.focus();
		return document.activeElement.id === label?.htmlFor;
	})()`, label)) {
		b.Fatalf("no control has the label %s", label)
	}
}

func (b *browser) typed(keys ...string) {
	b.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// As a user, by the keyboard: the page of a ClusterQueue leads to the form, an error is beside its field, and the answer to a corrected form
// has a start and a preemption and the focus. Texts are texts.
func TestWhatIfPage(t *testing.T) {
	t.Parallel()
	l := newWhatIfs(t, func(s *Server) {
		s.options.Origins = nil
		s.WhatIf.Settings.Requests.Topology = true
	})
	b := newBrowser(t)
	b.login(l.world, "/cluster-queue/"+l.red, l.administrator())
	b.shows("What if its quota changed?")
	find[bool](b, `document.querySelector('a[href^="/what-if?"]').focus() ?? true`)
	b.typed("\r")
	b.shows("Quotas", "A new workload", "How far ahead")
	if got := find[string](b, `document.querySelector("main input").value`); got != l.red {
		t.Errorf("the form is about the cluster queue %q", got)
	}
	b.picture("what-if-form")
	b.focus("Resource")
	b.typed(`<img src=x onerror="window.hacked=1">`, "\t", "+1", "\r")
	b.shows("has no quota of <img src=x", "1 field must be corrected")
	if got := find[string](b, `(() => {
		const at = document.activeElement;
		const said = at.getAttribute("aria-describedby").split(" ").map((id) => document.getElementById(id).textContent).join();
		return at.labels[0].textContent + " " + at.ariaInvalid + " " + said.includes("has no quota of") + " " + at.closest(".field").textContent.includes("has no quota of");
	})()`); got != "Resource true true true" {
		t.Errorf("the focus is on %s", got)
	}
	b.harmless()
	b.picture("what-if-error")
	b.typed("\t", "\t", "\r") // past the amount, to the button that removes the change
	b.typed("\t", l.red, "\t", "main", "\t", "\t", "cpu=3", "\t", "1h", "\t", "\t", "100", "\r")
	b.shows("1 is preempted, 1 is new", "runs, preempted now by "+l.red+"/what-if", "starts +30s", "starts +1h00m", "Use of quotas", "Mean use")
	if got := find[string](b, `document.activeElement.textContent + [...document.querySelectorAll("main section a")].map((a) => a.pathname).filter((p) => p.startsWith("/workload/"))`); got !=
		"What would happen/workload/"+l.red+"/own,/workload/"+l.red+"/train" {
		t.Errorf("the focus and the links are %s", got)
	}
	if got := find[int](b, `document.querySelectorAll("main [aria-invalid]").length`); got != 0 {
		t.Errorf("%d errors remain", got)
	}
	b.picture("what-if")
	b.narrow()
	b.picture("what-if-narrow")
	b.wide()
	viewer := l.viewer()
	b.do(chromedp.Click("#leave"))
	b.login(l.world, "/what-if", viewer)
	b.shows("may not list workloads in all namespaces", "to list ClusterQueues")
}

// As a user: a what-if that takes long shows its progress. It ends when it is stopped, and when its page is left.
func TestWhatIfPageIsLeft(t *testing.T) {
	t.Parallel()
	h := &held{}
	l := newWhatIfs(t, func(s *Server) {
		s.options.Origins, s.pace.progress = nil, 10*time.Millisecond
		h.hold(s)
	})
	b := newBrowser(t)
	b.login(l.world, "/", l.administrator())
	b.shows("What if a quota changed, or a workload came?")
	b.do(chromedp.Click(`main a[href="/what-if"]`))
	b.shows("Quotas")
	b.focus("Cluster queue")
	b.typed(l.red, "\t", "\t", "cpu", "\t", "+8", "\r")
	b.shows("0 % done", "Stop")
	h.are(t, 1, 0)
	b.do(chromedp.Click(".whatif .bar button:nth-of-type(2)"))
	b.shows("Stopped.")
	h.are(t, 1, 1)
	b.focus("Change")
	b.typed("\r")
	h.are(t, 2, 1)
	b.do(chromedp.Click(`header a[href="/cohorts"]`))
	h.are(t, 2, 2)
	b.shows("Cohorts")
}
