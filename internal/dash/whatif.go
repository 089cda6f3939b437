package dash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/foresight/offline/change"
	"github.com/berth-project/berth/internal/foresight/whatif"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/state"
)

// WhatIf is what an answer of a what-if is computed from. Without a Checkpoint there are none.
type WhatIf struct {
	// Checkpoint is the method of the engine, and Ready fails until the engine knows everything that exists.
	Checkpoint func(context.Context) (*state.Checkpoint, error)
	Ready      func() error
	Settings   change.Settings
}

// Bounds of a question, and of an answer.
const (
	questionLimit  = 64 << 10 // bytes
	questionTime   = 10 * time.Second
	mostQuotas     = 20
	mostDrains     = 50
	shownEffects   = 200 // workloads, and quotas
	whatIfLimit    = time.Minute
	progressEvery  = time.Second
	questionsQueue = 32

	whatIfGrace   = 30 * time.Second // as of the command
	whatIfHorizon = "2h"
)

// noEngine is the answer of a manager without an engine.
const noEngine = "this manager has no engine, and answers no what-if"

// newQuestions makes the limit of what-ifs: one at a time, and one more of each user that waits.
func newQuestions() *inflight.Limiter {
	return &inflight.Limiter{Seats: 1, PerCaller: 1, Waiting: questionsQueue, WaitingPerCaller: 1}
}

// question is the message of a caller. Texts are as a user writes them.
type question struct {
	Quotas  []quotaChange      `json:"quotas"`
	Drains  []string           `json:"drains"`
	Submit  *change.Submission `json:"submit"`
	YAML    string             `json:"yaml"`    // objects that are added or replaced
	Horizon string             `json:"horizon"` // 2h if empty
	RunTime string             `json:"runTime"` // of workloads that do not say, up to the horizon if empty
}

type quotaChange struct {
	Queue    string `json:"queue"`
	Flavor   string `json:"flavor"`
	Resource string `json:"resource"`
	Amount   string `json:"amount"`
}

// reply is a message to a caller: progress, and at last errors, an error or the answer.
type reply struct {
	// Done is the share of the work that is done, nil while others are served.
	Waiting bool         `json:"waiting,omitempty"`
	Done    *float64     `json:"done,omitempty"`
	Errors  []fieldError `json:"errors,omitempty"`
	Error   string       `json:"error,omitempty"`
	Answer  *answer      `json:"answer,omitempty"`
}

// fieldError is a mistake, with the path of its field in the question, "" for the whole.
type fieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// answer is the differences that a change makes, in the words of the command.
type answer struct {
	Summary       string          `json:"summary"`
	Workloads     []effectView    `json:"workloads"`
	MoreWorkloads int             `json:"moreWorkloads"`
	Use           []whatif.UseRow `json:"use"`
	MoreUse       int             `json:"moreUse"`
	RunTimes      string          `json:"runTimes"`
	Notes         []string        `json:"notes"`
}

// effectView is what a change does to a Workload.
type effectView struct {
	Namespace  string        `json:"namespace"`
	Name       string        `json:"name"`
	LocalQueue string        `json:"localQueue"`
	Priority   int64         `json:"priority"`
	Effect     whatif.Effect `json:"effect"`
	Words      string        `json:"words"`
	Before     string        `json:"before"`
	After      string        `json:"after"`
	Wait       string        `json:"wait"`
	Exists     bool          `json:"exists"` // else it is part of the change
}

// answerWhatIf answers the question that is the first message of a WebSocket, with progress, and closes it. It ends when the caller leaves.
func (s *Server) answerWhatIf(w http.ResponseWriter, r *http.Request) {
	who, key, hangUp := s.connect(w, r)
	if hangUp == nil {
		return
	}
	defer hangUp()
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it was answered
	}
	defer func() { _ = conn.Close() }()
	conn.SetReadLimit(questionLimit)
	_ = conn.SetReadDeadline(time.Now().Add(questionTime))
	_, text, err := conn.ReadMessage()
	if err != nil {
		return // a message that is too large was answered
	}
	_ = conn.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		_, _, _ = conn.ReadMessage() // a further message ends it as well
	}()
	go func() {
		select {
		case <-s.hub.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	a := &asking{Server: s, conn: conn, request: r, who: who, key: key}
	last, code := a.reply(ctx, text)
	if ctx.Err() == nil && a.send(last) == nil {
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, short(last.Error)), time.Now().Add(s.pace.write))
	}
}

// asking is a question on its way.
type asking struct {
	*Server
	conn    *websocket.Conn
	request *http.Request
	who     caller
	key     string

	running atomic.Bool
	done    atomic.Uint64 // the share of the work, in millionths
}

func (a *asking) send(r reply) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = a.conn.SetWriteDeadline(time.Now().Add(a.pace.write))
	}
	if err == nil {
		err = a.conn.WriteMessage(websocket.TextMessage, text)
	}
	return err
}

