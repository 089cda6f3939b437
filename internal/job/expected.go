package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
)

// ExpectedRunSeconds returns the run time that the user of a job expects, in seconds as it is written: by annotation, else by label; "" for
// none.
func ExpectedRunSeconds(o metav1.Object) string {
	if text := o.GetAnnotations()[berthv1alpha1.ExpectedRunSecondsKey]; text != "" {
		return text
	}
	return o.GetLabels()[berthv1alpha1.ExpectedRunSecondsKey]
}
