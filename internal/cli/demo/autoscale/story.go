package autoscale

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/autoscaler"
)

const (
	gpu       = corev1.ResourceName("nvidia.com/gpu")
	nodeGPUs  = 8 // a pod takes a whole node
	namespace = "team"
	queueName = "main"

	nodesAfter = 3 * time.Second
)

// order is a Job, a pod of which takes a whole node.
type order struct {
	name       string
	pods       int32
	seconds    int               // that it runs
	parameters map[string]string // of the autoscaler
}

var (
	train = order{name: "train", pods: 3, seconds: 4}
	flaky = order{name: "flaky", pods: 1, seconds: 2, parameters: map[string]string{autoscaler.Failures: "1", autoscaler.Delay: "1s"}}
	loser = order{name: "loser", pods: 2, seconds: 3600, parameters: map[string]string{autoscaler.RevokeAfter: "4s", autoscaler.Delay: "1s"}}
	all   = []order{train, flaky, loser}
)

// world is the cluster at one time.
type world struct {
	nodes int
	jobs  []job // in the order of all
}

// job is a Job with its Workload and its pods.
type job struct {
	name                                    string
	submitted, reserved, inactive, complete bool
	check, message                          string // of the admission check
	retries                                 int
	running                                 int32
	requests                                []string // that its running pods are bound to
}

func (w world) of(o order) job {
	if i := slices.IndexFunc(w.jobs, func(j job) bool { return j.name == o.name }); i >= 0 {
		return w.jobs[i]
	}
	return job{name: o.name}
}

func (j job) state() string {
	switch {
	case j.complete:
		return "complete"
	case j.inactive:
		return "deactivated"
	case j.running > 0:
		return fmt.Sprintf("%d pods run", j.running)
	case j.check == string(kueue.CheckStateReady):
		return "admitted"
	case j.retries > 0 && !j.reserved:
		return fmt.Sprintf("waits for attempt %d", j.retries+1)
	case j.check != "" && j.message != "":
		return "waits: " + j.message
	}
	return "waits"
}

// String describes the cluster in one line.
func (w world) String() string {
	parts := []string{fmt.Sprintf("%d nodes", w.nodes)}
	for _, j := range w.jobs {
		if j.submitted {
			parts = append(parts, j.name+" "+j.state())
		}
	}
	return strings.Join(parts, "; ")
}

// step is a part of the demo.
type step struct {
	says    string // the event, and the expected effect
	submits *order
	done    func(w world) bool
	// check returns a sentence about the effect, or an error if another one was expected.
	check func(w world) (string, error)
}

// story is the whole demo.
var story = []step{
	{
		says: "train needs 3 nodes with 8 GPUs each, and the cluster has none: it reserves quota, and asks the autoscaler", submits: &train,
		done: func(w world) bool { j := w.of(train); return j.reserved && j.message != "" },
		check: func(w world) (string, error) {
			if w.nodes > 0 || w.of(train).running > 0 {
				return "", fmt.Errorf("there are %d nodes already", w.nodes)
			}
			return "It waits. The autoscaler answers: " + w.of(train).message + ".", nil
		},
	},
	{
		says: "the nodes come, and train starts on them",
		done: func(w world) bool { return w.of(train).running == train.pods },
		check: func(w world) (string, error) {
			j := w.of(train)
			if w.nodes != int(train.pods) {
				return "", fmt.Errorf("%d nodes came, want %d", w.nodes, train.pods)
			}
			if r := slices.Compact(slices.Sorted(slices.Values(j.requests))); len(r) != 1 || r[0] == "" {
				return "", fmt.Errorf("its pods are bound to %q, and not to one request", r)
			}
			return fmt.Sprintf("3 nodes, 3 pods, bound to %s.", j.requests[0]), nil
		},
	},
	{
		says:  "train ends: its request is deleted, and the nodes go",
		done:  func(w world) bool { return w.of(train).complete && w.nodes == 0 },
		check: func(world) (string, error) { return "No node is left.", nil },
	},
	{
		says: "flaky asks where there is no capacity: the first attempt fails, and the second one finds a node", submits: &flaky,
		done: func(w world) bool { return w.of(flaky).complete && w.nodes == 0 },
		check: func(w world) (string, error) {
			if n := w.of(flaky).retries; n != 1 {
				return "", fmt.Errorf("it was retried %d times, want once", n)
			}
			return "It ran after one retry.", nil
		},
	},
	{
		says: "loser runs, and its capacity is revoked: it is stopped, and deactivated", submits: &loser,
		done: func(w world) bool { return w.of(loser).inactive && w.nodes == 0 },
		check: func(w world) (string, error) {
			if w.of(loser).running > 0 {
				return "", errors.New("it still runs")
			}
			return "It was stopped; set spec.active of its Workload to queue it again.", nil
		},
	},
}

func nodeCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"), gpu: *resource.NewQuantity(nodeGPUs, resource.DecimalSI),
	}
}

// objects are the CRD of the autoscaler, and a queue whose check asks it for nodes.
func objects() []client.Object {
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}
	config.Spec.ProvisioningClassName = autoscaler.Class
	config.Spec.ManagedResources = []corev1.ResourceName{gpu}
	config.Spec.RetryStrategy = &kueue.ProvisioningRequestRetryStrategy{BackoffLimitCount: new(int32(2)), BackoffBaseSeconds: new(int32(2))}
	config.Spec.PodSetUpdates = &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestNodeSelectorUpdate{
		{Key: autoscaler.GroupLabel, ValueFromProvisioningClassDetail: autoscaler.GroupDetail},
	}}
	return []client.Object{
		autoscaler.CRD(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		config,
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: kueue.AdmissionCheckSpec{
			ControllerName: kueue.ProvisioningRequestControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: config.Name},
		}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpu},
				Flavors: []kueue.FlavorQuotas{{Name: "gpus", Resources: []kueue.ResourceQuota{{
					Name: gpu, NominalQuota: *resource.NewQuantity(4*nodeGPUs, resource.DecimalSI),
				}}}},
			}},
			AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "nodes"}}},
		}},
		&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: queueName}, Spec: kueue.LocalQueueSpec{ClusterQueue: namespace},
		},
	}
}

// job is the Job of an order.
func (o order) job() *batchv1.Job {
	annotations := map[string]string{}
	for name, value := range o.parameters {
		annotations[kueue.ProvisioningRequestParameterPrefix+name] = value
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: o.name, Labels: map[string]string{kueue.QueueNameLabel: queueName}, Annotations: annotations,
		},
		Spec: batchv1.JobSpec{
			Parallelism: &o.pods, Completions: &o.pods,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/run-seconds": fmt.Sprint(o.seconds)}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "main", Image: "simulated",
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: *resource.NewQuantity(nodeGPUs, resource.DecimalSI)}},
					}},
				},
			},
		},
	}
}
