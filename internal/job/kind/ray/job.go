package ray

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// The submission modes of a RayJob that affect its pod sets.
const (
	modeJob     = "K8sJobMode" // by a pod of its own; the default
	modeSidecar = "SidecarMode"
)

// States of a RayJob.
const (
	stateSuspending       = "Suspending"
	stateSuspended        = "Suspended"
	stateWaiting          = "Waiting" // of InteractiveMode: until a user submits
	stateValidationFailed = "ValidationFailed"
	stateComplete         = "Complete"
	stateFailed           = "Failed"
)

const (
	// submitterRole is the pod set of the submitter pod.
	submitterRole = "submitter"
	// submitterContainer is the container of the submitter pod.
	submitterContainer = "ray-job-submitter"
)

// Job describes RayJob.
func Job(s Settings) *plan.Descriptor {
	d := view.Kind{
		Framework:  "ray.io/rayjob",
		GVK:        gvk("RayJob"),
		Resource:   "rayjobs",
		Suspend:    []string{"spec", "suspend"},
		ManagedBy:  []string{"spec", "managedBy"},
		OwnManager: ownManager,
		Groups:     true,
		Roles:      jobRoles,
		Begin:      writeSubmitter,
		Finished:   jobFinished,
		IsActive: func(o view.Object) bool {
			s := state(o)
			return s != "" && s != stateSuspended
		},
		PodsReady: func(o view.Object, _ []view.Role) bool {
			return view.String(o.Object, "status", "rayClusterStatus", "state") == ready
		},
		Validate: validateJob,
	}.Descriptor()
	d.Listing.Rules = []rbacv1.PolicyRule{changeClusters}
	d.States = &plan.States{
		OnHold: func(o plan.Object) bool { return state(view.Of(o)) == stateValidationFailed },
		Skip:   func(o plan.Object) bool { return selectsCluster(view.Of(o)) },
		Halt:   func(o plan.Object) bool { return stopWaiting(d, o) },
	}
	d.FreeUnmanaged, d.FreeLeaving = true, s.FreeLeaving
	d.Elastic = &plan.Elastic{Children: []schema.GroupVersionKind{gvk("RayCluster")}, Annotate: annotate, NameExtra: generationOfChild}
	d.Remote.Resize, d.Remote.Prepare = resizeAt("spec", "rayClusterSpec"), keepJob
	d.Refers, d.PodLabels = child, podsAt("status", "rayClusterName")
	d.ManagedChildren = jobChildren()
	d.Owns = jobOwns
	return d
}

// stopWaiting makes KubeRay suspend a job that waits for a user to submit it. KubeRay ignores spec.suspend in this state; by its
// status KubeRay suspends and starts such a job like any other. A copy on a worker cluster is stopped by the Berth there (spec: 30
// §4.9, RayJob).
func stopWaiting(d *plan.Descriptor, object plan.Object) bool {
	o := view.Of(object)
	if manager := d.ManagedBy(object); state(o) != stateWaiting || (manager != "" && manager != ownManager) {
		return false
	}
	view.Set(o.Object, stateSuspending, "status", "jobDeploymentStatus")
	return true
}

// jobChildren are the cluster of a job with its pods, and the submitter pod. KubeRay reports a job as suspended, or begins to retry
// it, as soon as the cluster and the Job of that pod are deleted, which is before their pods are.
func jobChildren() *plan.ManagedChildren {
	return &plan.ManagedChildren{
		Child: gvk("RayCluster"), PodLabel: rayplan.ClusterLabel, PodLabels: []string{rayplan.GroupLabel},
		IsActive: hasClusters,
		Others: func(o plan.Object) map[string]string {
			return map[string]string{batchv1.JobNameLabel: o.GetName(), kueue.PodSetLabel: submitterRole}
		},
	}
}

// hasClusters reports whether a job has clusters, or running pods.
func hasClusters(_ plan.Object, in *plan.Setting) bool {
	return len(in.Children) > 0 || slices.ContainsFunc(in.Pods, rayplan.Runs)
}

func state(o view.Object) string { return view.String(o.Object, "status", "jobDeploymentStatus") }

