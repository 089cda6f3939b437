package inspect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
)

const dumped = `{"clusterQueues":[{"name":"cq","cohort":"c","active":["ns/a","ns/b"],"inadmissible":[],"reserving":0,"admitted":[],` +
	`"quota":[{"flavor":"f","resource":"cpu","nominal":"1500m","lendingLimit":"1","reserved":"0","used":"0"}]},` +
	`{"name":"shut","closed":true,"active":[],"inadmissible":[],"reserving":0,"admitted":[],"quota":[]}],` +
	`"cohorts":[{"name":"c","quota":[{"flavor":"f","resource":"cpu","amount":"1"}],"reserved":[]}]}`

// The metrics server serves the dump, and a signal logs it. spec: 70 §4.12, §7 example 57.
func TestDump(t *testing.T) {
	s := state.New(state.Options{Options: cycle.Defaults()})
	e := engine.New(s, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = e.Run(ctx) }() // it is not opened, so that all keep waiting
	e.Post(state.SetNamespace{Name: "ns", Labels: nil})
	e.Post(state.SetFlavor(flavor.Flavor{Name: "f"}))
	e.Post(state.SetQueue(state.Queue{Name: "cq", Cohort: "c", Namespaces: []workload.Term{{}}, Groups: []state.Group{{
		Resources: []string{"cpu"},
		Flavors:   []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: 1500, Borrow: quota.NoLimit, Lend: 1000}}}},
	}}}))
	e.Post(state.SetQueue(state.Queue{Name: "shut", Closed: "it is stopped"}))
	e.Post(state.SetLocalQueue(state.LocalQueue{Namespace: "ns", Name: "q", Queue: "cq"}))
	for _, name := range []string{"b", "a"} {
		e.Post(state.SetWorkload(state.Workload{UID: name, Namespace: "ns", Name: name, Version: 1, LocalQueue: "q", Created: 1e9, Since: 1e9, Queueable: true}))
	}
	if err := e.Ask(ctx, func(*state.State) {}); err != nil { // it is answered after the turn with the events
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	Dump(e).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, DumpPath, nil))
	if got := strings.TrimSpace(rec.Body.String()); rec.Code != http.StatusOK || got != dumped {
		t.Errorf("status %d\n%s, want\n%s", rec.Code, got, dumped)
	}
	caught := make(chan os.Signal, 9) // a signal before the runnable listens must not end the test
	signal.Notify(caught, syscall.SIGUSR2)
	defer signal.Stop(caught)
	said := make(chan string, 1)
	ended := make(chan error)
	listens, stop := context.WithCancel(ctx)
	go func() {
		ended <- DumpOnSignal(e, funcr.NewJSON(func(line string) {
			select {
			case said <- line:
			default: // a signal more
			}
		}, funcr.Options{}))(listens)
	}()
	var line string
	wait.Until(t, "the state is logged", wait.Is(func() bool {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGUSR2)
		select {
		case line = <-said:
			return true
		default:
			return false
		}
	}))
	if !strings.Contains(line, `"state":`+dumped) {
		t.Errorf("logged %s", line)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	cancel()
	rec = httptest.NewRecorder()
	Dump(e).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, DumpPath, nil))
	if got := strings.TrimSpace(rec.Body.String()); got != dumped {
		t.Errorf("of an engine that has stopped\n%s, want its last state", got)
	}
}
