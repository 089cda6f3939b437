// Package devices knows the devices of a cluster: it watches what the API server has in resource.k8s.io/v1, and evaluates selectors over
// ResourceSlices, each slice once for each selection. It writes nothing. Package workload/plan/devices counts with it. spec: 20 §4.12.
package devices

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

const (
	// patience is how long a watch may take to deliver what exists before workloads are told that it does not.
	patience = 5 * time.Second
	// pause is the least time between two evaluations: one evaluation covers all events in between.
	pause = 100 * time.Millisecond
	// programs is how many compiled expressions are kept.
	programs = 1000
)

// Catalog knows devices, classes and templates. Its watches begin with the first workload that needs them, that of DeviceClasses with the
// first one that requests an extended resource. Safe for concurrent use.
type Catalog struct {
	rules atomic.Pointer[plan.Rules]
	cache ctrlcache.Cache
	log   logr.Logger
	// changed is called after the charges of workloads with claims, or of all, may have changed.
	changed func(ctx context.Context, all bool)
	cel     *dracel.Cache
	wake    chan struct{} // has an entry when there is work

	mu        sync.Mutex
	served    bool
	busy      bool // the goroutine evaluates or reports
	idle      chan struct{}
	noted     bool // charges may have changed, those without claims as well with notedAll
	notedAll  bool
	templates watch[resourcev1.ResourceClaimTemplate]
	classes   watch[resourcev1.DeviceClass]
	slices    watch[resourcev1.ResourceSlice]
	// selections by key. round counts reports; a selection that no workload asked for since the last one is dropped.
	selections map[string]*selection
	dirty      bool // slices have changed since the last evaluation
	round      int

	current   []plan.Slice // by the goroutine
	evaluated int          // devices that were evaluated, by the goroutine
}

// New returns a catalog that needs a Start. The API is not served before Serve is called.
func New(rules plan.Rules, cache ctrlcache.Cache, log logr.Logger, changed func(ctx context.Context, all bool)) *Catalog {
	c := &Catalog{
		cache: cache, log: log, changed: changed, wake: make(chan struct{}, 1), idle: make(chan struct{}),
		cel:        dracel.NewCache(programs, dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}),
		selections: map[string]*selection{},
	}
	c.rules.Store(&rules)
	return c
}

// Serve reports that the API server serves resource.k8s.io/v1.
func (c *Catalog) Serve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = true
	c.note(true)
}

// Count returns the charges for the devices of a workload, given the resources of its pods.
func (c *Catalog) Count(w *kueue.Workload, pods []corev1.PodSpec) plan.Charges {
	return c.rules.Load().Count(w, pods, c)
}

// SetMappings replaces the mappings of the configuration.
func (c *Catalog) SetMappings(mappings []configv1beta2.DeviceClassMapping) {
	rules := *c.rules.Load()
	rules.Mappings = mappings
	c.rules.Store(&rules)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(true)
}

// note asks for a report, with mu.
func (c *Catalog) note(all bool) {
	c.noted, c.notedAll = true, c.notedAll || all
	c.poke()
}

func (c *Catalog) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Template returns a ResourceClaimTemplate, nil if there is none.
func (c *Catalog) Template(namespace, name string) (*resourcev1.ResourceClaimTemplate, *plan.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return get(c, &c.templates, types.NamespacedName{Namespace: namespace, Name: name}, "ResourceClaimTemplates")
}

// Class returns a DeviceClass, nil if there is none.
func (c *Catalog) Class(name string) (*resourcev1.DeviceClass, *plan.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return get(c, &c.classes, types.NamespacedName{Name: name}, "DeviceClasses")
}

// Backing returns the DeviceClass that backs an extended resource, nil for none. While classes cannot be read, there is none: a cluster
// without devices needs no access to them.
func (c *Catalog) Backing(name corev1.ResourceName) (*resourcev1.DeviceClass, *plan.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.served {
		return nil, nil
	}
	if problem := c.classes.ready(c, "DeviceClasses"); problem != nil {
		if problem.Reading {
			return nil, problem
		}
		return nil, nil
	}
	var of []*resourcev1.DeviceClass
	for _, class := range c.classes.known {
		if class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == string(name) {
			of = append(of, class)
		}
	}
	return plan.Newest(of), nil
}

// Select returns the devices of a selection, once they are evaluated.
func (c *Catalog) Select(s plan.Selection) (*plan.Selected, *plan.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if problem := c.slices.ready(c, "ResourceSlices"); problem != nil {
		return nil, problem
	}
	key := s.Key()
	of := c.selections[key]
	if of == nil {
		of = &selection{Selection: s}
		c.selections[key] = of
		c.poke()
	}
	of.asked = c.round
	if of.answer == nil {
		return nil, &plan.Problem{Text: "its devices are being evaluated", Reading: true}
	}
	return of.answer, nil
}

