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

// madePod returns why a pod does not belong to a cluster. The number in a group is not checked: KubeRay deletes surplus pods.
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

// madeCleanup returns why a Job is not the cleanup Job of a fault-tolerant cluster, which replaces its head.
func madeCleanup(k *plan.OwnedBy) error {
	head, err := setOf(k, headRole)
	if err != nil {
		return err
	}
	return isSingle(k, nameOfJob(k.Owner.GetName()+"-redis-cleanup"), &head.Template.Spec)
}

// nameOfJob shortens the name of a Job as KubeRay does: the end stays, and begins with no punctuation.
func nameOfJob(name string) string {
	name = name[max(0, len(name)-plan.MaxLabel):]
	if name[0] == '-' || name[0] == '.' {
		name = "r" + name[1:]
	}
	return name
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

// madeSubmitter returns why a Job is not the submitter.
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

// madeByJob returns why a cluster does not belong to a RayJob. It has the name in the status. The pods of an elastic cluster are
// gated, so their number is not checked.
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

// madeByService returns why a cluster does not belong to a RayService. Gated clusters wait for quota one by one, so their pod sets
// are not checked. A serving cluster may be of an earlier spec: the status names it.
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

// clusterFits compares a cluster with the pod sets of its owner.
func clusterFits(k *plan.OwnedBy, of []kueue.PodSet, anyCount bool) error {
	sets, err := view.PodSetsOf(view.Of(k.Child), ownRoles, k.Setting())
	if err != nil {
		return err
	}
	return plan.SetsExceed(sets, of, anyCount)
}
