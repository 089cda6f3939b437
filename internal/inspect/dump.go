// Package inspect serves the diagnostic paths of the metrics address: a dump of the engine's state, and its flight record.
package inspect

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
)

// DumpPath is the path of the dump, for users that may read it. SIGUSR2 logs the dump. spec: 70 §4.12.
const DumpPath = "/debug/dump"

// dump is the engine's state at one moment. Workloads are namespace/name, sorted; Workloads in requeue backoff are absent.
type dump struct {
	ClusterQueues []dumpedQueue  `json:"clusterQueues"`
	Cohorts       []dumpedCohort `json:"cohorts"`
}

type dumpedQueue struct {
	Name         string       `json:"name"`
	Cohort       string       `json:"cohort,omitempty"`
	Closed       bool         `json:"closed,omitempty"` // no Workload can be admitted
	Active       []string     `json:"active"`
	Inadmissible []string     `json:"inadmissible"`
	Reserving    int          `json:"reserving"` // Workloads with a reservation, admitted or not
	Admitted     []string     `json:"admitted"`
	Quota        []dumpedCell `json:"quota"`
}

// dumpedCell is a flavor and resource; amounts are formatted as quantities.
type dumpedCell struct {
	Flavor         string `json:"flavor"`
	Resource       string `json:"resource"`
	Nominal        string `json:"nominal"`
	BorrowingLimit string `json:"borrowingLimit,omitempty"`
	LendingLimit   string `json:"lendingLimit,omitempty"`
	Reserved       string `json:"reserved"` // by all reservations
	Used           string `json:"used"`     // by admitted Workloads
}

type dumpedCohort struct {
	Name     string         `json:"name"`
	Parent   string         `json:"parent,omitempty"`
	Quota    []dumpedAmount `json:"quota"`    // of the subtree
	Reserved []dumpedAmount `json:"reserved"` // by all below
}

type dumpedAmount struct {
	Flavor   string `json:"flavor"`
	Resource string `json:"resource"`
	Amount   string `json:"amount"`
}

// takeDump shows the read model of the engine's last turn.
func takeDump(e *engine.Engine) *dump {
	c := e.Model().Statistics(state.Asked{Keys: true})
	out := &dump{ClusterQueues: make([]dumpedQueue, 0, len(c.Queues)), Cohorts: make([]dumpedCohort, 0, len(c.Cohorts))}
	for i := range c.Queues {
		q := &c.Queues[i]
		d := dumpedQueue{
			Name: q.Name, Cohort: q.Cohort, Closed: q.Closed, Reserving: q.Reserved,
			Active: sorted(q.Active.Keys), Inadmissible: sorted(q.Inadmissible.Keys), Admitted: sorted(q.AdmittedKeys),
			Quota: make([]dumpedCell, 0, len(q.Cells)),
		}
		for _, cell := range q.Cells {
			text := func(a resource.Amount) string { return a.Format(cell.Resource) }
			limit := func(a resource.Amount) string {
				if a == quota.NoLimit {
					return ""
				}
				return text(a)
			}
			d.Quota = append(d.Quota, dumpedCell{
				Flavor: cell.Flavor, Resource: cell.Resource, Nominal: text(cell.Nominal), BorrowingLimit: limit(cell.Borrow),
				LendingLimit: limit(cell.Lend), Reserved: text(cell.Reserved), Used: text(cell.Used),
			})
		}
		out.ClusterQueues = append(out.ClusterQueues, d)
	}
	for i := range c.Cohorts {
		k := &c.Cohorts[i]
		out.Cohorts = append(out.Cohorts, dumpedCohort{Name: k.Name, Parent: k.Parent, Quota: heldBy(k.Subtree), Reserved: heldBy(k.Reserved)})
	}
	return out
}

func sorted(keys []string) []string {
	out := append(make([]string, 0, len(keys)), keys...)
	slices.Sort(out)
	return out
}

func heldBy(list []state.Held) []dumpedAmount {
	out := make([]dumpedAmount, 0, len(list))
	for _, h := range list {
		out = append(out, dumpedAmount{Flavor: h.Flavor, Resource: h.Resource, Amount: h.Amount.Format(h.Resource)})
	}
	return out
}

// Dump serves the dump.
func Dump(e *engine.Engine) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(takeDump(e)) // the reader may have left
	})
}

// DumpOnSignal logs the dump at each SIGUSR2 until ctx ends.
func DumpOnSignal(e *engine.Engine, log logr.Logger) func(context.Context) error {
	log = log.WithName("dumper")
	return func(ctx context.Context) error {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGUSR2)
		defer signal.Stop(asked)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-asked:
			}
			log.Info("What the engine holds", "state", takeDump(e))
		}
	}
}
