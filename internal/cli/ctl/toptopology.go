package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

// addViews adds what else `berth top` shows: topologies and past usage.
func (t *tool) addViews(cmd *cobra.Command, o *top) {
	cmd.Flags().BoolVar(&o.topology, "topology", false, "show the nodes of topologies instead of quota; names of topologies may follow")
	cmd.Flags().BoolVar(&o.hosts, "hosts", false, "with --topology: also each host")
	o.fair.add(cmd)
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "with --topology or --fair: how to print: json, yaml; with --topology also "+strings.Join(templates, ", ")+" with =…")
	o.formats = []string{"json", "yaml"}
	o.addTemplates(cmd)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if !o.topology {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.complete(cluster.Topology, nil)(cmd, args, typed)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.topology && o.fair.on:
			return cluster.Usage("--topology, --fair: choose one of them")
		case len(args) > 0 && !o.topology:
			return unknown(cmd, args[0])
		case o.hosts && !o.topology:
			return cluster.Usage("--hosts: is for --topology")
		case len(o.fair.weights) > 0 && !o.fair.on:
			return cluster.Usage("--weight: is for --fair")
		case o.fair.on && strings.Contains(o.format, "="):
			return cluster.Usage("-o %s: with --fair, json and yaml are known", o.format)
		case o.format+o.template != "" && !o.topology && !o.fair.on:
			return cluster.Usage("-o: is for --topology and --fair; for quota, see berth list clusterqueue -o %s", o.format)
		}
		_, err := o.fair.rates()
		return err
	}
}

// lookAtNodes asks the manager about topologies and renders them.
func (o *top) lookAtNodes(ctx context.Context, s *session) ([]byte, error) {
	var all kueue.TopologyList
	if err := s.Pages(ctx, &all, &client.ListOptions{}); err != nil {
		return nil, err
	}
	o.what, o.seen = cluster.Topology.Name, nil
	var names []string
	for i := range all.Items {
		if name := all.Items[i].Name; o.wants(name) {
			names = append(names, name)
		}
	}
	if err := o.missing(); err != nil {
		return nil, err
	}
	out := berthv1alpha1.TopologyUsageList{Items: []berthv1alpha1.TopologyUsage{}}
	for _, name := range names {
		usage, err := s.topologyUsage(ctx, name, o.hosts)
		if err != nil {
			return nil, err
		}
		if len(usage.Flavors) == 0 {
			fmt.Fprintf(s.Errs, "topology %s: no ResourceFlavor uses it (spec.topologyName)\n", name)
			continue
		}
		out.Items = append(out.Items, *usage)
	}
	if o.asTable() {
		return o.drawNodes(s, &out)
	}
	var b bytes.Buffer
	var object runtime.Object = &out
	if len(o.names) == 1 && len(out.Items) == 1 {
		object = &out.Items[0]
	}
	err := o.print(&b, object)
	return b.Bytes(), err
}

// topologyUsage asks the manager.
func (s *session) topologyUsage(ctx context.Context, name string, hosts bool) (*berthv1alpha1.TopologyUsage, error) {
	path := "/apis/" + berthv1alpha1.GroupVersion.String() + "/topologies/" + name + "/usage"
	data, err := s.ask(ctx, path, "hosts", fmt.Sprint(hosts))
	_, refused := errors.AsType[*apierrors.StatusError](err)
	_, blind := errors.AsType[unreadable](err)
	switch {
	case err == nil:
	case blind:
		return nil, fmt.Errorf("topology %s: no manager answers, and what is free cannot be computed here: %w", name, err)
	case refused && s.failed == nil:
		return nil, fmt.Errorf("topology %s: the manager cannot be asked what is free (%s)", name, reason(err, cluster.Topology, berthv1alpha1.GroupVersion, "get topologies/usage"))
	default:
		return nil, err
	}
	out := &berthv1alpha1.TopologyUsage{}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, err
	}
	return out, nil
}

