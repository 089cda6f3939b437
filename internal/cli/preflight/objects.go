package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/crd"
	"github.com/berth-project/berth/internal/install/upstream"
)

// definitions compares the CRDs of our groups with Berth's, and their objects with Berth's schemas.
func (l *looker) definitions(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	if err := l.Pages(ctx, list, &client.ListOptions{}); err != nil {
		return err
	}
	ours := crd.Definitions()
	for i := range list.Items {
		var theirs apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &theirs); err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", list.Items[i].GetName(), err)
		}
		if !slices.Contains(upstream.Groups(), theirs.Spec.Group) {
			continue
		}
		if err := l.definition(ctx, &theirs, ours[theirs.Name]); err != nil {
			return err
		}
	}
	return nil
}

func (l *looker) definition(ctx context.Context, theirs, ours *apiextensionsv1.CustomResourceDefinition) error {
	object := "CustomResourceDefinition/" + theirs.Name
	if ours == nil {
		l.add(Differs, object, "", "", "Berth does not have this kind: its objects stay, and nothing acts on them")
		return nil
	}
	known := map[string]bool{}
	for i := range ours.Spec.Versions {
		known[ours.Spec.Versions[i].Name] = true
	}
	if theirs.Spec.Scope != ours.Spec.Scope {
		l.add(Blocks, object, "spec.scope", "delete the kind with its objects", "it is %s, and must be %s", theirs.Spec.Scope, ours.Spec.Scope)
		return nil
	}
	read := ""
	var unknown []string
	for i := range theirs.Spec.Versions {
		v := &theirs.Spec.Versions[i]
		switch {
		case !v.Served:
		case !known[v.Name]:
			unknown = append(unknown, v.Name)
		case read == "" || v.Storage:
			read = v.Name
		}
	}
	if read == "" {
		l.add(Blocks, object, "spec.versions", "upgrade the other controller first", "it serves no version that Berth has, so its objects cannot be compared")
		return nil
	}
	for _, version := range unknown {
		l.add(Differs, object, "spec.versions["+version+"]", "move manifests and clients to "+read, "Berth does not serve this version")
	}
	for _, version := range theirs.Status.StoredVersions {
		if !known[version] {
			l.add(Blocks, object, "status.storedVersions", fmt.Sprintf("kubectl get %s -A -o json | kubectl replace -f -, then take %s out of status.storedVersions",
				theirs.Name, version), "objects may be stored as %s, which Berth's CRD does not have", version)
		}
	}
	gvk := schema.GroupVersionKind{Group: ours.Spec.Group, Version: read, Kind: ours.Spec.Names.Kind}
	return l.mayRead(theirs.Name, l.objects(ctx, theirs.Name, gvk))
}

// difference is a field of some objects of a kind that Berth does not have or would refuse.
type difference struct{ field, text string }

// shown is how many objects with one difference are named.
const shown = 3

// objects compares all objects of a kind with the schema of its version.
func (l *looker) objects(ctx context.Context, name string, gvk schema.GroupVersionKind) error {
	s := crd.Find(gvk)
	having := map[difference][]string{}
	var order []difference
	note := func(o *unstructured.Unstructured, field, text string) {
		d := difference{field, text}
		if having[d] == nil {
			order = append(order, d)
		}
		having[d] = append(having[d], strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
	}
	l.Objects[name] = 0
	var clusters []kubeconfigOf
	err := l.each(ctx, gvk, func(o *unstructured.Unstructured) {
		l.Objects[name]++
		if gvk.Kind == "MultiKueueCluster" {
			clusters = append(clusters, credentialsOf(o))
		}
		for _, field := range s.Prune(o.Object) {
			note(o, field, "Berth does not have this field: it is lost with the next write")
		}
		s.Default(o.Object)
		for _, err := range s.Validate(ctx, o.Object) {
			note(o, err.Field, "Berth would refuse it in a new object: "+crd.Detail(err))
		}
	})
	if apierrors.IsNotFound(err) {
		return nil // the CRD is being deleted
	}
	for _, d := range order {
		names := having[d]
		object := gvk.Kind + "/" + names[0]
		if len(names) > 1 {
			object = fmt.Sprintf("%s (%d: %s)", gvk.Kind, len(names), strings.Join(names[:min(shown, len(names))], ", "))
			if len(names) > shown {
				object = strings.TrimSuffix(object, ")") + ", …)"
			}
		}
		l.add(Differs, object, d.field, "change it before the takeover", "%s", d.text)
	}
	if err != nil {
		return err
	}
	return l.mayRead("Secrets", l.credentials(ctx, clusters))
}

// each calls a function for each object of a kind.
func (l *looker) each(ctx context.Context, gvk schema.GroupVersionKind, do func(*unstructured.Unstructured)) error {
	read := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		return list, l.List(ctx, list, &client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue})
	}
	return pager.New(read).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		do(o.(*unstructured.Unstructured))
		return nil
	})
}
