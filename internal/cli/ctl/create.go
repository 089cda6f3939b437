package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/ctl/flags"
)

const createHelp = `Creates queues and flavors. What the flags cannot say goes into a file: print one with --dry-run=client -o yaml, edit it, and
kubectl apply it.

  berth create resourceflavor a100 --node-labels gpu=a100
  berth create clusterqueue gpus --cohort research --nominal-quota 'a100:cpu=64;memory=256Gi;nvidia.com/gpu=16'
  berth create localqueue main -n team-a -c gpus`

func (t *tool) newCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create", Short: "create a queue or a flavor", Long: createHelp}
	cmd.AddCommand(t.newCreateClusterQueue(), t.newCreateLocalQueue(), t.newCreateResourceFlavor())
	return cmd
}

// creation is shared by the commands that create objects.
type creation struct {
	output
	dryRun dryRun
}

// command makes the command; check validates its flags, prepare makes the object.
func (c *creation) command(t *tool, k *cluster.Kind, help string, prepare func(ctx context.Context, s *session, name string) (client.Object, error), check func() error) *cobra.Command {
	cmd := &cobra.Command{
		Use: k.Name + " NAME", Aliases: k.Aliases, Short: "create a " + k.Kind, Long: help, Args: exactly("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, check := range []func() error{c.dryRun.check, c.output.check, check} {
				if err := check(); err != nil {
					return err
				}
			}
			if wrong := validation.IsDNS1123Subdomain(args[0]); len(wrong) > 0 {
				return cluster.Usage("%s: the name %q: %s", cmd.CommandPath(), args[0], wrong[0])
			}
			return t.run(cmd, func(ctx context.Context, s *session) error {
				object, err := prepare(ctx, s, args[0])
				if err != nil {
					return err
				}
				if c.dryRun != dryClient {
					if err := s.Create(ctx, object, fieldOwner, &client.CreateOptions{DryRun: c.dryRun.all()}); err != nil {
						return err
					}
				}
				return s.changed(&c.output, c.dryRun, object, "created")
			})
		},
	}
	c.dryRun.add(cmd)
	c.add(cmd, "json", "yaml", "name")
	return cmd
}

const createClusterQueueHelp = `Creates a ClusterQueue. Quota is FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY, repeated or separated by commas for more flavors. Flavors
with the same resources share a resource group. Quote it: the shell has plans of its own for a semicolon.

Without --namespace-selector the queue is open to all namespaces.

  berth create clusterqueue gpus --nominal-quota 'a100:cpu=64;nvidia.com/gpu=16'
  berth create cq gpus --cohort research --nominal-quota 'a100:cpu=64;nvidia.com/gpu=16' --borrowing-limit 'a100:cpu=16;nvidia.com/gpu=4'
  berth create cq mixed --nominal-quota 'spot:cpu=100,on-demand:cpu=20' --reclaim-within-cohort Any
  berth create cq gpus --nominal-quota 'a100:nvidia.com/gpu=16' --dry-run=client -o yaml`

// createClusterQueue is the command line of `berth create clusterqueue`.
type createClusterQueue struct {
	creation
	cohort, strategy, reclaim, within string
	selector                          map[string]string
	nominal, borrowing, lending       []string
	groups                            []kueue.ResourceGroup
}