// reply returns the last message, and the code with which the connection is closed.
func (a *asking) reply(ctx context.Context, text []byte) (last reply, code int) {
	if a.WhatIf.Checkpoint == nil {
		return reply{Error: noEngine}, websocket.CloseTryAgainLater
	}
	q, err := readQuestion(text)
	if err != nil {
		return reply{Error: err.Error()}, websocket.ClosePolicyViolation
	}
	horizon, runTime, wrong := q.check()
	if len(wrong) > 0 {
		return reply{Errors: wrong}, websocket.CloseNormalClosure
	}
	found, err := a.takeTurn(ctx, q, horizon, runTime)
	no, forbidden := errors.AsType[*refused](err)
	mistakes, isWrong := errors.AsType[change.Mistakes](err)
	switch {
	case err == nil:
		return reply{Answer: found}, websocket.CloseNormalClosure
	case errors.Is(err, errUnauthenticated):
		return reply{Error: err.Error()}, websocket.ClosePolicyViolation
	case forbidden:
		return reply{Error: no.text}, websocket.ClosePolicyViolation
	case isWrong:
		return reply{Errors: fieldErrors(mistakes)}, websocket.CloseNormalClosure
	case errors.Is(err, inflight.ErrFull):
		return reply{Error: "a what-if of yours waits already, or too many of others do: ask again in a moment"}, websocket.CloseTryAgainLater
	case errors.Is(err, errNotReady):
		return reply{Error: err.Error()}, websocket.CloseTryAgainLater
	case errors.Is(err, errTooLong):
		return reply{Error: fmt.Sprintf("there is no answer within %s: ask for a shorter time", a.pace.whatIf)}, websocket.CloseTryAgainLater
	case ctx.Err() == nil:
		a.log.Error(err, "A what-if could not be answered", "user", a.who.name())
	}
	return reply{Error: "the what-if could not be answered"}, websocket.CloseTryAgainLater
}

// takeTurn answers a question when its turn comes, and reports progress from then on and before.
func (a *asking) takeTurn(ctx context.Context, q *question, horizon, runTime time.Duration) (*answer, error) {
	if err := a.permit(ctx, q); err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var reporting sync.WaitGroup
	stop := make(chan struct{})
	defer reporting.Wait()
	defer close(stop)
	reporting.Go(func() { a.report(stop, leave) })
	release, err := a.questions.Acquire(ctx, a.key, 1)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	defer func() { time.AfterFunc(time.Since(began), release) }() // what-ifs take half a core at most
	if a.who, err = a.access.caller(ctx, a.request, a.pace.recheck/2); err != nil {
		return nil, err
	}
	if err := a.permit(ctx, q); err != nil { // the wait may have been long
		return nil, err
	}
	a.running.Store(true)
	limited, end := context.WithTimeout(ctx, a.pace.whatIf)
	defer end()
	found, err := a.compute(limited, q, horizon, runTime)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		err = errTooLong
	}
	return found, err
}

var (
	errTooLong  = errors.New("the time for a what-if is over")
	errNotReady = errors.New("the manager has not read all objects yet: ask again in a moment")
)

// report sends progress after two intervals, and then after each, until stop. leave is called if the caller takes none.
func (a *asking) report(stop <-chan struct{}, leave func()) {
	tick := time.NewTicker(a.pace.progress)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if n == 1 {
			continue
		}
		r := reply{Waiting: !a.running.Load()}
		if !r.Waiting {
			r.Done = new(float64(a.done.Load()) / 1e6)
		}
		if a.send(r) != nil {
			leave()
			return
		}
	}
}

// permit refuses callers that may not see all that an answer could name.
func (a *asking) permit(ctx context.Context, q *question) error {
	rights := []resource{workloadsResource, clusterQueuesResource}
	if q.Submit != nil || q.YAML != "" {
		rights = append(rights, localQueuesResource)
	}
	if q.Submit != nil && q.Submit.Level != "" {
		rights = append(rights, topologiesResource)
	}
	if len(q.Drains) > 0 {
		rights = append(rights, nodesResource)
	}
	return a.mayAll(ctx, a.who, rights)
}

// mayAll refuses callers that may not list all objects of kinds.
func (s *Server) mayAll(ctx context.Context, who caller, kinds []resource) error {
	for _, kind := range kinds {
		ok, err := s.access.may(ctx, who, kind, "", "")
		if err != nil {
			return err
		}
		if !ok {
			where := ""
			if kind == workloadsResource || kind == localQueuesResource {
				where = " in all namespaces"
			}
			return &refused{fmt.Sprintf("%s may not list %s%s", who.name(), kind.Resource, where)}
		}
	}
	return nil
}

