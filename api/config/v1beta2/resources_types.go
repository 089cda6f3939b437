package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
)

// QuotaCheckStrategy specifies what a request for a resource that the ClusterQueue
// does not cover means.
type QuotaCheckStrategy string

// The ways to treat requests for resources without quota.
const (
	// BlockUndeclared makes the Workload wait.
	BlockUndeclared QuotaCheckStrategy = "BlockUndeclared"
	// IgnoreUndeclared leaves such requests out of the quota.
	IgnoreUndeclared QuotaCheckStrategy = "IgnoreUndeclared"
)

// Resources specifies how the requests of pods become requests for quota.
// (spec: 70 §2.1.9)
type Resources struct {
	// QuotaCheckStrategy for resources that the ClusterQueue does not cover:
	// BlockUndeclared or IgnoreUndeclared. Without effect when the feature
	// gate of the same name is off. Default: BlockUndeclared.
	// +optional
	QuotaCheckStrategy *QuotaCheckStrategy `json:"quotaCheckStrategy,omitempty"`

	// ExcludeResourcePrefixes drops the resources whose names begin with one
	// of these before quota is looked at. Not with IgnoreUndeclared.
	// Default: none.
	// +optional
	ExcludeResourcePrefixes []string `json:"excludeResourcePrefixes,omitempty"`

	// Transformations turn one resource into others for quota.
	// Default: none.
	// +optional
	Transformations []ResourceTransformation `json:"transformations,omitempty"`

	// DeviceClassMappings give the quota names of the devices that resource
	// claims ask for. At most 16. Default: none. (spec: 20 §4.12)
	// +optional
	DeviceClassMappings []DeviceClassMapping `json:"deviceClassMappings,omitempty"`
}

// TransformationStrategy specifies whether the transformed resource stays.
type TransformationStrategy string

// The ways to treat the input of a transformation.
const (
	// RetainInput keeps the request for the input beside the outputs.
	RetainInput TransformationStrategy = "Retain"
	// ReplaceInput drops it.
	ReplaceInput TransformationStrategy = "Replace"
)

// ResourceTransformation adds, for each unit of one resource that is
// requested, amounts of others.
type ResourceTransformation struct {
	// Input is the resource that is requested. Unique.
	Input corev1.ResourceName `json:"input"`

	// Strategy for the input itself: Retain or Replace. Default: Retain.
	// +optional
	Strategy *TransformationStrategy `json:"strategy,omitempty"`

	// MultiplyBy is a resource whose requested amount multiplies the
	// outputs. Default: none, a factor of 1.
	// +optional
	MultiplyBy corev1.ResourceName `json:"multiplyBy,omitempty"`

	// Outputs is the amount of each resource for one unit of the input.
	// +optional
	Outputs corev1.ResourceList `json:"outputs,omitempty"`
}

// DeviceClassMapping makes devices of some DeviceClasses one quota resource.
type DeviceClassMapping struct {
	// Name of the resource in quotas, in the form of a label key, at most
	// 253 characters. Unique.
	Name corev1.ResourceName `json:"name"`

	// DeviceClassNames are the 1 to 8 classes whose devices count.
	DeviceClassNames []corev1.ResourceName `json:"deviceClassNames"`

	// Sources measure devices by their consumption instead of counting
	// them. All counters or all capacities. Default: devices are counted.
	// +optional
	Sources []DeviceClassSource `json:"sources,omitempty"`
}

// DeviceClassSource is one measure of a device: exactly one of its fields.
type DeviceClassSource struct {
	// Counter is a shared counter the device draws from. Needs the feature
	// gate KueueDRAIntegrationPartitionableDevices.
	// +optional
	Counter *DeviceMeasure `json:"counter,omitempty"`

	// Capacity is a capacity of the device that requests consume. Needs the
	// feature gate KueueDRAIntegrationConsumableCapacity.
	// +optional
	Capacity *DeviceMeasure `json:"capacity,omitempty"`
}

// DeviceMeasure names a counter or a capacity of some devices.
type DeviceMeasure struct {
	// Name of the counter (a DNS label) or of the capacity (an identifier of
	// at most 32 characters, with an optional domain/ before it).
	Name string `json:"name"`

	// Driver whose devices are measured: a DNS subdomain in lower case, at
	// most 63 characters.
	Driver string `json:"driver"`

	// DeviceSelector picks the devices that are measured.
	DeviceSelector DeviceSelector `json:"deviceSelector"`
}

// DeviceSelector picks devices.
type DeviceSelector struct {
	// CEL is an expression over the device.
	CEL *CELDeviceSelector `json:"cel,omitempty"`
}

// CELDeviceSelector picks devices by a CEL expression.
type CELDeviceSelector struct {
	// Expression over the variable device, as in the device selectors of
	// resource.k8s.io; it must give a bool.
	Expression string `json:"expression"`
}
