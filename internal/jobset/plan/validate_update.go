package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// update checks a change (spec: 60 §3.4).
func (v *rules) update(old *jobsetv1alpha2.JobSet) {
	if !equality.Semantic.DeepEqual(old.Spec.ManagedBy, v.js.Spec.ManagedBy) {
		v.invalid(specPath.Child("managedBy"), value(v.js.Spec.ManagedBy), "field is immutable, and cannot be set later")
	}
	v.sameReplicatedJobs(old)
	// The schema compares two versions of a policy; an added policy is checked here, except
	// volumeClaimPolicies: clients add them without a container that mounts them.
	if old.Spec.Network == nil {
		v.network()
	}
	if old.Spec.SuccessPolicy == nil {
		v.successPolicy()
	}
	if old.Spec.FailurePolicy == nil {
		v.failurePolicy()
	}
}

// sameReplicatedJobs checks that only mutable fields of the replicated jobs have changed.
func (v *rules) sameReplicatedJobs(old *jobsetv1alpha2.JobSet) {
	a, b := old.Spec.ReplicatedJobs, v.js.Spec.ReplicatedJobs
	sameName := func(x, y jobsetv1alpha2.ReplicatedJob) bool { return x.Name == y.Name }
	if !slices.EqualFunc(a, b, sameName) {
		v.errs = append(v.errs, field.Forbidden(rjsPath, "replicated jobs can be neither added, removed, renamed nor reordered"))
		return
	}
	mayMove := ptr.Deref(old.Spec.Suspend, false) || ptr.Deref(v.js.Spec.Suspend, false)
	for i := range a {
		was, is := a[i].DeepCopy(), b[i].DeepCopy()
		if mayMove {
			copyScheduling(&is.Template.Spec.Template, &was.Template.Spec.Template)
		}
		if v.ElasticJobSet && isIndexed(was.Template.Spec.CompletionMode) {
			v.resized(old, was, is, rjsPath.Index(i).Child("template", "spec"))
		}
		if !equality.Semantic.DeepEqual(was, is) {
			v.invalid(rjsPath.Index(i), is.Name, immutable(mayMove))
		}
	}
}

func immutable(mayMove bool) string {
	if mayMove {
		return "field is immutable; of a suspended JobSet only labels, annotations, nodeSelector, tolerations and schedulingGates of pod templates can change"
	}
	return "field is immutable; labels, annotations, nodeSelector, tolerations and schedulingGates of pod templates can change while the JobSet is suspended"
}

// copyScheduling overwrites the fields that may change while a JobSet is suspended.
func copyScheduling(to, from *corev1.PodTemplateSpec) {
	to.Labels, to.Annotations = from.Labels, from.Annotations
	to.Spec.NodeSelector, to.Spec.Tolerations, to.Spec.SchedulingGates = from.Spec.NodeSelector, from.Spec.Tolerations, from.Spec.SchedulingGates
}

// resized checks a change of the number of pods, and then removes it from the comparison.
func (v *rules) resized(old *jobsetv1alpha2.JobSet, was, is *jobsetv1alpha2.ReplicatedJob, path *field.Path) {
	a, b := &was.Template.Spec, &is.Template.Spec
	changed := false
	for _, n := range []struct {
		name    string
		old, is *int32
	}{{"parallelism", a.Parallelism, b.Parallelism}, {"completions", a.Completions, b.Completions}} {
		if equality.Semantic.DeepEqual(n.old, n.is) {
			continue
		}
		changed = true
		if n.is != nil && *n.is < 1 {
			v.invalid(path.Child(n.name), *n.is, "must be at least 1")
		}
		if FinishedCondition(old) != nil {
			v.errs = append(v.errs, field.Forbidden(path.Child(n.name), "the JobSet has finished"))
		}
		if owner := TrainJobOf(old); owner != nil { // its quota is of the pods that the TrainJob had when it was admitted
			v.errs = append(v.errs, field.Forbidden(path.Child(n.name),
				"the JobSet belongs to TrainJob "+owner.Name+"; create a new TrainJob to change its number of pods, spec.trainer.numNodes"))
		}
	}
	if changed && b.Parallelism != nil && b.Completions != nil && *b.Parallelism != *b.Completions {
		v.invalid(path.Child("completions"), *b.Completions, fmt.Sprintf("must be equal to parallelism, %d", *b.Parallelism))
	}
	if changed {
		v.pods(is, path.Child("parallelism"))
	}
	b.Parallelism, b.Completions = a.Parallelism, a.Completions
}

// Warnings are about valid settings of a new JobSet that are probably mistakes (spec: 60 §3.2).
func Warnings(js *jobsetv1alpha2.JobSet) []string {
	var out []string
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		t, path := &rj.Template.Spec, rjsPath.Index(i).Child("template", "spec")
		warn := func(at *field.Path, text string) { out = append(out, at.String()+": "+text) }
		if job.QueueName(&rj.Template) != "" && job.QueueName(js) == "" {
			warn(rjsPath.Index(i).Child("template", "metadata", "labels").Key(kueue.QueueNameLabel), "Jobs of a JobSet are queued with it; set metadata.labels of the JobSet instead")
		}
		if t.TTLSecondsAfterFinished != nil {
			warn(path.Child("ttlSecondsAfterFinished"), "a Job that is deleted while others run is created again and runs again; set spec.ttlSecondsAfterFinished instead")
		}
		if len(placement(js, rj)) > 0 && !isIndexed(t.CompletionMode) {
			warn(path.Child("completionMode"), "exclusive placement needs Indexed: these pods will never be scheduled")
		}
		pod, containers := &t.Template.Spec, path.Child("template", "spec", "containers")
		if len(pod.Containers) == 0 {
			warn(containers, "a pod needs a container: no Job can be created")
		}
		for k := range pod.Containers {
			if pod.Containers[k].Name == "" || pod.Containers[k].Image == "" {
				warn(containers.Index(k), "a container needs a name and an image: no Job can be created")
			}
		}
		if pod.RestartPolicy == corev1.RestartPolicyAlways {
			warn(path.Child("template", "spec", "restartPolicy"), "pods of a Job cannot restart always: no Job can be created")
		}
	}
	return append(out, warningsOfClaims(js)...)
}

func warningsOfClaims(js *jobsetv1alpha2.JobSet) (out []string) {
	for i := range js.Spec.VolumeClaimPolicies {
		for k := range js.Spec.VolumeClaimPolicies[i].Templates {
			s := &js.Spec.VolumeClaimPolicies[i].Templates[k].Spec
			if len(s.AccessModes) == 0 || len(s.Resources.Requests) == 0 {
				out = append(out, templatePath(i, k).Child("spec").String()+": a claim needs accessModes and resources.requests: no Job can be created")
			}
		}
	}
	return out
}
