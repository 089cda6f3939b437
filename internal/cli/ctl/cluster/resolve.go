package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/options/strict"
)

// Resolve finds the objects of the name TYPE[.GROUP]/NAME, in all namespaces or the session's: usually one, or none. spec: 70 §4.9.
func (s *Session) Resolve(ctx context.Context, reference string, everywhere bool) ([]unstructured.Unstructured, error) {
	word, name, found := strings.Cut(reference, "/")
	if !found || word == "" || name == "" || strings.Contains(name, "/") {
		return nil, Usage("%q: must be TYPE/NAME or TYPE.GROUP/NAME, as in job/train", reference)
	}
	gvk, err := s.kindNamed(word)
	if err != nil {
		return nil, err
	}
	if !everywhere {
		object := unstructured.Unstructured{}
		object.SetGroupVersionKind(gvk)
		err := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &object)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return []unstructured.Unstructured{object}, err
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := s.List(ctx, &list, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// kindNamed asks the API server for the kind of TYPE[.GROUP]: a resource's singular, plural or short name.
func (s *Session) kindNamed(word string) (schema.GroupVersionKind, error) {
	d, err := s.Discovery()
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	served, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(served), d, func(string) {})
	full, resource := schema.ParseResourceArg(strings.ToLower(word))
	if full != nil {
		if gvk, err := mapper.KindFor(*full); err == nil {
			return gvk, nil
		}
	}
	gvk, err := mapper.KindFor(resource.WithVersion(""))
	if apimeta.IsNoMatchError(err) {
		return gvk, noSuchType(word, served)
	}
	return gvk, err
}

func noSuchType(word string, served []*restmapper.APIGroupResources) error {
	var names []string
	for _, g := range served {
		for _, resources := range g.VersionedResources {
			for _, r := range resources {
				names = append(names, r.SingularName, r.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" || strings.Contains(n, "/") })
	if near := strict.Nearest(word, names); near != "" {
		return Usage("the API server has no type %q: did you mean %s?", word, near)
	}
	return Usage("the API server has no type %q: kubectl api-resources lists those it has", word)
}

// Singular returns the API server's singular name of a kind, "" for an unserved kind. spec: 70 §4.9.
func (s *Session) Singular(apiVersion, kind string) string {
	list, known := s.served[apiVersion]
	if !known {
		if d, err := s.Discovery(); err == nil {
			list, _ = d.ServerResourcesForGroupVersion(apiVersion) // an unserved version is no error here
		}
		s.served[apiVersion] = list
	}
	if list == nil {
		return ""
	}
	for _, r := range list.APIResources {
		if r.Kind != kind || strings.Contains(r.Name, "/") {
			continue
		}
		if r.Group != "" {
			return fmt.Sprintf("%s.%s", r.SingularName, r.Group)
		}
		return r.SingularName
	}
	return ""
}
