package visibility

import (
	"context"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// topologyUsage is what is free and used in the domains of a Topology, with hosts=true also in each host.
func topologyUsage(_ context.Context, s *Server, a *ask) (runtime.Object, error) {
	hosts := false
	if text := a.query.Get("hosts"); text != "" {
		var err error
		if hosts, err = strconv.ParseBool(text); err != nil {
			return nil, apierrors.NewBadRequest("hosts: " + strconv.Quote(text) + " is neither true nor false")
		}
	}
	out := &berthv1alpha1.TopologyUsage{ObjectMeta: metav1.ObjectMeta{Name: a.name}, Flavors: []berthv1alpha1.FlavorUsage{}}
	s.Places.Read(func(r *occupancy.Reader) {
		for _, f := range r.Flavors(a.name) {
			out.Flavors = append(out.Flavors, flavorUsage(r, &f, hosts))
		}
	})
	return out, nil
}

func flavorUsage(r *occupancy.Reader, f *occupancy.Flavor, hosts bool) berthv1alpha1.FlavorUsage {
	nodes := r.NodesOf(f)
	out := berthv1alpha1.FlavorUsage{Flavor: f.Name, Levels: []berthv1alpha1.LevelUsage{}, Nodes: berthv1alpha1.NodeCounts{
		Counted: int32(nodes.Counted), NotReady: int32(nodes.NotReady), Cordoned: int32(nodes.Cordoned), Unlabeled: int32(nodes.Unlabeled),
	}}
	for i, name := range f.Levels {
		domains := r.Domains(f, i, nil)
		level := berthv1alpha1.LevelUsage{Level: name, Count: int32(len(domains)), Resources: []berthv1alpha1.LevelResource{}}
		for _, fill := range occupancy.FillOf(f, domains) {
			level.Resources = append(level.Resources, berthv1alpha1.LevelResource{
				ResourceUsage: resourceUsage(&fill.Amount), LargestFree: quantity(fill.Resource, fill.LargestFree),
				FragmentationPercent: int32(math.Round(100 * fill.Fragmentation())),
			})
		}
		if hosts || name != topology.Hostname {
			for k := range domains {
				level.Domains = append(level.Domains, domainUsage(&domains[k]))
			}
		}
		out.Levels = append(out.Levels, level)
	}
	for _, s := range r.Shapes(f) {
		out.Shapes = append(out.Shapes, shapeUsage(&s))
	}
	return out
}

func domainUsage(d *occupancy.Domain) berthv1alpha1.DomainUsage {
	out := berthv1alpha1.DomainUsage{
		Values: d.Values, Nodes: int32(d.Nodes.Counted), Excluded: int32(d.Nodes.Excluded()), Pods: int32(d.Pods), Resources: []berthv1alpha1.ResourceUsage{},
	}
	for i := range d.Amounts {
		out.Resources = append(out.Resources, resourceUsage(&d.Amounts[i]))
	}
	return out
}

func resourceUsage(a *occupancy.Amount) berthv1alpha1.ResourceUsage {
	return berthv1alpha1.ResourceUsage{
		Resource: a.Resource, Capacity: quantity(a.Resource, a.Capacity), Used: quantity(a.Resource, a.Used), Free: quantity(a.Resource, a.Free),
	}
}

func quantity(name string, a resource.Amount) apiresource.Quantity {
	return convert.Quantity(corev1.ResourceName(name), a)
}

func shapeUsage(s *occupancy.Shape) berthv1alpha1.ShapeUsage {
	out := berthv1alpha1.ShapeUsage{
		Requests: map[string]apiresource.Quantity{}, Constrained: s.Constrained, Running: int32(s.Running), Waiting: int32(s.Waiting),
		Largest: []berthv1alpha1.LargestGang{},
	}
	for _, q := range s.Requests {
		out.Requests[q.Resource] = quantity(q.Resource, q.Amount)
	}
	for _, l := range s.Largest {
		gang := berthv1alpha1.LargestGang{Level: l.Level}
		if len(l.First) > 0 && l.First[0].Pods > 0 {
			gang.Pods, gang.Domain = l.First[0].Pods, l.First[0].Values
		}
		out.Largest = append(out.Largest, gang)
	}
	return out
}
