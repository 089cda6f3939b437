package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Manifest is an object in the form in which it is applied: what Go's types write although nobody set it is left out, and
// the value of a variable is there even when it is empty (spec: 50 §4.5).
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
		tidyMeta(template)
		pod := mapIn(template, "spec", "template")
		tidyMeta(pod)
		spec := mapIn(pod, "spec")
		eachMap(spec["initContainers"], tidyContainer)
		eachMap(spec["containers"], tidyContainer)
	})
	claims, _, err := unstructured.NestedFieldNoCopy(content, "spec", "volumeClaimPolicies")
	if err == nil {
		eachMap(claims, func(policy map[string]any) {
			eachMap(policy["templates"], func(claim map[string]any) {
				delete(claim, "status")
				tidyMeta(claim)
			})
		})
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// tidyMeta removes metadata that says nothing.
func tidyMeta(object map[string]any) {
	meta := mapIn(object, "metadata")
	delete(meta, "creationTimestamp")
	if len(meta) == 0 {
		delete(object, "metadata")
	}
}

func tidyContainer(c map[string]any) {
	if len(mapIn(c, "resources")) == 0 {
		delete(c, "resources")
	}
	eachMap(c["env"], func(v map[string]any) {
		if v["value"] == nil && v["valueFrom"] == nil {
			v["value"] = ""
		}
	})
}

// mapIn descends into nested maps; what is not there is empty.
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

// eachMap calls f for every map in a list.
func eachMap(list any, f func(map[string]any)) {
	items, _ := list.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			f(m)
		}
	}
}
