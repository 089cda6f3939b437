package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
)

// ClusterQueue is the parent of clusterqueues/pendingworkloads. It has no
// content and cannot be read: a GET is answered with 405.
//
// +kubebuilder:object:root=true
type ClusterQueue struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata of the parent; empty.
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// ClusterQueueList is a list of parents; never served.
//
// +kubebuilder:object:root=true
type ClusterQueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items of the list.
	Items []ClusterQueue `json:"items"`
}

// LocalQueue is the parent of localqueues/pendingworkloads. It has no content
// and cannot be read: a GET is answered with 405.
//
// +kubebuilder:object:root=true
type LocalQueue struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata of the parent; empty.
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// LocalQueueList is a list of parents; never served.
//
// +kubebuilder:object:root=true
type LocalQueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items of the list.
	Items []LocalQueue `json:"items"`
}

// PendingWorkload is one Workload that waits in a queue.
type PendingWorkload struct {
	// Metadata carries the name, namespace and creation time of the
	// Workload, and its owners by apiVersion, kind, name and uid only.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Priority that orders the queue: the priority of the Workload's class plus its
	// boost. 0 for a Workload without one.
	Priority int32 `json:"priority"`

	// LocalQueueName is the LocalQueue it was sent to, in its own namespace.
	LocalQueueName string `json:"localQueueName"`

	// PositionInClusterQueue counts from 0 over the whole ClusterQueue.
	PositionInClusterQueue int32 `json:"positionInClusterQueue"`

	// PositionInLocalQueue counts from 0 among the Workloads of the same
	// namespace and LocalQueue, in the order of the ClusterQueue.
	PositionInLocalQueue int32 `json:"positionInLocalQueue"`

	// Reason why it waits and Message that says so in a sentence, as in its
	// condition QuotaReserved; absent before it was looked at (spec: 70 §6 #15).
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`

	// Requests is what all its pods that are still to run ask of quota together.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// ExpectedStart is when it is expected to start; absent where starts are not forecast.
	// +optional
	ExpectedStart *berthv1alpha1.ExpectedStart `json:"expectedStart,omitempty"`
}

// PendingWorkloadsSummary is a page of the Workloads that wait in a queue, in
// queue order.
//
// +kubebuilder:object:root=true
type PendingWorkloadsSummary struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Items is the page; an empty list, never null, when nothing waits.
	Items []PendingWorkload `json:"items"`
}

// Bounds of a page.
const (
	// DefaultLimit is the size of a page when none is asked for.
	DefaultLimit int64 = 1000
	// MaxLimit is the size of the largest page.
	MaxLimit int64 = 100_000
)

// PendingWorkloadOptions are the query parameters of pendingworkloads.
//
// +kubebuilder:object:root=true
type PendingWorkloadOptions struct {
	metav1.TypeMeta `json:",inline"`

	// Offset is how many Workloads to skip. Below 0 counts as 0.
	// +optional
	Offset int64 `json:"offset,omitempty"`

	// Limit is the size of the page. 0 means 1000, below 0 an empty page,
	// above 100000 means 100000.
	// +optional
	Limit int64 `json:"limit,omitempty"`
}

// Page gives the offset and the limit that the options come to once absent
// and extreme values are replaced (spec: 70 §3.4).
func (o *PendingWorkloadOptions) Page() (offset, limit int64) {
	limit = o.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	return max(o.Offset, 0), min(max(limit, 0), MaxLimit)
}
