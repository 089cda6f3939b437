package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

func count(n int32) string { return strconv.Itoa(int(n)) }

// active returns the condition Active as a column, and its message unless it is true.
func active(conditions []metav1.Condition) (text, why string) {
	c := apimeta.FindStatusCondition(conditions, kueue.ClusterQueueActive)
	switch {
	case c == nil:
		return "false", "no manager has evaluated it yet"
	case c.Status == metav1.ConditionTrue:
		return "true", ""
	}
	return "false", c.Message
}

// clusterQueueFigures fills in statuses for a table; other formats show what is stored.
func (l *listing) clusterQueueFigures(ctx context.Context, s *session, items []kueue.ClusterQueue) error {
	if !l.asTable() || len(items) == 0 {
		return nil
	}
	return s.clusterQueueFigures(ctx, items)
}

func stopPolicy(p kueue.StopPolicy) string { return string(cmp.Or(p, kueue.StopPolicyNone)) }

func (t *tool) newListClusterQueues() *cobra.Command {
	var l listing
	var only string
	cmd := l.command(t, cluster.ClusterQueue, `Lists ClusterQueues. ACTIVE is whether one can admit; -o wide adds its strategy and why it is not active.

  berth list clusterqueues
  berth list cq --active=false -o wide`, func(ctx context.Context, s *session) (client.ObjectList, *table, error) {
		if only != "" && only != "true" && only != "false" {
			return nil, nil, cluster.Usage("--active=%s: must be true or false", only)
		}
		var list kueue.ClusterQueueList
		if err := l.fetch(ctx, s, &list, false); err != nil {
			return nil, nil, err
		}
		if err := l.clusterQueueFigures(ctx, s, list.Items); err != nil {
			return nil, nil, err
		}
		list.Items = slices.DeleteFunc(list.Items, func(q kueue.ClusterQueue) bool {
			is, _ := active(q.Status.Conditions)
			return only != "" && is != only
		})
		out := &table{columns: columns("NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE", "+STRATEGY", "+STOP POLICY", "+RESERVING", "+NOT ACTIVE BECAUSE")}
		for i := range list.Items {
			q := &list.Items[i]
			is, why := active(q.Status.Conditions)
			out.add(q.Name, string(q.Spec.CohortName), count(q.Status.PendingWorkloads), count(q.Status.AdmittedWorkloads), is, s.Since(q.CreationTimestamp),
				string(q.Spec.QueueingStrategy), stopPolicy(q.Spec.StopPolicy), count(q.Status.ReservingWorkloads), why)
		}
		return &list, out, nil
	})
	t.addSettings(cmd)
	cmd.Flags().StringVar(&only, "active", "", "only those that can admit (true), or cannot (false)")
	_ = cmd.RegisterFlagCompletionFunc("active", cobra.FixedCompletions([]string{"true", "false"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (t *tool) newListLocalQueues() *cobra.Command {
	var l listing
	var queue string
	cmd := l.command(t, cluster.LocalQueue, `Lists LocalQueues, the ways into a ClusterQueue from a namespace.

  berth list localqueues -n team-a
  berth list lq -A -c gpus`, func(ctx context.Context, s *session) (client.ObjectList, *table, error) {
		var list kueue.LocalQueueList
		if err := l.fetch(ctx, s, &list, true); err != nil {
			return nil, nil, err
		}
		list.Items = slices.DeleteFunc(list.Items, func(q kueue.LocalQueue) bool { return queue != "" && string(q.Spec.ClusterQueue) != queue })
		if l.asTable() && len(list.Items) > 0 {
			if err := s.localQueueFigures(ctx, list.Items); err != nil {
				return nil, nil, err
			}
		}
		out := &table{columns: l.columns("NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "AGE", "+ACTIVE", "+STOP POLICY", "+RESERVING", "+NOT ACTIVE BECAUSE")}
		for i := range list.Items {
			q := &list.Items[i]
			is, why := active(q.Status.Conditions)
			out.add(l.cells(q.Namespace, q.Name, string(q.Spec.ClusterQueue), count(q.Status.PendingWorkloads), count(q.Status.AdmittedWorkloads),
				s.Since(q.CreationTimestamp), is, stopPolicy(q.Spec.StopPolicy), count(q.Status.ReservingWorkloads), why)...)
		}
		return &list, out, nil
	})
	t.addSettings(cmd)
	cmd.Flags().StringVarP(&queue, "clusterqueue", "c", "", "only those of this ClusterQueue")
	_ = cmd.RegisterFlagCompletionFunc("clusterqueue", t.completeFlag(cluster.ClusterQueue))
	return cmd
}

func (t *tool) newListResourceFlavors() *cobra.Command {
	var l listing
	return l.command(t, cluster.ResourceFlavor, `Lists ResourceFlavors, the kinds of nodes that quota is of.

  berth list resourceflavors`, func(ctx context.Context, s *session) (client.ObjectList, *table, error) {
		var list kueue.ResourceFlavorList
		if err := l.fetch(ctx, s, &list, false); err != nil {
			return nil, nil, err
		}
		out := &table{columns: columns("NAME", "NODE LABELS", "AGE", "+TAINTS", "+TOPOLOGY")}
		for i := range list.Items {
			f := &list.Items[i]
			var pairs, taints []string
			for _, key := range slices.Sorted(maps.Keys(f.Spec.NodeLabels)) {
				pairs = append(pairs, key+"="+f.Spec.NodeLabels[key])
			}
			for _, taint := range f.Spec.NodeTaints {
				taints = append(taints, taint.ToString())
			}
			out.add(f.Name, strings.Join(pairs, ", "), s.Since(f.CreationTimestamp), strings.Join(taints, ", "), string(f.Spec.TopologyName))
		}
		return &list, out, nil
	})
}

// newListCohorts also lists cohorts without an object, which members name: these have no age.
func (t *tool) newListCohorts() *cobra.Command {
	var l listing
	cmd := l.command(t, cluster.Cohort, `Lists Cohorts with the number of ClusterQueues in them and below, and those queues' Workloads. A cohort without an object of its own,
which is there because a ClusterQueue names it, has no age; -o json, yaml and name leave it out, and so do -l and --field-selector.

  berth list cohorts`, func(ctx context.Context, s *session) (client.ObjectList, *table, error) {
		var list kueue.CohortList
		if err := l.fetch(ctx, s, &list, false); err != nil {
			return nil, nil, err
		}
		var queues kueue.ClusterQueueList
		if err := s.Pages(ctx, &queues, &client.ListOptions{}); err != nil {
			return nil, nil, err
		}
		if err := l.clusterQueueFigures(ctx, s, queues.Items); err != nil {
			return nil, nil, err
		}
		all := &kueue.CohortList{}
		if l.labels != "" || l.fields != "" {
			if err := s.Pages(ctx, all, &client.ListOptions{}); err != nil {
				return nil, nil, err
			}
		} else {
			all.Items = list.Items
		}
		forest := grow(all.Items, queues.Items)
		out := &table{columns: columns("NAME", "PARENT", "CLUSTERQUEUES", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "AGE")}
		add := func(name, age string) {
			n := forest.nodes[name]
			out.add(name, n.parent, strconv.Itoa(len(n.allQueues)), count(n.pending), count(n.admitted), age)
		}
		for i := range list.Items {
			add(list.Items[i].Name, s.Since(list.Items[i].CreationTimestamp))
		}
		if l.labels == "" && l.fields == "" {
			for _, name := range forest.names() {
				if !forest.nodes[name].explicit {
					add(name, "<none>")
				}
			}
		}
		return &list, out, nil
	})
	t.addSettings(cmd)
	return cmd
}

func (t *tool) newListTopologies() *cobra.Command {
	var l listing
	return l.command(t, cluster.Topology, `Lists Topologies with their levels, the widest first.

  berth list topologies`, func(ctx context.Context, s *session) (client.ObjectList, *table, error) {
		var list kueue.TopologyList
		if err := l.fetch(ctx, s, &list, false); err != nil {
			return nil, nil, err
		}
		out := &table{columns: columns("NAME", "LEVELS", "AGE")}
		for i := range list.Items {
			topology := &list.Items[i]
			var levels []string
			for _, level := range topology.Spec.Levels {
				levels = append(levels, level.NodeLabel)
			}
			out.add(topology.Name, strings.Join(levels, ", "), s.Since(topology.CreationTimestamp))
		}
		return &list, out, nil
	})
}

func (t *tool) newListAdmissionChecks() *cobra.Command {
	var l listing
	return l.command(t, cluster.AdmissionCheck, `Lists AdmissionChecks with the controllers that make them. ACTIVE is whether the check can be made.

  berth list admissionchecks -o wide`, func(ctx context.Context, s *session) (client.ObjectList, *table, error) {
		var list kueue.AdmissionCheckList
		if err := l.fetch(ctx, s, &list, false); err != nil {
			return nil, nil, err
		}
		out := &table{columns: columns("NAME", "CONTROLLER", "ACTIVE", "AGE", "+PARAMETERS", "+NOT ACTIVE BECAUSE")}
		for i := range list.Items {
			check := &list.Items[i]
			is, why := active(check.Status.Conditions)
			parameters := ""
			if p := check.Spec.Parameters; p != nil {
				parameters = typed(p.Kind, p.APIGroup, p.Name)
			}
			out.add(check.Name, check.Spec.ControllerName, is, s.Since(check.CreationTimestamp), parameters, why)
		}
		return &list, out, nil
	})
}

func (t *tool) newListPriorityClasses() *cobra.Command {
	var l listing
	return l.command(t, cluster.WorkloadPriorityClass, `Lists WorkloadPriorityClasses with their values; the higher goes first.

  berth list workloadpriorityclasses`, func(ctx context.Context, s *session) (client.ObjectList, *table, error) {
		var list kueue.WorkloadPriorityClassList
		if err := l.fetch(ctx, s, &list, false); err != nil {
			return nil, nil, err
		}
		out := &table{columns: columns("NAME", "VALUE", "AGE", "+DESCRIPTION")}
		for i := range list.Items {
			class := &list.Items[i]
			out.add(class.Name, fmt.Sprint(class.Value), s.Since(class.CreationTimestamp), class.Description)
		}
		return &list, out, nil
	})
}
