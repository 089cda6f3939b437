package kuberay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
)

// stage is where the scenes of upgrades are played: a world with an operator.
type stage struct {
	*world
	// deployed reports whether Serve was asked to run something; nil if nothing asks it.
	deployed func(text string) bool
}

// TestUpgradesOfTheOperator plays the scenes with the real operator. It has to hold pods, and not clusters: KubeRay 1.6 starts and stops
// clusters that exist, too, by the suspend of the service's. The field by which Berth knows 1.7 is added.
func TestUpgradesOfTheOperator(t *testing.T) {
	operator, crds := built(t)
	w := newCluster(t)
	w.define(crds, func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			if v := &crd.Spec.Versions[i]; crd.Spec.Names.Kind == "RayService" && v.Name == "v1" {
				v.Schema.OpenAPIV3Schema.Properties["spec"].Properties["suspend"] = apiextensionsv1.JSONSchemaProps{Type: "boolean"}
			}
		}
	})
	var d dashboards
	w.kubeRay(operator, w.throughDashboards(&d), "-use-kubernetes-proxy")
	w.berth(configuration + heldPods)
	w.queue("3")
	s := &stage{w, d.has}
	s.twin()
	s.takenBack()
}

// TestUpgradesOfTheStandIn plays the same scenes with the stand-in, which knows 1.7, with both ways to hold an upgrade.
func TestUpgradesOfTheStandIn(t *testing.T) {
	w := newCluster(t)
	for kind, plural := range map[string]string{"RayService": "rayservices", "RayCluster": "rayclusters", "RayJob": "rayjobs"} { //berth:unordered all are made
		w.must(w.Create(w.ctx, embeddedtest.LooseCRD(schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: kind}, plural)))
	}
	w.until("the kinds are served", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kuberay.GVK("RayServiceList"))
		return w.List(w.ctx, list)
	})
	t.Cleanup((&kuberay.Operator{Client: w.Client, Namespace: "team"}).Begin(w.ctx))
	m := w.berth(configuration + heldPods)
	w.queue("3")
	s := &stage{w, nil}
	s.twin()
	s.takenBack()
	m.Kill()
	w.berth(configuration)
	s.takenBack()
}

const heldPods = `  rayService: {upgradeHold: GatedPods}
`

// service is the spec of a service.
const service = `  serveConfigV2: |
    applications: [{name: app, import_path: app.first}]
  rayClusterDeletionDelaySeconds: 1
  rayClusterConfig:CLUSTER`

// clusters are the names of the active and the pending cluster of a service, and all that there are.
func (s *stage) clusters(o *unstructured.Unstructured) (active, pending string, all []unstructured.Unstructured) {
	s.t.Helper()
	s.must(s.Get(s.ctx, client.ObjectKeyFromObject(o), o))
	active, _, _ = unstructured.NestedString(o.Object, "status", "activeServiceStatus", "rayClusterName")
	pending, _, _ = unstructured.NestedString(o.Object, "status", "pendingServiceStatus", "rayClusterName")
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kuberay.GVK("RayClusterList"))
	s.must(s.List(s.ctx, list, client.InNamespace("team")))
	return active, pending, slices.DeleteFunc(list.Items, func(c unstructured.Unstructured) bool { return !metav1.IsControlledBy(&c, o) })
}

// named is the cluster of a name, nil if it is not there or is being deleted.
func named(all []unstructured.Unstructured, name string) *unstructured.Unstructured {
	for i := range all {
		if all[i].GetName() == name && all[i].GetDeletionTimestamp() == nil {
			return &all[i]
		}
	}
	return nil
}

// serves waits until a service serves with one cluster, and returns its name.
func (s *stage) serves(o *unstructured.Unstructured) (active string) {
	s.t.Helper()
	s.until(o.GetName()+" serves", func() error {
		var pending string
		var all []unstructured.Unstructured
		active, pending, all = s.clusters(o)
		if pods, open := s.pods(active); active == "" || pending != "" || len(all) != 1 || pods != 2 || open != 2 {
			return fmt.Errorf("%q serves, %q is pending, %d clusters; %d pods, %d run", active, pending, len(all), pods, open)
		}
		return nil
	})
	return active
}

// image has the workers of a service use an image.
func (s *stage) image(o *unstructured.Unstructured, image string) {
	s.t.Helper()
	s.edit(o, func() {
		groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "rayClusterConfig", "workerGroupSpecs")
		containers, _, _ := unstructured.NestedSlice(groups[0].(map[string]any), "template", "spec", "containers")
		containers[0].(map[string]any)["image"] = image
		s.must(unstructured.SetNestedSlice(groups[0].(map[string]any), containers, "template", "spec", "containers"))
		s.must(unstructured.SetNestedSlice(o.Object, groups, "spec", "rayClusterConfig", "workerGroupSpecs"))
	})
}

func (s *stage) edit(o *unstructured.Unstructured, change func()) {
	s.t.Helper()
	s.until(o.GetName()+" can be changed", func() error {
		s.must(s.Get(s.ctx, client.ObjectKeyFromObject(o), o))
		change()
		return s.Update(s.ctx, o)
	})
}

// list are the pods of clusters whose names begin so.
func (s *stage) list(cluster string) []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	s.must(s.List(s.ctx, &list, client.InNamespace("team"), client.HasLabels{"ray.io/cluster"}))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Labels["ray.io/cluster"], cluster) })
}

