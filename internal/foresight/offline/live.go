package offline

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Live reads the objects of an API server, without Workloads. Kinds that it does not serve are left out.
func Live(ctx context.Context, from client.Reader) (*World, error) {
	w := &World{}
	for _, k := range queueKinds {
		err := w.read(k, func(list client.ObjectList) error { return from.List(ctx, list) })
		if err != nil && !apimeta.IsNoMatchError(err) {
			return nil, err
		}
	}
	return w, nil
}

// LiveWorkloads reads the objects of an API server with Workloads; list reads all objects of a kind. Kinds that it does not serve are left
// out, and kinds of Kubernetes that may not be listed: these it returns, with the reasons.
func LiveWorkloads(list func(client.ObjectList) error) (w *World, left []error, err error) {
	w = &World{}
	for _, k := range kinds {
		switch err := w.read(k, list); {
		case err == nil, apimeta.IsNoMatchError(err):
		case apierrors.IsForbidden(err) && !isQueueing(k):
			left = append(left, err)
		default:
			return nil, nil, err
		}
	}
	return w, left, nil
}

func isQueueing(o client.Object) bool {
	gvk, err := apiutil.GVKForObject(o, Scheme)
	return err == nil && gvk.Group == kueue.GroupVersion.Group
}

// read adds the objects of a kind.
func (w *World) read(kind client.Object, all func(client.ObjectList) error) error {
	gvk, err := apiutil.GVKForObject(kind, Scheme)
	if err != nil {
		return err
	}
	gvk.Kind += "List"
	o, err := Scheme.New(gvk)
	if err != nil {
		return err
	}
	list := o.(client.ObjectList)
	if err := all(list); err != nil {
		return fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	items, err := apimeta.ExtractList(list)
	for _, item := range items {
		w.Add(item.(client.Object))
	}
	return err
}
