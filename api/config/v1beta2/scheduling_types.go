package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WaitForPodsReady evicts Workloads whose pods do not come up.
// (spec: 70 §2.1.5, 20 §4.15)
type WaitForPodsReady struct {
	// Timeout from admission until all pods are ready. 0s means the default:
	// 30m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// RecoveryTimeout is how long pods that were ready may be not ready
	// again. 0s turns this part off. Default: timeout.
	// +optional
	RecoveryTimeout *metav1.Duration `json:"recoveryTimeout,omitempty"`

	// BlockAdmission admits one Workload at a time, the next when the pods
	// of all admitted ones are ready. Default: false.
	// +optional
	BlockAdmission *bool `json:"blockAdmission,omitempty"`

	// RequeuingStrategy specifies how an evicted Workload comes back.
	// +optional
	RequeuingStrategy *RequeuingStrategy `json:"requeuingStrategy,omitempty"`
}

// RequeuingTimestamp is the time that orders a Workload which was evicted.
type RequeuingTimestamp string

// The times a requeued Workload can be ordered by.
const (
	// EvictionTimestamp orders by the eviction: to the back of the queue.
	EvictionTimestamp RequeuingTimestamp = "Eviction"
	// CreationTimestamp orders by the creation: to where it was.
	CreationTimestamp RequeuingTimestamp = "Creation"
)

// RequeuingStrategy specifies how a Workload evicted for its pods comes back.
type RequeuingStrategy struct {
	// Timestamp that orders it among the others. Default: Eviction.
	// +optional
	Timestamp *RequeuingTimestamp `json:"timestamp,omitempty"`

	// BackoffLimitCount is how often it may come back before it is
	// deactivated. Default: without end.
	// +optional
	BackoffLimitCount *int32 `json:"backoffLimitCount,omitempty"`

	// BackoffBaseSeconds is the first wait, doubled each time. Default: 60.
	// +optional
	BackoffBaseSeconds *int32 `json:"backoffBaseSeconds,omitempty"`

	// BackoffMaxSeconds is the longest wait. Default: 3600.
	// +optional
	BackoffMaxSeconds *int32 `json:"backoffMaxSeconds,omitempty"`
}

// PreemptionStrategy is one test by which fair sharing allows a preemption.
type PreemptionStrategy string

// The tests of fair sharing preemption. (spec: 20 §4.3)
const (
	// LessThanOrEqualToFinalShare: the preemptor's share, with its Workload,
	// is at most the target's share without the victim.
	LessThanOrEqualToFinalShare PreemptionStrategy = "LessThanOrEqualToFinalShare"
	// LessThanInitialShare: the preemptor's share, with its Workload, is
	// less than the target's share with the victim.
	LessThanInitialShare PreemptionStrategy = "LessThanInitialShare"
)

// FairSharing configures fair sharing; its presence turns it on.
// (spec: 70 §2.1.8)
type FairSharing struct {
	// PreemptionStrategies are the tests, in the order they are tried:
	// [LessThanOrEqualToFinalShare], [LessThanInitialShare], or both in this
	// order. Required.
	PreemptionStrategies []PreemptionStrategy `json:"preemptionStrategies,omitempty"`
}

// AdmissionFairSharing configures ordering by past usage; its presence turns
// it on. (spec: 70 §2.1.8)
type AdmissionFairSharing struct {
	// UsageHalfLifeTime is the time in which past usage counts half. With 0s
	// usage never counts. Default: 1h, with a warning.
	// +optional
	UsageHalfLifeTime *metav1.Duration `json:"usageHalfLifeTime,omitempty"`

	// UsageSamplingInterval is the time between two samples, above 0.
	// Default: 5m.
	// +optional
	UsageSamplingInterval *metav1.Duration `json:"usageSamplingInterval,omitempty"`

	// ResourceWeights is what a unit of each resource counts, at least 0.
	// Default: 1.0 each.
	// +optional
	ResourceWeights map[corev1.ResourceName]float64 `json:"resourceWeights,omitempty"`
}
