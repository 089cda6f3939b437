package plan

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestUpsert is that an element takes the place of the first with its key, and that long lists are not searched for each of their elements.
func TestUpsert(t *testing.T) {
	list := []corev1.EnvVar{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}, {Name: "a", Value: "3"}}
	name := func(v *corev1.EnvVar) string { return v.Name }
	upsert(&list, name, corev1.EnvVar{Name: "c", Value: "4"}, corev1.EnvVar{Name: "a", Value: "5"}, corev1.EnvVar{Name: "c", Value: "6"})
	want := []corev1.EnvVar{{Name: "a", Value: "5"}, {Name: "b", Value: "2"}, {Name: "a", Value: "3"}, {Name: "c", Value: "6"}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	looks := 0
	long := make([]corev1.EnvVar, 50_000)
	for i := range long {
		long[i].Name = strconv.Itoa(i)
	}
	upsert(&list, func(v *corev1.EnvVar) string { looks++; return v.Name }, long...)
	if looks > 2*len(long) || len(list) != len(want)+len(long) {
		t.Errorf("%d looks for %d elements, %d in the list", looks, len(long), len(list))
	}
}
