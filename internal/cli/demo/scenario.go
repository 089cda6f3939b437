package demo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const (
	gpu        = corev1.ResourceName("nvidia.com/gpu")
	cohort     = "lab"
	flavorName = "gpus"
	queueName  = "main" // of the LocalQueue in each team's namespace
	quota      = 16     // GPUs of each team
	podGPUs    = 4      // GPUs of each pod; all jobs are multiples of it
)

// teams are the names of namespaces and of ClusterQueues.
var teams = []string{"team-a", "team-b"}

// priorities are WorkloadPriorityClasses with their values.
var priorities = map[string]int32{"low": 100, "normal": 500, "high": 1000}

// order is a job that a team submits.
type order struct {
	team, name, priority string
	gpus                 int32
	runs                 time.Duration
}

// step is submitted some time after Berth has observed the jobs of the step before, so that a slow machine plays the same scenario.
type step struct {
	after  time.Duration
	says   string // one sentence about the expected effect
	orders []order
}

// scenario is the whole demo. It takes half a minute.
var scenario = []step{
	{0, "team-a trains on its whole quota of 16 GPUs", []order{
		{"team-a", "pretrain", "normal", 16, 18 * time.Second},
	}},
	{1500 * time.Millisecond, "team-b is away: team-a borrows the 16 GPUs that are idle", []order{
		{"team-a", "sweep-1", "low", 8, 9 * time.Second},
		{"team-a", "sweep-2", "low", 8, 9 * time.Second},
	}},
	{2 * time.Second, "team-a wants more than there is: the job waits and says why", []order{
		{"team-a", "eval", "low", 4, 4 * time.Second},
	}},
	{2500 * time.Millisecond, "team-b is back and needs half of its quota: one borrower has to go, and queues again", []order{
		{"team-b", "finetune", "normal", 8, 12 * time.Second},
	}},
	{2500 * time.Millisecond, "team-b needs the other half as well", []order{
		{"team-b", "batch", "normal", 8, 8 * time.Second},
	}},
	{2500 * time.Millisecond, "a hotfix of high priority preempts a job of its own team; what that leaves over goes to who fits", []order{
		{"team-b", "hotfix", "high", 4, 5 * time.Second},
		{"team-b", "report", "low", 4, 4 * time.Second},
	}},
}

// stage makes the queues of the teams.
func stage(ctx context.Context, c client.Client) error {
	objects := []client.Object{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavorName}}}
	for _, team := range teams {
		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}},
			clusterQueue(team),
			&kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: queueName},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(team)},
			})
	}
	for _, name := range []string{"low", "normal", "high"} {
		objects = append(objects, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: priorities[name]})
	}
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// clusterQueue has a team's quota, can borrow the other team's, and reclaims its own.
func clusterQueue(team string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: team}, Spec: kueue.ClusterQueueSpec{
		CohortName:        cohort,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: team}},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{gpu},
			Flavors: []kueue.FlavorQuotas{{
				Name:      flavorName,
				Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: *resource.NewQuantity(quota, resource.DecimalSI)}},
			}},
		}},
		Preemption: &kueue.ClusterQueuePreemption{
			ReclaimWithinCohort: kueue.ReclaimAny, WithinClusterQueue: kueue.PreemptionLowerPriority,
		},
	}}
}

// job is the Job of an order: any Job with a LocalQueue's name as a label.
func (o order) job() *batchv1.Job {
	pods := o.gpus / podGPUs
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.team, Name: o.name, Labels: map[string]string{
			kueue.QueueNameLabel: queueName, kueue.PriorityClassLabel: o.priority,
		}},
		Spec: batchv1.JobSpec{
			Parallelism: &pods, Completions: &pods,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					"berth.dev/run-seconds": strconv.FormatFloat(o.runs.Seconds(), 'f', -1, 64),
				}},
				Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
					Name: "main", Image: "simulated",
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: *resource.NewQuantity(podGPUs, resource.DecimalSI)}},
				}}},
			},
		},
	}
}

// Sample is the manifest of a Job for `kubectl create`, for repeated use: three of them do not fit at once.
func Sample() ([]byte, error) {
	j := order{teams[0], "", "normal", quota, time.Minute}.job()
	j.APIVersion, j.Kind, j.GenerateName = batchv1.SchemeGroupVersion.String(), "Job", "hello-"
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(j)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	return yaml.Marshal(object)
}
