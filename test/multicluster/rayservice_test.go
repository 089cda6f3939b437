package multicluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// service is a RayService that is dispatched to the worker, where a stand-in for KubeRay runs it. It has a queue of its own here.
type service struct{ kindWorld }

const serviceImage = "ray:1"

// upgrade is spec 30 §7.57 and the steps before: an upgrade is dispatched only when both sides have quota for it; one that needs none, at
// once.
func (w kindWorld) upgrade(t *testing.T) func(*testing.T) {
	t.Helper()
	for _, c := range []*cluster{w.hub, w.worker} {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "serving"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
				Flavors:          []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("9")}}}},
			}},
		}}
		if c == w.hub {
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("300m")
			cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "workers"}}}
		}
		c.create(cq, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "serving"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "serving"}})
	}
	op := &kuberay.Operator{Client: w.worker.Client, Namespace: "team", Lingers: 20, Skips: func(o client.Object) bool { return !strings.HasPrefix(o.GetName(), "upgraded") }}
	t.Cleanup(op.Begin(context.Background()))
	text := strings.ReplaceAll(rayCluster(template("6000")), "image: any", "image: '"+serviceImage+"'")
	w.hub.create(parse(t, "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {namespace: team, name: upgraded, labels: {kueue.x-k8s.io/queue-name: serving}, "+
		"annotations: {kueue.x-k8s.io/elastic-job: 'true'}}\nspec: {serveConfigV2: one, rayClusterConfig: "+text+"}"))
	s := service{w}
	return func(t *testing.T) {
		first := s.serves(t, serviceImage, 2)
		s.edit(t, "ray:2", "one")
		held := s.slice(t, "the next slice waits here", func(wl *kueue.Workload) bool {
			return wl.Annotations[kueue.WorkloadSliceReplacementForAnnotation] != "" && !lifecycle.IsReserved(wl) && !lifecycle.IsFinished(wl) && pods(wl) == 4
		})
		s.edit(t, "ray:2", "two")
		s.there(t, "what needs no quota is forwarded, and nothing else", serviceImage, "two", "")
		s.edit(t, serviceImage, "two")
		s.slice(t, "a reverted upgrade is over", func(wl *kueue.Workload) bool { return wl.Name == held.Name && lifecycle.IsFinished(wl) })
		s.there(t, "and nothing of it was sent", serviceImage, "two", "")
		s.edit(t, "ray:3", "two")
		held = s.slice(t, "another one waits", func(wl *kueue.Workload) bool {
			return wl.Annotations[kueue.WorkloadSliceReplacementForAnnotation] != "" && !lifecycle.IsReserved(wl) && !lifecycle.IsFinished(wl) && pods(wl) == 4
		})
		s.there(t, "the worker does not know of it", serviceImage, "two", "")
		s.quota(t, "400m")
		s.there(t, "one patch forwards it with its slice", "ray:3", "two", held.Name)
		if second := s.serves(t, "ray:3", 2); second == first {
			t.Errorf("cluster %s serves still", first)
		}
		s.slice(t, "the old cluster's quota is back", func(wl *kueue.Workload) bool {
			return wl.Name == held.Name && lifecycle.IsAdmitted(wl) && pods(wl) == 2
		})
		wait.Until(t, "it is back on the worker as well", func() error {
			var wl kueue.Workload
			if err := w.worker.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: held.Name}, &wl); err != nil {
				return err
			}
			if pods(&wl) != 2 || !lifecycle.IsAdmitted(&wl) || lifecycle.IsFinished(&wl) {
				return fmt.Errorf("%d pods, %+v", pods(&wl), wl.Status.Conditions)
			}
			return nil
		})
		s.goes(t)
	}
}

// pods is the number of pods of a Workload.
func pods(wl *kueue.Workload) (n int32) {
	for i := range wl.Spec.PodSets {
		n += wl.Spec.PodSets[i].Count
	}
	return n
}

func (s service) get(t *testing.T, c *cluster) (*unstructured.Unstructured, error) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kuberay.GVK("RayService"))
	return u, c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "upgraded"}, u)
}

func text(u *unstructured.Unstructured, path ...string) string {
	out, _, _ := unstructured.NestedString(u.Object, path...)
	return out
}

// images are the images in a service's templates.
func images(u *unstructured.Unstructured) string {
	raw, _ := json.Marshal(u.Object["spec"])
	for _, image := range []string{serviceImage, "ray:2", "ray:3"} {
		if strings.Contains(string(raw), image) {
			return image
		}
	}
	return ""
}

// edit gives the service here another image and another configuration.
func (s service) edit(t *testing.T, image, serve string) {
	t.Helper()
	wait.Until(t, "the service is changed", func() error {
		u, err := s.get(t, s.hub)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(u.Object["spec"])
		if err != nil {
			return err
		}
		var spec map[string]any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw), images(u), image)), &spec); err != nil {
			return err
		}
		spec["serveConfigV2"] = serve
		u.Object["spec"] = spec
		return s.hub.Update(t.Context(), u)
	})
}

