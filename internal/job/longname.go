package job

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxGenerated is how many characters of generateName the API server keeps; generated stands for its random suffix.
const (
	maxGenerated = 58
	generated    = "xxxxx"
)

// ExpectedName returns the name of a new object, or a name as long as the generated one will be.
func ExpectedName(o metav1.Object) string {
	if prefix := o.GetGenerateName(); o.GetName() == "" && prefix != "" {
		return prefix[:min(len(prefix), maxGenerated)] + generated
	}
	return o.GetName()
}

// LongName refuses a new job that could never start, because the name of a derived object (what, such as "a pod") would have more
// than limit characters.
func LongName(o metav1.Object, what, name string, limit int) field.ErrorList {
	over := len(name) - limit
	if over <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), o.GetName(), fmt.Sprintf(
		"the job could never start: the name of %s, %s, would have %d characters and may have %d; choose a name that is %d shorter",
		what, name, len(name), limit, over))}
}
