package v1beta2

// Condition types of a Workload (spec: 10 §5.1).
const (
	// WorkloadQuotaReserved is True while the Workload holds quota.
	WorkloadQuotaReserved = "QuotaReserved"
	// WorkloadAdmitted is True while the Workload holds quota and passed every admission check: its job may run.
	WorkloadAdmitted = "Admitted"
	// WorkloadEvicted is True from an eviction until quota is reserved again.
	WorkloadEvicted = "Evicted"
	// WorkloadPreempted is True if the eviction made room for another Workload.
	WorkloadPreempted = "Preempted"
	// WorkloadRequeued is True if the Workload may go back into the queue after an eviction.
	WorkloadRequeued = "Requeued"
	// WorkloadDeactivationTarget is True just before Berth sets spec.active to false.
	WorkloadDeactivationTarget = "DeactivationTarget"
	// WorkloadBlockedOnPreemptionGates is True while only a closed gate keeps the Workload from preempting.
	WorkloadBlockedOnPreemptionGates = "BlockedOnPreemptionGates"
	// WorkloadPodsReady is True while as many pods are ready as the job needs.
	WorkloadPodsReady = "PodsReady"
	// WorkloadFinished is True once the job is over; nothing happens to the Workload after that.
	WorkloadFinished = "Finished"
	// WorkloadWaitingForReplacementPods is True while a pod group is short of members.
	WorkloadWaitingForReplacementPods = "WaitingForReplacementPods"
)

// Condition types of other kinds.
const (
	// ClusterQueueActive is True while the ClusterQueue can admit Workloads (spec: 10 §4.13).
	ClusterQueueActive = "Active"
	// ClusterQueueQuotaAutomation specifies whether the quota is kept at the sum of the workers (spec: 40 §4.11).
	ClusterQueueQuotaAutomation = "MultiKueueManagerQuotaAutomation"
	// LocalQueueActive is True while the LocalQueue and its ClusterQueue can admit Workloads (spec: 10 §4.13).
	LocalQueueActive = "Active"
	// AdmissionCheckActive is True while the check can be made (spec: 20 §4.17).
	AdmissionCheckActive = "Active"
	// MultiKueueClusterActive is True while the worker cluster is connected (spec: 40 §4.2).
	MultiKueueClusterActive = "Active"
	// MultiKueueClusterFrameworksAvailable is False while the worker lacks the kind of an enabled integration.
	MultiKueueClusterFrameworksAvailable = "FrameworksAvailable"
	// MultiKueueClusterOriginConflict is True while two managers use the worker with the same origin.
	MultiKueueClusterOriginConflict = "OriginConflict"
)

// Reasons of QuotaReserved.
const (
	// ReasonQuotaReserved is the reason of QuotaReserved=True, and of Evicted, Preempted and BlockedOnPreemptionGates
	// turned False by a new reservation.
	ReasonQuotaReserved = "QuotaReserved"
	// ReasonImported is the reason of QuotaReserved=True and Admitted=True of a Workload that was made for a pod that ran already.
	ReasonImported = "Imported"
	// ReasonWaitingForQuota means that quota is in use by others.
	ReasonWaitingForQuota = "WaitingForQuota"
	// ReasonNoMatchingFlavor means that no flavor matches the pods' selectors, affinity and tolerations.
	ReasonNoMatchingFlavor = "NoMatchingFlavor"
	// ReasonExceedsMaxQuota means that the request is larger than the queue could ever get.
	ReasonExceedsMaxQuota = "ExceedsMaxQuota"
	// ReasonTopologyPlacementFailed means that there is quota but no place in the topology.
	ReasonTopologyPlacementFailed = "TopologyPlacementFailed"
	// ReasonWaitingForPreemptedWorkloads means that victims are on their way out.
	ReasonWaitingForPreemptedWorkloads = "WaitingForPreemptedWorkloads"
	// ReasonWaitingForPodsReady means that earlier Workloads must become ready first.
	ReasonWaitingForPodsReady = "WaitingForPodsReady"
	// ReasonPendingEvaluation means that the Workload has not been looked at since it last changed.
	ReasonPendingEvaluation = "PendingEvaluation"
	// ReasonMisconfigured means that a queue, flavor or the Workload itself is wrong or missing.
	ReasonMisconfigured = "Misconfigured"
	// ReasonSuspended means that a stopped queue took the reservation away.
	ReasonSuspended = "Suspended"
	// ReasonAdmissionGated means that an annotation keeps the Workload out of its queue.
	ReasonAdmissionGated = "AdmissionGated"
	// ReasonOnHold means that the job itself asks not to run.
	ReasonOnHold = "OnHold"
	// ReasonPending is the older name of most reasons for QuotaReserved=False.
	ReasonPending = "Pending"
	// ReasonInadmissible is the older name of ReasonMisconfigured and ReasonSuspended, and the reason of Requeued=False
	// for device requests that cannot be resolved.
	ReasonInadmissible = "Inadmissible"
	// ReasonWaiting is the older name of ReasonWaitingForPodsReady.
	ReasonWaiting = "Waiting"
)

