package feature

// Gate is a feature that can be turned on or off by name. The zero Gate is a gate like any other; values are not stable between builds.
type Gate uint8

// Every gate, by area, with its effect if it is on.
const (
	// Queueing and scheduling.
	PartialAdmission                                Gate = iota // admit with fewer pods, down to minCount
	FlavorFungibility                                           // try the next flavor before borrowing or preempting, as configured in the queue
	FlavorFungibilityPreserveScanProgress                       // continue the flavor search at the end of the last cycle
	PrioritySortingWithinCohort                                 // order the heads of a cohort by priority
	SchedulingEquivalenceHashing                                // evaluate equivalent Workloads once
	RecomputeAssignmentUponPreemptionTargetsOverlap             // recompute the assignment if two heads have the same victim
	PrioritizePreemptorWorkloads                                // reserve freed quota for the preemptor
	VectorizedResourceRequests                                  // performance only
	SchedulerLibraryIntegration                                 // upstream's use of the Kubernetes scheduler as a library
	ReclaimablePods                                             // release the quota of pods that are done
	QuotaCheckStrategy                                          // honour resources.quotaCheckStrategy
	AdmissionGatedBy                                            // honour the annotation that excludes a Workload from its queue
	PriorityBoost                                               // honour the annotation that raises or lowers a priority
	ConcurrentAdmission                                         // try several flavors of one Workload at once
	UnadmittedWorkloadsObservability                            // granular reasons for waiting
	UnadmittedWorkloadsExplicitStatus                           // write them from the start
	DisableWaitForPodsReady                                     // turn waitForPodsReady off
	CleanupProvisioningRequestsOnEviction                       // delete ProvisioningRequests of evicted Workloads
	FailureRecoveryPolicy                                       // fail pods that hang on dead nodes

	// Fair sharing.
	FairSharingPreemptWithinNominal   // preempt freely within nominal quota
	FairSharingPrioritizeNonBorrowing // entries that need not borrow come first
	AdmissionFairSharing              // order by past usage

	// Topology.
	TopologyAwareScheduling                     // place pods close to each other
	TASProfileMixed                             // least free domains for small pod sets
	TASFailedNodeReplacement                    // replace a failed node in an assignment
	TASFailedNodeReplacementFailFast            // evict at once when there is no replacement
	TASReplaceNodeOnPodTermination              // replace as soon as the pods are gone
	TASReplaceNodeOnNodeTaints                  // replace nodes with untolerated NoExecute taints
	TASReplaceNodeDueToNotReadyOverFixedTime    // replace after a fixed time
	TASAssignmentsEncodingByHostnamePrefix      // compact assignments
	TASMultiLayerTopology                       // slices within slices
	TASHandleOverlappingFlavors                 // count nodes that two flavors share once
	TASRecomputeAssignmentWithinSchedulingCycle // place again when an earlier entry took the room
	TASCacheNodeMatchResults                    // performance only
	TASCachingRemainingResources                // performance only
	TASCacheTopologyTree                        // performance only
	TASValidateWorkloadSliceSize                // refuse slice sizes that cannot be placed
	TASBalancedPlacement                        // spread pods evenly over the chosen domains
	TASRespectNodeAffinityPreferred             // weigh preferred node affinity

	// Elastic jobs and devices.
	ElasticJobsViaWorkloadSlices            // resize running jobs
	ElasticJobsViaWorkloadSlicesWithTAS     // the same with a topology
	KueueDRAIntegration                     // charge resource claims
	KueueDRAIntegrationExtendedResource     // charge extended resources backed by devices
	KueueDRAIntegrationPartitionableDevices // charge shared counters
	KueueDRAIntegrationConsumableCapacity   // charge consumed capacity
	KueueDRARejectWorkloadsWhenDRADisabled  // hold Workloads with claims when claims are not charged

	// Jobs and Workloads.
	ManagedJobsNamespaceSelectorAlwaysRespected // leave unmanaged namespaces alone
	SkipReassignmentForPodOwnedWorkloads        // do not requeue an evicted single pod
	RemoveFinalizersWithStrictPatch             // take finalizers off with a precondition
	AssignQueueLabelsForPods                    // put the queue names on pods
	FinishOrphanedWorkloads                     // finish Workloads whose job is gone
	WorkloadIdentifierAnnotations               // names that are too long for labels go into annotations
	WorkloadPriorityClassDefaulting             // honour a default priority class
	WorkloadValidateResourcesAreNonNegative     // refuse negative requests
	WorkloadValidationForPodSetMetadata         // refuse bad labels in pod sets
	WorkloadRequestUseMergePatch                // merge patch in place of server-side apply
	ShortWorkloadNames                          // short names for Workloads
	SkipAncestorCheckForDeletedWorkloads        // no owner lookup for deleted objects
	PodIntegrationValidateGroupOwner            // one owner for all pods of a group
	FastQuotaReleaseInPodIntegration            // release the quota of terminating pods at once
	LWSImmutableGroupSize                       // refuse a new size for a LeaderWorkerSet group
	DeferRayServiceFinalizationForRedisCleanup  // wait for Ray's clean-up job
	ValidateRayAndSparkJobUpdates               // validate updates of Ray and Spark kinds
	SparkApplicationIntegration                 // the framework sparkoperator.k8s.io/sparkapplication
	RejectUpdatesToCQWithInvalidOnFlavors       // refuse admission checks on unknown flavors

	// Worker clusters.
	MultiKueue                                        // dispatch to worker clusters
	MultiKueueAdaptersForCustomJobs                   // honour multiKueue.externalFrameworks
	MultiKueueKubeConfigPathValidation                // only kubeconfigs below a fixed folder
	MultiKueueIncrementalDispatcherConfig             // honour multiKueue.incrementalDispatcherConfig
	MultiKueueIncrementalDispatcherRespectConfigOrder // nominate in the order of the configuration
	MultiKueueRemoteSpecSync                          // copy later changes of a job
	MultiKueueClusterProfile                          // workers known by a ClusterProfile
	MultiKueueOrchestratedPreemption                  // preempt on one worker at a time
	MultiKueueManagerQuotaAutomation                  // quota from the workers' quotas

	// Serving and metrics.
	VisibilityOnDemand               // the visibility API
	TLSOptions                       // honour tls
	LocalQueueMetrics                // series for each LocalQueue
	MetricForWorkloadCreationLatency // time from job to Workload
	MetricsForCohorts                // series for each cohort
	CustomMetricLabels               // honour metrics.customLabels

	// JobSet and Trainer.
	InPlaceRestart // restart pods of a JobSet in place
	RestartJob     // restart single jobs of a JobSet
	ElasticJobSet  // resize a JobSet
	TrainJobStatus // accept progress reports of training pods

	// Berth's own.
	RayServiceUpgradeGating      // count both clusters of a RayService upgrade
	MultiKueueDegradedFrameworks // use workers that lack some CRDs
	MultiKueueExternalTransforms // transforms of external frameworks
	RuntimePatchSelectors        // selectors in runtime patches

	count // the number of gates
)

