package frameworks

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Name is the name of an external kind in the configuration.
type Name struct {
	// Field is its path in the file.
	Field string
	// Configured is the kind as written, Used the one that the manager has used since it started.
	Configured, Used schema.GroupVersionKind
}

// Warnings returns one sentence for each name that is not exactly that of a served kind: the field, what is wrong, and what to do. It
// asks the API server each time, since a CRD may be installed at any time (spec: 40 §3).
func Warnings(names []Name, served Served) []string {
	var out []string
	for _, one := range names {
		list, err := served.ServerResourcesForGroupVersion(one.Configured.GroupVersion().String())
		kind, _ := find(list, one.Configured.Kind)
		is := one.Configured.GroupVersion().WithKind(kind)
		at := one.Field + ": " + nameOf(one.Configured)
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			out = append(out, fmt.Sprintf("%s: it is not known whether this cluster serves the kind, which is not used until it does: %v", at, err))
		case kind == "":
			out = append(out, at+" is not served by this cluster, and not used until it is: install its CRD, or correct the name, of which the case counts")
		case is == one.Configured:
		case is == one.Used:
			out = append(out, fmt.Sprintf("%s is used as %s: correct the case of the kind", at, nameOf(is)))
		default:
			out = append(out, fmt.Sprintf("%s is not used, since the kind is %s: correct its case, and restart the manager", at, nameOf(is)))
		}
	}
	return out
}

func nameOf(gvk schema.GroupVersionKind) string {
	return gvk.Kind + "." + gvk.Version + "." + gvk.Group
}
