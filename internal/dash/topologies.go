package dash

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Domains in one message. Broader levels are sent while there are no more of them, hosts in pages within a chosen domain.
const (
	shownDomains = 600
	hostsOfPage  = 128
	shownWaiting = 50
	needsOfHosts = 100
)

// followPlaces notifies views of changes of nodes and places, at most once in a pause and only while there are such views.
func (s *Server) followPlaces(ctx context.Context) {
	tick := time.NewTicker(s.pace.places)
	defer tick.Stop()
	last := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.hub.wanted(places) {
			continue
		}
		now := last
		s.Places.Read(func(r *occupancy.Reader) { now = r.Changes })
		if now != last {
			last = now
			s.hub.changed(places, "")
		}
	}
}

// topologyView is a Topology with the sums of its flavors.
type topologyView struct {
	kueue.Topology
	Flavors []flavorSums `json:"flavors"`
}

// flavorSums are the nodes of a flavor, by level.
type flavorSums struct {
	Flavor string     `json:"flavor"`
	Nodes  nodeCounts `json:"nodes"`
	Levels []levelSum `json:"levels"`
}

type nodeCounts struct {
	Counted   int `json:"counted"`
	NotReady  int `json:"notReady"`
	Cordoned  int `json:"cordoned"`
	Unlabeled int `json:"unlabeled"`
}

type levelSum struct {
	Level     string                  `json:"level"`
	Count     int                     `json:"count"`
	Resources map[string]resourceFill `json:"resources"`
}

type resourceFill struct {
	resourceAmount
	LargestFree   apiresource.Quantity `json:"largestFree"`
	Fragmentation float64              `json:"fragmentation"` // 0 to 1
}

type resourceAmount struct {
	Capacity apiresource.Quantity `json:"capacity"`
	Used     apiresource.Quantity `json:"used"`
	Free     apiresource.Quantity `json:"free"`
}

func amountOf(a *occupancy.Amount) resourceAmount {
	of := corev1.ResourceName(a.Resource)
	return resourceAmount{convert.Quantity(of, a.Capacity), convert.Quantity(of, a.Used), convert.Quantity(of, a.Free)}
}

func (s *Server) topologies(ctx context.Context, a *ask) (any, error) {
	if err := s.access.must(ctx, a.who, topologiesResource, "", ""); err != nil {
		return nil, err
	}
	var all kueue.TopologyList
	if err := s.read(ctx, &all, ""); err != nil {
		return nil, err
	}
	var out []entry
	found := pointers(all.Items)
	s.Places.Read(func(r *occupancy.Reader) {
		for _, t := range found {
			v := &topologyView{Topology: *t, Flavors: []flavorSums{}}
			v.SetGroupVersionKind(topologiesResource.gvk())
			for _, f := range r.Flavors(t.Name) {
				v.Flavors = append(v.Flavors, sumsOf(r, &f))
			}
			out = append(out, entry{t.Name, v})
		}
	})
	return a.page(out), nil
}

func sumsOf(r *occupancy.Reader, f *occupancy.Flavor) flavorSums {
	n := r.NodesOf(f)
	out := flavorSums{Flavor: f.Name, Nodes: nodeCounts{n.Counted, n.NotReady, n.Cordoned, n.Unlabeled}, Levels: []levelSum{}}
	for i, name := range f.Levels {
		out.Levels = append(out.Levels, sumOf(f, name, r.Domains(f, i, nil)))
	}
	return out
}

func sumOf(f *occupancy.Flavor, level string, domains []occupancy.Domain) levelSum {
	sum := levelSum{Level: level, Count: len(domains), Resources: map[string]resourceFill{}}
	for _, fill := range occupancy.FillOf(f, domains) {
		sum.Resources[fill.Resource] = resourceFill{
			amountOf(&fill.Amount), convert.Quantity(corev1.ResourceName(fill.Resource), fill.LargestFree), fill.Fragmentation(),
		}
	}
	return sum
}

// topologyMap is one flavor of a Topology as a map of domains, and what a pending workload lacks in them.
type topologyMap struct {
	kueue.Topology
	Names   []string   `json:"names"` // of its flavors
	Sums    flavorSums `json:"sums"`
	Domains *list      `json:"domains"`
	// Depth is the number of levels that are shown: 0 is one domain that stands for all.
	Depth   int         `json:"depth"`
	Waiting []string    `json:"waiting"` // the first pending workloads that the caller may list, as namespace/name
	Asked   *neededView `json:"asked,omitempty"`
}

// domainView is one domain. Occupants are there for domains of the lowest level.
type domainView struct {
	Values    []string                  `json:"values"`
	Nodes     int                       `json:"nodes"`
	Excluded  int                       `json:"excluded"`
	Pods      int                       `json:"pods"`
	Resources map[string]resourceAmount `json:"resources"`
	Occupants []occupantView            `json:"occupants,omitempty"`
	Others    int                       `json:"others,omitempty"` // pods of workloads that the caller may not list
}

