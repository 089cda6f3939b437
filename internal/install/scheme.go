package install

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// Scheme returns a scheme with every type that Berth reads or writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(kueue.AddToScheme(s))
	utilruntime.Must(jobsetv1alpha2.AddToScheme(s))
	utilruntime.Must(trainerv1alpha1.AddToScheme(s))
	return s
}
