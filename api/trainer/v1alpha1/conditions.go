package v1alpha1

// ConditionType is a type of the conditions in a TrainJob's status (spec: 50 §5.1).
type ConditionType string

const (
	// ConditionSuspended is True while the TrainJob is suspended and False after it was resumed. It is absent if the TrainJob
	// was never suspended.
	ConditionSuspended ConditionType = "Suspended"
	// ConditionComplete is True once the JobSet completed. It never reverts.
	ConditionComplete ConditionType = "Complete"
	// ConditionFailed is True once the TrainJob failed. It never reverts.
	ConditionFailed ConditionType = "Failed"
)

// Reasons of conditions (spec: 50 §5.1). Complete and Failed otherwise have the JobSet's reason.
const (
	// ReasonSuspended is the reason of Suspended when True.
	ReasonSuspended = "Suspended"
	// ReasonResumed is the reason of Suspended when False.
	ReasonResumed = "Resumed"
	// ReasonDeadlineExceeded is the reason of Failed after spec.activeDeadlineSeconds.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonTrainingRuntimeNotSupported is the reason of Failed for a runtime of unknown kind.
	ReasonTrainingRuntimeNotSupported = "TrainingRuntimeNotSupported"
	// ReasonJobSetDeleted is the reason of Failed when the JobSet was deleted and must not be made again.
	ReasonJobSetDeleted = "JobSetDeleted"
	// ReasonResourcesCreationFailed is the reason of Failed when the API server refuses for good an object that the TrainJob
	// needs, while the TrainJob holds quota of a queue.
	ReasonResourcesCreationFailed = "TrainJobResourcesCreationFailed"
)

// Messages of conditions, which clients compare (spec: 50 §5.1).
const (
	MessageSuspended        = "TrainJob is suspended"
	MessageResumed          = "TrainJob is resumed"
	MessageDeadlineExceeded = "TrainJob exceeded its active deadline"
)

// Reasons of events (spec: 50 §5.2).
const (
	// EventResourcesCreationFailed says that the TrainJob's objects could not be built or applied.
	EventResourcesCreationFailed = "TrainJobResourcesCreationFailed"
	// EventValidationFailed says that the TrainJob no longer fits its runtime when it is first reconciled.
	EventValidationFailed = "TrainJobValidationFailed"
	// EventJobSetRecreated says that the JobSet was deleted and made again to take up a change.
	EventJobSetRecreated = "JobSetRecreated"
	// EventRuntimePatchesOverridden says that one manager's patch overrode another's.
	EventRuntimePatchesOverridden = "RuntimePatchesOverridden"
)