func (t *tool) newCreateClusterQueue() *cobra.Command {
	var c createClusterQueue
	cmd := c.command(t, cluster.ClusterQueue, createClusterQueueHelp, c.prepare, c.check)
	set := cmd.Flags()
	set.StringVar(&c.cohort, "cohort", "", "the cohort that it shares with")
	set.StringVar(&c.strategy, "queuing-strategy", string(kueue.BestEffortFIFO), "what happens behind a Workload that does not fit: "+strings.Join(strategies, " or "))
	set.StringToStringVar(&c.selector, "namespace-selector", nil, "labels of the namespaces that may use it, as k=v,k=v (default all namespaces)")
	set.StringVar(&c.reclaim, "reclaim-within-cohort", string(kueue.ReclaimNever), "which Workloads may be preempted to get lent quota back: "+strings.Join(reclaims, ", "))
	set.StringVar(&c.within, "preemption-within-cluster-queue", string(kueue.PreemptionNever), "which Workloads may be preempted within the queue: "+strings.Join(preemptions, ", "))
	set.StringSliceVar(&c.nominal, "nominal-quota", nil, "what the queue owns, in the form `FLAVOR:RESOURCE=QUANTITY`")
	set.StringSliceVar(&c.borrowing, "borrowing-limit", nil, "how much it may borrow beyond that, in the same form")
	set.StringSliceVar(&c.lending, "lending-limit", nil, "how much of it others may borrow, in the same form")
	for name, values := range map[string][]string{"queuing-strategy": strategies, "reclaim-within-cohort": reclaims, "preemption-within-cluster-queue": preemptions} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

var (
	strategies  = []string{string(kueue.BestEffortFIFO), string(kueue.StrictFIFO)}
	reclaims    = []string{string(kueue.ReclaimNever), string(kueue.ReclaimLowerPriority), string(kueue.ReclaimAny)}
	preemptions = []string{string(kueue.PreemptionNever), string(kueue.PreemptionLowerPriority), string(kueue.PreemptionLowerOrNewerEqualPriority)}
)

func (c *createClusterQueue) check() error {
	for _, f := range []struct {
		flag, value string
		values      []string
	}{
		{"queuing-strategy", c.strategy, strategies},
		{"reclaim-within-cohort", c.reclaim, reclaims},
		{"preemption-within-cluster-queue", c.within, preemptions},
	} {
		if !slices.Contains(f.values, f.value) {
			return cluster.Usage("--%s %q: must be %s", f.flag, f.value, strings.Join(f.values, ", "))
		}
	}
	var err error
	if c.groups, err = flags.ResourceGroups(c.nominal, c.borrowing, c.lending); err != nil {
		return cluster.UsageError{Err: err}
	}
	return nil
}

func (c *createClusterQueue) prepare(_ context.Context, _ *session, name string) (client.Object, error) {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			CohortName: kueue.CohortReference(c.cohort), QueueingStrategy: kueue.QueueingStrategy(c.strategy),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: c.selector},
			Preemption:        &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.ReclaimPolicy(c.reclaim), WithinClusterQueue: kueue.PreemptionPolicy(c.within)},
			ResourceGroups:    c.groups,
		},
	}, nil
}

const createLocalQueueHelp = `Creates a LocalQueue, the way into a ClusterQueue from a namespace. The ClusterQueue has to exist, unless -i is given.

  berth create localqueue main -n team-a -c gpus
  berth create lq main -n team-a -c later --ignore-unknown-cq`

func (t *tool) newCreateLocalQueue() *cobra.Command {
	var c creation
	var queue string
	var unknown bool
	cmd := c.command(t, cluster.LocalQueue, createLocalQueueHelp, func(ctx context.Context, s *session, name string) (client.Object, error) {
		if !unknown {
			err := s.Get(ctx, client.ObjectKey{Name: queue}, &kueue.ClusterQueue{})
			if apierrors.IsNotFound(err) {
				return nil, cluster.Advised{Err: fmt.Errorf("%w (-i creates the LocalQueue all the same)", s.NotFound(ctx, err))}
			}
			if err != nil {
				return nil, err
			}
		}
		return &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue)},
		}, nil
	}, func() error {
		if queue == "" {
			return cluster.Usage("--clusterqueue is missing: say where the queue leads, as in -c gpus; berth list clusterqueues shows what there is")
		}
		return nil
	})
	cmd.Flags().StringVarP(&queue, "clusterqueue", "c", "", "the ClusterQueue that it leads to (required)")
	cmd.Flags().BoolVarP(&unknown, "ignore-unknown-cq", "i", false, "create it even if there is no such ClusterQueue yet")
	_ = cmd.RegisterFlagCompletionFunc("clusterqueue", t.completeFlag(cluster.ClusterQueue))
	return cmd
}

const createResourceFlavorHelp = `Creates a ResourceFlavor, a kind of nodes. A taint is KEY[=VALUE]:EFFECT; a toleration is KEY[=VALUE][:EFFECT], or :EFFECT for all keys.

  berth create resourceflavor spot --node-labels node.kubernetes.io/capacity=spot
  berth create rf a100 --node-labels gpu=a100 --node-taints gpu=a100:NoSchedule --tolerations gpu=a100:NoSchedule`

func (t *tool) newCreateResourceFlavor() *cobra.Command {
	var c creation
	var nodeLabels map[string]string
	var taints, tolerations []string
	var spec kueue.ResourceFlavorSpec
	cmd := c.command(t, cluster.ResourceFlavor, createResourceFlavorHelp, func(_ context.Context, _ *session, name string) (client.Object, error) {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, nil
	}, func() error {
		var err error
		spec.NodeLabels = nodeLabels
		if spec.NodeTaints, err = flags.Taints(taints); err == nil {
			spec.Tolerations, err = flags.Tolerations(tolerations)
		}
		if err != nil {
			return cluster.UsageError{Err: err}
		}
		return nil
	})
	cmd.Flags().StringToStringVar(&nodeLabels, "node-labels", nil, "labels of the nodes, as k=v,k=v")
	cmd.Flags().StringSliceVar(&taints, "node-taints", nil, "taints of the nodes, `KEY[=VALUE]:EFFECT`")
	cmd.Flags().StringSliceVar(&tolerations, "tolerations", nil, "tolerations that its pods get, `KEY[=VALUE][:EFFECT]`")
	return cmd
}
