package importer

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// read reads the world: it is small compared to the pods.
func read(ctx context.Context, c client.Client, namespaces []string) (*world, error) {
	var (
		clusterQueues   kueue.ClusterQueueList
		flavors         kueue.ResourceFlavorList
		workloadClasses kueue.WorkloadPriorityClassList
		podClasses      schedulingv1.PriorityClassList
	)
	list := func(what string, into client.ObjectList, more ...client.ListOption) error {
		err := patiently(ctx, func() error { return c.List(ctx, into, more...) })
		if apimeta.IsNoMatchError(err) {
			return fmt.Errorf("the API server does not serve %s: run berth install first", kueue.GroupVersion)
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", what, err)
		}
		return nil
	}
	for _, l := range []struct {
		what string
		into client.ObjectList
	}{
		{"ClusterQueues", &clusterQueues},
		{"ResourceFlavors", &flavors},
		{"WorkloadPriorityClasses", &workloadClasses},
		{"PriorityClasses", &podClasses},
	} {
		if err := list(l.what, l.into); err != nil {
			return nil, err
		}
	}
	w := &world{
		localQueues:   map[client.ObjectKey]*kueue.LocalQueue{},
		clusterQueues: map[kueue.ClusterQueueReference]*kueue.ClusterQueue{},
		flavors:       job.Flavors{},
		classes:       job.Classes{Workload: map[string]*kueue.WorkloadPriorityClass{}, Pod: map[string]*schedulingv1.PriorityClass{}},
	}
	for _, namespace := range namespaces {
		var queues kueue.LocalQueueList
		if err := list("the LocalQueues of namespace "+namespace, &queues, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		for at := range queues.Items {
			w.localQueues[client.ObjectKeyFromObject(&queues.Items[at])] = &queues.Items[at]
		}
	}
	for at := range clusterQueues.Items {
		w.clusterQueues[kueue.ClusterQueueReference(clusterQueues.Items[at].Name)] = &clusterQueues.Items[at]
	}
	for at := range flavors.Items {
		w.flavors[kueue.ResourceFlavorReference(flavors.Items[at].Name)] = &flavors.Items[at]
	}
	for at := range workloadClasses.Items {
		w.classes.Workload[workloadClasses.Items[at].Name] = &workloadClasses.Items[at]
	}
	for at := range podClasses.Items {
		w.classes.Pod[podClasses.Items[at].Name] = &podClasses.Items[at]
	}
	w.classes.Default = job.DefaultClass(podClasses.Items)
	return w, nil
}
