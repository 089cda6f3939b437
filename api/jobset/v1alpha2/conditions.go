package v1alpha2

// ConditionType is a type of the conditions in a JobSet's status (spec: 60 §5.1).
type ConditionType string

const (
	// ConditionCompleted is True once the success policy is met. It never reverts.
	ConditionCompleted ConditionType = "Completed"
	// ConditionFailed is True once the JobSet has failed. It never reverts.
	ConditionFailed ConditionType = "Failed"
	// ConditionSuspended is True while the JobSet is suspended.
	ConditionSuspended ConditionType = "Suspended"
	// ConditionRestarting is True while all Jobs are being restarted.
	ConditionRestarting ConditionType = "RestartingJobSet"
	// ConditionStartupPolicyInProgress is True while an in-order start is under way.
	ConditionStartupPolicyInProgress ConditionType = "StartupPolicyInProgress"
	// ConditionStartupPolicyCompleted is True once every replicated job of an in-order start has started.
	ConditionStartupPolicyCompleted ConditionType = "StartupPolicyCompleted"
)

// Reasons of conditions; the event that follows a changed condition has the same reason (spec: 60 §5.1, §5.2).
const (
	// ReasonAllJobsCompleted is the reason of Completed.
	ReasonAllJobsCompleted = "AllJobsCompleted"
	// ReasonFailedJobs is the reason of Failed without a failure policy.
	ReasonFailedJobs = "FailedJobs"
	// ReasonReachedMaxRestarts is the reason of Failed when no restart is left.
	ReasonReachedMaxRestarts = "ReachedMaxRestarts"
	// ReasonFailJobSetAction is the reason of Failed by a rule with the action FailJobSet.
	ReasonFailJobSetAction = "FailJobSetFailurePolicyAction"
	// ReasonJobCreationFailed is the reason of Failed when the API server refuses for good what the JobSet needs to run,
	// while the JobSet holds quota of a queue.
	ReasonJobCreationFailed = "JobCreationFailed"
	// ReasonSuspended is the reason of Suspended when True.
	ReasonSuspended = "SuspendedJobs"
	// ReasonResumed is the reason of Suspended when False.
	ReasonResumed = "ResumeJobs"
	// ReasonDefaultFailurePolicy is the reason of RestartingJobSet when no rule matched.
	ReasonDefaultFailurePolicy = "DefaultFailurePolicy"
	// ReasonFailurePolicyPrefix begins the reason of RestartingJobSet when a rule matched; the rule's name follows.
	ReasonFailurePolicyPrefix = "FailurePolicy_"
	// ReasonJobsReady ends RestartingJobSet because all Jobs are ready or succeeded.
	ReasonJobsReady = "JobsReady"
	// ReasonJobSetCompleted ends RestartingJobSet because the JobSet completed.
	ReasonJobSetCompleted = "JobSetCompleted"
	// ReasonJobSetFailed ends RestartingJobSet because the JobSet failed.
	ReasonJobSetFailed = "JobSetFailed"
	// ReasonJobSetSuspended ends RestartingJobSet because the JobSet was suspended.
	ReasonJobSetSuspended = "JobSetSuspended"
	// ReasonInOrderInProgress is the reason of StartupPolicyInProgress.
	ReasonInOrderInProgress = "InOrderStartupPolicyInProgress"
	// ReasonInOrderCompleted is the reason of StartupPolicyCompleted.
	ReasonInOrderCompleted = "InOrderStartupPolicyCompleted"
)

// Reasons of events that do not follow a condition (spec: 60 §5.2).
const (
	// EventRestartJobSetAction says that a counted restart of all Jobs began.
	EventRestartJobSetAction = "RestartJobSetFailurePolicyAction"
	// EventRestartJobSetAndIgnoreMaxRestartsAction says that an uncounted restart of all Jobs began.
	EventRestartJobSetAndIgnoreMaxRestartsAction = "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction"
	// EventRestartJobAction says that a counted restart of one Job began.
	EventRestartJobAction = "RestartJobFailurePolicyAction"
	// EventRestartJobAndIgnoreMaxRestartsAction says that an uncounted restart of one Job began.
	EventRestartJobAndIgnoreMaxRestartsAction = "RestartJobAndIgnoreMaxRestartsFailurePolicyAction"
	// EventJobCreationFailed says that a child Job could not be created.
	EventJobCreationFailed = "JobCreationFailed"
	// EventJobChangeFailed says that a child Job could not be changed or deleted.
	EventJobChangeFailed = "JobChangeFailed"
	// EventHeadlessServiceCreationFailed says that the headless Service could not be created.
	EventHeadlessServiceCreationFailed = "HeadlessServiceCreationFailed"
	// EventPVCCreationFailed says that a volume claim could not be created.
	EventPVCCreationFailed = "PVCCreationFailed"
)

// ReasonExclusivePlacementViolation is the reason of the pod condition DisruptionTarget set on followers in the wrong
// topology domain before they are deleted (spec: 60 §4.10).
const ReasonExclusivePlacementViolation = "ExclusivePlacementViolation"

// Limits of the API that other parts rely on (spec: 60 §5.7).
const (
	// MaxIndividualRestartReplicas is the largest number of replicas of a replicated job that rules with a RestartJob action allow.
	MaxIndividualRestartReplicas = 1024
	// MaxManagedByLength is the largest length of spec.managedBy in characters.
	MaxManagedByLength = 63
	// MaxRuleNameLength is the largest length of a failure policy rule's name in characters.
	MaxRuleNameLength = 128
)