type occupantView struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	PodSet    string `json:"podSet"`
	Queue     string `json:"queue"`
	Pods      int    `json:"pods"`
}

func viewOfDomain(d *occupancy.Domain) *domainView {
	v := &domainView{Values: d.Values, Nodes: d.Nodes.Counted, Excluded: d.Nodes.Excluded(), Pods: d.Pods, Resources: map[string]resourceAmount{}}
	for i := range d.Amounts {
		v.Resources[d.Amounts[i].Resource] = amountOf(&d.Amounts[i])
	}
	return v
}

// topologyOf reads the Topology of a view; nil if it does not exist.
func (s *Server) topologyOf(ctx context.Context, a *ask) (*kueue.Topology, error) {
	return one[kueue.Topology](ctx, s, a, topologiesResource)
}

// flavorOf returns the flavor that is asked for, else the first; nil if there is none.
func flavorOf(r *occupancy.Reader, a *ask) (f *occupancy.Flavor, names []string) {
	names = []string{}
	for _, o := range r.Flavors(a.name) {
		names = append(names, o.Name)
		if o.Name == a.flavor || (f == nil && a.flavor == "") {
			f = new(o)
		}
	}
	return f, names
}

func (s *Server) topology(ctx context.Context, a *ask) (any, error) {
	t, err := s.topologyOf(ctx, a)
	if err != nil || t == nil {
		return none(topologiesResource, a), err
	}
	asked, err := s.askedFor(ctx, a)
	if err != nil {
		return nil, err
	}
	hosts := false
	if asked != nil {
		if hosts, err = s.access.may(ctx, a.who, nodesResource, "", ""); err != nil {
			return nil, err
		}
	}
	out := &topologyMap{Topology: *t, Waiting: []string{}}
	var domains []entry
	var waiting []pendingName
	s.Places.Read(func(r *occupancy.Reader) {
		f, names := flavorOf(r, a)
		if out.Names = names; f == nil {
			return
		}
		out.Sums = flavorSums{Flavor: f.Name, Levels: []levelSum{}}
		n := r.NodesOf(f)
		out.Sums.Nodes = nodeCounts{n.Counted, n.NotReady, n.Cordoned, n.Unlabeled}
		for i, level := range f.Levels {
			all := r.Domains(f, i, nil)
			out.Sums.Levels = append(out.Sums.Levels, sumOf(f, level, all))
			if out.Depth == i && level != topology.Hostname && len(domains)+len(all) <= shownDomains {
				domains, out.Depth = append(domains, entriesOf(all)...), i+1
			}
		}
		if out.Depth == 0 {
			domains = entriesOf(r.Domains(f, -1, nil))
		}
		waiting = pendingOf(r, f.Name)
		out.Asked = neededBy(r, asked, f.Name, hosts)
	})
	out.Domains = a.whole(domains)
	out.Waiting, err = s.listable(ctx, a, waiting)
	return out, err
}

func entriesOf(domains []occupancy.Domain) []entry {
	out := make([]entry, 0, len(domains))
	for i := range domains {
		out = append(out, entry{strings.Join(domains[i].Values, "/"), viewOfDomain(&domains[i])})
	}
	return out
}

// pendingName is a pending workload.
type pendingName struct{ namespace, name string }

// pendingOf returns the first pending workloads of the queues that offer a flavor.
func pendingOf(r *occupancy.Reader, flavor string) (out []pendingName) {
	if r.Model == nil {
		return nil
	}
	for queue := range r.Queues() {
		if !slices.Contains(r.PlacedFlavors(queue), flavor) {
			continue
		}
		list, _ := r.Waiting(queue)
		for _, w := range list.Page(nil, 0, 4*shownWaiting) {
			if r.Holds(w.UID()) {
				continue
			}
			namespace, name := w.Name()
			out = append(out, pendingName{namespace, name})
		}
	}
	return out
}

// listable returns the first workloads that the caller may list.
func (s *Server) listable(ctx context.Context, a *ask, all []pendingName) ([]string, error) {
	among := map[string]bool{}
	for _, w := range all {
		among[w.namespace] = true
	}
	may, err := s.access.within(ctx, a.who, workloadsResource, among)
	out := []string{}
	for _, w := range all {
		if may[w.namespace] && len(out) < shownWaiting {
			out = append(out, w.namespace+"/"+w.name)
		}
	}
	return out, err
}

// neededView is what a pending workload needs.
type neededView struct {
	Workload string     `json:"workload"`
	Pending  bool       `json:"pending"`
	Needs    []needView `json:"needs"`
}

// needView is what pod sets that are placed together need of the domains of a level.
type needView struct {
	PodSets []string `json:"podSets"`
	Level   string   `json:"level"`
	One     bool     `json:"one"` // one domain has to hold all
	Unit    string   `json:"unit"`
	Needed  int64    `json:"needed"`
	Why     string   `json:"why,omitempty"` // why they have no place whatever is free
	// Enough is how many domains hold all, Fit how much all domains hold together, and Domains what each holds and lacks: of hosts
	// the 100 that hold most, and none for callers that may not list nodes.
	Enough  int                 `json:"enough"`
	Fit     int64               `json:"fit"`
	Domains map[string]lackView `json:"domains"`
}

