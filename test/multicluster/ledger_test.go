package multicluster

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/install"
)

// ledger counts writes by the changed field: a watch shows every one of them.
type ledger struct {
	// seen, if set, is called with the number of writes.
	seen func(n int)
	// life, if it is set, is part of the names of objects whose writes are kept one by one.
	life string

	mu     sync.Mutex
	counts map[string]int
	// reached are the names of the objects that have come so far, by cluster and milestone.
	reached map[[2]string]map[string]bool
	total   int
	story   []entry
	// made is where and when each object was created, by its kind and name.
	made map[string][]string
	wg   sync.WaitGroup
	stop []func()
}

// entry is one write.
type entry struct {
	at   time.Time
	what string
	by   string // the field manager; empty for a deletion, which leaves no trace of its client
}

// follow begins to count the writes of a kind on a cluster.
func (l *ledger) follow(t *testing.T, c *cluster, gvk schema.GroupVersionKind) {
	t.Helper()
	cfg := embeddedtest.ConfigOf(t, c.kubeconfig())
	cl, err := client.NewWithWatch(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	ctx, within := context.Background(), client.InNamespace("team")
	if err := cl.List(ctx, list, within); err != nil {
		t.Fatal(err)
	}
	// an API server ends a watch whose reader is late
	stream, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return cl.Watch(ctx, list.DeepCopy(), within, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.stop = append(l.stop, stream.Stop)
	l.wg.Go(func() {
		known := map[string]*unstructured.Unstructured{}
		for e := range stream.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			what := "created"
			switch e.Type {
			case watch.Modified:
				what = changes(known[o.GetName()], o)
			case watch.Deleted:
				what = "deleted"
			}
			by := author(known[o.GetName()], o)
			if e.Type == watch.Deleted {
				by = ""
			}
			known[o.GetName()] = o
			l.mu.Lock()
			l.counts[c.name+" "+gvk.Kind+" "+what]++
			l.total++
			if e.Type == watch.Added {
				if l.made == nil {
					l.made = map[string][]string{}
				}
				key := gvk.Kind + " " + o.GetName()
				l.made[key] = append(l.made[key], "on "+c.name+" at "+time.Now().Format(time.TimeOnly))
			}
			if l.life != "" && strings.Contains(o.GetName(), l.life) {
				l.story = append(l.story, entry{time.Now(), c.name + " " + gvk.Kind + " " + what, by})
			}
			for _, milestone := range milestones(o) {
				l.reach(c.name, milestone, o.GetName())
			}
			n := l.total
			l.mu.Unlock()
			if l.seen != nil {
				l.seen(n)
			}
		}
	})
}

func (l *ledger) reach(cluster, milestone, name string) {
	at := [2]string{cluster, milestone}
	if l.reached == nil {
		l.reached = map[[2]string]map[string]bool{}
	}
	if l.reached[at] == nil {
		l.reached[at] = map[string]bool{}
	}
	l.reached[at][name] = true
}

// thatReached returns how many objects have reached a milestone on a cluster.
func (l *ledger) thatReached(c *cluster, milestone string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.reached[[2]string{c.name, milestone}])
}

// milestones are the milestones that a Workload or a Job has reached.
func milestones(o *unstructured.Unstructured) (out []string) {
	if at, _, _ := unstructured.NestedString(o.Object, "status", "clusterName"); at != "" {
		out = append(out, "dispatched")
	}
	if ready, _, _ := unstructured.NestedInt64(o.Object, "status", "ready"); ready > 0 {
		out = append(out, "running")
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kueue.WorkloadFinished && c["status"] == "True" {
			out = append(out, "finished")
		}
	}
	return out
}

// close stops counting.
func (l *ledger) close() {
	for _, stop := range l.stop {
		stop()
	}
	l.wg.Wait()
}

// end stops counting and prints the result, for each of so many jobs.
func (l *ledger) end(jobs int) {
	l.close()
	for _, what := range slices.Sorted(maps.Keys(l.counts)) {
		report("job.change["+what+"]", float64(l.counts[what])/float64(jobs))
	}
	for i, e := range l.story {
		fmt.Printf("life.write[%02d]: %5.2f s  %s  %s\n", i+1, e.at.Sub(l.story[0].at).Seconds(), e.what, e.by)
	}
}

// author is the field manager of the last write of an object: the one whose entry changed, or the newest if none did.
func author(old, next *unstructured.Unstructured) string {
	before := map[string]time.Time{}
	key := func(e metav1.ManagedFieldsEntry) string {
		return fmt.Sprint(e.Manager, " ", e.Operation, " ", e.Subresource)
	}
	if old != nil {
		for _, e := range old.GetManagedFields() {
			before[key(e)] = e.Time.Time
		}
	}
	var best metav1.ManagedFieldsEntry
	fresh := false
	for _, e := range next.GetManagedFields() {
		if e.Time == nil {
			continue
		}
		was, had := before[key(e)]
		changed := !had || !was.Equal(e.Time.Time)
		if best.Time == nil || (changed && !fresh) || (changed == fresh && !e.Time.Before(best.Time)) {
			best, fresh = e, changed
		}
	}
	return best.Manager
}

// changes names the differences of an object: parts of its metadata and spec, conditions with their new value, and other parts of its
// status.
func changes(old, next *unstructured.Unstructured) string {
	if old == nil {
		return "changed"
	}
	var parts []string
	for _, at := range []string{"labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"} {
		if !reflect.DeepEqual(field(old, "metadata", at), field(next, "metadata", at)) {
			parts = append(parts, at)
		}
	}
	for _, root := range []string{"spec", "status"} {
		a, b := tree(field(old, root)), tree(field(next, root))
		names := maps.Clone(a)
		maps.Copy(names, b)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			switch {
			case reflect.DeepEqual(a[name], b[name]):
			case name == "conditions":
				parts = append(parts, turned(a[name], b[name])...)
			default:
				parts = append(parts, name)
			}
		}
	}
	return strings.Join(parts, " ")
}

// turned are the conditions whose status or reason changed.
func turned(old, next any) []string {
	read := func(list any) map[string]string {
		out := map[string]string{}
		conditions, _ := list.([]any)
		for _, c := range conditions {
			out[fmt.Sprint(tree(c)["type"])] = fmt.Sprintf("%v/%v", tree(c)["status"], tree(c)["reason"])
		}
		return out
	}
	before, after := read(old), read(next)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			out = append(out, name+"="+after[name])
		}
	}
	return out
}

func field(o *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return value
}

func tree(o any) map[string]any {
	out, _ := o.(map[string]any)
	if out == nil {
		out = map[string]any{}
	}
	return out
}
