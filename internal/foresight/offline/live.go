package offline

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Live reads the objects of an API server. Kinds that it does not serve are left out.
func Live(ctx context.Context, from client.Reader) (*World, error) {
	w := &World{}
	for _, k := range kinds {
		gvk, err := apiutil.GVKForObject(k, Scheme)
		if err != nil {
			return nil, err
		}
		gvk.Kind += "List"
		o, err := Scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		list := o.(client.ObjectList)
		if err := from.List(ctx, list); apimeta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			w.Add(item.(client.Object))
		}
	}
	return w, nil
}
