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

// The modes in which a RayJob is submitted that matter here.
const (
	modeJob     = "K8sJobMode" // by a pod of its own; also without a mode
	modeSidecar = "SidecarMode"
)

// States of a RayJob.
const (
	stateSuspending       = "Suspending"
	stateSuspended        = "Suspended"
	stateWaiting          = "Waiting" // of InteractiveMode: for a user who submits
	stateValidationFailed = "ValidationFailed"
	stateComplete         = "Complete"
	stateFailed           = "Failed"
)

const (
	// submitterRole is the pod set of the pod that submits.
	submitterRole = "submitter"
	// submitterContainer is the container that does.
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
	d.Remote.Resize = resizeAt("spec", "rayClusterSpec")
	d.Refers, d.PodLabels = child, podsAt("status", "rayClusterName")
	d.ManagedChildren = jobChildren()
	d.Owns = jobOwns
	return d
}

// stopWaiting has KubeRay suspend a job that waits for a user who submits. KubeRay does not look at spec.suspend then; by its status
// it suspends such a job like any other, and starts it again like any other. Where the job runs on another cluster, that is for Berth
// there (spec: 30 §4.9, RayJob).
func stopWaiting(d *plan.Descriptor, object plan.Object) bool {
	o := view.Of(object)
	if manager := d.ManagedBy(object); state(o) != stateWaiting || (manager != "" && manager != ownManager) {
		return false
	}
	view.Set(o.Object, stateSuspending, "status", "jobDeploymentStatus")
	return true
}

// jobFamily is the cluster of a job and its pods, and the pod that submits it. KubeRay says that a job is suspended, or begins to
// try it again, as soon as the cluster and the Job of that pod are gone; both are deleted before their pods are.
func jobChildren() *plan.ManagedChildren {
	return &plan.ManagedChildren{
		Child: gvk("RayCluster"), PodLabel: rayplan.ClusterLabel, PodLabels: []string{rayplan.GroupLabel},
		IsActive: hasClusters,
		Others: func(o plan.Object) map[string]string {
			return map[string]string{batchv1.JobNameLabel: o.GetName(), kueue.PodSetLabel: submitterRole}
		},
	}
}

// hasClusters reports whether clusters of a job are left, or pods that run.
func hasClusters(_ plan.Object, in *plan.Setting) bool {
	return len(in.Children) > 0 || slices.ContainsFunc(in.Pods, rayplan.Runs)
}

func state(o view.Object) string { return view.String(o.Object, "status", "jobDeploymentStatus") }

// selectsCluster reports whether the job runs on a cluster that exists, which has its own pods and its own queue.
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

// jobRoles are those of the cluster, and the submitter where it has a pod of its own.
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

// submitter is the pod that KubeRay makes if the job does not say.
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

// writeSubmitter has the job say what its submitter is, so that it can be told where to run.
func writeSubmitter(o view.Object, _ *plan.Setting) {
	if mode(o) != modeJob || view.Map(o.Object, "spec", "submitterPodTemplate") != nil {
		return
	}
	template := corev1.PodTemplateSpec{Spec: submitter(o)}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
	if err == nil {
		delete(written, "metadata") // nothing but a time that is not set
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

// validateJob are the rules for a job that is queued.
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
