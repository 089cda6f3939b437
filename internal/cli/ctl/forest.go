package ctl

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/placement/plan/nodequota"
)

// pair is a resource of a flavor.
type pair struct{ flavor, resource string }

// share is the nominal and used quota of a flavor and resource. Reserved is used by QuotaReserved Workloads; admitted is the part of
// Admitted ones.
type share struct {
	pair
	nominal, reserved, admitted, borrowed resource.Quantity
}

func (s *share) add(other *share) {
	s.nominal.Add(other.nominal)
	s.reserved.Add(other.reserved)
	s.admitted.Add(other.admitted)
}

// sharesOf returns the quotas and usages, in the order of the spec. Usage of a flavor without quota comes last.
func sharesOf(groups []kueue.ResourceGroup, st *kueue.ClusterQueueStatus) []share {
	var out []share
	at := func(p pair) *share {
		i := slices.IndexFunc(out, func(s share) bool { return s.pair == p })
		if i < 0 {
			i, out = len(out), append(out, share{pair: p})
		}
		return &out[i]
	}
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				at(pair{string(f.Name), string(r.Name)}).nominal = r.NominalQuota.DeepCopy()
			}
		}
	}
	if st == nil {
		return out
	}
	for _, f := range st.FlavorsReservation {
		for _, r := range f.Resources {
			s := at(pair{string(f.Name), string(r.Name)})
			s.reserved, s.borrowed = r.Total.DeepCopy(), r.Borrowed.DeepCopy()
		}
	}
	for _, f := range st.FlavorsUsage {
		for _, r := range f.Resources {
			at(pair{string(f.Name), string(r.Name)}).admitted = r.Total.DeepCopy()
		}
	}
	return out
}

// node is a cohort in the forest.
type node struct {
	name, parent      string
	explicit          bool  // has an object
	ofNodes           int64 // percent of its nodes that its own quota follows; 0 is none
	children          []string
	queues            []*kueue.ClusterQueue // direct members
	allQueues         []*kueue.ClusterQueue // members at any depth
	own               []share               // the cohort's own quota
	shares            []share               // including everything below
	pending, admitted int32
}

// forest is the hierarchy of ClusterQueues and Cohorts.
type forest struct {
	nodes map[string]*node
	alone []*kueue.ClusterQueue // in no cohort
}

// grow makes the forest, including cohorts without an object, and cohorts in a cycle, which the manager refuses.
func grow(cohorts []kueue.Cohort, queues []kueue.ClusterQueue) *forest {
	f := &forest{nodes: map[string]*node{}}
	at := func(name string) *node {
		if f.nodes[name] == nil {
			f.nodes[name] = &node{name: name}
		}
		return f.nodes[name]
	}
	for i := range cohorts {
		n := at(cohorts[i].Name)
		n.explicit, n.own = true, sharesOf(cohorts[i].Spec.ResourceGroups, nil)
		n.ofNodes, _ = nodequota.ShareOf(cohorts[i].Annotations)
		if n.parent = string(cohorts[i].Spec.ParentName); n.parent != "" {
			p := at(n.parent)
			p.children = append(p.children, n.name)
		}
	}
	for i := range queues {
		if name := string(queues[i].Spec.CohortName); name != "" {
			n := at(name)
			n.queues = append(n.queues, &queues[i])
		} else {
			f.alone = append(f.alone, &queues[i])
		}
	}
	for _, n := range f.nodes {
		slices.Sort(n.children)
	}
	for _, n := range f.nodes {
		f.sum(n, n, map[string]bool{})
		n.sort()
	}
	return f
}

// sum adds a node and everything below it to another.
func (f *forest) sum(to, n *node, seen map[string]bool) {
	if seen[n.name] {
		return
	}
	seen[n.name] = true
	add := func(shares []share) {
		for i := range shares {
			at := slices.IndexFunc(to.shares, func(s share) bool { return s.pair == shares[i].pair })
			if at < 0 {
				at, to.shares = len(to.shares), append(to.shares, share{pair: shares[i].pair})
			}
			to.shares[at].add(&shares[i])
		}
	}
	add(n.own)
	for _, q := range n.queues {
		add(sharesOf(q.Spec.ResourceGroups, &q.Status))
		to.allQueues = append(to.allQueues, q)
		to.pending, to.admitted = to.pending+q.Status.PendingWorkloads, to.admitted+q.Status.AdmittedWorkloads
	}
	for _, child := range n.children {
		f.sum(to, f.nodes[child], seen)
	}
}

// sort orders shares that are the sum of several queues.
func (n *node) sort() {
	slices.SortFunc(n.shares, func(a, b share) int {
		return cmp.Or(strings.Compare(a.flavor, b.flavor), strings.Compare(a.resource, b.resource))
	})
}

// total returns the sum of all roots and queues.
func (f *forest) total() *node {
	total := &node{}
	total.queues = append(total.queues, f.alone...)
	for _, root := range f.roots() {
		total.children = append(total.children, root.name)
	}
	f.sum(total, total, map[string]bool{})
	total.sort()
	return total
}

// queues returns all ClusterQueues, by their names.
func (f *forest) queues() []*kueue.ClusterQueue {
	all := slices.Clone(f.alone)
	for _, name := range f.names() {
		all = append(all, f.nodes[name].queues...)
	}
	slices.SortFunc(all, func(a, b *kueue.ClusterQueue) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (f *forest) names() []string { return slices.Sorted(maps.Keys(f.nodes)) }

// roots returns the cohorts without a parent, and one of each cycle.
func (f *forest) roots() []*node {
	var out []*node
	seen := map[string]bool{}
	var visit func(n *node)
	visit = func(n *node) {
		if seen[n.name] {
			return
		}
		seen[n.name] = true
		for _, child := range n.children {
			visit(f.nodes[child])
		}
	}
	names := f.names()
	for _, name := range names {
		if f.nodes[name].parent == "" {
			out = append(out, f.nodes[name])
			visit(f.nodes[name])
		}
	}
	for _, name := range names {
		if !seen[name] {
			out = append(out, f.nodes[name])
			visit(f.nodes[name])
		}
	}
	return out
}
