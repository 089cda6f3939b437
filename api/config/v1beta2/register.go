package v1beta2

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the only kind of this group.
const Kind = "Configuration"

// GroupVersion is what a configuration file names in its apiVersion.
var GroupVersion = schema.GroupVersion{Group: "config.kueue.x-k8s.io", Version: "v1beta2"}

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme makes the kind known to a scheme, for tools that read
	// configuration files with the Kubernetes serializers.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Configuration{})
	return nil
}
