package compat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
)

// elasticRay are the kinds of Ray that may be elastic, with CLUSTER in their specs in place of that of a RayCluster.
var elasticRay = map[string]struct{ plural, spec string }{
	"RayCluster": {"rayclusters", "CLUSTER"},
	"RayJob":     {"rayjobs", "{submissionMode: InteractiveMode, shutdownAfterJobFinishes: true, rayClusterSpec: CLUSTER}"},
	"RayService": {"rayservices", "{rayClusterConfig: CLUSTER}"},
}

// TestElasticPlacesOfRay is 20 §7.40 for the other elastic kinds, beside a stand-in for KubeRay: the head and the workers that run keep
// their nodes when two workers are added, and only these get places.
func TestElasticPlacesOfRay(t *testing.T) {
	const config = "featureGates: {ElasticJobsViaWorkloadSlicesWithTAS: true}\n" +
		"integrations: {frameworks: [batch/job, ray.io/raycluster, ray.io/rayjob, ray.io/rayservice]}"
	first := newWorld(t)
	tests := map[string]func(*world){}
	for kind, of := range elasticRay {
		crd := embeddedtest.LooseCRD(kuberay.GVK(kind), of.plural)
		first.create(crd)
		t.Cleanup(func() { _ = first.c.Delete(context.Background(), crd) })
		tests[kind] = func(w *world) { w.growsInPlace(kind) }
	}
	cluster(t).install(t, config)
	running(t, config)
	scenes(t, tests)
}

func (w *world) growsInPlace(kind string) {
	w.t.Cleanup(w.clearPlaces)
	w.nodes("n1 b1 r1 2", "n2 b1 r1 2", "n3 b1 r1 4")
	w.levels("racks", rack, corev1.LabelHostname)
	w.queue("q", "", quota(w.flavor("placed", w.on("racks")).Name+"=100"))
	operator := &kuberay.Operator{Client: w.c, Namespace: w.name}
	w.t.Cleanup(operator.Begin(w.ctx()))
	const pod = "{spec: {containers: [{name: c, image: ray, resources: {requests: {cpu: 1}}}]}}"
	ray := "{headGroupSpec: {rayStartParams: {}, template: " + pod + "}, workerGroupSpecs: [{groupName: workers, replicas: 2, minReplicas: 1, maxReplicas: 9, rayStartParams: {}, template: " + pod + "}]}"
	if kind == "RayJob" { // its cluster scales by itself, or not at all
		ray = "{enableInTreeAutoscaling: true, autoscalerOptions: {resources: {requests: {cpu: 500m}}}, " + ray[1:]
	}
	o := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(fmt.Sprintf(
		"{apiVersion: ray.io/v1, kind: %s, metadata: {name: grows, namespace: %s, labels: {%s: q}, annotations: {%s: 'true'}}, spec: %s}",
		kind, w.name, kueue.QueueNameLabel, kueue.ElasticJobAnnotation, strings.ReplaceAll(elasticRay[kind].spec, "CLUSTER", ray),
	)), &o.Object))
	wait.Until(w.t, "the kind is served", func() error { return w.c.Create(w.ctx(), o) })

	w.grownTo("n1:1 | n2:2")
	before := w.podsOn("head>n1", "workers>n2", "workers>n2")
	scaled := operator.Objects(w.ctx(), "RayCluster")[0]
	wait.Until(w.t, "its cluster is scaled, as Ray's autoscaler does", func() error {
		w.must(w.c.Get(w.ctx(), client.ObjectKeyFromObject(&scaled), &scaled))
		groups, _, err := unstructured.NestedSlice(scaled.Object, "spec", "workerGroupSpecs")
		w.must(err)
		groups[0].(map[string]any)["replicas"] = int64(4)
		w.must(unstructured.SetNestedSlice(scaled.Object, groups, "spec", "workerGroupSpecs"))
		return w.c.Update(w.ctx(), &scaled)
	})
	w.grownTo("n1:1 | n2:2 n3:2")
	after := w.podsOn("head>n1", "workers>n2", "workers>n2", "workers>n3", "workers>n3")
	for uid, node := range before {
		if after[uid] != node {
			w.t.Errorf("a pod was on %s, and is on %q", node, after[uid])
		}
	}
}

// grownTo waits until the only Workload that is not finished is admitted to these places, of the head and of the workers.
func (w *world) grownTo(places string) {
	w.t.Helper()
	wait.Until(w.t, "it is on "+places, func() error {
		var list kueue.WorkloadList
		w.must(w.c.List(w.ctx(), &list, client.InNamespace(w.name)))
		live := slices.DeleteFunc(list.Items, func(wl kueue.Workload) bool { return lacks(wl.Status.Conditions, "-Finished") != nil })
		if len(live) != 1 {
			return fmt.Errorf("%d Workloads are not finished", len(live))
		}
		return firstError(lacks(live[0].Status.Conditions, admitted), equal(w.places(&live[0]), places))
	})
}

// podsOn waits until there are these pods without gates, as "set>node", and returns their nodes.
func (w *world) podsOn(want ...string) map[types.UID]string {
	w.t.Helper()
	var nodes map[types.UID]string
	wait.Until(w.t, fmt.Sprintf("the pods are on %v", want), func() error {
		var list corev1.PodList
		w.must(w.c.List(w.ctx(), &list, client.InNamespace(w.name)))
		var got []string
		nodes = map[types.UID]string{}
		for i := range list.Items {
			p := &list.Items[i]
			if len(p.Spec.SchedulingGates) > 0 {
				return fmt.Errorf("%s has gates", p.Name)
			}
			nodes[p.UID] = strings.TrimPrefix(p.Spec.NodeSelector[corev1.LabelHostname], w.name+"-")
			got = append(got, p.Labels[kueue.PodSetLabel]+">"+nodes[p.UID])
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("-want +got:\n%s", cmp.Diff(want, got))
		}
		return nil
	})
	return nodes
}
