package standalone

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/foresight/forecaster"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/queue/controller"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/visibility"
	"github.com/berth-project/berth/internal/wire"
)

// Manager answers as a running manager would that knows the objects of a World and has written nothing yet.
type Manager struct {
	world    *World
	variants bool
	before   *state.Model // without the decisions of the engine
	session  *cluster.Session
}

// New evaluates a World with the settings of a manager. The session is for messages and the time.
func New(ctx context.Context, s *cluster.Session, w *World, o *options.Options) (*Manager, error) {
	settings, requests := wire.StateOptions(o), wire.Requests(o)
	m := &Manager{world: w, variants: requests.Variants}
	requests.Around = w.Around()
	var failed error
	s.Report(ctx, "evaluating Workloads", func() {
		st, _, err := w.NewState(settings, requests, w.Foreign)
		if err != nil {
			failed = err
			return
		}
		m.before = st.Publish()
		server := visibility.Server{
			Read:      func(_ context.Context, f func(*state.State) any) (any, error) { return f(st), nil },
			Places:    occupancy.New(func() *state.Model { return m.before }, settings.Topology),
			Starts:    newStarts(ctx, s, w, forecaster.Forecaster{Checkpoint: checkpoint(st), Now: s.Now, Requests: requests}),
			Unwritten: evaluate(st, workload.Instant(s.Now().UnixNano())),
			Workload: func(namespace, name string) *kueue.Workload {
				found, _ := offline.GetIn[*kueue.Workload](w.World, namespace, name)
				return found
			},
			Visit: func(visit func(*kueue.Workload)) {
				for _, one := range offline.All[*kueue.Workload](w.World) {
					visit(one)
				}
			},
			Requests: requests, Ready: func() error { return nil }, Access: visibility.Access{Authenticator: itself, Authorizer: everything{}}, Log: logr.Discard(),
		}
		after := st.Publish()
		server.Model = func() *state.Model { return after }
		m.session = cluster.Inside(visibility.New(server))
	})
	return m, failed
}

// checkpoint returns the checkpoint of a State as it is now.
func checkpoint(s *state.State) func(context.Context) (*state.Checkpoint, error) {
	c := s.Checkpoint()
	return func(context.Context) (*state.Checkpoint, error) { return c, nil }
}

// stepBudget is the budget of one step. Steps are repeated until nothing is left, so it changes no outcome.
const stepBudget = 1 << 20

// evaluate decides until nothing is left to decide, and returns the decisions that admit or preempt, by UID.
func evaluate(s *state.State, now workload.Instant) map[string]*trace.Attempt {
	unwritten := map[string]*trace.Attempt{}
	for {
		r := s.Step(now, stepBudget)
		for i := range r.Decisions {
			d := &r.Decisions[i]
			delete(unwritten, d.Workload.UID)
			if d.Attempt.Verdict == trace.Admitted || len(d.Evict) > 0 {
				unwritten[d.Workload.UID] = d.Attempt.Clone() // the step has its memory
			}
		}
		if !r.More && len(r.Decisions) == 0 {
			return unwritten
		}
	}
}

// itself identifies every caller as the user of the command. everything permits all requests: the objects were read with the rights of that user.
var itself = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: "the user"}}, true, nil
})

type everything struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (everything) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// Raw is cluster.Session.Raw for a path of the manager's API.
func (m *Manager) Raw(ctx context.Context, path string, parameters ...string) ([]byte, error) {
	return m.session.Raw(ctx, path, parameters...)
}

// FillClusterQueue sets the figures of the status of a ClusterQueue, and its condition Active if it has none.
func (m *Manager) FillClusterQueue(cq *kueue.ClusterQueue) {
	view, _ := m.before.Queue(cq.Name)
	controller.FillFigures(cq, view)
	if apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive) == nil {
		controller.FillActive(cq, m.world.Problems(cq, m.variants))
	}
}

// FillLocalQueue sets the figures of the status of a LocalQueue, and its condition Active if it has none.
func (m *Manager) FillLocalQueue(lq *kueue.LocalQueue) {
	cq, exists := offline.Get[*kueue.ClusterQueue](m.world.World, string(lq.Spec.ClusterQueue))
	if exists {
		cq = cq.DeepCopy()
		m.FillClusterQueue(cq)
	}
	controller.FillLocalFigures(lq, cq, m.before.LocalQueue(lq.Namespace, lq.Name))
	if apimeta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive) == nil {
		controller.FillLocalActive(lq, cq)
	}
}

// starts learns run times, and makes a forecast, when these are needed first.
type starts struct{ learned, forecast func() *forecaster.Forecaster }

func newStarts(ctx context.Context, s *cluster.Session, w *World, of forecaster.Forecaster) starts {
	learned := sync.OnceValue(func() *forecaster.Forecaster {
		f := forecaster.New(of)
		s.Report(ctx, "learning run times", func() { f.Learn(offline.All[*kueue.Workload](w.World)) })
		return f
	})
	return starts{learned, sync.OnceValue(func() *forecaster.Forecaster {
		f := learned()
		s.Report(ctx, "forecasting when Workloads start", func() {
			if err := f.Refresh(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintf(s.Errs, "the starts of pending Workloads could not be forecast: %v\n", err)
			}
		})
		return f
	})}
}

// Forecast implements visibility.Starts.
func (s starts) Forecast() *foresight.Forecast { return s.forecast().Forecast() }

// RunTime implements visibility.Starts.
func (s starts) RunTime(uid string) foresight.Estimate { return s.learned().RunTime(uid) }
