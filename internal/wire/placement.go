package wire

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/placement/capacity"
	"github.com/berth-project/berth/internal/placement/health"
	"github.com/berth-project/berth/internal/placement/nodequota"
	capacityplan "github.com/berth-project/berth/internal/placement/plan/capacity"
	plan "github.com/berth-project/berth/internal/placement/plan/health"
	"github.com/berth-project/berth/internal/placement/recovery"
	"github.com/berth-project/berth/internal/placement/ungate"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
)

// addCapacity adds the watches of nodes and pods, from which the engine knows where pods have room. They begin when start is called first;
// its channel is closed once all that exists is known. It is nil without topologies.
func addCapacity(mgr ctrl.Manager, e *engine.Engine, cfg Config) (start func() <-chan struct{}, err error) {
	if !cfg.Options.Gates.On(feature.TopologyAwareScheduling) || !cfg.Groups.Has(install.Scheduler) {
		return nil, nil
	}
	sink := &capacitySink{engine: e, nodes: map[string]state.SetNode{}, foreign: map[string]state.SetForeign{}, known: make(chan struct{})}
	needed := make(chan struct{})
	start = sync.OnceValue(func() <-chan struct{} {
		close(needed)
		return sink.known
	})
	return start, capacity.Setup(mgr, capacity.Options{Sink: sink, Follow: reconcile.Follow, Needed: needed, Synced: sink.sync})
}

// capacitySink posts capacity to the engine. It collects what exists at the start, and posts the usage of nodes before the nodes: a node
// that is known without its pods would seem to be free.
type capacitySink struct {
	engine *engine.Engine

	mu      sync.Mutex
	nodes   map[string]state.SetNode // nil once all that existed was posted
	foreign map[string]state.SetForeign
	known   chan struct{}
}

func (c *capacitySink) SetNode(n capacityplan.Node) {
	event := n.Event()
	c.post(event, func() { c.nodes[n.Name] = event })
}

func (c *capacitySink) RemoveNode(name string) {
	c.post(state.DeleteNode(name), func() { delete(c.nodes, name) })
}

func (c *capacitySink) SetForeign(node string, used capacityplan.Amounts) {
	event := state.SetForeign{Node: node, Used: used.Requests()}
	c.post(event, func() { c.foreign[node] = event })
}

// post posts an event, or collects it.
func (c *capacitySink) post(event state.Event, collect func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes != nil {
		collect()
		return
	}
	c.engine.Post(event)
}

// sync posts all that was collected.
func (c *capacitySink) sync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var events []state.Event
	for _, name := range slices.Sorted(maps.Keys(c.foreign)) {
		events = append(events, c.foreign[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		events = append(events, c.nodes[name])
	}
	c.nodes, c.foreign = nil, nil
	c.engine.Post(events...)
	close(c.known)
}

// addUngater adds the controller that ungates the pods of elastic jobs, and of jobs with a topology assignment: also of jobs that were started
// before their feature gate was switched off.
func addUngater(ctx context.Context, mgr ctrl.Manager, pods *reconcile.Pods, cfg Config) error {
	return ungate.Setup(ctx, mgr, ungate.Options{
		Config: lookup.NewConfig(&cfg.Options), Pods: pods, Now: time.Now, Ungated: ungated(cfg.meter),
		Events: reconcile.NewEvents(mgr.GetEventRecorder("berth-ungater"), cfg.events),
	})
}

// addNodeFailures adds the controller that follows the nodes of Workloads with a topology assignment.
func addNodeFailures(ctx context.Context, mgr ctrl.Manager, pods *reconcile.Pods, cfg Config) error {
	gates := cfg.Options.Gates
	if !gates.On(feature.TopologyAwareScheduling) || !gates.On(feature.TASFailedNodeReplacement) {
		return nil
	}
	return health.Setup(ctx, mgr, health.Options{
		Namespaces: lookup.NewGate(lookup.NewConfig(&cfg.Options), nil, mgr.GetCache(), mgr.GetAPIReader()), Machine: lookup.Machine(&cfg.Options),
		Pods: pods, Status: reconcile.NewWorkloadStatus(mgr.GetClient()), Now: time.Now,
		Events: reconcile.NewEvents(mgr.GetEventRecorder("kueue-node-failures"), cfg.events),
		Gates: plan.Gates{
			OnPodTermination: gates.On(feature.TASReplaceNodeOnPodTermination), OnTaints: gates.On(feature.TASReplaceNodeOnNodeTaints),
			AfterFixedTime: gates.On(feature.TASReplaceNodeDueToNotReadyOverFixedTime), KeepPodOwned: gates.On(feature.SkipReassignmentForPodOwnedWorkloads),
		},
	})
}

// addRecovery adds the controller that deletes pods by force that hang on unreachable nodes.
func addRecovery(mgr ctrl.Manager, cfg Config) error {
	if !cfg.Options.Gates.On(feature.FailureRecoveryPolicy) {
		return nil
	}
	return recovery.Setup(mgr, recovery.Options{
		Delay:      cfg.Options.RecoveryDelay,
		Namespaces: lookup.NewGate(lookup.NewConfig(&cfg.Options), nil, mgr.GetCache(), mgr.GetAPIReader()),
		Events:     reconcile.NewEvents(mgr.GetEventRecorder("kueue-failure-recovery"), cfg.events), Now: time.Now,
	})
}

// addNodeQuota adds the controllers of quota that follows nodes. They watch nothing more until an object is annotated.
func addNodeQuota(mgr ctrl.Manager, cfg Config) error {
	return nodequota.Setup(mgr, nodequota.Options{
		Events: reconcile.NewEvents(mgr.GetEventRecorder("berth-quota-from-nodes"), cfg.events), Now: time.Now,
	})
}
