package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// Manifest returns an object as it is applied: without the zero values that Go adds, and with the values of empty variables (spec: 50 §4.5).
func Manifest(object runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", object.GetObjectKind().GroupVersionKind().Kind, err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	for _, job := range view.Maps(content, "spec", "replicatedJobs") {
		template := view.Map(job, "template")
		removeEmptyMeta(template)
		pod := view.Map(template, "spec", "template")
		removeEmptyMeta(pod)
		for _, c := range slices.Concat(view.Maps(pod, "spec", "initContainers"), view.Maps(pod, "spec", "containers")) {
			normalizeContainer(c)
		}
	}
	for _, policy := range view.Maps(content, "spec", "volumeClaimPolicies") {
		if policy["retentionPolicy"] == nil { // as the webhook of JobSets stores it: the field is immutable, and the list is applied as a whole
			policy["retentionPolicy"] = map[string]any{"whenDeleted": string(jobsetv1alpha2.RetentionDelete)}
		}
		for _, claim := range view.Maps(policy, "templates") {
			delete(claim, "status")
			removeEmptyMeta(claim)
		}
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func removeEmptyMeta(object map[string]any) {
	meta := view.Map(object, "metadata")
	delete(meta, "creationTimestamp")
	if len(meta) == 0 {
		delete(object, "metadata")
	}
}

func normalizeContainer(c map[string]any) {
	if len(view.Map(c, "resources")) == 0 {
		delete(c, "resources")
	}
	for _, v := range view.Maps(c, "env") {
		if v["value"] == nil && v["valueFrom"] == nil {
			v["value"] = ""
		}
	}
}
