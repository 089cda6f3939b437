// Package v1beta2 holds the wire types of the queueing API, group kueue.x-k8s.io version v1beta2: the quota objects
// (ClusterQueue, Cohort, ResourceFlavor, Topology), the entry point of a tenant (LocalQueue), the unit of queueing
// (Workload), and the parameters of admission checks. The JSON names, defaults, bounds and status codes are a contract
// with existing clients; behaviour lives elsewhere. Rules that need only the object itself are CEL rules on these types
// and answer 422; all other rules belong to the admission webhooks and answer 403 (spec: 10 §3).
//
// +kubebuilder:object:generate=true
// +groupName=kueue.x-k8s.io
package v1beta2
