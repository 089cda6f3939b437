package provisioning

import (
	"fmt"
	"slices"
	"strconv"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group, Kind and Resource name ProvisioningRequests.
const (
	Group    = "autoscaling.x-k8s.io"
	Kind     = "ProvisioningRequest"
	Resource = "provisioningrequests"
)

// Versions are the versions of the API that Berth can use, the preferred one first. Their fields are the same.
var Versions = []string{"v1", "v1beta1"}

// The conditions of a ProvisioningRequest.
const (
	Accepted        = "Accepted"
	Provisioned     = "Provisioned"
	Failed          = "Failed"
	BookingExpired  = "BookingExpired"
	CapacityRevoked = "CapacityRevoked"
)

// Metadata of the objects of a Workload, beside the label kueue.x-k8s.io/managed. ProvisioningRequests of another manager lack it.
const (
	// AttemptLabel is the number of the attempt, from 1, which a shortened name does not show.
	AttemptLabel = "berth.dev/provisioning-attempt"
	// CheckAnnotation is the AdmissionCheck of a ProvisioningRequest.
	CheckAnnotation = "berth.dev/admission-check"
	// EvictionsAnnotation is how often the Workload had been evicted when the ProvisioningRequest was created.
	EvictionsAnnotation = "berth.dev/evictions"
	// WorkloadUIDAnnotation and RequestAnnotation name the Workload and the ProvisioningRequest of a PodTemplate.
	WorkloadUIDAnnotation = "berth.dev/workload-uid"
	RequestAnnotation     = "berth.dev/provisioning-request"
	// HashAnnotation is the hash of the template in a PodTemplate, before the API server's defaults.
	HashAnnotation = "berth.dev/template-hash"
)

// Request is the part of a ProvisioningRequest that Berth reads and writes.
type Request struct {
	fields
	stored *unstructured.Unstructured
}

type fields struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              RequestSpec   `json:"spec"`
	Status            RequestStatus `json:"status,omitzero"`
}

// RequestSpec is what is asked for.
type RequestSpec struct {
	PodSets               []RequestPodSet   `json:"podSets"`
	ProvisioningClassName string            `json:"provisioningClassName"`
	Parameters            map[string]string `json:"parameters,omitempty"`
}

// RequestPodSet is a number of equal pods.
type RequestPodSet struct {
	PodTemplateRef struct {
		Name string `json:"name"`
	} `json:"podTemplateRef"`
	Count int32 `json:"count"`
}

// RequestStatus is the answer of the autoscaler.
type RequestStatus struct {
	Conditions               []metav1.Condition `json:"conditions,omitempty"`
	ProvisioningClassDetails map[string]string  `json:"provisioningClassDetails,omitempty"`
}

// NewRequest reads a stored ProvisioningRequest, which it keeps. The error means that a field has another type than in the known versions.
func NewRequest(stored *unstructured.Unstructured) (*Request, error) {
	out := &Request{stored: stored}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &out.fields); err != nil {
		return nil, fmt.Errorf("ProvisioningRequest %s/%s: %w", stored.GetNamespace(), stored.GetName(), err)
	}
	return out, nil
}

// object returns the request as it is created in a version of the API.
func (r *Request) object(version string) *unstructured.Unstructured {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&r.fields)
	if err != nil {
		panic(err) // only of values that JSON does not have
	}
	delete(tree, "status")
	out := &unstructured.Unstructured{Object: tree}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: Group, Version: version, Kind: Kind})
	unstructured.RemoveNestedField(tree, "metadata", "creationTimestamp")
	return out
}

func (r *Request) is(condition string) bool {
	return apimeta.IsStatusConditionTrue(r.Status.Conditions, condition)
}

// message returns the message of a condition, "" without it.
func (r *Request) message(condition string) string {
	if c := apimeta.FindStatusCondition(r.Status.Conditions, condition); c != nil {
		return c.Message
	}
	return ""
}

// has reports whether the request asks for pods of a template.
func (r *Request) has(template string) bool {
	return slices.ContainsFunc(r.Spec.PodSets, func(p RequestPodSet) bool { return p.PodTemplateRef.Name == template })
}

// maxRecognized is up to which attempt a name without the label is recognized.
const maxRecognized = 100

// attemptFor returns the number of the attempt that the request is for a check of a Workload, 0 if it is for another check.
func (r *Request) attemptFor(workload, check string) int {
	if of, known := r.Annotations[CheckAnnotation]; known {
		n, err := strconv.Atoi(r.Labels[AttemptLabel])
		if of == check && err == nil && n > 0 {
			return n
		}
		if of != check {
			return 0
		}
	}
	for n := 1; n <= maxRecognized; n++ {
		if r.Name == RequestName(workload, check, n) {
			return n
		}
	}
	return 0
}
