// Package kubeflow is the integration of the jobs of the training operator
// (kubeflow.org/v1) and of the MPI operator (v2beta1). They differ in the field of
// their replicas and in their roles; the rest is one narrow view.
package kubeflow

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// Labels of pods. indexLabel is the index of a pod in its role.
const (
	indexLabel    = "training.kubeflow.org/replica-index"
	nameLabel     = "training.kubeflow.org/job-name"
	operatorLabel = "training.kubeflow.org/operator-name"
)

// Values of spec.runPolicy.managedBy for the kinds' own controllers.
const (
	trainingOperator = "kubeflow.org/training-operator"
	mpiOperator      = "kubeflow.org/mpi-operator"
)

// kind is one kind: the field of its replicas, and its roles in the order of their pod sets.
type kind struct {
	name, version string
	replicas      string
	roles         []string
	operator      string
}

var kinds = []kind{
	{"PyTorchJob", "v1", "pytorchReplicaSpecs", []string{"Master", "Worker"}, trainingOperator},
	{"TFJob", "v1", "tfReplicaSpecs", []string{"Chief", "Master", "PS", "Worker", "Evaluator"}, trainingOperator},
	{"XGBoostJob", "v1", "xgbReplicaSpecs", []string{"Master", "Worker"}, trainingOperator},
	{"PaddleJob", "v1", "paddleReplicaSpecs", []string{"Master", "Worker"}, trainingOperator},
	{"JAXJob", "v1", "jaxReplicaSpecs", []string{"Worker"}, trainingOperator},
	{"MPIJob", "v2beta1", "mpiReplicaSpecs", []string{launcher, worker}, mpiOperator},
}

// Descriptors returns the kinds, in the order of the catalogue (spec: 30 §4.9).
func Descriptors() []*plan.Descriptor {
	out := make([]*plan.Descriptor, 0, len(kinds))
	for _, k := range kinds {
		out = append(out, k.descriptor())
	}
	return out
}

func (k kind) descriptor() *plan.Descriptor {
	isMPI := k.operator == mpiOperator
	v := view.Kind{
		Framework:  "kubeflow.org/" + strings.ToLower(k.name),
		GVK:        schema.GroupVersionKind{Group: "kubeflow.org", Version: k.version, Kind: k.name},
		Resource:   strings.ToLower(k.name) + "s",
		Suspend:    []string{"spec", "runPolicy", "suspend"},
		ManagedBy:  []string{"spec", "runPolicy", "managedBy"},
		OwnManager: k.operator,
		TTL:        []string{"spec", "runPolicy", "ttlSecondsAfterFinished"},
		Roles:      k.find,
		Finished:   view.FinishedBy("Succeeded", "Failed"),
		IsActive:   isActive,
		PodsReady:  func(o view.Object, _ []view.Role) bool { return view.HasCondition(o, "Running") },
		Groups:     isMPI,
	}
	if isMPI {
		v.Validate = validateMPI
	}
	d := v.Descriptor()
	d.PriorityClass = k.priorityClass
	d.PodLabels = plan.PodsByName(nameLabel, operatorLabel, k.controller())
	d.Owns = k.owns(isMPI)
	d.LaxUpdates = !isMPI
	if isMPI {
		d.Default = offsetWorkers
	}
	return d
}

// controller is the name of the controller in the labels of the pods.
func (k kind) controller() string {
	if k.operator == mpiOperator {
		return "mpi-operator"
	}
	return strings.ToLower(k.name) + "-controller"
}

// find lists the roles of the job, in the order of the kind.
func (k kind) find(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	path := field.NewPath("spec", k.replicas)
	var out []view.Role
	for _, role := range k.roles {
		replica := view.Map(o.Object, "spec", k.replicas, role)
		if replica == nil {
			continue
		}
		template := view.Map(replica, "template")
		if template == nil {
			return nil, field.Required(path.Key(role).Child("template"), "a role needs a pod template")
		}
		out = append(out, view.Role{
			Name: strings.ToLower(role), Count: view.Int(replica, 1, "replicas"), Template: template,
			Path: path.Key(role).Child("template"), CountPath: path.Key(role).Child("replicas"), Ranks: plan.Ranks{PodIndex: indexLabel},
		})
	}
	return out, nil
}

func isActive(o view.Object) bool {
	statuses := view.Map(o.Object, "status", "replicaStatuses")
	for role := range statuses { //berth:unordered one active role is enough
		if view.Int(statuses, 0, role, "active") != 0 {
			return true
		}
	}
	return false
}

// priorityClass is the class of the whole job, or the first one of a role's template (spec: 30 §4.6).
func (k kind) priorityClass(o plan.Object) string {
	return view.String(view.Of(o).Object, "spec", "runPolicy", "schedulingPolicy", "priorityClass")
}

// Roles of an MPIJob.
const (
	launcher = "Launcher"
	worker   = "Worker"
)

// validateMPI refuses a new MPIJob that its operator would never run, because the host name of its last worker is too long.
func validateMPI(o, old view.Object, _ []view.Role, in *plan.Setting) field.ErrorList {
	if old != nil || !in.IsQueued(o) {
		return nil
	}
	n := max(1, view.Int(o.Object, 1, "spec", "mpiReplicaSpecs", worker, "replicas"))
	return plan.LongName(o, "its last worker", fmt.Sprintf("%s-worker-%d", plan.ExpectedName(o), n-1), plan.MaxLabel)
}

// offsetWorkers shifts the ranks of the workers by one if the launcher is a worker.
func offsetWorkers(o plan.Object, _ bool, in *plan.Setting) {
	spec := view.Map(view.Of(o).Object, "spec")
	ofLauncher, ofWorkers := view.Map(spec, "mpiReplicaSpecs", launcher, "template"), view.Map(spec, "mpiReplicaSpecs", worker, "template")
	if !in.Topology || !view.Bool(spec, "runLauncherAsWorker") || ofLauncher == nil || ofWorkers == nil {
		return
	}
	if _, grouped := view.Map(ofLauncher, "metadata", "annotations")[kueue.PodSetGroupNameAnnotation]; !grouped {
		view.Set(ofWorkers, "1", "metadata", "annotations", kueue.PodIndexOffsetAnnotation)
	}
}
