package v1beta2

import (
	"fmt"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "visibility.kueue.x-k8s.io", Version: "v1beta2"}

// VersionV1Beta1 is the older version of the group, which has the same shapes.
const VersionV1Beta1 = "v1beta1"

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme makes the kinds known to a scheme, and the query
	// parameters readable by its parameter codec.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(
		GroupVersion,
		&ClusterQueue{}, &ClusterQueueList{},
		&LocalQueue{}, &LocalQueueList{},
		&PendingWorkloadsSummary{}, &PendingWorkloadOptions{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return s.AddConversionFunc((*url.Values)(nil), (*PendingWorkloadOptions)(nil), func(in, out any, _ conversion.Scope) error {
		return optionsFromQuery(*in.(*url.Values), out.(*PendingWorkloadOptions))
	})
}

// optionsFromQuery reads offset and limit. The API server answers 400 with the
// error, which names the parameter that is no whole number.
func optionsFromQuery(query url.Values, out *PendingWorkloadOptions) error {
	var err error
	if out.Offset, err = wholeNumber(query, "offset"); err != nil {
		return err
	}
	out.Limit, err = wholeNumber(query, "limit")
	return err
}

// wholeNumber reads one parameter; absent and empty are 0.
func wholeNumber(query url.Values, name string) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("query parameter %s: %q is not a whole number of 64 bits", name, text)
	}
	return n, nil
}