// Reasons of Admitted.
const (
	// ReasonAdmitted is the reason of Admitted=True.
	ReasonAdmitted = "Admitted"
	// ReasonNoReservation means that the Workload lost its quota.
	ReasonNoReservation = "NoReservation"
	// ReasonUnsatisfiedAdmissionChecks means that a check is not Ready.
	ReasonUnsatisfiedAdmissionChecks = "UnsatisfiedAdmissionChecks"
	// ReasonPendingDelayedTopologyRequests means that a placement is still to be made.
	ReasonPendingDelayedTopologyRequests = "PendingDelayedTopologyRequests"
	// ReasonUnsatisfiedChecks is the older name of ReasonUnsatisfiedAdmissionChecks.
	ReasonUnsatisfiedChecks = "UnsatisfiedChecks"
	// ReasonNoReservationUnsatisfiedChecks is the older reason for no quota and a check that is not Ready.
	ReasonNoReservationUnsatisfiedChecks = "NoReservationUnsatisfiedChecks"
)

// Reasons of Evicted. Requeued carries the same reason while it is False.
const (
	// ReasonPreempted means that another Workload needed the quota.
	ReasonPreempted = "Preempted"
	// ReasonPodsReadyTimeout means that the pods were not ready in time.
	ReasonPodsReadyTimeout = "PodsReadyTimeout"
	// ReasonAdmissionCheck means that an admission check asked for a retry. It is also a cause of deactivation.
	ReasonAdmissionCheck = "AdmissionCheck"
	// ReasonClusterQueueStopped means that the ClusterQueue is drained.
	ReasonClusterQueueStopped = "ClusterQueueStopped"
	// ReasonLocalQueueStopped means that the LocalQueue is drained.
	ReasonLocalQueueStopped = "LocalQueueStopped"
	// ReasonNodeFailures means that nodes of the placement failed and could not be replaced.
	ReasonNodeFailures = "NodeFailures"
	// ReasonFlavorMigration means that the Workload moves to a better flavor.
	ReasonFlavorMigration = "FlavorMigration"
	// ReasonVariantEvicted means that the variant of a concurrent admission that ran was evicted.
	ReasonVariantEvicted = "VariantEvicted"
	// ReasonConcurrentAdmission means that another variant of the Workload was admitted.
	ReasonConcurrentAdmission = "ConcurrentAdmission"
	// ReasonEvictedOnManagerCluster means that the manager cluster took the Workload back from this worker.
	ReasonEvictedOnManagerCluster = "EvictedOnManagerCluster"
	// ReasonDeactivated means that spec.active is false. With a cause it is followed by DueTo and the cause.
	ReasonDeactivated = "Deactivated"
	// ReasonDeactivatedDueToRequeuingLimitExceeded means deactivation after too many requeues.
	ReasonDeactivatedDueToRequeuingLimitExceeded = "DeactivatedDueToRequeuingLimitExceeded"
	// ReasonDeactivatedDueToAdmissionCheck means deactivation because an admission check rejected the Workload.
	ReasonDeactivatedDueToAdmissionCheck = "DeactivatedDueToAdmissionCheck"
	// ReasonDeactivatedDueToMaximumExecutionTimeExceeded means deactivation because the time is used up.
	ReasonDeactivatedDueToMaximumExecutionTimeExceeded = "DeactivatedDueToMaximumExecutionTimeExceeded"
	// ReasonDeactivatedDueToEvictedOnManagerCluster means deactivation of a copy that its manager took back.
	ReasonDeactivatedDueToEvictedOnManagerCluster = "DeactivatedDueToEvictedOnManagerCluster"
)

