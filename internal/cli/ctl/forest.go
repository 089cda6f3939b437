package ctl

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// pair is a resource of a flavor.
type pair struct{ flavor, resource string }

// share is the owned and used quota of a flavor and resource. Reserved is used by QuotaReserved Workloads; admitted is the part of
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

// sharesOf are the pairs of quotas and usages, in the order of the spec. Usage of a flavor that the queue has no quota of any more
// comes last.
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
	explicit          bool // it has an object of its own
	children          []string
	queues            []*kueue.ClusterQueue // directly in it
	allQueues         []*kueue.ClusterQueue // in it and below
	own               []share               // quota of its own
	shares            []share               // with all below
	pending, admitted int32
}

// forest is how ClusterQueues and Cohorts belong together.
type forest struct {
	nodes map[string]*node
	alone []*kueue.ClusterQueue // in no cohort
}

// grow makes the forest. Cohorts that only members name are in it, and so are cohorts in a circle, which the manager refuses.
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

// sum adds all that is in and below a node to another.
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

// sort puts what is summed up from many queues, each with an order of its own, into one.
func (n *node) sort() {
	slices.SortFunc(n.shares, func(a, b share) int {
		return cmp.Or(strings.Compare(a.flavor, b.flavor), strings.Compare(a.resource, b.resource))
	})
}

func (f *forest) names() []string { return slices.Sorted(maps.Keys(f.nodes)) }

// roots are the cohorts without a parent, and one of each circle.
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

func sortedResources(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}
