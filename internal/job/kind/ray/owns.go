package ray

import (
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// headGroup is the group label of the head's pod.
const headGroup = "headgroup"

var (
	clusterOwns = []plan.Child{
		{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Made: madePod},
		{GVK: batchv1.SchemeGroupVersion.WithKind("Job"), Made: madeCleanup},
	}
	jobOwns = []plan.Child{
		{GVK: gvk("RayCluster"), Made: madeByJob},
		{GVK: batchv1.SchemeGroupVersion.WithKind("Job"), Made: madeSubmitter},
	}
)

// madePod says why a pod is none of a cluster. How many a group has is not checked: KubeRay deletes what is more.
func madePod(k *plan.OwnedBy) error {
	labels := k.Child.GetLabels()
	if labels[rayplan.ClusterLabel] != k.Owner.GetName() {
		return errors.New("the label " + rayplan.ClusterLabel + " does not name the cluster")
	}
	group := strings.ToLower(labels[rayplan.GroupLabel])
	if group == headGroup {
		group = headRole
	}
	set, err := setOf(k, group)
	if err != nil {
		return err
	}
	return plan.MadePod(k.Child, &set.Template.Spec)
}

// setOf is a pod set of a cluster.
func setOf(k *plan.OwnedBy, name string) (*kueue.PodSet, error) {
	sets, err := view.PodSetsOf(view.Of(k.Owner), ownRoles, k.Setting())
	if err != nil {
		return nil, err
	}
	for i := range sets {
		if string(sets[i].Name) == name {
			return &sets[i], nil
		}
	}
	return nil, fmt.Errorf("there is no group %s", name)
}

// madeCleanup says why a Job is not the one that cleans up after a cluster which tolerates faults, in the place of its head.
func madeCleanup(k *plan.OwnedBy) error {
	head, err := setOf(k, headRole)
	if err != nil {
		return err
	}
	return isSingle(k, k.Owner.GetName()+"-redis-cleanup", &head.Template.Spec)
}

// isSingle compares a Job of one pod.
func isSingle(k *plan.OwnedBy, name string, template *corev1.PodSpec) error {
	child, ok := k.Child.(*batchv1.Job)
	switch {
	case !ok:
		return errors.New("it cannot be read")
	case child.Name != name:
		return plan.ErrOtherName
	case child.Spec.Parallelism != nil && *child.Spec.Parallelism > 1:
		return fmt.Errorf("it has 1 pod, and not %d", *child.Spec.Parallelism)
	}
	return plan.PodExceeds(&child.Spec.Template.Spec, template)
}

// madeSubmitter says why a Job is not the one that submits.
func madeSubmitter(k *plan.OwnedBy) error {
	sets, err := view.PodSetsOf(view.Of(k.Owner), jobRoles, k.Setting())
	if err != nil {
		return err
	}
	for i := range sets {
		if sets[i].Name == submitterRole {
			return isSingle(k, k.Owner.GetName(), &sets[i].Template.Spec)
		}
	}
	return errors.New("no pod of its own submits it")
}

// madeByJob says why a cluster is none of a RayJob. One at a time has the name that the status says. The pods of an elastic one are held
// by their gates, so it has as many as it likes.
func madeByJob(k *plan.OwnedBy) error {
	owner, child := view.Of(k.Owner), view.Of(k.Child)
	if name := view.String(owner.Object, "status", "rayClusterName"); name != "" && child.GetName() != "" && child.GetName() != name {
		return fmt.Errorf("its cluster is %s", name)
	}
	elastic := isElastic(owner, k.Setting())
	if elastic && !plan.IsElastic(child) {
		return errors.New("its cluster has the annotation " + kueue.ElasticJobAnnotation)
	}
	of, err := view.PodSetsOf(owner, jobRoles, k.Setting())
	if err != nil {
		return err
	}
	return clusterFits(k, of, elastic)
}

// madeByService says why a cluster is none of a RayService. Those of a service that is led wait for quota one by one, whatever they ask for.
// A cluster that serves may be of an earlier spec: KubeRay has it in the status.
func (r *Settings) madeByService(k *plan.OwnedBy) error {
	owner := view.Of(k.Owner)
	if !plan.HasPrefix(k.Child, owner.GetName()+"-") {
		return plan.ErrOtherName
	}
	if r.isGated(owner, k.Setting()) {
		return nil
	}
	for _, status := range []string{"activeServiceStatus", "pendingServiceStatus"} {
		if name := view.String(owner.Object, "status", status, "rayClusterName"); name != "" && name == k.Child.GetName() {
			return nil
		}
	}
	of, err := view.PodSetsOf(owner, serviceRoles, k.Setting())
	if err != nil {
		return err
	}
	return clusterFits(k, of, false)
}

// clusterFits compares a cluster to the pod sets of its owner.
func clusterFits(k *plan.OwnedBy, of []kueue.PodSet, anyCount bool) error {
	sets, err := view.PodSetsOf(view.Of(k.Child), ownRoles, k.Setting())
	if err != nil {
		return err
	}
	return plan.SetsExceed(sets, of, anyCount)
}