// Reasons of Preempted.
const (
	// ReasonInClusterQueue means a preemption by a Workload of the same queue.
	ReasonInClusterQueue = "InClusterQueue"
	// ReasonInCohortReclamation means that a queue took its own quota back.
	ReasonInCohortReclamation = "InCohortReclamation"
	// ReasonInCohortFairSharing means a preemption to even out shares.
	ReasonInCohortFairSharing = "InCohortFairSharing"
	// ReasonInCohortReclaimWhileBorrowing means a preemption by a Workload that borrows itself.
	ReasonInCohortReclaimWhileBorrowing = "InCohortReclaimWhileBorrowing"
)

// Reasons of Requeued=True, besides ReasonPreempted and ReasonNodeFailures.
const (
	// ReasonReactivated means that spec.active turned true.
	ReasonReactivated = "Reactivated"
	// ReasonBackoffFinished means that requeueAt has passed.
	ReasonBackoffFinished = "BackoffFinished"
	// ReasonClusterQueueRestarted means that the stop policy of the ClusterQueue was lifted.
	ReasonClusterQueueRestarted = "ClusterQueueRestarted"
	// ReasonLocalQueueRestarted means that the stop policy of the LocalQueue was lifted.
	ReasonLocalQueueRestarted = "LocalQueueRestarted"
)

// Reasons of DeactivationTarget, besides ReasonAdmissionCheck and ReasonEvictedOnManagerCluster.
const (
	// ReasonRequeuingLimitExceeded means that the Workload was requeued too often.
	ReasonRequeuingLimitExceeded = "RequeuingLimitExceeded"
	// ReasonMaximumExecutionTimeExceeded means that its time is used up.
	ReasonMaximumExecutionTimeExceeded = "MaximumExecutionTimeExceeded"
)

// ReasonPreemptionGated is the reason of BlockedOnPreemptionGates=True.
const ReasonPreemptionGated = "PreemptionGated"

// Reasons of PodsReady and WaitingForReplacementPods.
const (
	// ReasonStarted means that all pods became ready for the first time.
	ReasonStarted = "Started"
	// ReasonRecovered means that all pods are ready again.
	ReasonRecovered = "Recovered"
	// ReasonWaitForStart means that not all pods have been ready yet.
	ReasonWaitForStart = "WaitForStart"
	// ReasonWaitForRecovery means that pods were lost after all had been ready.
	ReasonWaitForRecovery = "WaitForRecovery"
	// ReasonPodsReady is an older reason of PodsReady, and the reason of WaitingForReplacementPods=False.
	ReasonPodsReady = "PodsReady"
	// ReasonPodsFailed is the reason of WaitingForReplacementPods=True outside an eviction.
	ReasonPodsFailed = "PodsFailed"
)

// Reasons of Finished.
const (
	// ReasonSucceeded means that the job succeeded.
	ReasonSucceeded = "Succeeded"
	// ReasonFailed means that the job failed.
	ReasonFailed = "Failed"
	// ReasonOutOfSync means that the job no longer is what the Workload describes.
	ReasonOutOfSync = "OutOfSync"
	// ReasonOwnerNotFound means that the job is gone.
	ReasonOwnerNotFound = "OwnerNotFound"
	// ReasonFailedToStart means that the job cannot be started as admitted.
	ReasonFailedToStart = "FailedToStart"
	// ReasonWorkloadSliceReplaced means that a resized copy of the Workload took its place.
	ReasonWorkloadSliceReplaced = "WorkloadSliceReplaced"
)

