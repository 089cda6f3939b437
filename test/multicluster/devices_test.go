package multicluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// chargesDevices: templates are not copied to workers, and each cluster charges devices by its own. A worker without the template rejects its
// copy, so that another one has the Job. spec: 40 §4.8.
func chargesDevices(t *testing.T, hub, w1, w2 *cluster) {
	for _, c := range []*cluster{hub, w1, w2} {
		c.coversDevices()
	}
	hub.template("gpus", 1)
	j := job("devices", "1", endless)
	j.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpus")}}
	hub.create(j)
	for _, c := range []*cluster{w1, w2} {
		wait.Until(t, c.name+" rejects its copy", func() error {
			w, err := hub.copyOf(c, j)
			if err != nil {
				return err
			}
			reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
			if reserved == nil || reserved.Reason != kueue.ReasonMisconfigured || !strings.Contains(reserved.Message, "there is no ResourceClaimTemplate gpus") {
				return fmt.Errorf("conditions %+v", w.Status.Conditions)
			}
			return nil
		})
	}
	w2.template("gpus", 2)
	if at := hub.on(j); at != "w2" {
		t.Errorf("it runs on %s, which has no template", at)
	}
	here, err := hub.workload(j)
	there, missing := hub.copyOf(w2, j)
	if err := errors.Join(err, missing); err != nil {
		t.Fatal(err)
	}
	for w, want := range map[*kueue.Workload]int64{here: 1, there: 2} {
		usage := w.Status.Admission.PodSetAssignments[0].ResourceUsage
		if q := usage["gpus"]; q.Value() != want {
			t.Errorf("charged %v, want %d gpus", usage, want)
		}
	}
	if err := hub.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w1.empty()
	w2.empty()
}

// copyOf returns the copy of the Workload of a Job of the hub on a worker.
func (c *cluster) copyOf(worker *cluster, j client.Object) (*kueue.Workload, error) {
	w, err := c.controlled(j)
	if err != nil {
		return nil, err
	}
	out := &kueue.Workload{}
	return out, worker.Get(c.t.Context(), client.ObjectKeyFromObject(w), out)
}

// controlled returns the Workload that an object controls, by its UID.
func (c *cluster) controlled(o client.Object) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := c.List(c.t.Context(), &list, client.InNamespace(o.GetNamespace())); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.UID == o.GetUID() {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("%s has no workload", o.GetName())
}

// coversDevices gives the ClusterQueue of the team 4 gpus.
func (c *cluster) coversDevices() {
	c.t.Helper()
	wait.Until(c.t, c.name+" has quota for devices", func() error {
		var q kueue.ClusterQueue
		if err := c.Get(c.t.Context(), client.ObjectKey{Name: "team"}, &q); err != nil {
			return err
		}
		g := &q.Spec.ResourceGroups[0]
		g.CoveredResources = append(g.CoveredResources, "gpus")
		g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{Name: "gpus", NominalQuota: resource.MustParse("4")})
		return c.Update(c.t.Context(), &q)
	})
}

// template makes a ResourceClaimTemplate of the team for some devices.
func (c *cluster) template(name string, devices int64) {
	c.t.Helper()
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: devices}}}
	c.create(t)
}
