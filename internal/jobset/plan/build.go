package plan

import (
	"crypto/sha1" //nolint:gosec // the key is a name that clients compute as well (spec: 60 §4.2), it protects nothing
	"encoding/hex"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// JobKey returns the value of the label job-key: 40 hexadecimal digits (spec: 60 §4.2).
func JobKey(namespace, job string) string {
	sum := sha1.Sum([]byte(namespace + "/" + job)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// pair is a key and value of both labels and annotations.
type pair struct{ key, value string }

// identity returns the keys that identify a Job and its pods (spec: 60 §4.2).
func (p *pass) identity(r *replicated, index int) []pair {
	l := p.layout
	job := JobName(p.js.Name, r.Name, index)
	out := []pair{
		{jobsetv1alpha2.JobSetNameKey, p.js.Name},
		{jobsetv1alpha2.JobSetUIDKey, string(p.js.UID)},
		{jobsetv1alpha2.ReplicatedJobNameKey, r.Name},
		{jobsetv1alpha2.ReplicatedJobReplicasKey, strconv.Itoa(int(r.replicas))},
		{jobsetv1alpha2.GlobalReplicasKey, strconv.Itoa(l.globalReplicas)},
		{jobsetv1alpha2.JobIndexKey, strconv.Itoa(index)},
		{jobsetv1alpha2.JobGlobalIndexKey, strconv.Itoa(r.firstGlobal + index)},
		{jobsetv1alpha2.JobKeyKey, JobKey(p.js.Namespace, job)},
		{jobsetv1alpha2.RestartAttemptKey, strconv.Itoa(int(p.status.Restarts))},
		{jobsetv1alpha2.GroupNameKey, r.group},
		{jobsetv1alpha2.GroupReplicasKey, strconv.Itoa(l.groupReplicas[r.group])},
		{jobsetv1alpha2.JobGroupIndexKey, strconv.Itoa(r.firstInGroup + index)},
	}
	if p.RestartJob {
		out = append(out, pair{jobsetv1alpha2.JobRestartAttemptKey, strconv.Itoa(int(r.jobRestarts(index)))})
	}
	if l.coordinator != "" {
		out = append(out, pair{jobsetv1alpha2.CoordinatorKey, l.coordinator})
	}
	return out
}

func (r *replicated) jobRestarts(index int) int32 {
	if r.arrays == nil || index >= len(r.arrays.JobRestarts) {
		return 0
	}
	return r.arrays.JobRestarts[index]
}

// owned reports whether a key of labels, annotations or node selectors belongs to this controller rather than to the user.
// Such keys keep the value that the Job was created with.
func owned(key string) bool {
	switch key {
	case jobsetv1alpha2.JobSetNameKey, jobsetv1alpha2.JobSetUIDKey, jobsetv1alpha2.ReplicatedJobNameKey,
		jobsetv1alpha2.ReplicatedJobReplicasKey, jobsetv1alpha2.GlobalReplicasKey, jobsetv1alpha2.JobIndexKey,
		jobsetv1alpha2.JobGlobalIndexKey, jobsetv1alpha2.JobKeyKey, jobsetv1alpha2.RestartAttemptKey,
		jobsetv1alpha2.JobRestartAttemptKey, jobsetv1alpha2.GroupNameKey, jobsetv1alpha2.GroupReplicasKey,
		jobsetv1alpha2.JobGroupIndexKey, jobsetv1alpha2.CoordinatorKey, jobsetv1alpha2.PriorityLabel,
		jobsetv1alpha2.ExclusiveTopologyAnnotation, jobsetv1alpha2.NodeSelectorStrategyAnnotation, jobsetv1alpha2.NamespacedJobLabel:
		return true
	}
	return false
}

func (p *pass) build(r *replicated, index int) *batchv1.Job {
	j := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: JobName(p.js.Name, r.Name, index), Namespace: p.js.Namespace,
			Labels: map[string]string{}, Annotations: map[string]string{}, OwnerReferences: controllerRef(p.js),
		},
		Spec: *r.Template.Spec.DeepCopy(),
	}
	pod := &j.Spec.Template
	podset.Merge(&j.Labels, r.Template.Labels)
	podset.Merge(&j.Annotations, r.Template.Annotations)
	for _, kv := range p.identity(r, index) {
		put(&j.Labels, kv.key, kv.value)
		put(&j.Annotations, kv.key, kv.value)
		put(&pod.Labels, kv.key, kv.value)
		put(&pod.Annotations, kv.key, kv.value)
	}
	for _, kv := range placement(p.js, r.ReplicatedJob) {
		put(&j.Annotations, kv.key, kv.value)
		put(&pod.Annotations, kv.key, kv.value)
	}
	j.Annotations[FingerprintAnnotation] = r.hash
	j.Spec.Suspend = new(p.suspended())
	if p.dns {
		pod.Spec.Subdomain = p.subdomain
	}
	mountClaims(p.js, &pod.Spec)
	if usesNodeSelector(j.Annotations) {
		put(&pod.Spec.NodeSelector, jobsetv1alpha2.NamespacedJobLabel, namespacedJob(j))
		pod.Spec.Tolerations = withToleration(pod.Spec.Tolerations)
	} else if priority, ok := priorityOf(p.priorities, pod.Spec.PriorityClassName); ok {
		put(&pod.Labels, jobsetv1alpha2.PriorityLabel, priorityLabel(priority))
	}
	return j
}

// priorityOf returns the priority of pods with a class.
func priorityOf(p Priorities, class string) (int32, bool) {
	if class == "" {
		return p.Default, true
	}
	value, ok := p.Classes[class]
	return value, ok
}

// placement returns the annotations that ask for exclusive placement: from the replicated job, or else from the JobSet. The
// strategy counts only beside the key, on the same object (spec: 60 §4.2).
func placement(js *jobsetv1alpha2.JobSet, rj *jobsetv1alpha2.ReplicatedJob) []pair {
	for _, from := range []map[string]string{rj.Template.Annotations, js.Annotations} {
		topology, ok := from[jobsetv1alpha2.ExclusiveTopologyAnnotation]
		if !ok {
			continue
		}
		out := []pair{{jobsetv1alpha2.ExclusiveTopologyAnnotation, topology}}
		if strategy, ok := from[jobsetv1alpha2.NodeSelectorStrategyAnnotation]; ok {
			out = append(out, pair{jobsetv1alpha2.NodeSelectorStrategyAnnotation, strategy})
		}
		return out
	}
	return nil
}

// usesNodeSelector reports whether annotations ask for exclusive placement on nodes that were labelled beforehand.
func usesNodeSelector(annotations map[string]string) bool {
	_, exclusive := annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation]
	_, strategy := annotations[jobsetv1alpha2.NodeSelectorStrategyAnnotation]
	return exclusive && strategy
}

// namespacedJob returns the value of the node label of the node selector strategy.
func namespacedJob(j *batchv1.Job) string { return j.Namespace + "_" + j.Name }

// withToleration adds the toleration of the node selector strategy, unless it exists.
func withToleration(tolerations []corev1.Toleration) []corev1.Toleration {
	own := corev1.Toleration{Key: jobsetv1alpha2.NoScheduleTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	if slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&own) }) {
		return tolerations
	}
	return append(slices.Clone(tolerations), own)
}

func put(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