// Reasons of Active on a ClusterQueue, in the order in which the first that applies is reported (spec: 10 §4.13), and on
// a LocalQueue.
const (
	// ReasonReady is the reason of Active=True on a queue.
	ReasonReady = "Ready"
	// ReasonTerminating means that the queue is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonStopped means that stopPolicy is not None.
	ReasonStopped = "Stopped"
	// ReasonFlavorNotFound means that a ResourceFlavor does not exist.
	ReasonFlavorNotFound = "FlavorNotFound"
	// ReasonAdmissionCheckNotFound means that an AdmissionCheck does not exist.
	ReasonAdmissionCheckNotFound = "AdmissionCheckNotFound"
	// ReasonAdmissionCheckInactive means that an AdmissionCheck is not active.
	ReasonAdmissionCheckInactive = "AdmissionCheckInactive"
	// ReasonMultipleMultiKueueAdmissionChecks means that more than one check sends Workloads to workers.
	ReasonMultipleMultiKueueAdmissionChecks = "MultipleMultiKueueAdmissionChecks"
	// ReasonMultiKueueAdmissionCheckAppliedPerFlavor means that such a check is not for all flavors.
	ReasonMultiKueueAdmissionCheckAppliedPerFlavor = "MultiKueueAdmissionCheckAppliedPerFlavor"
	// ReasonMultiKueueWithProvisioningRequest means that such a check stands beside one that asks for nodes.
	ReasonMultiKueueWithProvisioningRequest = "MultiKueueWithProvisioningRequest"
	// ReasonMultiKueueWithConcurrentAdmission means that such a check stands beside a concurrentAdmissionPolicy.
	ReasonMultiKueueWithConcurrentAdmission = "MultiKueueWithConcurrentAdmission"
	// ReasonTopologyNotFound means that the Topology of a flavor does not exist.
	ReasonTopologyNotFound = "TopologyNotFound"
	// ReasonUnknown means that the queue is inactive for no reason known here.
	ReasonUnknown = "Unknown"
	// ReasonNotFound means that Berth does not know the queue yet.
	ReasonNotFound = "NotFound"
	// ReasonClusterQueueDoesNotExist means that the ClusterQueue of a LocalQueue does not exist.
	ReasonClusterQueueDoesNotExist = "ClusterQueueDoesNotExist"
	// ReasonClusterQueueIsInactive means that the ClusterQueue of a LocalQueue is not active.
	ReasonClusterQueueIsInactive = "ClusterQueueIsInactive"
)

// Reasons of MultiKueueManagerQuotaAutomation on a ClusterQueue (spec: 40 §4.11).
const (
	// ReasonQuotaAutomated means that the quota follows the workers.
	ReasonQuotaAutomated = "QuotaAutomated"
	// ReasonNotRequested means that quotaManagement is Manual.
	ReasonNotRequested = "NotRequested"
	// ReasonUnsupportedConfiguration means that the queue cannot be automated as it is.
	ReasonUnsupportedConfiguration = "UnsupportedConfiguration"
)

// Reasons of Active on an AdmissionCheck and a MultiKueueCluster (spec: 20 §4.18, 40 §4.2 and §4.3).
const (
	// ReasonActive is the reason of Active=True.
	ReasonActive = "Active"
	// ReasonSomeActiveClusters is the reason of Active=True while some workers are not connected.
	ReasonSomeActiveClusters = "SomeActiveClusters"
	// ReasonNoUsableClusters means that no worker is connected.
	ReasonNoUsableClusters = "NoUsableClusters"
	// ReasonBadConfig means that the MultiKueueConfig is missing or wrong.
	ReasonBadConfig = "BadConfig"
	// ReasonBadParametersRef means that the ProvisioningRequestConfig is missing or wrong.
	ReasonBadParametersRef = "BadParametersRef"
	// ReasonBadKubeConfig means that the kubeconfig is missing or may not be read.
	ReasonBadKubeConfig = "BadKubeConfig"
	// ReasonInsecureKubeConfig means that the content of the kubeconfig is refused.
	ReasonInsecureKubeConfig = "InsecureKubeConfig"
	// ReasonBadClusterProfile means that the ClusterProfile is missing or has no usable provider.
	ReasonBadClusterProfile = "BadClusterProfile"
	// ReasonBadRestConfig means that what the ClusterProfile provides is refused.
	ReasonBadRestConfig = "BadRestConfig"
	// ReasonMultiKueueClusterProfileFeatureDisabled means that a ClusterProfile is named with the feature gate off.
	ReasonMultiKueueClusterProfileFeatureDisabled = "MultiKueueClusterProfileFeatureDisabled"
	// ReasonClientConnectionFailed means that the worker cannot be reached.
	ReasonClientConnectionFailed = "ClientConnectionFailed"
	// ReasonMissingCRD means that the worker does not serve a kind.
	ReasonMissingCRD = "MissingCRD"
	// ReasonForbidden means that the worker does not let Berth read a kind.
	ReasonForbidden = "Forbidden"
)