type lackView struct {
	Fit   int64 `json:"fit"`
	Lacks int64 `json:"lacks"`
}

// askedFor reads the workload of the parameter workload, which the caller must be permitted to read; nil for none.
func (s *Server) askedFor(ctx context.Context, a *ask) (*kueue.Workload, error) {
	namespace, name, ok := strings.Cut(a.workload, "/")
	if !ok {
		return nil, nil // none is asked for
	}
	if err := s.access.must(ctx, a.who, workloadsResource, namespace, name); err != nil {
		return nil, err
	}
	w := &kueue.Workload{}
	err := s.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, w)
	if apierrors.IsNotFound(err) {
		w.Namespace, w.Name, err = namespace, name, nil
	}
	return w, err
}

// neededBy names hosts only with hosts.
func neededBy(r *occupancy.Reader, w *kueue.Workload, flavor string, hosts bool) *neededView {
	if w == nil || r.Model == nil {
		return nil
	}
	out := &neededView{Workload: w.Namespace + "/" + w.Name, Needs: []needView{}}
	queue, _ := r.PointsTo(w.Namespace, string(w.Spec.QueueName))
	needs, pending := r.Needs(queue, string(w.UID))
	out.Pending = pending
	for i := range needs {
		if n := &needs[i]; n.Flavor == flavor {
			out.Needs = append(out.Needs, viewOfNeed(n, hosts))
		}
	}
	return out
}

func viewOfNeed(n *occupancy.Need, hosts bool) needView {
	v := needView{PodSets: n.PodSets, Level: n.Level, One: n.One, Unit: string(n.Unit), Needed: n.Needed, Why: n.Why, Domains: map[string]lackView{}}
	all := slices.Clone(n.Domains)
	slices.SortStableFunc(all, func(a, b topology.DomainFit) int { return cmp.Compare(b.Slices, a.Slices) })
	for i, d := range all {
		if v.Fit += d.Slices; d.Slices >= n.Needed {
			v.Enough++
		}
		if i < shownDomains && (n.Level != topology.Hostname || (hosts && i < needsOfHosts)) {
			v.Domains[strings.Join(d.Values, "/")] = lackView{d.Slices, max(0, n.Needed-d.Slices)}
		}
	}
	return v
}

// topologyDomains is the domains in one domain, in pages, with those whose pods are in them.
func (s *Server) topologyDomains(ctx context.Context, a *ask) (any, error) {
	t, err := s.topologyOf(ctx, a)
	if err != nil || t == nil {
		return none(topologiesResource, a), err
	}
	within := []string{}
	if a.within != "" {
		within = strings.Split(a.within, "/")
	}
	if n := len(t.Spec.Levels); len(within) == n-1 && t.Spec.Levels[n-1].NodeLabel == topology.Hostname {
		if err := s.access.must(ctx, a.who, nodesResource, "", ""); err != nil {
			return nil, err
		}
	}
	if a.limit < 0 || a.limit > shownDomains {
		a.limit = hostsOfPage
	}
	var shown []*domainView
	var occupants [][]occupancy.Occupant
	total := 0
	s.Places.Read(func(r *occupancy.Reader) {
		f, _ := flavorOf(r, a)
		if f == nil || len(within) >= len(f.Levels) {
			return
		}
		all := r.Domains(f, len(within), within)
		total = len(all)
		for _, d := range cut(&a.query, all) {
			var of []occupancy.Occupant
			if len(d.Values) == len(f.Levels) {
				of = r.Occupants(f, d.Values)
			}
			shown, occupants = append(shown, viewOfDomain(&d)), append(occupants, of)
		}
	})
	if err := s.name(ctx, a, shown, occupants); err != nil {
		return nil, err
	}
	out := make([]entry, 0, len(shown))
	for _, d := range shown {
		out = append(out, entry{strings.Join(d.Values, "/"), d})
	}
	return a.paged(a.whole(out), total), nil
}

// name sets the occupants of domains: by name those in namespaces where the caller may list workloads, of the others the pods.
func (s *Server) name(ctx context.Context, a *ask, domains []*domainView, occupants [][]occupancy.Occupant) error {
	among := map[string]bool{}
	for _, of := range occupants {
		for _, o := range of {
			among[o.Namespace] = true
		}
	}
	may, err := s.access.within(ctx, a.who, workloadsResource, among)
	if err != nil {
		return err
	}
	for i, d := range domains {
		for _, o := range occupants[i] {
			if may[o.Namespace] {
				d.Occupants = append(d.Occupants, occupantView{o.Namespace, o.Name, o.PodSet, o.Queue, o.Pods})
			} else {
				d.Others += o.Pods
			}
		}
	}
	return nil
}
