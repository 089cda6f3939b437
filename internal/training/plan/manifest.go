package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
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
	jobs, _, err := unstructured.NestedFieldNoCopy(content, "spec", "replicatedJobs")
	if err != nil {
		return &unstructured.Unstructured{Object: content}, nil //nolint:nilerr // not a JobSet
	}
	eachMap(jobs, func(job map[string]any) {
		template := mapIn(job, "template")
		removeEmptyMeta(template)
		pod := mapIn(template, "spec", "template")
		removeEmptyMeta(pod)
		spec := mapIn(pod, "spec")
		eachMap(spec["initContainers"], normalizeContainer)
		eachMap(spec["containers"], normalizeContainer)
	})
	claims, _, err := unstructured.NestedFieldNoCopy(content, "spec", "volumeClaimPolicies")
	if err == nil {
		eachMap(claims, func(policy map[string]any) {
			if policy["retentionPolicy"] == nil { // as the webhook of JobSets stores it: the field is immutable, and the list is applied as a whole
				policy["retentionPolicy"] = map[string]any{"whenDeleted": string(jobsetv1alpha2.RetentionDelete)}
			}
			eachMap(policy["templates"], func(claim map[string]any) {
				delete(claim, "status")
				removeEmptyMeta(claim)
			})
		})
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func removeEmptyMeta(object map[string]any) {
	meta := mapIn(object, "metadata")
	delete(meta, "creationTimestamp")
	if len(meta) == 0 {
		delete(object, "metadata")
	}
}

func normalizeContainer(c map[string]any) {
	if len(mapIn(c, "resources")) == 0 {
		delete(c, "resources")
	}
	eachMap(c["env"], func(v map[string]any) {
		if v["value"] == nil && v["valueFrom"] == nil {
			v["value"] = ""
		}
	})
}

func mapIn(m map[string]any, path ...string) map[string]any {
	for _, key := range path {
		next, ok := m[key].(map[string]any)
		if !ok {
			return map[string]any{}
		}
		m = next
	}
	return m
}

func eachMap(list any, f func(map[string]any)) {
	items, _ := list.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			f(m)
		}
	}
}
