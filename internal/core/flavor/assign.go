package flavor

import (
	"fmt"
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Oracle tells what preemption could do for amount of fr: NoCandidates, Preempt or
// Reclaim, and how far up the preemptor would borrow once the victims are gone.
type Oracle func(fr resource.FR, amount resource.Amount) (Mode, int)

// Search is the world as one queue's assignments see it.
type Search struct {
	Table  *resource.Table
	Quota  *quota.Forest
	Node   quota.Node
	Groups []Group
	Policy Fungibility
	Oracle Oracle
	// PreemptsWhileBorrowing: preemption is worth a look although the request is
	// past what the queue owns.
	PreemptsWhileBorrowing bool
	// IgnoreUndeclared: resources that no group covers need no quota.
	IgnoreUndeclared bool
}

// Assignment is the outcome for a whole workload.
type Assignment struct {
	PodSets  []PodSet
	Mode     Mode            // the worst of its pod sets
	Level    int             // the farthest any of its requests borrows
	Usage    resource.Vector // by FR, without zeros
	Refusals []trace.Refusal // what was tried in vain
	Reason   trace.Reason    // why nothing fits, when Mode is NoFit
}

// PodSet is what one pod set got.
type PodSet struct {
	Name      string
	Count     int32
	Resources []Resource
}

// Resource is a resource with its flavor.
type Resource struct {
	Resource resource.ID
	FR       resource.FR
	Amount   resource.Amount // of all pods of the set
	Mode     Mode
	Level    int
}

// Needs returns the FRs that are to be won by preemption, sorted.
func (a *Assignment) Needs() []resource.FR {
	var frs []resource.FR
	for _, ps := range a.PodSets {
		for _, r := range ps.Resources {
			if r.Mode != Fit {
				frs = append(frs, r.FR)
			}
		}
	}
	slices.Sort(frs)
	return slices.Compact(frs)
}

// Assign finds flavors for all pod sets. It stops at the first pod set that cannot
// have any: the workload then is NoFit. spec: 10 §4.6.1.
func (s *Search) Assign(podSets []workload.PodSet) Assignment {
	a := Assignment{Mode: Fit}
	for i := range podSets {
		ps := &podSets[i]
		got, ok := s.podSet(ps, &a)
		if !ok {
			a.Mode = NoFit
			return a
		}
		for _, r := range got.Resources {
			if r.Amount > 0 {
				a.Usage = a.Usage.Plus(r.FR, r.Amount)
			}
			a.Mode = min(a.Mode, r.Mode)
			a.Level = max(a.Level, r.Level)
		}
		a.PodSets = append(a.PodSets, got)
	}
	return a
}

func (s *Search) podSet(ps *workload.PodSet, a *Assignment) (PodSet, bool) {
	out := PodSet{Name: ps.Name, Count: ps.Count}
	requests := s.withPods(ps)
	for _, req := range requests {
		if slices.ContainsFunc(out.Resources, func(r Resource) bool { return r.Resource == req.Resource }) {
			continue // came with an earlier resource of its group
		}
		group := s.groupOf(req.Resource)
		if group == nil {
			if req.Amount == 0 || s.IgnoreUndeclared {
				continue
			}
			a.Refusals = append(a.Refusals, refuse(ps.Name, "", fmt.Sprintf(
				"no resource group of the ClusterQueue covers %s", s.Table.Name(req.Resource))))
			a.Reason = trace.NoMatchingFlavor
			return out, false
		}
		chosen, reason := s.search(ps, requests, group, a)
		if chosen == nil {
			a.Reason = reason
			return out, false
		}
		out.Resources = append(out.Resources, chosen...)
	}
	return out, true
}

// withPods adds the implicit request for one "pods" a pod where quota counts them.
// spec: 10 §4.2.
func (s *Search) withPods(ps *workload.PodSet) []workload.Request {
	for _, g := range s.Groups {
		for _, id := range g.Resources {
			if s.Table.Name(id) != "pods" {
				continue
			}
			pods := workload.Request{Resource: id, Amount: resource.Amount(ps.Count)}
			return append(slices.Clip(ps.Requests), pods)
		}
	}
	return ps.Requests
}

func (s *Search) groupOf(id resource.ID) *Group {
	for i := range s.Groups {
		if slices.Contains(s.Groups[i].Resources, id) {
			return &s.Groups[i]
		}
	}
	return nil
}

// search picks one flavor of the group for all of the pod set's requests in it, or
// none and the reason. spec: 10 §4.6.4.
func (s *Search) search(ps *workload.PodSet, requests []workload.Request, g *Group, a *Assignment) ([]Resource, trace.Reason) {
	var best []Resource
	bestGrade := grade{NoFit, 0}
	reason := trace.Reason("")
	for _, offer := range g.Offers {
		if detail := offer.Flavor.mismatch(ps.Constraints); detail != "" {
			a.Refusals = append(a.Refusals, refuse(ps.Name, offer.Flavor.Name, detail))
			reason = milder(reason, trace.NoMatchingFlavor)
			continue
		}
		got, grd, class := s.offer(ps, requests, g, offer, a)
		if grd.mode == NoFit {
			reason = milder(reason, class)
			continue
		}
		if s.Policy.preferred(grd, bestGrade) {
			best, bestGrade = got, grd
		}
		if s.Policy.stop(grd) {
			return got, ""
		}
	}
	if best == nil && reason == "" {
		reason = trace.NoMatchingFlavor
	}
	return best, reason
}

// offer grades one flavor: the worst over the requests.
func (s *Search) offer(ps *workload.PodSet, requests []workload.Request, g *Group, o Offer, a *Assignment) ([]Resource, grade, trace.Reason) {
	var got []Resource
	all := grade{Fit, 0}
	class := trace.Reason("")
	for _, req := range requests {
		i := slices.Index(g.Resources, req.Resource)
		if i < 0 {
			continue
		}
		fr := o.FRs[i]
		total := a.Usage.Of(fr).Add(req.Amount)
		grd, reason := s.check(fr, total)
		if grd.mode <= NoCandidates {
			a.Refusals = append(a.Refusals, trace.Refusal{
				PodSet: ps.Name, Resource: s.Table.Name(req.Resource), Flavor: o.Flavor.Name, Reason: reason,
				Asked: total, Available: s.Quota.Available(s.Node, fr), Potential: s.Quota.Potential(s.Node, fr),
				Preemptible: grd.mode == NoCandidates,
			})
			if grd.mode == NoFit && reason.Severity() > class.Severity() {
				class = reason
			}
		}
		all = s.Policy.worst(all, grd)
		got = append(got, Resource{req.Resource, fr, req.Amount, grd.mode, grd.level})
	}
	return got, all, class
}

// check grades amount of one FR. spec: 10 §4.6.3.
func (s *Search) check(fr resource.FR, amount resource.Amount) (grade, trace.Reason) {
	if amount > s.Quota.Potential(s.Node, fr) {
		return grade{NoFit, 0}, trace.ExceedsMaxQuota
	}
	level, mayReclaim := s.Quota.Level(s.Node, fr, amount)
	if amount <= s.Quota.Available(s.Node, fr) {
		return grade{Fit, level}, ""
	}
	if s.Quota.Nominal(s.Node, fr) < amount && !mayReclaim && !s.PreemptsWhileBorrowing {
		return grade{NoFit, level}, trace.WaitingForQuota
	}
	mode, after := s.Oracle(fr, amount)
	if mode == NoCandidates {
		after = level
	}
	return grade{mode, after}, trace.WaitingForQuota
}

// milder is the less severe of two reasons; "" is none yet.
func milder(a, b trace.Reason) trace.Reason {
	if a == "" || b.Severity() < a.Severity() {
		return b
	}
	return a
}
