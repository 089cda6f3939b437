package feature

// Gate is a feature that can be turned on or off by name. The zero Gate is a gate like any other; values are not stable between builds.
type Gate uint8

// most is the greatest number of gates.
const most = 160

// table has the gates, by value.
var table []row

// gate adds a gate to the table. needs are the gates that must be on for it.
func gate(name string, stage Stage, is property, needs ...Gate) Gate {
	table = append(table, row{name, stage, is&on != 0, is&locked != 0, needs, is&acted != 0})
	return Gate(len(table) - 1)
}

// property is a set of the properties of a gate.
type property uint8

const (
	on     property = 1 << iota // by default
	locked                      // at its default
	acted                       // it has an effect in this version
)

// Every gate, by area, with its effect if it is on (spec: 70 §5.7, 10 §5.5, 20 §5.8, 30 §5.6, 40 §5, 50 §5.6, 60 §5.8). They do not change.
var (
	// Queueing and scheduling.
	PartialAdmission                                = gate("PartialAdmission", Beta, on|acted)                                                 // admit with fewer pods, down to minCount
	FlavorFungibility                               = gate("FlavorFungibility", Beta, on|acted)                                                // try the next flavor before borrowing or preempting, as configured in the queue
	FlavorFungibilityPreserveScanProgress           = gate("FlavorFungibilityPreserveScanProgress", Beta, on|acted, FlavorFungibility)         // continue the flavor search at the end of the last cycle
	PrioritySortingWithinCohort                     = gate("PrioritySortingWithinCohort", Beta, on|acted)                                      // order the heads of a cohort by priority
	SchedulingEquivalenceHashing                    = gate("SchedulingEquivalenceHashing", Beta, on|acted)                                     // evaluate equivalent Workloads once
	RecomputeAssignmentUponPreemptionTargetsOverlap = gate("RecomputeAssignmentUponPreemptionTargetsOverlap", Beta, on|acted)                  // recompute the assignment if two heads have the same victim
	PrioritizePreemptorWorkloads                    = gate("PrioritizePreemptorWorkloads", Alpha, acted)                                       // reserve freed quota for the preemptor
	VectorizedResourceRequests                      = gate("VectorizedResourceRequests", Beta, on)                                             // performance only
	SchedulerLibraryIntegration                     = gate("SchedulerLibraryIntegration", Alpha, 0)                                            // upstream's use of the Kubernetes scheduler as a library
	ReclaimablePods                                 = gate("ReclaimablePods", Beta, on|acted)                                                  // release the quota of pods that are done
	QuotaCheckStrategy                              = gate("QuotaCheckStrategy", Beta, on|acted)                                               // honour resources.quotaCheckStrategy
	AdmissionGatedBy                                = gate("AdmissionGatedBy", Beta, on|acted)                                                 // honour the annotation that excludes a Workload from its queue
	PriorityBoost                                   = gate("PriorityBoost", Alpha, acted)                                                      // honour the annotation that raises or lowers a priority
	ConcurrentAdmission                             = gate("ConcurrentAdmission", Alpha, acted)                                                // try several flavors of one Workload at once
	UnadmittedWorkloadsObservability                = gate("UnadmittedWorkloadsObservability", Beta, on|acted)                                 // granular reasons for waiting
	UnadmittedWorkloadsExplicitStatus               = gate("UnadmittedWorkloadsExplicitStatus", Beta, acted, UnadmittedWorkloadsObservability) // write them from the start
	DisableWaitForPodsReady                         = gate("DisableWaitForPodsReady", Alpha, acted)                                            // turn waitForPodsReady off
	CleanupProvisioningRequestsOnEviction           = gate("CleanupProvisioningRequestsOnEviction", Beta, on|acted)                            // delete ProvisioningRequests of evicted Workloads
	FailureRecoveryPolicy                           = gate("FailureRecoveryPolicy", Alpha, acted)                                              // fail pods that hang on dead nodes

	// Fair sharing.
	FairSharingPreemptWithinNominal   = gate("FairSharingPreemptWithinNominal", Beta, on|acted)   // preempt freely within nominal quota
	FairSharingPrioritizeNonBorrowing = gate("FairSharingPrioritizeNonBorrowing", Beta, on|acted) // entries that need not borrow come first
	AdmissionFairSharing              = gate("AdmissionFairSharing", Beta, on|acted)              // order by past usage

	// Topology.
	TopologyAwareScheduling                     = gate("TopologyAwareScheduling", Beta, on|acted)                                                                        // place pods close to each other
	TASProfileMixed                             = gate("TASProfileMixed", Beta, on|acted, TopologyAwareScheduling)                                                       // least free domains for small pod sets
	TASFailedNodeReplacement                    = gate("TASFailedNodeReplacement", Beta, on|acted, TopologyAwareScheduling)                                              // replace a failed node in an assignment
	TASFailedNodeReplacementFailFast            = gate("TASFailedNodeReplacementFailFast", Beta, on|acted, TopologyAwareScheduling, TASFailedNodeReplacement)            // evict at once when there is no replacement
	TASReplaceNodeOnPodTermination              = gate("TASReplaceNodeOnPodTermination", Beta, on|acted, TopologyAwareScheduling, TASFailedNodeReplacement)              // replace as soon as the pods are gone
	TASReplaceNodeOnNodeTaints                  = gate("TASReplaceNodeOnNodeTaints", Beta, on|acted, TopologyAwareScheduling, TASFailedNodeReplacement)                  // replace nodes with untolerated taints, once no live pod of the Workload is left there
	TASReplaceNodeDueToNotReadyOverFixedTime    = gate("TASReplaceNodeDueToNotReadyOverFixedTime", Deprecated, acted, TopologyAwareScheduling, TASFailedNodeReplacement) // replace after a fixed time
	TASAssignmentsEncodingByHostnamePrefix      = gate("TASAssignmentsEncodingByHostnamePrefix", Beta, on|acted, TopologyAwareScheduling)                                // compact assignments
	TASMultiLayerTopology                       = gate("TASMultiLayerTopology", Beta, on|acted, TopologyAwareScheduling)                                                 // slices within slices
	TASHandleOverlappingFlavors                 = gate("TASHandleOverlappingFlavors", Beta, on|acted, TopologyAwareScheduling)                                           // count nodes that two flavors share once
	TASRecomputeAssignmentWithinSchedulingCycle = gate("TASRecomputeAssignmentWithinSchedulingCycle", Beta, on|acted, TopologyAwareScheduling)                           // place again when an earlier entry took the room
	TASCacheNodeMatchResults                    = gate("TASCacheNodeMatchResults", Beta, on, TopologyAwareScheduling)                                                    // performance only
	TASCachingRemainingResources                = gate("TASCachingRemainingResources", Beta, on, TopologyAwareScheduling)                                                // performance only
	TASCacheTopologyTree                        = gate("TASCacheTopologyTree", Beta, on, TopologyAwareScheduling)                                                        // performance only
	TASValidateWorkloadSliceSize                = gate("TASValidateWorkloadSliceSize", Beta, on|acted, TopologyAwareScheduling)                                          // refuse slice sizes that cannot be placed
	TASBalancedPlacement                        = gate("TASBalancedPlacement", Alpha, acted, TopologyAwareScheduling)                                                    // spread pods evenly over the chosen domains
	TASRespectNodeAffinityPreferred             = gate("TASRespectNodeAffinityPreferred", Alpha, acted, TopologyAwareScheduling)                                         // weigh preferred node affinity

	// Elastic jobs and devices.
	ElasticJobsViaWorkloadSlices            = gate("ElasticJobsViaWorkloadSlices", Beta, on|acted)                                                             // resize running jobs
	ElasticJobsViaWorkloadSlicesWithTAS     = gate("ElasticJobsViaWorkloadSlicesWithTAS", Alpha, acted, ElasticJobsViaWorkloadSlices, TopologyAwareScheduling) // the same with a topology
	KueueDRAIntegration                     = gate("KueueDRAIntegration", Beta, on|acted)                                                                      // charge resource claims
	KueueDRAIntegrationExtendedResource     = gate("KueueDRAIntegrationExtendedResource", Beta, on|acted, KueueDRAIntegration)                                 // charge extended resources backed by devices
	KueueDRAIntegrationPartitionableDevices = gate("KueueDRAIntegrationPartitionableDevices", Beta, on|acted, KueueDRAIntegration)                             // charge shared counters
	KueueDRAIntegrationConsumableCapacity   = gate("KueueDRAIntegrationConsumableCapacity", Alpha, acted, KueueDRAIntegration)                                 // charge consumed capacity
	KueueDRARejectWorkloadsWhenDRADisabled  = gate("KueueDRARejectWorkloadsWhenDRADisabled", Beta, on|acted)                                                   // hold Workloads with claims when claims are not charged

	// Jobs and Workloads.
	ManagedJobsNamespaceSelectorAlwaysRespected = gate("ManagedJobsNamespaceSelectorAlwaysRespected", GA, on|locked|acted) // leave unmanaged namespaces alone
	SkipReassignmentForPodOwnedWorkloads        = gate("SkipReassignmentForPodOwnedWorkloads", Beta, on|acted)             // do not requeue an evicted single pod
	RemoveFinalizersWithStrictPatch             = gate("RemoveFinalizersWithStrictPatch", Beta, on)                        // take finalizers off with a precondition
	AssignQueueLabelsForPods                    = gate("AssignQueueLabelsForPods", Beta, on|acted)                         // put the queue names on pods
	FinishOrphanedWorkloads                     = gate("FinishOrphanedWorkloads", Beta, on|acted)                          // finish Workloads whose job is gone
	WorkloadIdentifierAnnotations               = gate("WorkloadIdentifierAnnotations", Beta, on|acted)                    // names that are too long for labels go into annotations
	WorkloadPriorityClassDefaulting             = gate("WorkloadPriorityClassDefaulting", Beta, on|acted)                  // honour a default priority class
	WorkloadValidateResourcesAreNonNegative     = gate("WorkloadValidateResourcesAreNonNegative", Beta, on|acted)          // refuse negative requests
	WorkloadValidationForPodSetMetadata         = gate("WorkloadValidationForPodSetMetadata", Beta, on|acted)              // refuse bad labels in pod sets
	WorkloadRequestUseMergePatch                = gate("WorkloadRequestUseMergePatch", Alpha, 0)                           // merge patch in place of server-side apply
	ShortWorkloadNames                          = gate("ShortWorkloadNames", Alpha, acted)                                 // short names for Workloads
	SkipAncestorCheckForDeletedWorkloads        = gate("SkipAncestorCheckForDeletedWorkloads", Beta, on|acted)             // no owner lookup for deleted objects
	PodIntegrationValidateGroupOwner            = gate("PodIntegrationValidateGroupOwner", Beta, on|acted)                 // one owner for all pods of a group
	FastQuotaReleaseInPodIntegration            = gate("FastQuotaReleaseInPodIntegration", Alpha, acted)                   // release the quota of terminating pods at once
	LWSImmutableGroupSize                       = gate("LWSImmutableGroupSize", Beta, on|acted)                            // refuse a new size for a LeaderWorkerSet group
	DeferRayServiceFinalizationForRedisCleanup  = gate("DeferRayServiceFinalizationForRedisCleanup", Beta, on|acted)       // wait for Ray's clean-up job
	ValidateRayAndSparkJobUpdates               = gate("ValidateRayAndSparkJobUpdates", Beta, on|acted)                    // validate updates of Ray and Spark kinds
	SparkApplicationIntegration                 = gate("SparkApplicationIntegration", Alpha, acted)                        // the framework sparkoperator.k8s.io/sparkapplication
	RejectUpdatesToCQWithInvalidOnFlavors       = gate("RejectUpdatesToCQWithInvalidOnFlavors", Alpha, acted)              // refuse admission checks on unknown flavors

	// Worker clusters.
	MultiKueue                                        = gate("MultiKueue", Beta, on|acted)                                        // dispatch to worker clusters
	MultiKueueAdaptersForCustomJobs                   = gate("MultiKueueAdaptersForCustomJobs", Beta, on|acted)                   // honour multiKueue.externalFrameworks
	MultiKueueKubeConfigPathValidation                = gate("MultiKueueKubeConfigPathValidation", Beta, on|acted)                // only kubeconfigs below a fixed folder
	MultiKueueIncrementalDispatcherConfig             = gate("MultiKueueIncrementalDispatcherConfig", Beta, on|acted)             // honour multiKueue.incrementalDispatcherConfig
	MultiKueueIncrementalDispatcherRespectConfigOrder = gate("MultiKueueIncrementalDispatcherRespectConfigOrder", Beta, on|acted) // nominate in the order of the configuration
	MultiKueueRemoteSpecSync                          = gate("MultiKueueRemoteSpecSync", Beta, on|acted)                          // copy later changes of a job
	MultiKueueClusterProfile                          = gate("MultiKueueClusterProfile", Alpha, acted)                            // workers known by a ClusterProfile
	MultiKueueOrchestratedPreemption                  = gate("MultiKueueOrchestratedPreemption", Alpha, acted)                    // preempt on one worker at a time
	MultiKueueManagerQuotaAutomation                  = gate("MultiKueueManagerQuotaAutomation", Alpha, acted)                    // quota from the workers' quotas

	// Serving and metrics.
	VisibilityOnDemand               = gate("VisibilityOnDemand", Beta, on|acted)               // the visibility API
	TLSOptions                       = gate("TLSOptions", GA, on|locked|acted)                  // honour tls
	LocalQueueMetrics                = gate("LocalQueueMetrics", Beta, on|acted)                // series for each LocalQueue
	MetricForWorkloadCreationLatency = gate("MetricForWorkloadCreationLatency", Beta, on|acted) // time from job to Workload
	MetricsForCohorts                = gate("MetricsForCohorts", Beta, on|acted)                // series for each cohort
	CustomMetricLabels               = gate("CustomMetricLabels", Alpha, acted)                 // honour metrics.customLabels

	// JobSet and Trainer.
	InPlaceRestart = gate("InPlaceRestart", Alpha, acted) // restart pods of a JobSet in place
	RestartJob     = gate("RestartJob", Alpha, acted)     // restart single jobs of a JobSet
	ElasticJobSet  = gate("ElasticJobSet", Alpha, acted)  // resize a JobSet
	TrainJobStatus = gate("TrainJobStatus", Alpha, acted) // accept progress reports of training pods

	// Berth's own.
	RayServiceUpgradeGating      = gate("RayServiceUpgradeGating", Beta, on|acted)      // count both clusters of a RayService upgrade
	MultiKueueDegradedFrameworks = gate("MultiKueueDegradedFrameworks", Beta, on|acted) // use workers that lack some CRDs
	MultiKueueExternalTransforms = gate("MultiKueueExternalTransforms", Beta, on|acted) // transforms of external frameworks
	RuntimePatchSelectors        = gate("RuntimePatchSelectors", Alpha, acted)          // selectors in runtime patches

)
