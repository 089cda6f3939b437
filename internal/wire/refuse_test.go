package wire

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// TestRefusesBesideUpstream: a manager that finds another controller of the same API at work ends at once with a sentence about it, and
// has installed nothing. spec: 70 §6 #20.
func TestRefusesBesideUpstream(t *testing.T) {
	admin, c := ownServer(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "c1f6bfd2.kueue.x-k8s.io"}}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new("kueue-0_1"), new(metav1.NowMicro()), new(int32(3600))
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lease.Namespace}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	groups, err := install.ParseGroups("")
	if err != nil {
		t.Fatal(err)
	}
	for _, installs := range []bool{false, true} {
		err := Run(t.Context(), Config{REST: admin, Options: options.Default(), Groups: groups, Install: installs, Log: testr.New(t)})
		if err == nil || !strings.Contains(err.Error(), "Lease/kueue-system/c1f6bfd2.kueue.x-k8s.io, of kueue-0_1: stop it") {
			t.Errorf("ended with %v", err)
		}
	}
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(t.Context(), &crds); err != nil || len(crds.Items) > 0 {
		t.Errorf("%d CRDs are installed: %v", len(crds.Items), err)
	}
}
