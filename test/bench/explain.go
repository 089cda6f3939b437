package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/visibility"
)

// explain: the answer of the visibility API to the question why a workload waits, from the request to the text of the answer, for any of
// 100,000 pending workloads, in one queue, where few traces are kept, and in the 1,000 queues of the steady world, with a forecast. explain.ms
// is the slower one of both worlds, in 99 of 100 answers; explain.one_ms and explain.many_ms are the medians. Identification and permission of the
// caller are left out.
func (b *bench) explain() error {
	one := newState(cycle.Defaults())
	addQueues(one, 1, queueSpec{nominal: gpus(8), borrow: quota.NoLimit, lend: quota.NoLimit})
	for _, def := range arrivals(1, many) {
		one.Apply(state.SetWorkload(def))
	}
	one.Step(start+many*millis, math.MaxInt)
	y, err := newYard(cycle.Defaults(), preempt.Policy{}, 1000, many)
	if err != nil {
		return err
	}
	slow := 0.0
	for _, world := range []struct {
		name string
		s    *state.State
		now  workload.Instant
	}{{"one", one, start + many*millis}, {"many", y.s, y.now}} {
		took, err := b.explainAny(world.s, world.now)
		if err != nil {
			return err
		}
		b.figure("explain."+world.name+"_ms", percentile(took, 50))
		slow = max(slow, percentile(took, 99))
	}
	b.figure("explain.ms", slow)
	return nil
}

// explainAny returns the milliseconds of answers about 5,000 pending workloads, from all over the lines.
func (b *bench) explainAny(s *state.State, now workload.Instant) (took []float64, err error) {
	var pending []state.Workload
	for def := range s.Overview() {
		if !def.Reserved {
			pending = append(pending, *def)
		}
	}
	server, err := answering(s, now)
	if err != nil {
		return nil, err
	}
	if err := b.measuring(); err != nil {
		return nil, err
	}
	for i := range 5000 {
		def := &pending[i*7919%len(pending)]
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet,
			fmt.Sprintf("/apis/visibility.berth.dev/v1alpha1/namespaces/%s/workloads/%s/explanation", def.Namespace, def.Name), http.NoBody)
		if err != nil {
			return nil, err
		}
		answer := &written{header: http.Header{}}
		from := spent()
		server.ServeHTTP(answer, request)
		took = append(took, micros(spent()-from, 1)/1e3)
		if answer.code != http.StatusOK || answer.size < 100 {
			return nil, fmt.Errorf("%s: code %d, %d bytes", def.Key(), answer.code, answer.size)
		}
	}
	return took, nil
}

// answering is the visibility API of a State.
func answering(s *state.State, now workload.Instant) (*visibility.Server, error) {
	of := map[string]*kueue.Workload{}
	for def := range s.Overview() {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: def.Namespace, Name: def.Name, UID: types.UID(def.UID), CreationTimestamp: metav1.NewTime(time.Unix(0, int64(def.Created))),
		}}
		w.Spec.QueueName, w.Spec.Priority = kueue.LocalQueueName(def.LocalQueue), new(int32(def.Priority))
		of[def.Key()] = w
	}
	run, err := foresee(s.Checkpoint(), now, time.Hour, 0)
	if err != nil {
		return nil, err
	}
	model := s.Publish()
	return visibility.New(visibility.Server{
		Model:    func() *state.Model { return model },
		Read:     func(_ context.Context, f func(*state.State) any) (any, error) { return f(s), nil },
		Starts:   forecast{foresight.Summarize([]*foresight.Run{run})},
		Workload: func(namespace, name string) *kueue.Workload { return of[namespace+"/"+name] },
		Ready:    func() error { return nil },
		Access: visibility.Access{
			Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: &user.DefaultInfo{Name: "reader"}}, true, nil
			}),
			Authorizer: allowed{},
		},
		Log: logr.Discard(),
	}), nil
}

// foresee runs a State forward in which workloads are expected to run for about an hour.
func foresee(at *state.Checkpoint, now workload.Instant, horizon time.Duration, number uint64) (*foresight.Run, error) {
	hour := workload.Instant(time.Hour)
	predicted := foresight.NewLearner().Predict(&foresight.Job{Expected: hour})
	return foresight.Foresee(foresight.Parts(at, nil), foresight.Scope{Now: now, Horizon: workload.Instant(horizon), Grid: hour / 60, Grace: hour / 120, First: 1000},
		func(*state.Workload) *foresight.Prediction { return predicted }, number)
}

type allowed struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (allowed) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// forecast implements visibility.Starts.
type forecast struct{ last *foresight.Forecast }

func (f forecast) Forecast() *foresight.Forecast     { return f.last }
func (f forecast) RunTime(string) foresight.Estimate { return foresight.Estimate{} }

// written counts an answer.
type written struct {
	header http.Header
	code   int
	size   int
}

func (w *written) Header() http.Header { return w.header }

func (w *written) WriteHeader(code int) { w.code = code }

func (w *written) Write(some []byte) (int, error) {
	if w.code == 0 {
		return 0, errors.New("a body before its code")
	}
	w.size += len(some)
	return len(some), nil
}