// serves waits until one cluster serves on the worker, with the image and so many running pods, and the service here reports it. It
// returns its name.
func (s service) serves(t *testing.T, image string, n int) string {
	t.Helper()
	name := ""
	wait.Until(t, image+" serves", func() error {
		local, err := s.get(t, s.hub)
		remote, thereErr := s.get(t, s.worker)
		if err := errors.Join(err, thereErr); err != nil {
			return fmt.Errorf("%w; %s", err, s.workloads(t, s.hub))
		}
		name = text(local, "status", "activeServiceStatus", "rayClusterName")
		var list corev1.PodList
		if err := s.worker.List(t.Context(), &list, client.InNamespace("team"), client.MatchingLabels{"ray.io/cluster": name}); err != nil {
			return err
		}
		run := 0
		for i := range list.Items {
			if p := &list.Items[i]; p.Status.Phase == corev1.PodRunning && p.Spec.Containers[0].Image == image {
				run++
			}
		}
		clusters := local.GetAnnotations()["berth.dev/rayservice-clusters"]
		if name == "" || name != text(remote, "status", "activeServiceStatus", "rayClusterName") || run != n || strings.Count(clusters, name) != n || strings.Count(clusters, "podSet") != n {
			return fmt.Errorf("cluster %q, of %d pods %d run, told of %s\nhere %v\nthere %v\n%s\n%s", name, len(list.Items), run, clusters,
				local.Object["status"], remote.Object["status"], s.workloads(t, s.hub), s.workloads(t, s.worker))
		}
		return nil
	})
	return name
}

// there waits until the copy has the image, the configuration and, if one is given, the slice; and has them still a while later.
func (s service) there(t *testing.T, what, image, serve, slice string) {
	t.Helper()
	is := func() error {
		u, err := s.get(t, s.worker)
		if err != nil {
			return err
		}
		named := u.GetAnnotations()[kueue.PrebuiltWorkloadLabel]
		if images(u) != image || text(u, "spec", "serveConfigV2") != serve || (slice != "" && named != slice) {
			return fmt.Errorf("image %s, serveConfigV2 %s, slice %s\n%s\n%s", images(u), text(u, "spec", "serveConfigV2"), named, s.workloads(t, s.hub), s.workloads(t, s.worker))
		}
		return nil
	}
	wait.Until(t, what, is)
	wait.Stays(t, 2*time.Second, what, is)
}

// slice waits until one of the Workloads here matches.
func (s service) slice(t *testing.T, what string, match func(*kueue.Workload) bool) (found *kueue.Workload) {
	t.Helper()
	wait.Until(t, what, func() error {
		for _, wl := range s.list(t, s.hub) {
			if match(&wl) {
				found = &wl
				return nil
			}
		}
		u, _ := s.get(t, s.hub)
		return fmt.Errorf("told of %s\n%s", u.GetAnnotations()["berth.dev/rayservice-clusters"], s.workloads(t, s.hub))
	})
	return found
}

func (s service) list(t *testing.T, c *cluster) []kueue.Workload {
	t.Helper()
	var list kueue.WorkloadList
	if err := c.List(t.Context(), &list, client.InNamespace("team")); err != nil {
		return nil
	}
	var out []kueue.Workload
	for i := range list.Items {
		if list.Items[i].Spec.QueueName == "serving" {
			out = append(out, list.Items[i])
		}
	}
	return out
}

// workloads describes the service's Workloads.
func (s service) workloads(t *testing.T, c *cluster) string {
	t.Helper()
	var out strings.Builder
	for _, wl := range s.list(t, c) {
		fmt.Fprintf(&out, "%s: %s for %d pods, on %q:", c.name, wl.Name, pods(&wl), wl.Status.ClusterName)
		for _, condition := range wl.Status.Conditions {
			fmt.Fprintf(&out, " %s=%s/%s (%s)", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
		fmt.Fprintf(&out, " checks %+v\n", wl.Status.AdmissionChecks)
	}
	return out.String()
}

// quota changes the quota of the service's queue here.
func (s service) quota(t *testing.T, cpus string) {
	t.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "serving"}}
	patch := `[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"` + cpus + `"}]`
	if err := s.hub.Patch(t.Context(), cq, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// goes deletes the service, and waits until the worker has no object of it.
func (s service) goes(t *testing.T) {
	t.Helper()
	u, err := s.get(t, s.hub)
	if err == nil {
		err = s.hub.Delete(t.Context(), u, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the worker has nothing of it", func() error {
		if _, err := s.get(t, s.worker); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		if left := s.list(t, s.worker); len(left) > 0 {
			return errors.New(s.workloads(t, s.worker))
		}
		return nil
	})
}
