package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-project/berth/internal/state"
)

const (
	// readsPerTurn is how many questions of readers are answered between two turns while there is work for the next one.
	readsPerTurn = 1
	// maxReads is how many questions of readers may wait.
	maxReads = 64
	// maxAnswers is how many answers are kept until the next turn.
	maxAnswers = 256
)

// ErrBusy is the error of Read when too many questions wait. The reader may ask again a second later.
var ErrBusy = errors.New("too many questions wait for the engine")

// question is a function that is run in the engine's goroutine, unless its asker leaves before.
type question struct {
	ctx    context.Context
	key    string // questions with the same key have the same answer; "" if the answer is not shared
	f      func(*state.State) any
	after  uint64   // it is answered once that many events are applied
	answer chan any // holds one
}

// questions are the waiting questions, in the order of their posting. Engine.mu guards them.
type questions struct {
	own, reads []*question    // the manager's own, and the questions of readers
	answers    map[string]any // by key, since the last turn
}

// Ask runs f in the engine's goroutine, after all events that were posted before, and waits for it: a consistent look at the state.
// It returns the context's error if that ends first; f is not run then, unless it has begun. It is for the manager's own
// work, and never refused: what users ask goes through Read.
func (e *Engine) Ask(ctx context.Context, f func(*state.State)) error {
	_, err := e.wait(&e.questions.own, &question{ctx: ctx, f: func(s *state.State) any {
		f(s)
		return nil
	}})
	return err
}

// Read is Ask for readers of the state. Scheduling comes first: while there is work for a turn, one of their questions is answered
// between two turns. Questions with the same key have the same answer, which is worked out once and kept until the next turn;
// several callers may hold it at a time, and must not modify it. The error is ErrBusy if too many questions wait.
func (e *Engine) Read(ctx context.Context, key string, f func(*state.State) any) (any, error) {
	return e.wait(&e.questions.reads, &question{ctx: ctx, key: key, f: f})
}

// wait posts a question to a queue and waits for the answer.
func (e *Engine) wait(queue *[]*question, q *question) (any, error) {
	if err := q.ctx.Err(); err != nil {
		return nil, err
	}
	q.answer = make(chan any, 1)
	if answer, known, err := e.file(queue, q); known || err != nil {
		return answer, err
	}
	e.wake()
	select {
	case answer := <-q.answer:
		return answer, nil
	case <-q.ctx.Done():
		e.withdraw(queue, q)
		return nil, q.ctx.Err()
	}
}

// file adds a question to a queue, unless its answer is known already.
func (e *Engine) file(queue *[]*question, q *question) (answer any, known bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.inbox) == 0 {
		if answer, known = e.questions.answers[q.key]; known {
			return answer, true, nil
		}
	}
	if queue == &e.questions.reads && len(*queue) >= maxReads {
		return nil, false, ErrBusy
	}
	q.after = e.posted
	*queue = append(*queue, q)
	return nil, false, nil
}

// withdraw drops a question whose asker has left.
func (e *Engine) withdraw(queue *[]*question, q *question) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*queue = slices.DeleteFunc(*queue, func(other *question) bool { return other == q })
}

// answer answers the manager's own questions that wait now, and then the questions of readers: all of them while the engine has
// nothing else to do, else readsPerTurn.
func (e *Engine) answer(ctx context.Context, more bool) {
	for _, q := range e.ownQuestions() {
		e.answerOne(q)
	}
	for n := 0; ctx.Err() == nil; n++ {
		q := e.nextRead(n, more)
		if q == nil {
			return
		}
		e.answerOne(q)
	}
}

// ownQuestions takes the manager's own questions that can be answered now.
func (e *Engine) ownQuestions() []*question {
	e.mu.Lock()
	defer e.mu.Unlock()
	ready := slices.IndexFunc(e.questions.own, func(q *question) bool { return q.after > e.applied })
	if ready < 0 {
		ready = len(e.questions.own)
	}
	out := slices.Clone(e.questions.own[:ready])
	e.questions.own = slices.Delete(e.questions.own, 0, ready)
	return out
}

// nextRead takes the next question of a reader, after n of them were answered since the last turn; nil if it is not its turn.
func (e *Engine) nextRead(n int, more bool) *question {
	e.mu.Lock()
	defer e.mu.Unlock()
	reads := e.questions.reads
	if len(reads) == 0 || reads[0].after > e.applied || (n >= readsPerTurn && (more || len(e.inbox) > 0)) {
		return nil
	}
	q := reads[0]
	e.questions.reads = slices.Delete(reads, 0, 1)
	return q
}

// answerOne answers a question, unless its asker has left.
func (e *Engine) answerOne(q *question) {
	if q.ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	answer, known := e.questions.answers[q.key]
	e.mu.Unlock()
	if !known {
		answer = q.f(e.state)
		e.keepAnswer(q.key, answer)
	}
	q.answer <- answer
}

// keep keeps an answer until the next turn.
func (e *Engine) keepAnswer(key string, answer any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if key == "" || len(e.questions.answers) >= maxAnswers {
		return
	}
	if e.questions.answers == nil {
		e.questions.answers = map[string]any{}
	}
	e.questions.answers[key] = answer
}
