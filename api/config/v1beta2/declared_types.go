package v1beta2

// DeclaredKind describes a job kind by CEL expressions. All of them read the job
// as object, a value without a schema, as in an admission policy of Kubernetes.
// They come with the standard library of CEL and Kubernetes' own for lists,
// strings, sets, regular expressions and quantities; each may cost 1,000,000
// units and take a second.
type DeclaredKind struct {
	// Name is the kind as Kind.version.group, such as
	// PipelineRun.v1.tekton.dev.
	Name string `json:"name"`

	// Resource is the plural in URLs. Default: the lower-case kind with an s,
	// an es or an ies.
	// +optional
	Resource string `json:"resource,omitempty"`

	// Owns are the kinds of objects that the controller of the kind makes, as
	// Kind.version.group, such as Job.v1.batch, or Pod.v1. Such an object runs
	// with the Workload of its owner if its pods fit one of podSets; any other
	// is a job of its own. Default: objects of any kind, and of any size.
	// +optional
	Owns []string `json:"owns,omitempty"`

	// Suspend is the field that keeps a job from running.
	Suspend SuspendField `json:"suspend"`

	// PodSets gives the groups of pods that a job wants: a list of
	// {name, count, minCount, path, template}. path, such as
	// spec.worker.template, is where the job has the pod template, which then
	// gets what the admission brings, and is restored when the job stops.
	// template, in its place, is a pod template made up by the expression.
	PodSets string `json:"podSets"`

	// Inject is for jobs without ordinary pod templates. It returns a merge
	// patch for the job that applies podSets, a list of {name, count, labels,
	// annotations, nodeSelector, tolerations, schedulingGates} with all values
	// of the pods: at the start including the admission, at the stop only the
	// user's. An empty map or list is removed.
	// +optional
	Inject string `json:"inject,omitempty"`

	// Stop gives a merge patch that stops a job, for kinds where the field of
	// Suspend does not stop what has begun. A patch that leaves the field
	// alone comes on top of it. Default: suspend is all.
	// +optional
	Stop string `json:"stop,omitempty"`

	// Started is true while pods of the job may use resources. Quota of a job
	// that has to stop is held for that long.
	Started string `json:"started"`

	// Finished is {} until the job is over, and then {success, message}.
	Finished string `json:"finished"`

	// Ready is true when as many pods as the job wants are ready or through.
	// Default: Started.
	// +optional
	Ready string `json:"ready,omitempty"`

	// Reclaimable maps names of pod sets to how many of their pods are
	// through, so that their quota is given to others. Default: none.
	// +optional
	Reclaimable string `json:"reclaimable,omitempty"`
}

// SuspendField is the field that keeps a job from running.
type SuspendField struct {
	// Path is the field, such as spec.suspend.
	Path string `json:"path"`

	// Value is the text that the field has while the job is to wait. Default:
	// the field is a bool, true while the job is to wait and else false.
	// +optional
	Value string `json:"value,omitempty"`

	// Resume is the text that lets the job run. Default: the field is
	// removed. It needs Value.
	// +optional
	Resume string `json:"resume,omitempty"`
}
