package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package. It is the only version served.
var GroupVersion = schema.GroupVersion{Group: "jobset.x-k8s.io", Version: "v1alpha2"}

// KindJobSet is the kind of a JobSet object.
const KindJobSet = "JobSet"

// ResourceJobSets is the plural resource name of JobSets.
const ResourceJobSets = "jobsets"

var (
	// SchemeBuilder collects the functions that make this package's types known to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme makes this package's types known to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &JobSet{}, &JobSetList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