// uids are the UIDs of a cluster's pods.
func (s *stage) uids(cluster string) (out []types.UID) {
	s.t.Helper()
	for _, p := range s.list(cluster) {
		out = append(out, p.UID)
	}
	slices.Sort(out)
	return out
}

const (
	firstImage  = "rayproject/ray:2.46.0"
	secondImage = "rayproject/ray:2.47.0"
)

// twin is KubeRay's own behaviour, for a service that is not queued, whose upgrade waits because its pods do: reverted, it continues as
// an upgrade to the same state. It ends if the service names no pending cluster.
func (s *stage) twin() {
	s.t.Helper()
	o := s.parse("RayService", "raw", strings.ReplaceAll(strings.ReplaceAll(service, "CLUSTER", cluster), "{containers", "{schedulingGates: [{name: "+kueue.ElasticJobSchedulingGate+"}], containers"))
	s.until("it can be made", func() error { return s.Create(s.ctx, o) })
	s.until("its pods wait", func() error {
		_, pending, _ := s.clusters(o)
		if pods, _ := s.pods(pending); pending == "" || pods != 2 {
			return fmt.Errorf("%d pods of %q", pods, pending)
		}
		return nil
	})
	for _, pod := range s.list(o.GetName()) {
		s.must(s.Patch(s.ctx, &pod, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/schedulingGates"}]`))))
	}
	active := s.serves(o)
	hash := func(c *unstructured.Unstructured) string { return c.GetAnnotations()[kuberay.HashAnnotation] }
	pending := func(what string, is func(serving, c *unstructured.Unstructured) bool) (found *unstructured.Unstructured) {
		s.until(what, func() error {
			now, name, all := s.clusters(o)
			if now != active {
				s.t.Fatalf("%s serves, not %s", now, active)
			}
			if found = named(all, name); found == nil || !is(named(all, active), found) {
				return fmt.Errorf("%q is pending, of %d clusters", name, len(all))
			}
			return nil
		})
		return found
	}
	s.image(o, secondImage)
	second := pending("a second cluster is to take over", func(a, c *unstructured.Unstructured) bool { return hash(c) != hash(a) })
	s.image(o, firstImage)
	twin := pending("a third one is, the twin of the first", func(a, c *unstructured.Unstructured) bool {
		return c.GetName() != second.GetName() && hash(c) == hash(a)
	})
	s.must(s.Delete(s.ctx, twin))
	pending("it is made again", func(_, c *unstructured.Unstructured) bool {
		return c.GetName() == twin.GetName() && c.GetUID() != twin.GetUID()
	})
	s.must(s.Status().Patch(s.ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"pendingServiceStatus":null}}`))))
	s.must(client.IgnoreNotFound(s.Delete(s.ctx, twin)))
	if again := s.serves(o); again != active {
		s.t.Fatalf("%s served, and %s does", active, again)
	}
	s.remove(o)
}

// takenBack reverts an upgrade that waits for quota. The service is then as before: its present application is deployed, and new quota
// changes nothing.
func (s *stage) takenBack() {
	s.t.Helper()
	o := s.make("RayService", "s", service, map[string]string{kueue.ElasticJobAnnotation: "true"})
	active := s.serves(o)
	pods := s.uids(active)
	for range 2 {
		s.image(o, secondImage)
		s.until("an upgrade waits", func() error {
			now, pending, all := s.clusters(o)
			if now != active {
				s.t.Fatalf("%s serves, and there is no quota for it", now)
			}
			if named(all, pending) == nil || s.slices(o) != 2 {
				return fmt.Errorf("%q is pending, %d slices", pending, s.slices(o))
			}
			return nil
		})
		s.image(o, firstImage)
		s.until("the upgrade is over", func() error {
			if _, pending, all := s.clusters(o); pending != "" || len(all) != 1 || s.slices(o) != 1 {
				return fmt.Errorf("%q is pending, %d clusters, %d slices", pending, len(all), s.slices(o))
			}
			return nil
		})
	}
	if s.deployed != nil {
		s.edit(o, func() {
			s.must(unstructured.SetNestedField(o.Object, "applications: [{name: app, import_path: app.second}]\n", "spec", "serveConfigV2"))
		})
		s.until("what is to be served is deployed", func() error {
			if !s.deployed("app.second") {
				return errors.New("it is not")
			}
			return nil
		})
	}
	s.resize("6")
	b := s.make("RayCluster", "b", cluster, nil)
	s.runs(b, 2) // a Workload that waited for quota before it is admitted, too
	if again := s.serves(o); again != active || !slices.Equal(s.uids(again), pods) {
		s.t.Errorf("%s served with the pods %v, and %s does, with %v", active, pods, again, s.uids(again))
	}
	s.remove(b)
	s.resize("3")
	s.remove(o)
}

// slices counts the Workloads of a service that are not finished.
func (s *stage) slices(o client.Object) (n int) {
	s.t.Helper()
	var list kueue.WorkloadList
	s.must(s.List(s.ctx, &list, client.InNamespace("team")))
	for i := range list.Items {
		if ref := metav1.GetControllerOf(&list.Items[i]); ref != nil && ref.UID == o.GetUID() && !is(&list.Items[i], kueue.WorkloadFinished) {
			n++
		}
	}
	return n
}

// resize gives the queue so many processors.
func (s *stage) resize(cpus string) {
	s.t.Helper()
	s.must(s.Patch(s.ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"`+cpus+`"}]`))))
}