// selectsCluster reports whether the job runs on an existing cluster, which has its own pods and its own queue.
func selectsCluster(o view.Object) bool {
	return len(view.Map(o.Object, "spec", "clusterSelector")) > 0
}

func mode(o view.Object) string {
	if m := view.String(o.Object, "spec", "submissionMode"); m != "" {
		return m
	}
	return modeJob
}

func jobFinished(o view.Object) (message string, success, finished bool) {
	s := state(o)
	return view.String(o.Object, "status", "message"), view.String(o.Object, "status", "jobStatus") == "SUCCEEDED", s == stateComplete || s == stateFailed
}

func jobRoles(o view.Object, in *plan.Setting) ([]view.Role, error) {
	path := field.NewPath("spec")
	roles, err := cluster(o, view.Map(o.Object, "spec", "rayClusterSpec"), path.Child("rayClusterSpec"))
	if err == nil {
		err = countChild(o, roles, in)
	}
	if err != nil {
		return nil, err
	}
	switch mode(o) {
	case modeSidecar:
		shape := roles[0].Shape
		roles[0].Shape = func(t *corev1.PodTemplateSpec) {
			shape(t)
			t.Spec.Containers = append(t.Spec.Containers, submitter(o).Containers...)
		}
	case modeJob:
		role := view.Role{Name: submitterRole, Count: 1, Path: path.Child("submitterPodTemplate"), Template: view.Map(o.Object, "spec", "submitterPodTemplate")}
		if role.Template == nil {
			role.Template = map[string]any{}
			role.Shape = func(t *corev1.PodTemplateSpec) { t.Spec = submitter(o) }
		}
		roles = append(roles, role)
	}
	return roles, nil
}

// submitter is the default submitter pod of KubeRay.
func submitter(o view.Object) corev1.PodSpec {
	image := ""
	if of := view.Maps(o.Object, "spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers"); len(of) > 0 {
		image = view.String(of[0], "image")
	}
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: submitterContainer, Image: image, Resources: corev1.ResourceRequirements{Requests: list("500m", "200Mi"), Limits: list("1", "1Gi")},
		}},
	}
}

// writeSubmitter writes the submitter's template to the job, so that its placement can be set.
func writeSubmitter(o view.Object, _ *plan.Setting) {
	if mode(o) != modeJob || view.Map(o.Object, "spec", "submitterPodTemplate") != nil {
		return
	}
	template := corev1.PodTemplateSpec{Spec: submitter(o)}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
	if err == nil {
		delete(written, "metadata") // it has only an unset time
		view.Set(o.Object, written, "spec", "submitterPodTemplate")
	}
}

// resources reads requests and limits; nil if there are none.
func resources(tree map[string]any) (*corev1.ResourceRequirements, error) {
	if tree == nil {
		return nil, nil
	}
	out := &corev1.ResourceRequirements{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(tree, out)
}

// validateJob are the rules for a queued job.
func validateJob(o, old view.Object, roles []view.Role, in *plan.Setting) field.ErrorList {
	if !isQueued(o, in) {
		return nil
	}
	path := field.NewPath("spec")
	spec := view.Map(o.Object, "spec", "rayClusterSpec")
	switch {
	case selectsCluster(o) && spec != nil:
		return field.ErrorList{field.Invalid(path.Child("clusterSelector"), view.Map(o.Object, "spec", "clusterSelector"), "cannot be set together with rayClusterSpec")}
	case selectsCluster(o):
		return nil
	case spec == nil:
		return field.ErrorList{field.Required(path.Child("rayClusterSpec"), "a queued job brings its own cluster, or selects one by clusterSelector")}
	}
	errs := append(validateCluster(o, spec, path.Child("rayClusterSpec"), len(roles), in), longName(o, old, maxParentName)...)
	if !view.Bool(o.Object, "spec", "shutdownAfterJobFinishes") {
		errs = append(errs, field.Invalid(path.Child("shutdownAfterJobFinishes"), false, "must be true, or the cluster would keep what was admitted for the job"))
	}
	return errs
}