// Compiles returns why an expression is no selector of devices, "" if it is one.
func (c *Catalog) Compiles(expression string) string {
	if result := c.cel.GetOrCompile(expression); result.Error != nil {
		return result.Error.Error()
	}
	return ""
}

// get returns an object that is watched, nil if there is none.
func get[T any](c *Catalog, w *watch[T], key types.NamespacedName, kinds string) (*T, *plan.Problem) {
	if problem := w.ready(c, kinds); problem != nil {
		return nil, problem
	}
	return w.known[key], nil
}

// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses;resourceclaimtemplates;resourceslices,verbs=get;list;watch

// Start watches and evaluates until ctx ends.
func (c *Catalog) Start(ctx context.Context) error {
	for {
		c.mu.Lock()
		c.busy = true
		c.mu.Unlock()
		begin(ctx, c, &c.templates, "ResourceClaimTemplates", func(_, _ *resourcev1.ResourceClaimTemplate) { c.note(false) })
		begin(ctx, c, &c.classes, "DeviceClasses", c.classChanged)
		begin(ctx, c, &c.slices, "ResourceSlices", func(_, _ *resourcev1.ResourceSlice) {
			c.dirty = true
			c.poke()
		})
		c.evaluate(ctx)
		c.report(ctx)
		c.rest()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
	}
}

// NeedLeaderElection is false: standbys convert workloads as well.
func (c *Catalog) NeedLeaderElection() bool { return false }

// classChanged reports changes of selectors and of the extended resource.
func (c *Catalog) classChanged(old, class *resourcev1.DeviceClass) {
	if old == nil || class == nil || !equality.Semantic.DeepEqual(old.Spec.Selectors, class.Spec.Selectors) ||
		!equality.Semantic.DeepEqual(old.Spec.ExtendedResourceName, class.Spec.ExtendedResourceName) {
		c.note(true)
	}
}

// report calls changed, and drops the selections that no workload needs any more.
func (c *Catalog) report(ctx context.Context) {
	c.mu.Lock()
	noted, all := c.noted, c.notedAll
	c.noted, c.notedAll = false, false
	if noted {
		c.round++
	}
	c.mu.Unlock()
	if !noted {
		return
	}
	c.changed(ctx, all)
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.selections {
		if s.asked < c.round {
			delete(c.selections, key)
		}
	}
}

// rest ends a round, and wakes who waits for the end of all work.
func (c *Catalog) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	close(c.idle)
	c.idle = make(chan struct{})
}

// WaitUntilSettled returns when all that was asked for is known, or reading it takes too long.
func (c *Catalog) WaitUntilSettled(ctx context.Context) {
	for {
		c.mu.Lock()
		works := c.busy || c.noted || c.dirty || c.templates.reading() || c.classes.reading() || c.slices.reading()
		for _, s := range c.selections {
			works = works || s.answer == nil
		}
		idle := c.idle
		c.mu.Unlock()
		if !works {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-idle:
		}
	}
}

var _ plan.Known = (*Catalog)(nil)

// watch is the watch of one kind. Its fields are guarded by Catalog.mu.
type watch[T any] struct {
	wanted, begun, synced, late bool
	known                       map[types.NamespacedName]*T
}

// reading reports that what exists is not delivered yet.
func (w *watch[T]) reading() bool { return w.wanted && !w.synced && !w.late }

// ready returns why the kind is not known, and starts its watch, with mu.
func (w *watch[T]) ready(c *Catalog, kinds string) *plan.Problem {
	switch {
	case w.synced:
		return nil
	case !c.served:
		return &plan.Problem{Text: "the API server does not serve resource.k8s.io/v1, where " + kinds + " are"}
	case w.late:
		return &plan.Problem{Text: "the manager cannot read " + kinds + " (resource.k8s.io/v1); its access rules must allow it"}
	}
	if !w.wanted {
		w.wanted = true
		c.poke()
	}
	return &plan.Problem{Text: kinds + " are being read", Reading: true}
}

// begin starts a watch that is wanted. changed gets nil for the old object of an addition, and for the new one of a deletion, with mu.
func begin[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *Catalog, w *watch[T], kinds string, changed func(old, now *T)) {
	c.mu.Lock()
	start := w.wanted && !w.begun
	w.begun = w.begun || start
	c.mu.Unlock()
	if !start {
		return
	}
	go func() {
		time.AfterFunc(patience, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !w.synced {
				w.late = true
				c.log.Info("Reading takes long, and workloads that need it wait", "kind", kinds)
				c.note(true)
			}
		})
		if err := follow[T, P](ctx, c, w, changed); err != nil && ctx.Err() == nil {
			c.log.Error(err, "Watching failed and is tried again", "kind", kinds)
			time.AfterFunc(patience, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				w.begun = false
				c.poke()
			})
		}
	}()
}
