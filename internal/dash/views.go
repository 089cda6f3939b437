package dash

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/standings"
)

// streams registers the views. spec: 70 §4.10.
func (s *Server) streams() {
	for path, v := range map[string]view{
		"namespaces":                        {namespaces | workloads | localQueues, s.namespaces},
		"workloads":                         {workloads | pods, s.workloads},
		"workloads/dashboard":               {workloads | localQueues | clusterQueues | flavors | pods, s.dashboard},
		"workload/{ns}/{name}":              {workloads | pods, s.workload},
		"workload/{ns}/{name}/events":       {workloads | events, s.events},
		"workload/{ns}/{name}/explanation":  {workloads | clusterQueues | cohorts, s.explanation},
		"local-queues":                      {localQueues, s.localQueues},
		"local-queue/{ns}/{name}":           {localQueues, s.localQueue},
		"local-queue/{ns}/{name}/workloads": {workloads | pods, s.workloadsOfQueue},
		"cluster-queues":                    {clusterQueues, s.clusterQueues},
		"cluster-queue/{name}":              {clusterQueues | localQueues, s.clusterQueue},
		"cluster-queue/{name}/timeline":     {workloads | clusterQueues, s.timeline},
		"cluster-queue/{name}/usage":        {samples, s.usageOfQueue},
		"usage":                             {samples, s.usageOfAll},
		"what-if":                           {clusterQueues | localQueues | topologies, s.whatIfForm},
		"cohorts":                           {cohorts | clusterQueues, s.cohorts},
		"cohort/{name}":                     {cohorts | clusterQueues, s.cohort},
		"topologies":                        {topologies | places, s.topologies},
		"topology/{name}":                   {topologies | places | workloads, s.topology},
		"topology/{name}/domains":           {topologies | places, s.topologyDomains},
		"resource-flavors":                  {flavors, s.flavors},
		"resource-flavor/{name}":            {flavors | clusterQueues, s.flavor},
	} {
		s.mux.HandleFunc("GET /ws/"+path, s.stream(v))
	}
}

// object is a pointer to T that is an API object.
type object[T any] interface {
	*T
	client.Object
}

// entry is an item of a list, with its name there.
type entry struct {
	key   string
	value any
}

func entryOf(o client.Object) entry {
	return entry{strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), o}
}

// list is a displayed list: ordered by namespace and name, with the total if only a page of it was requested.
type list struct {
	Items  any      `json:"items"`
	Order  []string `json:"order,omitempty"` // the names in Items, if that is an object and another order was requested
	Total  *int     `json:"total,omitempty"`
	Offset *int     `json:"offset,omitempty"`
	Limit  *int     `json:"limit,omitempty"`
}

// whole returns a list with all entries.
func (q *query) whole(entries []entry) *list {
	if q.delta {
		items := map[string]any{}
		for _, e := range entries {
			items[e.key] = e.value
		}
		return &list{Items: items}
	}
	items := make([]any, 0, len(entries))
	for _, e := range entries {
		items = append(items, e.value)
	}
	return &list{Items: items}
}

// cut returns the requested page.
func cut[E any](q *query, entries []E) []E {
	to := q.end(len(entries))
	return entries[min(q.offset, to):to]
}

// paged sets the position of a page in a list.
func (q *query) paged(l *list, total int) *list {
	if q.limit < 0 && q.offset == 0 {
		return l
	}
	l.Total, l.Offset = &total, &q.offset
	if q.limit >= 0 {
		l.Limit = &q.limit
	}
	return l
}

// page returns the requested page of a list.
func (q *query) page(entries []entry) *list { return q.paged(q.whole(cut(q, entries)), len(entries)) }

// read lists objects in the manager's cache. They must not be modified.
func (s *Server) read(ctx context.Context, into client.ObjectList, namespace string) error {
	if err := s.cache.List(ctx, into, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("reading from the cache: %w", err)
	}
	return nil
}

// readable returns objects in namespaces where the caller may list them, in their order.
func readable[P client.Object](ctx context.Context, s *Server, a *ask, what resource, out []P) ([]P, error) {
	among := map[string]bool{}
	for _, o := range out {
		among[o.GetNamespace()] = true
	}
	may, err := s.access.within(ctx, a.who, what, among)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out, func(o P) bool { return !may[o.GetNamespace()] }), nil
}

func byName[P client.Object](a, b P) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

func sorted[P client.Object](objects []P) []P {
	slices.SortFunc(objects, byName)
	return objects
}

func pointers[T any, P object[T]](items []T) []P {
	out := make([]P, 0, len(items))
	for i := range items {
		out = append(out, P(&items[i]))
	}
	return sorted(out)
}

// show sets the type of objects, which must be shallow copies.
func show[P client.Object](objects []P, what resource) []entry {
	out := make([]entry, 0, len(objects))
	for _, o := range objects {
		o.GetObjectKind().SetGroupVersionKind(what.gvk())
		out = append(out, entryOf(o))
	}
	return out
}