// drawNodes renders the domains, and the pods in use.
func (o *top) drawNodes(s *session, all *berthv1alpha1.TopologyUsageList) ([]byte, error) {
	domains := &table{columns: columns("NAME", "RESOURCE", "USE", "", "FREE", "USED", "TOTAL", "LARGEST", "FRAGMENTED", "PODS", "NODES")}
	shapes := &table{columns: columns("PODS OF", "FLAVOR", "RUNNING", "WAITING", "LEVEL", "BIGGEST GANG", "IN")}
	for i := range all.Items {
		for k := range all.Items[i].Flavors {
			f := &all.Items[i].Flavors[k]
			o.drawLevels(domains, all.Items[i].Name, f)
			for n := range f.Shapes {
				drawShape(shapes, f.Flavor, &f.Shapes[n])
			}
		}
	}
	if len(domains.rows) == 0 {
		fmt.Fprintln(s.Errs, "No resources found")
		return nil, nil
	}
	var b bytes.Buffer
	if err := domains.write(&b, false, !o.noHeaders); err != nil || len(shapes.rows) == 0 {
		return b.Bytes(), err
	}
	b.WriteByte('\n')
	err := shapes.write(&b, false, !o.noHeaders)
	return b.Bytes(), err
}

// drawLevels adds the lines of a flavor: a heading, and for each level a heading with the lines of its domains.
func (o *top) drawLevels(out *table, topology string, f *berthv1alpha1.FlavorUsage) {
	excluded := f.Nodes.NotReady + f.Nodes.Cordoned + f.Nodes.Unlabeled
	nodes := fmt.Sprint(f.Nodes.Counted)
	if excluded > 0 {
		nodes += fmt.Sprintf(" (%d not ready, %d cordoned, %d unlabeled)", f.Nodes.NotReady, f.Nodes.Cordoned, f.Nodes.Unlabeled)
	}
	out.add(topology+", flavor "+f.Flavor, "", "", "", "", "", "", "", "", "", nodes)
	for i := range f.Levels {
		l := &f.Levels[i]
		name, count := "  "+l.Level, fmt.Sprintf("%d domains", l.Count)
		for _, r := range l.Resources {
			if o.resource != "" && r.Resource != o.resource {
				continue
			}
			o.drawAmount(out, &name, &r.ResourceUsage, r.LargestFree.String(), fmt.Sprintf("%d%%", r.FragmentationPercent), "", count)
			count = ""
		}
		for k := range l.Domains {
			d := &l.Domains[k]
			name, pods, nodes := "    "+strings.Join(d.Values, "/"), fmt.Sprint(d.Pods), fmt.Sprint(d.Nodes)
			if d.Excluded > 0 {
				nodes += fmt.Sprintf(" of %d", d.Nodes+d.Excluded)
			}
			for n := range d.Resources {
				if r := &d.Resources[n]; o.resource == "" || r.Resource == o.resource {
					o.drawAmount(out, &name, r, "", "", pods, nodes)
					pods, nodes = "", ""
				}
			}
		}
	}
}

// drawAmount adds a line of one resource; the first of a name has it.
func (o *top) drawAmount(out *table, name *string, r *berthv1alpha1.ResourceUsage, largest, fragmented, pods, nodes string) {
	taken := r.Capacity.DeepCopy() // and not what pods use on nodes that do not count
	taken.Sub(r.Free)
	drawn, percent := bar(&share{nominal: r.Capacity, reserved: taken, admitted: taken})
	out.add(*name, r.Resource, drawn, percent, r.Free.String(), r.Used.String(), r.Capacity.String(), largest, fragmented, pods, nodes)
	*name = ""
}

// drawShape adds a line for each level.
func drawShape(out *table, flavor string, s *berthv1alpha1.ShapeUsage) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Requests)) {
		if amount := s.Requests[name]; name != "pods" {
			parts = append(parts, name+"="+amount.String())
		}
	}
	if s.Constrained {
		parts = append(parts, "constrained")
	}
	what, running, waiting := strings.Join(parts, ","), fmt.Sprint(s.Running), fmt.Sprint(s.Waiting)
	if what == "" {
		what = "no requests"
	}
	for _, l := range s.Largest {
		out.add(what, flavor, running, waiting, l.Level, fmt.Sprint(l.Pods), strings.Join(l.Domain, "/"))
		what, flavor, running, waiting = "", "", "", ""
	}
}
