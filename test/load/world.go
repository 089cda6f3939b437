package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/crd"
)

const flavorName = "load"

// createBefore creates the objects and the workloads of a shape before anything is installed but their CRDs.
func createBefore(ctx context.Context, cfg *rest.Config, s *shape, arrivals []arrival, say func(string, ...any)) error {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, d := range crd.Definitions() { //berth:unordered they do not depend on each other
		if d.Spec.Group == kueue.GroupVersion.Group {
			definitions = append(definitions, d.DeepCopy())
		}
	}
	if err := installCRDs(cfg, definitions...); err != nil {
		return err
	}
	if _, err := createObjects(ctx, cfg, s); err != nil {
		return err
	}
	own, err := newOwner(cfg, s)
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range creators {
		all.Go(func() error {
			for i := next.Add(1) - 1; i < int64(len(arrivals)); i = next.Add(1) - 1 {
				if err := own.create(ctx, &arrivals[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- all.Wait() }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(progressEvery):
			say("%d of %d created", min(int(next.Load()), len(arrivals)), len(arrivals))
		}
	}
}

// buildWorld creates the flavor, namespaces, cohorts and queues of a shape, and returns
// when all queues are active.
func buildWorld(ctx context.Context, cfg *rest.Config, s *shape) error {
	c, err := createObjects(ctx, cfg, s)
	if err != nil {
		return err
	}
	for {
		ready, err := active(ctx, c)
		if err != nil {
			return err
		}
		if ready == s.cohorts*s.queues {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%d of %d queues are active: %w", ready, s.cohorts*s.queues, context.Cause(ctx))
		}
	}
}

// createObjects creates the objects of a shape that do not exist yet, and returns the client for them.
func createObjects(ctx context.Context, cfg *rest.Config, s *shape) (client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	for _, o := range s.objects() {
		if err := client.IgnoreAlreadyExists(c.Create(ctx, o)); err != nil {
			return nil, fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
		if node, ok := o.(*corev1.Node); ok { // the API server taints new nodes
			if err := c.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
				return nil, fmt.Errorf("node %s: %w", node.Name, err)
			}
		}
	}
	return c, nil
}

// active counts the LocalQueues that can admit; each has a ClusterQueue that can.
func active(ctx context.Context, c client.Client) (n int, err error) {
	var list kueue.LocalQueueList
	if err := c.List(ctx, &list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		if apimeta.IsStatusConditionTrue(list.Items[i].Status.Conditions, kueue.LocalQueueActive) {
			n++
		}
	}
	return n, nil
}

// objects are the objects before the first workload, in the order of their creation.
func (s *shape) objects() []client.Object {
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavorName}}
	all := []client.Object{flavor}
	if s.nodes > 0 {
		flavor.Spec.TopologyName, flavor.Spec.NodeLabels = flavorName, map[string]string{"load": "yes"}
		all = append(s.topology(), all...)
	}
	for cohort := range s.cohorts {
		name := cohortName(cohort)
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for queue := range s.queues {
			all = append(all, s.clusterQueue(cohort, queue), &kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: queueName(cohort, queue)},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queueName(cohort, queue))},
			})
		}
	}
	return all
}

func (s *shape) clusterQueue(cohort, queue int) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queueName(cohort, queue)}, Spec: kueue.ClusterQueueSpec{
		CohortName: kueue.CohortReference(cohortName(cohort)), NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
			Flavors: []kueue.FlavorQuotas{{Name: flavorName, Resources: []kueue.ResourceQuota{{
				Name: corev1.ResourceCPU, NominalQuota: *resource.NewQuantity(s.nominal, resource.DecimalSI),
				BorrowingLimit: resource.NewQuantity(s.borrowingLimit, resource.DecimalSI),
			}}}},
		}},
		Preemption: &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.ReclaimAny, WithinClusterQueue: kueue.PreemptionLowerPriority},
	}}
}
