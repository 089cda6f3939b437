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
)

// ErrBusy is the error of Read when too many questions wait. The reader may ask again a second later.
var ErrBusy = errors.New("too many questions wait for the engine")

// question is a function that is run in the engine's goroutine, unless its asker leaves before.
type question struct {
	ctx    context.Context
	f      func(*state.State) any
	after  uint64   // it is answered once that many events are applied
	answer chan any // holds one
}

// questions are the waiting questions, in the order of their posting. Engine.mu guards them.
type questions struct {
	own, reads []*question // the manager's own, and the questions of readers
	forks      []*question // of Checkpoint
}

// Ask runs f in the engine's goroutine, after all events that were posted before, and waits for it: a consistent look at the state.
// It returns the context's error if that ends first; f is not run then, unless it has begun. It is for the manager's own
// work, and never refused: what users ask is answered from Model or goes through Read.
func (e *Engine) Ask(ctx context.Context, f func(*state.State)) error {
	_, err := e.wait(&e.questions.own, &question{ctx: ctx, f: func(s *state.State) any {
		f(s)
		return nil
	}})
	return err
}

// Read is Ask for questions of users that Model does not answer, and returns what f returns. Scheduling comes first: while there is work
// for a turn, one of them is answered between two turns. The error is ErrBusy if too many questions wait.
func (e *Engine) Read(ctx context.Context, f func(*state.State) any) (any, error) {
	return e.wait(&e.questions.reads, &question{ctx: ctx, f: f})
}

// wait posts a question to a queue and waits for the answer.
func (e *Engine) wait(queue *[]*question, q *question) (any, error) {
	if err := q.ctx.Err(); err != nil {
		return nil, err
	}
	q.answer = make(chan any, 1)
	if err := e.file(queue, q); err != nil {
		return nil, err
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

// file adds a question to a queue.
func (e *Engine) file(queue *[]*question, q *question) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if queue == &e.questions.reads && len(*queue) >= maxReads {
		return ErrBusy
	}
	q.after = e.inbox.last
	*queue = append(*queue, q)
	return nil
}

// withdraw drops a question whose asker has left.
func (e *Engine) withdraw(queue *[]*question, q *question) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*queue = slices.DeleteFunc(*queue, func(other *question) bool { return other == q })
}

// answer answers the manager's own questions that wait now, and then the questions of readers: all of them while the engine has
// nothing else to do, else readsPerTurn. It also goes on with a checkpoint that was asked for.
func (e *Engine) answer(ctx context.Context, more bool) {
	e.answerForks(more)
	for _, q := range e.ready(&e.questions.own) {
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

// ready takes the questions of a queue that can be answered now.
func (e *Engine) ready(queue *[]*question) []*question {
	e.mu.Lock()
	defer e.mu.Unlock()
	ready := slices.IndexFunc(*queue, func(q *question) bool { return q.after > e.applied })
	if ready < 0 {
		ready = len(*queue)
	}
	out := slices.Clone((*queue)[:ready])
	*queue = slices.Delete(*queue, 0, ready)
	return out
}

// nextRead takes the next question of a reader, after n of them were answered since the last turn; nil if it is not its turn.
func (e *Engine) nextRead(n int, more bool) *question {
	e.mu.Lock()
	defer e.mu.Unlock()
	reads := e.questions.reads
	if len(reads) == 0 || reads[0].after > e.applied || (n >= readsPerTurn && (more || len(e.batch) > 0 || e.inbox.Len() > 0)) {
		return nil
	}
	q := reads[0]
	e.questions.reads = slices.Delete(reads, 0, 1)
	return q
}

// answerOne answers a question, unless its asker has left.
func (e *Engine) answerOne(q *question) {
	if q.ctx.Err() == nil {
		q.answer <- q.f(e.state)
	}
}