// compute answers a question from a copy of the engine's state. It changes nothing, and takes one core.
func (a *asking) compute(ctx context.Context, q *question, horizon, runTime time.Duration) (*answer, error) {
	if a.WhatIf.Ready() != nil {
		return nil, errNotReady
	}
	world, err := a.world(ctx)
	if err != nil {
		return nil, err
	}
	at, err := a.WhatIf.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	fork, err := at.Fork()
	if err != nil {
		return nil, err
	}
	base, err := change.New(change.Base{
		Settings: a.WhatIf.Settings, State: fork, World: world, Now: now, Begin: workload.Instant(now.UnixNano()),
	}, nil)
	if err != nil {
		return nil, err
	}
	events, err := base.Apply(q.change())
	if err != nil {
		return nil, err
	}
	base.State, base.World = nil, nil // the futures need their memory
	r, err := whatif.Compare(at, events, whatif.Options{
		Now: base.Begin, Horizon: workload.Instant(horizon), Grace: workload.Instant(whatIfGrace),
		RunTime: base.RunTime(workload.Instant(runTime), false), RunTimeAfter: base.RunTime(workload.Instant(runTime), true),
		Watch: func(done float64) bool {
			a.done.Store(uint64(1e6 * done))
			return ctx.Err() == nil
		},
	})
	if errors.Is(err, whatif.ErrStopped) {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	out := answerOf(r, a.all.Get)
	out.Notes = base.Notes
	return out, nil
}

// world returns the objects that admission depends on, from the cache. They must not be modified.
func (s *Server) world(ctx context.Context) (*offline.World, error) {
	w, _, err := offline.LiveWorkloads(func(list client.ObjectList) error {
		if _, nodes := list.(*corev1.NodeList); nodes && !s.WhatIf.Settings.Requests.Topology {
			return nil // the engine knows none, and the cache need not hold them
		}
		return s.read(ctx, list, "")
	})
	return w, err
}

func answerOf(r *whatif.Report, lookUp func(namespace, name string) *kueue.Workload) *answer {
	out := &answer{Summary: r.Summary(), RunTimes: r.RunTimeWords("“run time for the others”"), Workloads: []effectView{}, Use: r.UseRows()}
	for i := range r.Workloads {
		if i == shownEffects {
			out.MoreWorkloads = len(r.Workloads) - shownEffects
			break
		}
		w := &r.Workloads[i]
		out.Workloads = append(out.Workloads, effectView{
			Namespace: w.Namespace, Name: w.Name, LocalQueue: w.LocalQueue, Priority: w.Priority, Effect: w.Effect, Words: w.Effect.Words(),
			Before: w.Before.Words(), After: w.After.Words(), Wait: w.WaitWords(), Exists: lookUp(w.Namespace, w.Name) != nil,
		})
	}
	if more := len(out.Use) - shownEffects; more > 0 {
		out.MoreUse, out.Use = more, out.Use[:shownEffects]
	}
	return out
}

// readQuestion reads a message. An error names the field.
func readQuestion(text []byte) (*question, error) {
	q := &question{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(q); err != nil {
		return nil, fmt.Errorf("the question cannot be read: %w", err)
	}
	return q, nil
}

// check returns the times of a question, and what is wrong with it as far as that can be told without the state.
func (q *question) check() (horizon, runTime time.Duration, wrong []fieldError) {
	fault := func(field, format string, args ...any) {
		wrong = append(wrong, fieldError{field, fmt.Sprintf(format, args...)})
	}
	text := q.Horizon
	if text == "" {
		text = whatIfHorizon
	}
	horizon, err := time.ParseDuration(text)
	if err == nil {
		err = whatif.CheckHorizon(horizon)
	}
	if err != nil {
		fault("horizon", "%s", whatif.CheckHorizon(0))
	}
	if q.RunTime != "" {
		if runTime, err = time.ParseDuration(q.RunTime); err != nil || runTime < 0 {
			fault("runTime", "must be a time such as 1h30m")
		}
	}
	switch {
	case len(q.Quotas)+len(q.Drains) == 0 && q.Submit == nil && q.YAML == "":
		fault("", "there is no change: change a quota, drain a node, submit a workload, or give objects")
	case len(q.Quotas) > mostQuotas:
		fault("quotas", "there are more than %d changes of quotas", mostQuotas)
	case len(q.Drains) > mostDrains:
		fault("drains", "there are more than %d nodes", mostDrains)
	}
	return horizon, runTime, wrong
}

func (q *question) change() *change.Change {
	out := &change.Change{Drains: q.Drains, Submit: q.Submit}
	for _, c := range q.Quotas {
		out.Quotas = append(out.Quotas, change.Quota{Queue: c.Queue, Flavor: c.Flavor, Resource: c.Resource, Amount: c.Amount})
	}
	if q.YAML != "" {
		out.Objects = []change.File{{Name: "YAML", Data: []byte(q.YAML)}}
	}
	return out
}

// fieldErrors returns mistakes with the fields of a question.
func fieldErrors(all change.Mistakes) (out []fieldError) {
	for _, m := range all {
		field := string(m.Part)
		switch m.Part {
		case change.OfQuota:
			field = fmt.Sprintf("quotas.%d.%s", m.Index, m.Field)
		case change.OfDrain:
			field = fmt.Sprintf("drains.%d", m.Index)
		case change.OfSubmit:
			field = "submit." + m.Field
		case change.OfFile:
			field = "yaml"
		case change.OfDelete: // a question has none
		}
		out = append(out, fieldError{field, m.Error()})
	}
	return out
}
