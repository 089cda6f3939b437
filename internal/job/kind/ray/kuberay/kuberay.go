// Package kuberay finds out what the KubeRay of the cluster can do (spec: 30 §4.10.3).
package kuberay

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/reconcile"
)

// KubeRay is what is known of the KubeRay in the cluster, and the pods of its clusters.
type KubeRay struct {
	// Pods are the pods of RayClusters that have the gate of elastic jobs.
	Pods *reconcile.Pods

	options *options.Options
	reader  client.Reader
	log     logr.Logger
	// legacy says that its RayServices have no spec.suspend: KubeRay before 1.7.
	legacy atomic.Bool
}

// New asks the API server once.
func New(ctx context.Context, mgr ctrl.Manager, o *options.Options, log logr.Logger) (*KubeRay, error) {
	k := &KubeRay{options: o, reader: mgr.GetAPIReader(), log: log}
	var err error
	if k.Pods, err = reconcile.NewGatedPods(mgr, rayplan.ClusterLabel, rayplan.GroupLabel); err != nil {
		return nil, err
	}
	return k, k.look(ctx)
}

// Config is the configuration of jobs, with what is known.
func (k *KubeRay) Config() *plan.Config {
	cfg := lookup.NewConfig(k.options)
	cfg.RayService.Legacy = k.legacy.Load
	return cfg
}

// Ready looks again when RayServices begin to be served.
func (k *KubeRay) Ready(ctx context.Context, d *plan.Descriptor) error {
	if !d.Family.CanLead() {
		return nil
	}
	return k.look(ctx)
}

// look finds out whether RayServices can be stopped as a whole (spec: 30 §4.10.3).
func (k *KubeRay) look(ctx context.Context) error {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	err := k.reader.Get(ctx, client.ObjectKey{Name: "rayservices.ray.io"}, crd)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the CRD of RayServices: %w", err)
	}
	legacy := !keeps(crd.Object, "v1", "suspend")
	if k.legacy.Swap(legacy) != legacy && legacy {
		k.log.Info("This KubeRay has no spec.suspend of RayServices: upgrades do not wait for quota, and a service that is preempted keeps " +
			"what its clusters hold until they are gone. KubeRay 1.7 has it")
	}
	return nil
}

// keeps says whether a version of a CRD stores a field of the spec.
func keeps(crd map[string]any, version, field string) bool {
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	for _, v := range versions {
		of, ok := v.(map[string]any)
		if !ok || of["name"] != version {
			continue
		}
		spec, _, _ := unstructured.NestedMap(of, "schema", "openAPIV3Schema", "properties", "spec")
		if open, _, _ := unstructured.NestedBool(spec, "x-kubernetes-preserve-unknown-fields"); open {
			return true
		}
		_, has, _ := unstructured.NestedMap(spec, "properties", field)
		return has
	}
	return false
}
