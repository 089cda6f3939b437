package devices

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

// selection is a selection with its present answer, nil before the first evaluation.
type selection struct {
	plan.Selection
	answer *plan.Selected
	asked  int // the round
	// seen are the answers for single slices, by the goroutine.
	seen map[*resourcev1.ResourceSlice]outcome
}

// outcome is the answer for a slice: indexes of its devices, or a problem.
type outcome struct {
	devices []int
	problem string
}

// follow fills a watch, and returns once it is filled, or cannot be.
func follow[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *Catalog, w *watch[T], changed func(old, now *T)) error {
	informer, err := c.cache.GetInformer(ctx, P(new(T)), ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	set := func(o any, deleted bool) {
		if gone, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
			o = gone.Obj
		}
		object, is := o.(P)
		if !is {
			return
		}
		key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		c.mu.Lock()
		defer c.mu.Unlock()
		old, now := w.known[key], (*T)(object)
		if deleted {
			delete(w.known, key)
			now = nil
		} else {
			w.known[key] = now
		}
		if old != nil && now != nil && P(old).GetResourceVersion() == object.GetResourceVersion() {
			return
		}
		changed(old, now)
	}
	c.mu.Lock()
	if w.known == nil {
		w.known = map[types.NamespacedName]*T{}
	}
	c.mu.Unlock()
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(o, false) },
		UpdateFunc: func(_, o any) { set(o, false) },
		DeleteFunc: func(o any) { set(o, true) },
	})
	if err != nil {
		return err
	}
	if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		c.mu.Lock()
		defer c.mu.Unlock()
		w.synced, w.late = true, false
		c.note(true)
	}
	return nil
}

// evaluate brings the answers of selections up to date: all of them after a change of slices, and new ones. Only slices that a selection
// has not seen are evaluated.
func (c *Catalog) evaluate(ctx context.Context) {
	c.mu.Lock()
	if !c.slices.synced {
		c.mu.Unlock()
		return
	}
	var todo []*selection
	for _, s := range c.selections {
		if c.dirty || s.answer == nil {
			todo = append(todo, s)
		}
	}
	dirty := c.dirty
	if dirty {
		list := make([]*resourcev1.ResourceSlice, 0, len(c.slices.known))
		for _, s := range c.slices.known {
			list = append(list, s)
		}
		c.current = plan.Current(list)
		c.dirty = false
	}
	c.mu.Unlock()
	for _, s := range todo {
		answer := c.answer(ctx, s)
		c.mu.Lock()
		if s.answer == nil || !same(s.answer, answer) {
			s.answer = answer
			c.note(false)
		}
		c.mu.Unlock()
	}
}

func same(a, b *plan.Selected) bool {
	return a.Problem == b.Problem && slices.Equal(a.Matches, b.Matches)
}

// answer evaluates a selection over the current slices.
func (c *Catalog) answer(ctx context.Context, s *selection) *plan.Selected {
	seen, out := make(map[*resourcev1.ResourceSlice]outcome, len(c.current)), &plan.Selected{}
	for i := range c.current {
		slice := c.current[i].ResourceSlice
		if s.Driver != "" && s.Driver != slice.Spec.Driver {
			continue
		}
		of, known := s.seen[slice]
		if !known {
			of = c.outcome(ctx, s.Expressions, slice)
		}
		seen[slice] = of
		if out.Problem == "" {
			out.Problem = of.problem
		}
		for _, j := range of.devices {
			out.Matches = append(out.Matches, plan.Match{
				Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: &slice.Spec.Devices[j], Complete: c.current[i].Complete,
			})
		}
	}
	s.seen = seen
	return out
}

// outcome evaluates expressions over the devices of a slice.
func (c *Catalog) outcome(ctx context.Context, expressions []string, slice *resourcev1.ResourceSlice) (out outcome) {
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		c.evaluated++
		matches, err := c.matches(ctx, expressions, dracel.Device{
			Driver: slice.Spec.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
		})
		if err != nil {
			return outcome{problem: fmt.Sprintf("device %s of pool %s of driver %s: %s", d.Name, slice.Spec.Pool.Name, slice.Spec.Driver, err)}
		}
		if matches {
			out.devices = append(out.devices, i)
		}
	}
	return out
}

func (c *Catalog) matches(ctx context.Context, expressions []string, d dracel.Device) (bool, error) {
	for _, e := range expressions {
		compiled := c.cel.GetOrCompile(e)
		if compiled.Error != nil {
			return false, compiled.Error
		}
		if is, _, err := compiled.DeviceMatches(ctx, d); err != nil || !is {
			return false, err
		}
	}
	return true, nil
}
