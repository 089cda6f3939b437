package job

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxGenerated is how many characters of generateName the API server keeps, and generated stands for what it appends.
const (
	maxGenerated = 58
	generated    = "xxxxx"
)

// ExpectedName returns the name of a new object, or one as long as the name that the API server is going to generate.
func ExpectedName(o metav1.Object) string {
	if prefix := o.GetGenerateName(); o.GetName() == "" && prefix != "" {
		return prefix[:min(len(prefix), maxGenerated)] + generated
	}
	return o.GetName()
}

// LongName refuses a new job that a queue would admit and that could never start, because something that is named after it,
// such as "a pod", would get a name of more than limit characters.
func LongName(o metav1.Object, what, name string, limit int) field.ErrorList {
	over := len(name) - limit
	if over <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), o.GetName(), fmt.Sprintf(
		"the job could never start: the name of %s, %s, would have %d characters and may have %d; choose a name that is %d shorter",
		what, name, len(name), limit, over))}
}
