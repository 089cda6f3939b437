package v1beta2

// MultiKueueExternalFramework is a job kind for the generic adapter. All but
// the name are extensions, and need the feature gate
// MultiKueueExternalTransforms. (spec: 40 §4.12, §4.13)
type MultiKueueExternalFramework struct {
	// Name as Kind.version.group. Unique, and not a kind that the built-in
	// adapter of an enabled framework serves.
	Name string `json:"name"`

	// ControllerType: Generic, or External for kinds whose jobs a controller
	// of yours carries to the workers; only managedBy goes with it.
	// Default: Generic.
	// +optional
	ControllerType string `json:"controllerType,omitempty"`

	// ManagedBy specifies how a job tells that it is to be sent.
	// +optional
	ManagedBy *ExternalManagedBy `json:"managedBy,omitempty"`

	// CopyFields are the top-level fields that the copy gets. Not metadata,
	// status, apiVersion or kind. Default: spec.
	// +optional
	CopyFields []string `json:"copyFields,omitempty"`

	// Variables are values that expressions, and later variables, read as
	// variables.name. At most 16. Default: none.
	// +optional
	Variables []ExternalVariable `json:"variables,omitempty"`

	// Preconditions must all be true before a job is sent. They read
	// localObject and workload. At most 16. Default: none.
	// +optional
	Preconditions []ExternalPrecondition `json:"preconditions,omitempty"`

	// Creation changes the copy before it is created.
	// +optional
	Creation *ExternalCreation `json:"creation,omitempty"`

	// StatusSync specifies what of the copy's status the job here gets.
	// +optional
	StatusSync *ExternalStatusSync `json:"statusSync,omitempty"`

	// SpecSync changes the copy after it was created.
	// +optional
	SpecSync *ExternalSpecSync `json:"specSync,omitempty"`

	// Lifecycle controls the start and the end of the copies.
	// +optional
	Lifecycle *ExternalLifecycle `json:"lifecycle,omitempty"`

	// Limits bound the expressions. They may be lowered only.
	// +optional
	Limits *ExternalLimits `json:"limits,omitempty"`
}

// ExternalManagedBy is the mark of jobs that are to be sent.
type ExternalManagedBy struct {
	// Mode: Field, or None for kinds that no controller runs here.
	// Default: Field.
	// +optional
	Mode string `json:"mode,omitempty"`

	// Path of the field: .spec.a.b, .metadata.annotations['key'] or
	// .metadata.labels['key']; at most 8 names. Default: .spec.managedBy.
	// +optional
	Path string `json:"path,omitempty"`

	// Value that the field must have. Default: kueue.x-k8s.io/multikueue.
	// +optional
	Value string `json:"value,omitempty"`

	// OnWorker: Remove takes the field off the copy, Set gives it
	// workerValue. Default: Remove.
	// +optional
	OnWorker string `json:"onWorker,omitempty"`

	// WorkerValue is the value there. Required with onWorker: Set.
	// +optional
	WorkerValue string `json:"workerValue,omitempty"`
}

// ExternalVariable is a value with a name.
type ExternalVariable struct {
	// Name by which it is read.
	Name string `json:"name"`
	// Expression in CEL, of any type.
	Expression string `json:"expression"`
}

// ExternalPrecondition is a rule about jobs that can be sent.
type ExternalPrecondition struct {
	// Name of the rule.
	Name string `json:"name"`
	// Expression in CEL, a bool.
	Expression string `json:"expression"`
	// Message for jobs where it is false.
	// +optional
	Message string `json:"message,omitempty"`
}

// ExternalCreation changes copies before they are created.
type ExternalCreation struct {
	// Mutations, one after the other. They read object, localObject,
	// workload, cluster and origin. At most 16.
	// +optional
	Mutations []ExternalMutation `json:"mutations,omitempty"`

	// OnError: Reject, or Retry after a pause. Default: Reject.
	// +optional
	OnError string `json:"onError,omitempty"`
}

// ExternalMutation is a patch that an expression returns, in the form of
// a patch of a MutatingAdmissionPolicy.
type ExternalMutation struct {
	// Name of the mutation.
	Name string `json:"name"`
	// PatchType: JSONPatch or ApplyConfiguration.
	PatchType string `json:"patchType"`
	// JSONPatch gives a list of JSONPatch{op, path, from, value}.
	// +optional
	JSONPatch *ExternalExpression `json:"jsonPatch,omitempty"`
	// ApplyConfiguration gives an Object{…} without lists.
	// +optional
	ApplyConfiguration *ExternalExpression `json:"applyConfiguration,omitempty"`
}

// ExternalExpression is an expression.
type ExternalExpression struct {
	// Expression in CEL.
	Expression string `json:"expression"`
}

// ExternalStatusSync specifies what of the copy's status the job here gets.
type ExternalStatusSync struct {
	// Mode: Replace, Mutate (the mutations change it) or Disabled.
	// Default: Replace.
	// +optional
	Mode string `json:"mode,omitempty"`

	// Subresource: Auto, Status or Main. Default: Auto, what the kind has.
	// +optional
	Subresource string `json:"subresource,omitempty"`

	// When says in CEL whether the status is to be copied yet.
	// Default: always.
	// +optional
	When string `json:"when,omitempty"`

	// Mutations of the job with the status of its copy. They read object,
	// localObject, remoteObject, workload and cluster. At most 16.
	// +optional
	Mutations []ExternalMutation `json:"mutations,omitempty"`

	// Metadata are keys that the job here gets from its copy.
	// +optional
	Metadata *ExternalMetadataSync `json:"metadata,omitempty"`
}

// ExternalMetadataSync are keys that jobs get from their copies.
type ExternalMetadataSync struct {
	// AnnotationPrefixes of annotations. Default: none.
	// +optional
	AnnotationPrefixes []string `json:"annotationPrefixes,omitempty"`
	// LabelPrefixes of labels. Default: none.
	// +optional
	LabelPrefixes []string `json:"labelPrefixes,omitempty"`
}

// ExternalSpecSync changes copies after they were created.
type ExternalSpecSync struct {
	// AllowedPaths are JSON pointers below /spec, without indices. Nothing
	// else may change.
	AllowedPaths []string `json:"allowedPaths"`
	// Mutations of the copy. They read object, localObject, remoteObject,
	// workload and cluster. At most 16.
	Mutations []ExternalMutation `json:"mutations"`
}

// ExternalLifecycle controls the start and the end of copies.
type ExternalLifecycle struct {
	// WorkerIntegration: Kueue, or None if nothing on the workers integrates
	// the kind: the manager does it then. Default: Kueue.
	// +optional
	WorkerIntegration string `json:"workerIntegration,omitempty"`

	// Finished gives {} or null, or {done, success, message} of remoteObject.
	// Required with None.
	// +optional
	Finished string `json:"finished,omitempty"`

	// Active is true while pods of remoteObject may run. Required with None.
	// +optional
	Active string `json:"active,omitempty"`
}

// ExternalLimits bound expressions. They may be lowered only.
type ExternalLimits struct {
	// CostPerExpression. Default: 1000000.
	// +optional
	CostPerExpression *int64 `json:"costPerExpression,omitempty"`
	// CostPerPass is for all expressions of a phase. Default: 10000000.
	// +optional
	CostPerPass *int64 `json:"costPerPass,omitempty"`
	// MaxObjectBytes is the maximum size of the object that a mutation returns, in bytes. Default: 1048576.
	// +optional
	MaxObjectBytes *int64 `json:"maxObjectBytes,omitempty"`
}
