// Package devices knows the devices of a cluster: it watches what the API server has in resource.k8s.io/v1, and charges claims by it, once
// for each template. Selectors are evaluated over ResourceSlices, each slice once for each selection. It writes nothing. Package
// workload/plan/devices has the rules. spec: 20 §4.12.
package devices

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

const (
	// patience is how long a watch may take to deliver what exists before workloads are told that it does not.
	patience = 5 * time.Second
	// settling is how long the start may wait for the devices of all workloads. Those whose devices are not known by then join their queues later.
	settling = 30 * time.Second
	// pause is the least time between two evaluations: one evaluation covers all events in between.
	pause = 100 * time.Millisecond
	// programMemory is how many bytes of compiled expressions are kept, about.
	programMemory = 64 << 20
	// A compiled expression takes at most about so many bytes of the heap, and so many for each of its own: see BenchmarkPrograms.
	programBase, programPerByte = 16 << 10, 64
	// fewClaims are kept without a look at who needs them.
	fewClaims = 1024
	// memory is how many bytes of answers are kept.
	memory = 16 << 20
)

// Catalog knows devices, classes and templates. Its watches begin with the first workload that needs them, that of DeviceClasses with the
// first one that requests an extended resource. Safe for concurrent use.
type Catalog struct {
	rules atomic.Pointer[plan.Rules]
	cache ctrlcache.Cache
	log   logr.Logger
	// changed is called after charges may have changed.
	changed func(context.Context, plan.Changed)
	wake    chan struct{} // has an entry when there is work

	mu        sync.Mutex
	served    bool
	missed    bool // devices were asked for before the API was served
	busy      bool // the goroutine evaluates or reports
	idle      chan struct{}
	noted     plan.Changed // for the next report
	templates watch[resourcev1.ResourceClaimTemplate]
	classes   watch[resourcev1.DeviceClass]
	slices    watch[resourcev1.ResourceSlice]
	// claims by template, also by one that is missing: a change of any other changes no charge. round counts reports; a claim is dropped if it is
	// reported and no workload asked for it since. Above most claims, all are reported.
	claims map[types.NamespacedName]*claim
	round  int
	most   int
	dirty  bool // slices have changed since the last evaluation
	// generation counts changes of what claims are charged by: mappings, classes and slices.
	generation int
	counted    int // claims

	answers          // by the goroutine
	cel     programs // likewise
}

// New returns a catalog that needs a Start. The API is not served before Serve is called.
func New(rules plan.Rules, cache ctrlcache.Cache, log logr.Logger, changed func(context.Context, plan.Changed)) *Catalog {
	c := &Catalog{
		cache: cache, log: log, changed: changed, wake: make(chan struct{}, 1), idle: make(chan struct{}),
		cel:     newPrograms(programMemory),
		claims:  map[types.NamespacedName]*claim{},
		most:    fewClaims,
		answers: answers{of: inventoryOf(nil), known: map[key]*answer{}, spent: map[string]int{}, limit: memory, quantum: quantum},
	}
	c.rules.Store(&rules)
	return c
}

// Serve reports that the API server serves resource.k8s.io/v1.
func (c *Catalog) Serve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = true
	if c.missed { // otherwise no charge changes, however many workloads there are
		c.renew()
	}
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
	c.renew()
}

// renew has all claims counted again, and asks for a report, with mu.
func (c *Catalog) renew() {
	c.generation++
	c.noted.All = true
	c.poke()
}

// note asks for a report about the claims from a template, with mu.
func (c *Catalog) note(template types.NamespacedName) {
	if c.noted.Templates == nil {
		c.noted.Templates = sets.New[types.NamespacedName]()
	}
	c.noted.Templates.Insert(template)
	c.poke()
}

// templateChanged reports a template that workloads claim from, or would.
func (c *Catalog) templateChanged(old, now *resourcev1.ResourceClaimTemplate) {
	t := cmp.Or(now, old)
	if of := (types.NamespacedName{Namespace: t.Namespace, Name: t.Name}); c.claims[of] != nil {
		c.note(of)
	}
}

func (c *Catalog) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Backing returns the DeviceClass that backs an extended resource, nil for none. While classes cannot be read, there is none: a cluster
// without devices needs no access to them.
func (c *Catalog) Backing(name corev1.ResourceName) (*resourcev1.DeviceClass, *plan.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.served {
		c.missed = true
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
		if plan.Backs(class, name) {
			of = append(of, class)
		}
	}
	return plan.Newest(of), nil
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
		begin(ctx, c, &c.templates, "ResourceClaimTemplates", c.templateChanged)
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
		c.renew()
	}
}

// report calls changed, and drops the claims that no workload needs any more, with their selections.
func (c *Catalog) report(ctx context.Context) {
	c.mu.Lock()
	noted := c.noted
	c.noted = plan.Changed{}
	if noted.Any() {
		c.round++
	}
	c.mu.Unlock()
	if !noted.Any() {
		return
	}
	c.changed(ctx, noted)
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := noted.All || noted.Claiming
	used, expressions := map[key]bool{}, map[string]bool{}
	for of, cl := range c.claims {
		needed := cl.asked == c.round || !whole && !noted.Templates.Has(of)
		if !needed {
			delete(c.claims, of)
		}
		for _, k := range cl.selections {
			used[k] = used[k] || needed
		}
		for _, e := range cl.expressions {
			expressions[e] = expressions[e] || needed
		}
	}
	if whole {
		c.most = max(fewClaims, 2*len(c.claims))
	}
	c.retain(used)
	c.cel.retain(expressions)
}

// rest ends a round, and wakes who waits for the end of all work.
func (c *Catalog) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	close(c.idle)
	c.idle = make(chan struct{})
}

// WaitUntilSettled returns when all that was asked for is known, or that takes too long.
func (c *Catalog) WaitUntilSettled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	for {
		c.mu.Lock()
		works := c.busy || c.noted.Any() || c.dirty || c.templates.reading() || c.classes.reading() || c.slices.reading()
		for _, cl := range c.claims {
			works = works || cl.deep && cl.counted != c.generation
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
