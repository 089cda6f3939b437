package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// QueueActivity is what happened lately to the Workloads of a ClusterQueue, whose name it has.
//
// +kubebuilder:object:root=true
type QueueActivity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// LastHour is what happened within 60 minutes before the request; it may be some seconds old.
	LastHour Activity `json:"lastHour"`
}

// QueueActivityList is what happened lately in all ClusterQueues, without those in which nothing did.
//
// +kubebuilder:object:root=true
type QueueActivityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []QueueActivity `json:"items"`
}

// Activity counts Workloads by what their conditions say: of what happened to one several times, the last time counts.
type Activity struct {
	Admitted int32 `json:"admitted"`
	// Finished ended with success, Failed without.
	Finished int32 `json:"finished"`
	Failed   int32 `json:"failed"`
	// Evicted have neither been admitted again nor ended.
	Evicted int32 `json:"evicted"`
}
