package ctl

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const stopHelp = `Stops a Workload, or a queue with all that is in it.

A Workload that is stopped gives its quota back, its job is suspended, and it waits until it is resumed. A queue that is stopped
admits nothing; what it has admitted is evicted, too, unless --keep-already-running is given.

  berth stop workload job-train-1a2b3 -n team-a
  berth stop localqueue main -n team-a
  berth stop clusterqueue gpus --keep-already-running
  berth stop clusterqueue gpus --dry-run=server`

const resumeHelp = `Resumes what was stopped: a Workload queues again, a queue admits again.

  berth resume workload job-train-1a2b3 -n team-a
  berth resume localqueue main -n team-a
  berth resume clusterqueue gpus`

func (t *tool) newStop() *cobra.Command {
	cmd := &cobra.Command{Use: "stop", Short: "stop a workload or a queue", Long: stopHelp}
	cmd.AddCommand(t.newSwitch("stop", cluster.Workload, false), t.newSwitch("stop", cluster.LocalQueue, false), t.newSwitch("stop", cluster.ClusterQueue, false))
	return cmd
}

func (t *tool) newResume() *cobra.Command {
	cmd := &cobra.Command{Use: "resume", Short: "resume a workload or a queue", Long: resumeHelp}
	cmd.AddCommand(t.newSwitch("resume", cluster.Workload, true), t.newSwitch("resume", cluster.LocalQueue, true), t.newSwitch("resume", cluster.ClusterQueue, true))
	return cmd
}

// newSwitch makes the command that stops or resumes an object.
func (t *tool) newSwitch(verb string, k *cluster.Kind, on bool) *cobra.Command {
	var o output
	var d dryRun
	var keep bool
	example := map[string]string{"workload": "job-train-1a2b3 -n team-a", "localqueue": "main -n team-a", "clusterqueue": "gpus"}[k.Name]
	cmd := &cobra.Command{
		Use: k.Name + " NAME", Aliases: k.Aliases, Short: verb + " a " + k.Kind, Args: exactly("NAME"),
		Long:              switchHelp(verb, k, example),
		ValidArgsFunction: t.complete(k, func(object client.Object) bool { return running(object) != on }),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			return t.run(cmd, func(ctx context.Context, s *session) error { return s.setActive(ctx, k, args[0], on, keep, &o, d) })
		},
	}
	if !on && k != cluster.Workload {
		cmd.Flags().BoolVar(&keep, "keep-already-running", false, "leave alone what it has admitted already")
	}
	d.add(cmd)
	o.add(cmd, "json", "yaml", "name")
	return cmd
}

func switchHelp(verb string, k *cluster.Kind, example string) string {
	what := map[string]string{
		"stop workload":       "Stops a Workload (spec.active: false): it gives its quota back, and its job is suspended until it is resumed.",
		"stop localqueue":     "Stops a LocalQueue: it admits nothing, and what it has admitted is evicted (stopPolicy: HoldAndDrain; Hold with --keep-already-running).",
		"stop clusterqueue":   "Stops a ClusterQueue: it admits nothing, and what it has admitted is evicted (stopPolicy: HoldAndDrain; Hold with --keep-already-running).",
		"resume workload":     "Resumes a Workload (spec.active: true): it queues again.",
		"resume localqueue":   "Resumes a LocalQueue (stopPolicy: None): it admits again.",
		"resume clusterqueue": "Resumes a ClusterQueue (stopPolicy: None): it admits again.",
	}[verb+" "+k.Name]
	return what + "\n\n  berth " + verb + " " + k.Name + " " + example
}

// running reports whether an object is active. spec: 70 §4.9.
func running(object client.Object) bool {
	switch o := object.(type) {
	case *kueue.Workload:
		return lifecycle.IsActive(o)
	case *kueue.LocalQueue:
		return !lifecycle.IsStopped(o.Spec.StopPolicy)
	case *kueue.ClusterQueue:
		return !lifecycle.IsStopped(o.Spec.StopPolicy)
	}
	return false
}

func (s *session) setActive(ctx context.Context, k *cluster.Kind, name string, on, keep bool, o *output, d dryRun) error {
	policy := kueue.StopPolicyHoldAndDrain
	switch {
	case on:
		policy = kueue.StopPolicyNone
	case keep:
		policy = kueue.StopPolicyHold
	}
	patch := `{"spec":{"stopPolicy":"` + string(policy) + `"}}`
	verb := "" // none for queues: scripts depend on the output
	if k == cluster.Workload {
		patch, verb = `{"spec":{"active":false}}`, "stopped"
		if on {
			patch, verb = `{"spec":{"active":true}}`, "resumed"
		}
	}
	object := k.Object()
	object.SetName(name)
	if k.Namespaced {
		object.SetNamespace(s.Namespace)
	}
	if d == dryClient {
		if err := s.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		switch of := object.(type) {
		case *kueue.Workload:
			of.Spec.Active = &on
		case *kueue.LocalQueue:
			of.Spec.StopPolicy = policy
		case *kueue.ClusterQueue:
			of.Spec.StopPolicy = policy
		}
		return s.changed(o, d, object, verb)
	}
	if err := s.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)), fieldOwner, &client.PatchOptions{DryRun: d.all()}); err != nil {
		return err
	}
	return s.changed(o, d, object, verb)
}

// fieldOwner is the CLI's field manager.
const fieldOwner = client.FieldOwner("berth-cli")
