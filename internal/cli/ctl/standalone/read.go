// Package standalone answers what a manager answers about queues where none runs: it reads the objects of the API, and evaluates them once
// with the engine. It writes nothing.
package standalone

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/placement/plan/capacity"
	"github.com/berth-project/berth/internal/state"
)

// World is the objects of a cluster that admission depends on, with its Workloads.
type World struct {
	*offline.World
	// Foreign is what pods outside of Workloads use of nodes; nil without topologies.
	Foreign []state.Event
	// Left is a sentence for each list that the user may not read.
	Left []string
}

// pageSize is the number of objects in one request: all of them are read.
const pageSize = 500

// Read reads a World. Lists of the queueing API have to be readable; of others it leaves out what may not be read.
func Read(ctx context.Context, s *cluster.Session) (*World, error) {
	list := func(l client.ObjectList) error { return s.Pages(ctx, l, &client.ListOptions{Limit: pageSize}) }
	objects, left, err := offline.LiveWorkloads(list)
	if err != nil {
		return nil, err
	}
	w := &World{World: objects}
	for _, why := range left {
		w.Left = append(w.Left, fmt.Sprintf("left out: %v", why))
	}
	if !slices.ContainsFunc(offline.All[*kueue.ResourceFlavor](objects), func(f *kueue.ResourceFlavor) bool { return f.Spec.TopologyName != "" }) {
		return w, nil
	}
	var pods corev1.PodList
	if err := list(&pods); apierrors.IsForbidden(err) {
		w.Left = append(w.Left, fmt.Sprintf("left out: what pods outside of Workloads use of nodes: %v", err))
	} else if err != nil {
		return nil, err
	}
	w.Foreign = foreignUse(&pods)
	return w, nil
}

func foreignUse(list *corev1.PodList) (out []state.Event) {
	var pods capacity.Pods
	for i := range list.Items {
		pods.Set(&list.Items[i])
	}
	for _, node := range pods.Nodes() {
		out = append(out, state.SetForeign{Node: node, Used: pods.Usage(node)})
	}
	return out
}