// table is the definition of every gate (spec: 70 §5.7, 10 §5.5, 20 §5.8, 30 §5.6, 40 §5, 50 §5.6, 60 §5.8).
var table = [count]row{
	PartialAdmission:                                  {name: "PartialAdmission", stage: Beta, on: true, acted: true},
	FlavorFungibility:                                 {name: "FlavorFungibility", stage: Beta, on: true, acted: true},
	FlavorFungibilityPreserveScanProgress:             {name: "FlavorFungibilityPreserveScanProgress", stage: Beta, on: true, needs: []Gate{FlavorFungibility}, acted: true},
	PrioritySortingWithinCohort:                       {name: "PrioritySortingWithinCohort", stage: Beta, on: true, acted: true},
	SchedulingEquivalenceHashing:                      {name: "SchedulingEquivalenceHashing", stage: Beta, on: true, acted: true},
	RecomputeAssignmentUponPreemptionTargetsOverlap:   {name: "RecomputeAssignmentUponPreemptionTargetsOverlap", stage: Beta, on: true, acted: true},
	PrioritizePreemptorWorkloads:                      {name: "PrioritizePreemptorWorkloads", stage: Alpha, acted: true},
	VectorizedResourceRequests:                        {name: "VectorizedResourceRequests", stage: Beta, on: true},
	SchedulerLibraryIntegration:                       {name: "SchedulerLibraryIntegration", stage: Alpha},
	ReclaimablePods:                                   {name: "ReclaimablePods", stage: Beta, on: true, acted: true},
	QuotaCheckStrategy:                                {name: "QuotaCheckStrategy", stage: Beta, on: true, acted: true},
	AdmissionGatedBy:                                  {name: "AdmissionGatedBy", stage: Beta, on: true, acted: true},
	PriorityBoost:                                     {name: "PriorityBoost", stage: Alpha, acted: true},
	ConcurrentAdmission:                               {name: "ConcurrentAdmission", stage: Alpha},
	UnadmittedWorkloadsObservability:                  {name: "UnadmittedWorkloadsObservability", stage: Beta, on: true, acted: true},
	UnadmittedWorkloadsExplicitStatus:                 {name: "UnadmittedWorkloadsExplicitStatus", stage: Beta, needs: []Gate{UnadmittedWorkloadsObservability}, acted: true},
	DisableWaitForPodsReady:                           {name: "DisableWaitForPodsReady", stage: Alpha, acted: true},
	CleanupProvisioningRequestsOnEviction:             {name: "CleanupProvisioningRequestsOnEviction", stage: Beta, on: true},
	FailureRecoveryPolicy:                             {name: "FailureRecoveryPolicy", stage: Alpha},
	FairSharingPreemptWithinNominal:                   {name: "FairSharingPreemptWithinNominal", stage: Beta, on: true, acted: true},
	FairSharingPrioritizeNonBorrowing:                 {name: "FairSharingPrioritizeNonBorrowing", stage: Beta, on: true, acted: true},
	AdmissionFairSharing:                              {name: "AdmissionFairSharing", stage: Beta, on: true},
	TopologyAwareScheduling:                           {name: "TopologyAwareScheduling", stage: Beta, on: true},
	TASProfileMixed:                                   {name: "TASProfileMixed", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASFailedNodeReplacement:                          {name: "TASFailedNodeReplacement", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASFailedNodeReplacementFailFast:                  {name: "TASFailedNodeReplacementFailFast", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling, TASFailedNodeReplacement}},
	TASReplaceNodeOnPodTermination:                    {name: "TASReplaceNodeOnPodTermination", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling, TASFailedNodeReplacement}},
	TASReplaceNodeOnNodeTaints:                        {name: "TASReplaceNodeOnNodeTaints", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASReplaceNodeDueToNotReadyOverFixedTime:          {name: "TASReplaceNodeDueToNotReadyOverFixedTime", stage: Deprecated, needs: []Gate{TopologyAwareScheduling, TASFailedNodeReplacement}},
	TASAssignmentsEncodingByHostnamePrefix:            {name: "TASAssignmentsEncodingByHostnamePrefix", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASMultiLayerTopology:                             {name: "TASMultiLayerTopology", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASHandleOverlappingFlavors:                       {name: "TASHandleOverlappingFlavors", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASRecomputeAssignmentWithinSchedulingCycle:       {name: "TASRecomputeAssignmentWithinSchedulingCycle", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASCacheNodeMatchResults:                          {name: "TASCacheNodeMatchResults", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASCachingRemainingResources:                      {name: "TASCachingRemainingResources", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASCacheTopologyTree:                              {name: "TASCacheTopologyTree", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASValidateWorkloadSliceSize:                      {name: "TASValidateWorkloadSliceSize", stage: Beta, on: true, needs: []Gate{TopologyAwareScheduling}},
	TASBalancedPlacement:                              {name: "TASBalancedPlacement", stage: Alpha, needs: []Gate{TopologyAwareScheduling}},
	TASRespectNodeAffinityPreferred:                   {name: "TASRespectNodeAffinityPreferred", stage: Alpha, needs: []Gate{TopologyAwareScheduling}},
	ElasticJobsViaWorkloadSlices:                      {name: "ElasticJobsViaWorkloadSlices", stage: Beta, on: true, acted: true},
	ElasticJobsViaWorkloadSlicesWithTAS:               {name: "ElasticJobsViaWorkloadSlicesWithTAS", stage: Alpha, needs: []Gate{ElasticJobsViaWorkloadSlices, TopologyAwareScheduling}},
	KueueDRAIntegration:                               {name: "KueueDRAIntegration", stage: Beta, on: true},
	KueueDRAIntegrationExtendedResource:               {name: "KueueDRAIntegrationExtendedResource", stage: Beta, on: true, needs: []Gate{KueueDRAIntegration}},
	KueueDRAIntegrationPartitionableDevices:           {name: "KueueDRAIntegrationPartitionableDevices", stage: Beta, on: true, needs: []Gate{KueueDRAIntegration}},
	KueueDRAIntegrationConsumableCapacity:             {name: "KueueDRAIntegrationConsumableCapacity", stage: Alpha, needs: []Gate{KueueDRAIntegration}},
	KueueDRARejectWorkloadsWhenDRADisabled:            {name: "KueueDRARejectWorkloadsWhenDRADisabled", stage: Beta, on: true, acted: true},
	ManagedJobsNamespaceSelectorAlwaysRespected:       {name: "ManagedJobsNamespaceSelectorAlwaysRespected", stage: GA, on: true, locked: true, acted: true},
	SkipReassignmentForPodOwnedWorkloads:              {name: "SkipReassignmentForPodOwnedWorkloads", stage: Beta, on: true, acted: true},
	RemoveFinalizersWithStrictPatch:                   {name: "RemoveFinalizersWithStrictPatch", stage: Beta, on: true},
	AssignQueueLabelsForPods:                          {name: "AssignQueueLabelsForPods", stage: Beta, on: true, acted: true},
	FinishOrphanedWorkloads:                           {name: "FinishOrphanedWorkloads", stage: Beta, on: true, acted: true},
	WorkloadIdentifierAnnotations:                     {name: "WorkloadIdentifierAnnotations", stage: Beta, on: true, acted: true},
	WorkloadPriorityClassDefaulting:                   {name: "WorkloadPriorityClassDefaulting", stage: Beta, on: true, acted: true},
	WorkloadValidateResourcesAreNonNegative:           {name: "WorkloadValidateResourcesAreNonNegative", stage: Beta, on: true, acted: true},
	WorkloadValidationForPodSetMetadata:               {name: "WorkloadValidationForPodSetMetadata", stage: Beta, on: true, acted: true},
	WorkloadRequestUseMergePatch:                      {name: "WorkloadRequestUseMergePatch", stage: Alpha},
	ShortWorkloadNames:                                {name: "ShortWorkloadNames", stage: Alpha, acted: true},
	SkipAncestorCheckForDeletedWorkloads:              {name: "SkipAncestorCheckForDeletedWorkloads", stage: Beta, on: true, acted: true},
	PodIntegrationValidateGroupOwner:                  {name: "PodIntegrationValidateGroupOwner", stage: Beta, on: true, acted: true},
	FastQuotaReleaseInPodIntegration:                  {name: "FastQuotaReleaseInPodIntegration", stage: Alpha, acted: true},
	LWSImmutableGroupSize:                             {name: "LWSImmutableGroupSize", stage: Beta, on: true, acted: true},
	DeferRayServiceFinalizationForRedisCleanup:        {name: "DeferRayServiceFinalizationForRedisCleanup", stage: Beta, on: true, acted: true},
	ValidateRayAndSparkJobUpdates:                     {name: "ValidateRayAndSparkJobUpdates", stage: Beta, on: true, acted: true},
	SparkApplicationIntegration:                       {name: "SparkApplicationIntegration", stage: Alpha, acted: true},
	RejectUpdatesToCQWithInvalidOnFlavors:             {name: "RejectUpdatesToCQWithInvalidOnFlavors", stage: Alpha, acted: true},
	MultiKueue:                                        {name: "MultiKueue", stage: Beta, on: true, acted: true},
	MultiKueueAdaptersForCustomJobs:                   {name: "MultiKueueAdaptersForCustomJobs", stage: Beta, on: true, acted: true},
	MultiKueueKubeConfigPathValidation:                {name: "MultiKueueKubeConfigPathValidation", stage: Beta, on: true, acted: true},
	MultiKueueIncrementalDispatcherConfig:             {name: "MultiKueueIncrementalDispatcherConfig", stage: Beta, on: true, acted: true},
	MultiKueueIncrementalDispatcherRespectConfigOrder: {name: "MultiKueueIncrementalDispatcherRespectConfigOrder", stage: Beta, on: true, acted: true},
	MultiKueueRemoteSpecSync:                          {name: "MultiKueueRemoteSpecSync", stage: Beta, on: true, acted: true},
	MultiKueueClusterProfile:                          {name: "MultiKueueClusterProfile", stage: Alpha, acted: true},
	MultiKueueOrchestratedPreemption:                  {name: "MultiKueueOrchestratedPreemption", stage: Alpha, acted: true},
	MultiKueueManagerQuotaAutomation:                  {name: "MultiKueueManagerQuotaAutomation", stage: Alpha, acted: true},
	VisibilityOnDemand:                                {name: "VisibilityOnDemand", stage: Beta, on: true, acted: true},
	TLSOptions:                                        {name: "TLSOptions", stage: GA, on: true, locked: true, acted: true},
	LocalQueueMetrics:                                 {name: "LocalQueueMetrics", stage: Beta, on: true, acted: true},
	MetricForWorkloadCreationLatency:                  {name: "MetricForWorkloadCreationLatency", stage: Beta, on: true, acted: true},
	MetricsForCohorts:                                 {name: "MetricsForCohorts", stage: Beta, on: true, acted: true},
	CustomMetricLabels:                                {name: "CustomMetricLabels", stage: Alpha, acted: true},
	InPlaceRestart:                                    {name: "InPlaceRestart", stage: Alpha, acted: true},
	RestartJob:                                        {name: "RestartJob", stage: Alpha, acted: true},
	ElasticJobSet:                                     {name: "ElasticJobSet", stage: Alpha, acted: true},
	TrainJobStatus:                                    {name: "TrainJobStatus", stage: Alpha, acted: true},
	RayServiceUpgradeGating:                           {name: "RayServiceUpgradeGating", stage: Beta, on: true, acted: true},
	MultiKueueDegradedFrameworks:                      {name: "MultiKueueDegradedFrameworks", stage: Beta, on: true, acted: true},
	MultiKueueExternalTransforms:                      {name: "MultiKueueExternalTransforms", stage: Beta, on: true, acted: true},
	RuntimePatchSelectors:                             {name: "RuntimePatchSelectors", stage: Alpha, acted: true},
}