// namespaces returns the namespaces with queues or workloads that the caller may read.
func (s *Server) namespaces(ctx context.Context, a *ask) (any, error) {
	var queues kueue.LocalQueueList
	var all corev1.NamespaceList
	for _, l := range []client.ObjectList{&queues, &all} {
		if err := s.read(ctx, l, ""); err != nil {
			return nil, err
		}
	}
	among := map[string]bool{}
	for i := range queues.Items {
		among[queues.Items[i].Namespace] = true
	}
	s.all.In("", func(w *kueue.Workload) bool {
		among[w.Namespace] = true
		return false
	})
	may, err := s.access.within(ctx, a.who, namespacesResource, among)
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(pointers(all.Items), func(n *corev1.Namespace) bool { return !may[n.Name] })
	return a.page(show(found, namespacesResource)), nil
}

func (s *Server) localQueues(ctx context.Context, a *ask) (any, error) {
	found, err := s.queues(ctx, a, func(*kueue.LocalQueue) bool { return true })
	if err != nil {
		return nil, err
	}
	return a.page(show(found, localQueuesResource)), nil
}

// queues are the LocalQueues that the caller may read.
func (s *Server) queues(ctx context.Context, a *ask, keep func(*kueue.LocalQueue) bool) ([]*kueue.LocalQueue, error) {
	var all kueue.LocalQueueList
	if err := s.read(ctx, &all, a.query.namespace); err != nil {
		return nil, err
	}
	return readable(ctx, s, a, localQueuesResource, slices.DeleteFunc(pointers(all.Items), func(q *kueue.LocalQueue) bool { return !keep(q) }))
}

// one reads one object for a caller; nil if it does not exist, which only permitted callers learn.
func one[T any, P object[T]](ctx context.Context, s *Server, a *ask, what resource) (P, error) {
	if err := s.access.must(ctx, a.who, what, a.namespace, a.name); err != nil {
		return nil, err
	}
	out := P(new(T))
	err := s.cache.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: a.name}, out)
	if apierrors.IsNotFound(err) {
		return nil, nil // absence is no error
	}
	if err != nil {
		return nil, fmt.Errorf("reading from the cache: %w", err)
	}
	out.GetObjectKind().SetGroupVersionKind(what.gvk())
	return out, nil
}

// none is the content of the view of a missing object.
func none(what resource, a *ask) missing {
	return missing{fmt.Sprintf("there is no %s in %s", strings.TrimPrefix(a.namespace+"/"+a.name, "/"), what.Resource)}
}

func (s *Server) localQueue(ctx context.Context, a *ask) (any, error) {
	q, err := one[kueue.LocalQueue](ctx, s, a, localQueuesResource)
	if err != nil || q == nil {
		return none(localQueuesResource, a), err
	}
	return q, nil
}

// clusterWide returns the objects of a cluster-wide kind, if the caller may list them.
func clusterWide[T any, P object[T]](ctx context.Context, s *Server, a *ask, what resource, into client.ObjectList, items *[]T) ([]P, bool, error) {
	ok, err := s.access.may(ctx, a.who, what, "", "")
	if err != nil || !ok {
		return nil, false, err
	}
	if err := s.read(ctx, into, ""); err != nil {
		return nil, false, err
	}
	return pointers[T, P](*items), true, nil
}

func (s *Server) allClusterQueues(ctx context.Context, a *ask) ([]*kueue.ClusterQueue, bool, error) {
	var all kueue.ClusterQueueList
	return clusterWide(ctx, s, a, clusterQueuesResource, &all, &all.Items)
}

func (s *Server) clusterQueues(ctx context.Context, a *ask) (any, error) {
	return whole(ctx, s, a, clusterQueuesResource, s.allClusterQueues)
}

// whole returns the view of a cluster-wide kind, or a refusal.
func whole[P client.Object](ctx context.Context, s *Server, a *ask, what resource, all func(context.Context, *ask) ([]P, bool, error)) (any, error) {
	found, ok, err := all(ctx, a)
	if err == nil && !ok {
		err = s.access.must(ctx, a.who, what, "", "")
	}
	if err != nil {
		return nil, err
	}
	return a.page(show(found, what)), nil
}

// clusterQueueView is a ClusterQueue with its LocalQueues, as far as the caller may read them.
type clusterQueueView struct {
	kueue.ClusterQueue
	LocalQueues *list `json:"localQueues"`
	// Standings are the order of these LocalQueues by past usage, where that counts. Places and shares are among all of them.
	Standings []standings.Standing `json:"standings,omitempty"`
}

