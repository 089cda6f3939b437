package podgroup

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-project/berth/internal/job"
)

// revision stands for the hash of a revision of a StatefulSet, which is a number of 8 digits or more in nearly all cases.
const revision = 8

// LongNames refuses a new object whose StatefulSet of the given name could never make its pods: they carry their own names
// and that of their revision as labels.
func LongNames(o metav1.Object, statefulSet string, pods int32) field.ErrorList {
	if errs := job.LongName(o, "its last pod", fmt.Sprintf("%s-%d", statefulSet, pods-1), job.MaxLabel); len(errs) > 0 {
		return errs
	}
	return job.LongName(o, "the revision of its pods", statefulSet+"-"+strings.Repeat("0", revision), job.MaxLabel)
}
