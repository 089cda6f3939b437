package ctl

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

const deleteHelp = `Deletes Workloads with their jobs. Other kinds are left to kubectl, which has to be on the PATH.

  berth delete workload job-train-1a2b3 -n team-a
  berth delete clusterqueue gpus`

const deleteWorkloadHelp = `Deletes the jobs of Workloads, which takes the Workloads along; a Workload of no job is deleted itself. It says first whose jobs these
are, and asks.

  berth delete workload job-train-1a2b3 -n team-a
  berth delete workload --all -n team-a --yes
  berth delete workload --all -A --dry-run=client`

// deleteWorkload is the command line of `berth delete workload`.
type deleteWorkload struct {
	dryRun               dryRun
	yes, all, everywhere bool
}

func (t *tool) newDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete", Short: "delete workloads with their jobs", Long: deleteHelp}
	var d deleteWorkload
	workload := &cobra.Command{
		Use: "workload NAME...", Aliases: cluster.Workload.Aliases, Short: "delete Workloads with their jobs", Long: deleteWorkloadHelp,
		ValidArgsFunction: t.complete(cluster.Workload, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.dryRun.check(); err != nil {
				return err
			}
			switch {
			case len(args) == 0 && !d.all:
				return cluster.Usage("%s: NAME is missing: name Workloads, or give --all", cmd.CommandPath())
			case len(args) > 0 && d.all:
				return cluster.Usage("%s: --all leaves no room for names such as %q: give one or the other", cmd.CommandPath(), args[0])
			case len(args) > 0 && d.everywhere:
				return cluster.Usage("%s: -A leaves no room for names such as %q: name the namespace with -n", cmd.CommandPath(), args[0])
			}
			return t.run(cmd, func(ctx context.Context, s *session) error { return d.run(ctx, s, args) })
		},
	}
	workload.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	workload.Flags().BoolVar(&d.all, "all", false, "all Workloads of the namespace")
	workload.Flags().BoolVarP(&d.everywhere, "all-namespaces", "A", false, "with --all: of all namespaces")
	d.dryRun.add(workload)
	cmd.AddCommand(workload)
	cmd.AddCommand(kubectlCommands("delete", cluster.LocalQueue, cluster.ClusterQueue, cluster.ResourceFlavor, cluster.Cohort, cluster.Topology, cluster.AdmissionCheck, cluster.WorkloadPriorityClass)...)
	return cmd
}

// doomed is an object to delete: a job, or a Workload without a job.
type doomed struct {
	gvk       schema.GroupVersionKind
	resource  string // jobs.batch
	namespace string
	name      string
	uid       types.UID
	workload  string // the job's Workload, "" for a Workload itself
}

func (d *deleteWorkload) run(ctx context.Context, s *session, names []string) error {
	workloads, err := d.find(ctx, s, names)
	if err != nil {
		return err
	}
	if d.all && len(workloads) == 0 {
		return (&listing{everywhere: d.everywhere}).none(ctx, s, true)
	}
	var list []doomed
	owned := false
	for i := range workloads {
		some, err := s.jobsOf(&workloads[i])
		if err != nil {
			return err
		}
		for _, one := range some {
			owned = owned || one.workload != ""
			if !slices.ContainsFunc(list, func(other doomed) bool { return other.uid == one.uid }) {
				list = append(list, one)
			}
		}
	}
	if owned && !d.yes && d.dryRun == dryNone && !s.agreed(list) {
		fmt.Fprintln(s.Out, "Deletion is canceled")
		return nil
	}
	for _, one := range list {
		if err := d.delete(ctx, s, one); err != nil {
			return err
		}
	}
	return nil
}

// find reads the Workloads. Missing names are reported and skipped. spec: 70 §4.9.
func (d *deleteWorkload) find(ctx context.Context, s *session, names []string) ([]kueue.Workload, error) {
	if d.all {
		var list kueue.WorkloadList
		o := &client.ListOptions{}
		if !d.everywhere {
			o.Namespace = s.Namespace
		}
		err := s.Pages(ctx, &list, o)
		return list.Items, err
	}
	var out []kueue.Workload
	for _, name := range names {
		var w kueue.Workload
		err := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &w)
		if apierrors.IsNotFound(err) {
			fmt.Fprintln(s.Errs, s.NotFound(ctx, err))
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

func (s *session) jobsOf(w *kueue.Workload) ([]doomed, error) {
	if len(w.OwnerReferences) == 0 {
		return []doomed{{gvk: kueue.GroupVersion.WithKind("Workload"), namespace: w.Namespace, name: w.Name, uid: w.UID}}, nil
	}
	var out []doomed
	for _, owner := range w.OwnerReferences {
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		mapping, err := s.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, cluster.Advised{Err: fmt.Errorf("%s/%s belongs to %s, of a kind that cannot be found: %w", w.Namespace, w.Name, owner.Kind+" "+owner.Name, err)}
		}
		out = append(out, doomed{
			gvk: gvk, resource: mapping.Resource.GroupResource().String(), namespace: w.Namespace, name: owner.Name, uid: owner.UID,
			workload: w.Namespace + "/" + w.Name,
		})
	}
	return out, nil
}

// agreed lists the jobs and asks for confirmation.
func (s *session) agreed(list []doomed) bool {
	fmt.Fprintln(s.Out, "This deletes jobs, too:")
	for _, one := range list {
		if one.workload != "" {
			fmt.Fprintf(s.Out, "  %s/%s associated with the %s workload\n", one.resource, one.name, one.workload)
		}
	}
	fmt.Fprint(s.Out, "Delete them (y/n)? ")
	var word string
	_, _ = fmt.Fscan(bufio.NewReader(s.In), &word) // the end of the input means no
	return word == "y" || word == "Y"
}

func (d *deleteWorkload) delete(ctx context.Context, s *session, one doomed) error {
	name := one.resource + "/" + one.name
	if one.workload == "" {
		name = typed(one.gvk.Kind, one.gvk.Group, one.name)
	}
	if d.dryRun != dryClient {
		var object metav1.PartialObjectMetadata
		object.SetGroupVersionKind(one.gvk)
		object.Namespace, object.Name = one.namespace, one.name
		err := s.Delete(ctx, &object, &client.DeleteOptions{
			DryRun: d.dryRun.all(), Preconditions: &metav1.Preconditions{UID: &one.uid}, PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		if apierrors.IsNotFound(err) || (apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID")) {
			fmt.Fprintf(s.Errs, "%s is gone already\n", name)
			return nil
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(s.Out, "%s deleted%s\n", name, d.dryRun.note())
	return nil
}