func (s *Server) clusterQueue(ctx context.Context, a *ask) (any, error) {
	q, err := one[kueue.ClusterQueue](ctx, s, a, clusterQueuesResource)
	if err != nil || q == nil {
		return none(clusterQueuesResource, a), err
	}
	queues, err := s.queues(ctx, a, func(l *kueue.LocalQueue) bool { return string(l.Spec.ClusterQueue) == a.name })
	if err != nil {
		return nil, err
	}
	order, err := s.standings(ctx, q, queues)
	return clusterQueueView{*q, a.whole(show(queues, localQueuesResource)), order}, err
}

// standings returns the standings of the readable LocalQueues of a ClusterQueue.
func (s *Server) standings(ctx context.Context, q *kueue.ClusterQueue, readable []*kueue.LocalQueue) ([]standings.Standing, error) {
	if s.Rates == nil {
		return nil, nil
	}
	var all kueue.LocalQueueList
	if err := s.read(ctx, &all, ""); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(standings.Of([]kueue.ClusterQueue{*q}, all.Items, s.Rates), func(of standings.Standing) bool {
		return !slices.ContainsFunc(readable, func(l *kueue.LocalQueue) bool { return l.Namespace == of.Namespace && l.Name == of.LocalQueue })
	}), nil
}

// cohortView is a Cohort and the names of its ClusterQueues, as far as the caller may list them. A Cohort without an object has only its
// name.
type cohortView struct {
	kueue.Cohort
	ClusterQueues []string `json:"clusterQueues"`
}

// cohorts lists the Cohorts, including the ones that only ClusterQueues name.
func (s *Server) cohorts(ctx context.Context, a *ask) (any, error) {
	if err := s.access.must(ctx, a.who, cohortsResource, "", ""); err != nil {
		return nil, err
	}
	queues, _, err := s.allClusterQueues(ctx, a)
	if err != nil {
		return nil, err
	}
	var all kueue.CohortList
	if err := s.read(ctx, &all, ""); err != nil {
		return nil, err
	}
	byName := map[string]*cohortView{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &cohortView{Cohort: all.Items[i], ClusterQueues: []string{}}
	}
	for _, q := range queues {
		name := string(q.Spec.CohortName)
		if name == "" {
			continue
		}
		if byName[name] == nil {
			byName[name] = &cohortView{Cohort: kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}}}
		}
		byName[name].ClusterQueues = append(byName[name].ClusterQueues, q.Name)
	}
	var out []entry
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		byName[name].SetGroupVersionKind(cohortsResource.gvk())
		out = append(out, entry{name, byName[name]})
	}
	return a.page(out), nil
}

// cohortDetail is a Cohort with its ClusterQueues, as far as the caller may list them.
type cohortDetail struct {
	kueue.Cohort
	ClusterQueues *list `json:"clusterQueues"`
}

func (s *Server) cohort(ctx context.Context, a *ask) (any, error) {
	c, err := one[kueue.Cohort](ctx, s, a, cohortsResource)
	if err != nil {
		return nil, err
	}
	queues, _, err := s.allClusterQueues(ctx, a)
	if err != nil {
		return nil, err
	}
	queues = slices.DeleteFunc(queues, func(q *kueue.ClusterQueue) bool { return string(q.Spec.CohortName) != a.name })
	if c == nil && len(queues) == 0 {
		return none(cohortsResource, a), nil
	}
	if c == nil {
		c = &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: a.name}}
		c.SetGroupVersionKind(cohortsResource.gvk())
	}
	return cohortDetail{*c, a.whole(show(queues, clusterQueuesResource))}, nil
}

func (s *Server) allFlavors(ctx context.Context, a *ask) ([]*kueue.ResourceFlavor, bool, error) {
	var all kueue.ResourceFlavorList
	return clusterWide(ctx, s, a, flavorsResource, &all, &all.Items)
}

func (s *Server) flavors(ctx context.Context, a *ask) (any, error) {
	return whole(ctx, s, a, flavorsResource, s.allFlavors)
}

// flavorView is a ResourceFlavor with the ClusterQueues that offer it, as far as the caller may list them.
type flavorView struct {
	kueue.ResourceFlavor
	ClusterQueues *list `json:"clusterQueues"`
}

func (s *Server) flavor(ctx context.Context, a *ask) (any, error) {
	f, err := one[kueue.ResourceFlavor](ctx, s, a, flavorsResource)
	if err != nil || f == nil {
		return none(flavorsResource, a), err
	}
	queues, _, err := s.allClusterQueues(ctx, a)
	if err != nil {
		return nil, err
	}
	queues = slices.DeleteFunc(queues, func(q *kueue.ClusterQueue) bool { return !uses(q, a.name) })
	return flavorView{*f, a.whole(show(queues, clusterQueuesResource))}, nil
}

// uses reports whether a ClusterQueue offers a flavor.
func uses(q *kueue.ClusterQueue, flavor string) bool {
	return slices.ContainsFunc(q.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
		return slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == flavor })
	})
}
