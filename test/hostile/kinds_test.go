package hostile

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// pod is a pod template in one line.
const pod = `{metadata: {labels: {app: x}}, spec: {restartPolicy: Never, containers: [{name: node, image: any, resources: {requests: {cpu: 100m}}}]}}`

// foreign are the kinds whose CRDs others bring: here they take any spec, so that nothing but Berth stands in the way.
var foreign = map[string]schema.GroupVersionKind{
	"leaderworkersets": {Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"},
	"mpijobs":          {Group: "kubeflow.org", Version: "v2beta1", Kind: "MPIJob"},
	"pytorchjobs":      {Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"},
	"rayclusters":      {Group: "ray.io", Version: "v1", Kind: "RayCluster"},
	"rayjobs":          {Group: "ray.io", Version: "v1", Kind: "RayJob"},
	"rayservices":      {Group: "ray.io", Version: "v1", Kind: "RayService"},
	"appwrappers":      {Group: "workload.codeflare.dev", Version: "v1beta2", Kind: "AppWrapper"},
	"sparkapplications": {
		Group: "sparkoperator.k8s.io", Version: "v1beta2", Kind: "SparkApplication",
	},
}

const rayCluster = `{rayVersion: "2.9", headGroupSpec: {rayStartParams: {}, template: ` + pod + `}, workerGroupSpecs: [{groupName: small, replicas: 1, minReplicas: 1, maxReplicas: 5, numOfHosts: 1, template: ` + pod + `}]}`

// kinds are one harmless object of every kind that a tenant may create.
var kinds = []string{
	`{apiVersion: batch/v1, kind: Job, spec: {parallelism: 1, completions: 1, backoffLimit: 1, template: ` + pod + `}}`,
	`{apiVersion: v1, kind: Pod, spec: {restartPolicy: Never, containers: [{name: node, image: any, resources: {requests: {cpu: 100m}}}]}}`,
	`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 1, serviceName: x, selector: {matchLabels: {app: x}}, template: ` + strings.Replace(pod, "restartPolicy: Never, ", "", 1) + `}}`,
	`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1, selector: {matchLabels: {app: x}}, template: ` + strings.Replace(pod, "restartPolicy: Never, ", "", 1) + `}}`,
	`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {network: {enableDNSHostnames: true}, failurePolicy: {maxRestarts: 1}, replicatedJobs: [{name: w, replicas: 1, template: {spec: {parallelism: 1, completions: 1, template: ` + pod + `}}}]}}`,
	`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: deepspeed-distributed}, trainer: {numNodes: 1, numProcPerNode: 1, env: [{name: A, value: b}]}}}`,
	`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: torch-distributed}, trainer: {numNodes: 1}}}`,
	`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {replicas: 1, leaderWorkerTemplate: {size: 2, leaderTemplate: ` + pod + `, workerTemplate: ` + pod + `}}}`,
	`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {slotsPerWorker: 1, runPolicy: {cleanPodPolicy: None}, mpiReplicaSpecs: {Launcher: {replicas: 1, template: ` + pod + `}, Worker: {replicas: 1, template: ` + pod + `}}}}`,
	`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: ` + pod + `}, Worker: {replicas: 1, template: ` + pod + `}}}}`,
	`{apiVersion: ray.io/v1, kind: RayCluster, spec: ` + rayCluster + `}`,
	`{apiVersion: ray.io/v1, kind: RayJob, spec: {entrypoint: x, shutdownAfterJobFinishes: true, submitterPodTemplate: ` + pod + `, rayClusterSpec: ` + rayCluster + `}}`,
	`{apiVersion: ray.io/v1, kind: RayService, spec: {rayClusterConfig: ` + rayCluster + `}}`,
	`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, spec: {components: [{template: {apiVersion: batch/v1, kind: Job, metadata: {name: p}, spec: {parallelism: 1, template: ` + pod + `}}}]}}`,
	`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {type: Python, mode: cluster, sparkVersion: "3.5", driver: {cores: 1, memory: 512m}, executor: {cores: 1, instances: 1, memory: 512m}}}`,
	`{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, spec: {queueName: main, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: node, image: any, resources: {requests: {cpu: 100m}}}]}}}]}}`,
	`{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, spec: {queueName: main, podSets: [{name: main, count: 1, minCount: 1, template: {spec: {containers: [{name: node, image: any, resources: {requests: {cpu: 100m}}}]}}}]}}`,
}

// counts are the fields whose greatest value asks for the most memory, and what of them once killed a manager.
var counts = []string{
	`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: deepspeed-distributed}, trainer: {numNodes: N}}}`,
	`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: deepspeed-distributed}, trainer: {numNodes: 1000, numProcPerNode: N}}}`,
	`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: torch-distributed}, trainer: {numNodes: N}}}`,
	`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{name: w, replicas: N, template: {spec: {parallelism: 0, completions: 0, template: ` + pod + `}}}]}}`,
	`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{name: w, replicas: N, template: {spec: {parallelism: 1, completions: 1, template: ` + pod + `}}}]}}`,
	`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {replicas: N, leaderWorkerTemplate: {size: 1, workerTemplate: ` + pod + `}}}`,
	`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {replicas: N, leaderWorkerTemplate: {size: N, workerTemplate: ` + pod + `}}}`,
	`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {slotsPerWorker: N, mpiReplicaSpecs: {Launcher: {replicas: 1, template: ` + pod + `}, Worker: {replicas: N, template: ` + pod + `}}}}`,
	`{apiVersion: ray.io/v1, kind: RayCluster, spec: {rayVersion: "2.9", headGroupSpec: {rayStartParams: {}, template: ` + pod + `}, workerGroupSpecs: [{groupName: small, replicas: N, minReplicas: 0, maxReplicas: N, numOfHosts: N, template: ` + pod + `}]}}`,
	`{apiVersion: batch/v1, kind: Job, spec: {parallelism: N, completions: N, template: ` + pod + `}}`,
	`{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, spec: {queueName: main, podSets: [{name: main, count: N, template: {spec: {containers: [{name: node, image: any, resources: {requests: {cpu: 9000000000000000}}}]}}}]}}`,
	`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {type: Python, mode: cluster, sparkVersion: "3.5", driver: {cores: 1, memory: 512m}, executor: {cores: 1, instances: N, memory: 512m}}}`,
}

// object parses one of these and gives it the tenant's name and queue.
func object(text, name string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &out.Object); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	out.SetNamespace(evil)
	out.SetName(name)
	out.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "main"})
	return out
}

// huge is one of counts with a number that somebody might try.
func huge(r *rand.Rand, name string) *unstructured.Unstructured {
	n := []string{"2147483647", "2000000000", "1000000", "100001", "46341", "65536"}[r.IntN(6)]
	return object(strings.ReplaceAll(counts[r.IntN(len(counts))], ": N", ": "+n), name)
}
