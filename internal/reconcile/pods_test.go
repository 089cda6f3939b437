package reconcile_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-project/berth/internal/reconcile"
)

// TestTrimMeta: of many owners the caches of pods keep one, and not the array of all.
func TestTrimMeta(t *testing.T) {
	ref := func(uid types.UID, controls bool) metav1.OwnerReference {
		return metav1.OwnerReference{UID: uid, Controller: &controls}
	}
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   types.UID
	}{
		"none":                  {nil, ""},
		"without a controller":  {[]metav1.OwnerReference{{UID: "a"}, ref("b", false)}, "a"},
		"the controller counts": {[]metav1.OwnerReference{{UID: "a"}, ref("b", true), ref("c", false)}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			kept := reconcile.TrimMeta(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tc.owners}}, nil, nil).OwnerReferences
			if len(kept) == 0 && tc.want == "" {
				return
			}
			if len(kept) != 1 || cap(kept) != 1 || kept[0].UID != tc.want {
				t.Errorf("kept %v of %d, want %s", kept, cap(kept), tc.want)
			}
		})
	}
}
