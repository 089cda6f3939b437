package all_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
)

// Objects of chains. uid-1 is the owner in the labels of objects whose controller sets the UID of the owner.
const (
	spec1CPU  = "{containers: [{name: c, image: x, resources: {requests: {cpu: '1'}}}]}"
	spec9CPU  = "{containers: [{name: c, image: x, resources: {requests: {cpu: '9'}}}]}"
	sidecar   = "{containers: [{name: c, image: x, resources: {requests: {cpu: '1'}}}, {name: mesh, image: m, resources: {requests: {cpu: '1'}}}]}"
	hog       = "{containers: [{name: c, image: x, resources: {requests: {cpu: '1'}}}, {name: mesh, image: m, resources: {requests: {cpu: '5'}}}]}"
	withGPU   = "{containers: [{name: c, image: x, resources: {requests: {cpu: '1'}, limits: {nvidia.com/gpu: 1}}}]}"
	sidecGPU  = "{containers: [{name: c, image: x, resources: {requests: {cpu: '1'}}}, {name: mesh, image: m, resources: {limits: {nvidia.com/gpu: 1}}}]}"
	someClaim = "{resourceClaims: [{name: r, resourceClaimTemplateName: all}], containers: [{name: c, image: x, resources: {requests: {cpu: '1'}}}]}"
	selector  = "selector: {matchLabels: {batch.kubernetes.io/controller-uid: uid-1}}, "
	aJob      = "Job: {metadata: {name: j}, spec: {" + selector + "template: {spec: " + spec1CPU + "}}}"
	aJobSet   = "JobSet: {metadata: {name: s}, spec: {replicatedJobs: [{name: w, replicas: 2, template: {spec: {parallelism: 4, completions: 4, template: {spec: " + spec1CPU + "}}}}]}}"
	aWrapper  = "AppWrapper: {metadata: {name: a}, spec: {components: [{template: {apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, template: {spec: " +
		spec1CPU + "}}}}]}}"
	understated = "AppWrapper: {metadata: {name: a}, spec: {components: [{podSets: [{replicas: 1, path: template.spec.template}], template: {apiVersion: batch/v1, kind: Job," +
		" metadata: {name: j}, spec: {parallelism: 50, template: {spec: " + spec1CPU + "}}}}]}}"
	aTFJob      = "spec: {tfReplicaSpecs: {PS: {replicas: 5, template: {spec: " + spec1CPU + "}}, Worker: {replicas: 5, template: {spec: " + spec9CPU + "}}}}"
	aPS         = "{replicas: 5, path: template.spec.tfReplicaSpecs.PS.template}"
	aWorker     = "{replicas: 5, path: template.spec.tfReplicaSpecs.Worker.template}"
	anLWSSpec   = "spec: {replicas: 2, leaderWorkerTemplate: {size: 3, workerTemplate: {spec: " + spec1CPU + "}}}"
	rayGroups   = "headGroupSpec: {template: {spec: " + spec1CPU + "}}, workerGroupSpecs: [{groupName: g, replicas: 2, template: {spec: " + spec1CPU + "}}]"
	rayMore     = "headGroupSpec: {template: {spec: " + spec1CPU + "}}, workerGroupSpecs: [{groupName: g, replicas: 3, template: {spec: " + spec1CPU + "}}]"
	rayJobSpec  = "spec: {rayClusterSpec: {" + rayGroups + "}}"
	aPyTorch    = "PyTorchJob: {metadata: {name: p}, spec: {pytorchReplicaSpecs: {Master: {template: {spec: " + spec1CPU + "}}, Worker: {replicas: 2, template: {spec: " + spec1CPU + "}}}}}"
	anMPI       = "MPIJob: {metadata: {name: m}, spec: {mpiReplicaSpecs: {Launcher: {template: {spec: " + spec1CPU + "}}, Worker: {replicas: 2, template: {spec: " + spec1CPU + "}}}}}"
	aSet        = "StatefulSet: {metadata: {name: t}, spec: {replicas: 3, template: {spec: " + spec1CPU + "}}}"
	aSetWrapper = "AppWrapper: {metadata: {name: a}, spec: {components: [{template: {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: t}, spec: {replicas: 3, template: {spec: " +
		spec1CPU + "}}}}]}}"
	aSpark  = "SparkApplication: {metadata: {name: a}, spec: {driver: {cores: 1, memory: 512m}, executor: {instances: 2, cores: 1, memory: 512m}}}"
	aDriver = "Pod: {metadata: {name: a-driver, labels: {spark-app-selector: q}}, spec: {containers: [{name: spark-kubernetes-driver, image: x, resources: {requests: {cpu: '1', memory: 896Mi}}}]}}"
	anLWS   = "LeaderWorkerSet: {metadata: {name: l}, spec: {replicas: 2, leaderWorkerTemplate: {size: 3, workerTemplate: {spec: " + spec1CPU + "}}}}"
)

// wrapperOf wraps an object with declared pod sets.
func wrapperOf(podSets, apiVersion, kind, body string) string {
	return "AppWrapper: {metadata: {name: a}, spec: {components: [{podSets: [" + podSets + "], template: {apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: j}, " + body + "}}]}}"
}

func podOf(meta, spec string) string { return "Pod: {metadata: {" + meta + "}, spec: " + spec + "}" }

func batchJob(name, size, spec string) string {
	return "Job: {metadata: {name: " + name + "}, spec: {" + size + "template: {spec: " + spec + "}}}"
}

const ofUID1 = "labels: {batch.kubernetes.io/controller-uid: uid-1}"

// TestOwnership: which objects are parts of their owners, for every pair of kinds of the table, and which only say so. Chains lead from the
// object to the outermost owner.
func TestOwnership(t *testing.T) {
	const jobs, own = "Job", "" // the owner that the object follows; none
	tests := map[string]struct {
		chain []string
		want  string
	}{
		"a pod of a Job":                            {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), aJob}, jobs},
		"a pod with an injected sidecar":            {[]string{podOf("generateName: j-, "+ofUID1, sidecar), aJob}, jobs},
		"a pod with a large sidecar":                {[]string{podOf("generateName: j-, "+ofUID1, hog), aJob}, own},
		"a pod of no label":                         {[]string{podOf("generateName: j-", spec1CPU), aJob}, own},
		"a pod that requests more":                  {[]string{podOf("generateName: j-, "+ofUID1, spec9CPU), aJob}, own},
		"a pod with a device":                       {[]string{podOf("generateName: j-, "+ofUID1, withGPU), aJob}, own},
		"a pod with a device beside it":             {[]string{podOf("generateName: j-, "+ofUID1, sidecGPU), aJob}, own},
		"a pod with a claim":                        {[]string{podOf("generateName: j-, "+ofUID1, someClaim), aJob}, own},
		"a pod of the earlier label":                {[]string{podOf("generateName: j-, labels: {controller-uid: uid-1}", spec1CPU), aJob}, own},
		"a pod of a Job with a selector":            {[]string{podOf("name: p, labels: {a: b}", spec1CPU), batchJob("j", "manualSelector: true, selector: {matchLabels: {a: b}}, ", spec1CPU)}, jobs},
		"a pod of a Job that makes its own pods":    {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), batchJob("j", "managedBy: kubernetes.io/job-controller, "+selector, spec1CPU)}, jobs},
		"a pod of a Job of another controller":      {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), batchJob("j", "managedBy: example.com/none, "+selector, spec1CPU)}, own},
		"a pod of a Job that waits":                 {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), batchJob("j", "suspend: true, "+selector, spec1CPU)}, own},
		"a pod of a Job that is being stopped":      {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), batchJob("j, annotations: {kueue.x-k8s.io/stopping: 'true'}", "suspend: true, "+selector, spec1CPU)}, own},
		"a pod of a Job that has ended":             {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), "Job: {metadata: {name: j}, spec: {" + selector + "template: {spec: " + spec1CPU + "}}, status: {conditions: [{type: Complete, status: 'True'}]}}"}, own},
		"a pod of a Job that is being deleted":      {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), batchJob("j, deletionTimestamp: '2026-01-01T00:00:00Z'", selector, spec1CPU)}, own},
		"a pod of a Job of a JobSet that waits":     {[]string{podOf("generateName: s-w-0-, "+ofUID1, spec1CPU), batchJob("s-w-0", selector, spec1CPU), strings.Replace(aJobSet, "spec: {", "spec: {suspend: true, ", 1)}, own},
		"a worker of PyTorch that waits":            {[]string{podOf("name: p-worker-1", spec1CPU), strings.Replace(aPyTorch, "spec: {", "spec: {runPolicy: {suspend: true}, ", 1)}, own},
		"a worker of PyTorch that has ended":        {[]string{podOf("name: p-worker-1", spec1CPU), strings.Replace(aPyTorch, "spec: {", "status: {conditions: [{type: Succeeded, status: 'True'}]}, spec: {", 1)}, own},
		"a pod below a wrapper that waits":          {[]string{podOf("generateName: j-, "+ofUID1, spec1CPU), batchJob("j", selector, spec1CPU), strings.Replace(aWrapper, "spec: {", "spec: {suspend: true, ", 1)}, own},
		"a Job below a wrapper that waits":          {[]string{batchJob("j", "", spec1CPU), strings.Replace(aWrapper, "spec: {", "spec: {suspend: true, ", 1)}, "AppWrapper"},
		"a pod of a Job that cleans up":             {[]string{podOf("generateName: c-redis-cleanup-, "+ofUID1, spec1CPU), batchJob("c-redis-cleanup", selector, spec1CPU), "RayCluster: {metadata: {name: c, deletionTimestamp: '2026-01-01T00:00:00Z'}, spec: {suspend: true, " + rayGroups + "}}"}, "RayCluster"},
		"a pod of a StatefulSet in a wrapper":       {[]string{podOf("name: t-0", spec1CPU), aSet, aSetWrapper}, "AppWrapper"},
		"one in a wrapper that waits":               {[]string{podOf("name: t-0", spec1CPU), aSet, strings.Replace(aSetWrapper, "spec: {", "spec: {suspend: true, ", 1)}, own},
		"a Job of a Job":                            {[]string{batchJob("k", "", spec1CPU), aJob}, own},
		"a JobSet of a Job":                         {[]string{aJobSet, aJob}, own},
		"a Job of a JobSet":                         {[]string{batchJob("s-w-1", "parallelism: 4, completions: 4, ", spec1CPU), aJobSet}, "JobSet"},
		"a Job of a JobSet beyond its replicas":     {[]string{batchJob("s-w-2", "", spec1CPU), aJobSet}, own},
		"a Job of a JobSet of another name":         {[]string{batchJob("s-x-0", "", spec1CPU), aJobSet}, own},
		"a Job of a JobSet of a padded name":        {[]string{batchJob("s-w-01", "", spec1CPU), aJobSet}, own},
		"a Job of a JobSet with more pods":          {[]string{batchJob("s-w-1", "parallelism: 5, completions: 5, ", spec1CPU), aJobSet}, own},
		"a Job of a JobSet with larger pods":        {[]string{batchJob("s-w-1", "parallelism: 4, ", spec9CPU), aJobSet}, own},
		"a JobSet of a TrainJob":                    {[]string{aJobSet, "TrainJob: {metadata: {name: s}, spec: {}}"}, "TrainJob"},
		"a JobSet of a TrainJob of another name":    {[]string{aJobSet, "TrainJob: {metadata: {name: r}, spec: {}}"}, own},
		"a component":                               {[]string{batchJob("j", "parallelism: 2, ", spec1CPU), aWrapper}, "AppWrapper"},
		"a component with more pods":                {[]string{batchJob("j", "parallelism: 3, ", spec1CPU), aWrapper}, own},
		"a component with larger pods":              {[]string{batchJob("j", "parallelism: 2, ", spec9CPU), aWrapper}, own},
		"a component of another name":               {[]string{batchJob("k", "", spec1CPU), aWrapper}, own},
		"a component of another kind":               {[]string{podOf("name: j", spec1CPU), aWrapper}, own},
		"a component with more than it declares":    {[]string{batchJob("j", "parallelism: 50, ", spec1CPU), understated}, own},
		"a component of pod sets":                   {[]string{"TFJob: {metadata: {name: j}, " + aTFJob + "}", wrapperOf(aWorker+", "+aPS, "kubeflow.org/v1", "TFJob", aTFJob)}, "AppWrapper"},
		"a component that counts no pods":           {[]string{"TFJob: {metadata: {name: j}, " + aTFJob + "}", wrapperOf("", "kubeflow.org/v1", "TFJob", aTFJob)}, own},
		"a component that counts one role for two":  {[]string{"TFJob: {metadata: {name: j}, " + aTFJob + "}", wrapperOf(aWorker, "kubeflow.org/v1", "TFJob", aTFJob)}, own},
		"a component that counts the smaller role":  {[]string{"TFJob: {metadata: {name: j}, " + aTFJob + "}", wrapperOf(aPS+", "+aPS, "kubeflow.org/v1", "TFJob", aTFJob)}, own},
		"a component of groups":                     {[]string{"LeaderWorkerSet: {metadata: {name: j}, " + anLWSSpec + "}", wrapperOf("{replicas: 6, path: template.spec.leaderWorkerTemplate.workerTemplate}", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", anLWSSpec)}, "AppWrapper"},
		"a component that counts one group":         {[]string{"LeaderWorkerSet: {metadata: {name: j}, " + anLWSSpec + "}", wrapperOf("{replicas: 3, path: template.spec.leaderWorkerTemplate.workerTemplate}", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", anLWSSpec)}, own},
		"a component of a runtime":                  {[]string{"TrainJob: {metadata: {name: j}, spec: {}}", wrapperOf("", "trainer.kubeflow.org/v1alpha1", "TrainJob", "spec: {}")}, own},
		"a cluster of a RayJob":                     {[]string{"RayCluster: {metadata: {name: r-x}, spec: {" + rayGroups + "}}", "RayJob: {metadata: {name: r}, " + rayJobSpec + "}"}, "RayJob"},
		"a cluster of a RayJob with more workers":   {[]string{"RayCluster: {metadata: {name: r-x}, spec: {" + rayMore + "}}", "RayJob: {metadata: {name: r}, " + rayJobSpec + "}"}, own},
		"a second cluster of a RayJob":              {[]string{"RayCluster: {metadata: {name: r-x}, spec: {" + rayGroups + "}}", "RayJob: {metadata: {name: r}, " + rayJobSpec + ", status: {rayClusterName: r-y}}"}, own},
		"the submitter":                             {[]string{batchJob("r", "", "{containers: [{name: ray-job-submitter, image: x, resources: {requests: {cpu: 500m}}}]}"), "RayJob: {metadata: {name: r}, " + rayJobSpec + "}"}, "RayJob"},
		"another submitter":                         {[]string{batchJob("r2", "", spec1CPU), "RayJob: {metadata: {name: r}, " + rayJobSpec + "}"}, own},
		"a large submitter":                         {[]string{batchJob("r", "parallelism: 9, ", spec1CPU), "RayJob: {metadata: {name: r}, " + rayJobSpec + "}"}, own},
		"a cluster of a RayService":                 {[]string{"RayCluster: {metadata: {name: v-x}, spec: {" + rayGroups + "}}", "RayService: {metadata: {name: v}, spec: {rayClusterConfig: {" + rayGroups + "}}}"}, "RayService"},
		"a large cluster of a RayService":           {[]string{"RayCluster: {metadata: {name: v-x}, spec: {" + rayMore + "}}", "RayService: {metadata: {name: v}, spec: {rayClusterConfig: {" + rayGroups + "}}}"}, own},
		"an earlier cluster of a RayService":        {[]string{"RayCluster: {metadata: {name: v-x}, spec: {" + rayMore + "}}", "RayService: {metadata: {name: v}, spec: {rayClusterConfig: {" + rayGroups + "}}, status: {activeServiceStatus: {rayClusterName: v-x}}}"}, "RayService"},
		"a worker of Ray":                           {[]string{podOf("name: c-g-x, labels: {ray.io/cluster: c, ray.io/group: g}", spec1CPU), "RayCluster: {metadata: {name: c}, spec: {" + rayGroups + "}}"}, "RayCluster"},
		"a worker of Ray of no group":               {[]string{podOf("name: c-g-x, labels: {ray.io/cluster: c, ray.io/group: h}", spec1CPU), "RayCluster: {metadata: {name: c}, spec: {" + rayGroups + "}}"}, own},
		"a large worker of Ray":                     {[]string{podOf("name: c-g-x, labels: {ray.io/cluster: c, ray.io/group: g}", withGPU), "RayCluster: {metadata: {name: c}, spec: {" + rayGroups + "}}"}, own},
		"the cleanup of Ray":                        {[]string{batchJob("c-redis-cleanup", "", spec1CPU), "RayCluster: {metadata: {name: c}, spec: {" + rayGroups + "}}"}, "RayCluster"},
		"the cleanup of Ray, cut":                   {[]string{batchJob("nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-redis-cleanup", "", spec1CPU), "RayCluster: {metadata: {name: abc-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn}, spec: {" + rayGroups + "}}"}, "RayCluster"},
		"the cleanup of Ray, cut at a dash":         {[]string{batchJob("rnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-redis-cleanup", "", spec1CPU), "RayCluster: {metadata: {name: abcd-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn}, spec: {" + rayGroups + "}}"}, "RayCluster"},
		"a worker of PyTorch":                       {[]string{podOf("name: p-worker-1", spec1CPU), aPyTorch}, "PyTorchJob"},
		"a worker of PyTorch too many":              {[]string{podOf("name: p-worker-2", spec1CPU), aPyTorch}, own},
		"a large worker of PyTorch":                 {[]string{podOf("name: p-worker-1", withGPU), aPyTorch}, own},
		"a worker of MPI":                           {[]string{podOf("name: m-worker-0", spec1CPU), anMPI}, "MPIJob"},
		"the launcher of MPI":                       {[]string{batchJob("m-launcher", "", spec1CPU), anMPI}, "MPIJob"},
		"the launcher's pod":                        {[]string{podOf("generateName: m-launcher-, "+ofUID1, spec1CPU), batchJob("m-launcher", selector, spec1CPU), anMPI}, "MPIJob"},
		"another launcher of MPI":                   {[]string{batchJob("m-launcher-2", "", spec1CPU), anMPI}, own},
		"a launcher of PyTorch":                     {[]string{batchJob("p-launcher", "", spec1CPU), aPyTorch}, own},
		"a pod of a StatefulSet":                    {[]string{podOf("name: t-2", spec1CPU), aSet}, "StatefulSet"},
		"a pod of a StatefulSet too many":           {[]string{podOf("name: t-3", spec1CPU), aSet}, own},
		"a large pod of a StatefulSet":              {[]string{podOf("name: t-2", withGPU), aSet}, own},
		"a pod of a Deployment's ReplicaSet":        {[]string{podOf("generateName: d-1-", spec1CPU), "ReplicaSet: {metadata: {name: d-1}, spec: {}}", "Deployment: {metadata: {name: d}}"}, own},
		"a Job of a Deployment":                     {[]string{batchJob("d", "", spec1CPU), "Deployment: {metadata: {name: d}}"}, own},
		"the driver":                                {[]string{aDriver, aSpark}, "SparkApplication"},
		"an executor":                               {[]string{podOf("name: e, labels: {spark-app-selector: q}", "{containers: [{name: spark-kubernetes-executor, image: x, resources: {requests: {cpu: '1', memory: 896Mi}}}]}"), aDriver, aSpark}, "SparkApplication"},
		"a large executor":                          {[]string{podOf("name: e, labels: {spark-app-selector: q}", "{containers: [{name: spark-kubernetes-executor, image: x, resources: {requests: {cpu: '8', memory: 896Mi}}}]}"), aDriver, aSpark}, own},
		"an executor of a driver of nothing":        {[]string{podOf("name: e, labels: {spark-app-selector: q}", spec1CPU), aDriver}, own},
		"a pod of a pod":                            {[]string{podOf("name: e", spec1CPU), podOf("name: f", spec1CPU)}, own},
		"the leaders of a LeaderWorkerSet":          {[]string{"StatefulSet: {metadata: {name: l}, spec: {replicas: 2, template: {spec: " + spec1CPU + "}}}", anLWS}, "LeaderWorkerSet"},
		"too many leaders":                          {[]string{"StatefulSet: {metadata: {name: l}, spec: {replicas: 3, template: {spec: " + spec1CPU + "}}}", anLWS}, own},
		"the workers of a leader":                   {[]string{"StatefulSet: {metadata: {name: l-0}, spec: {replicas: 2, template: {spec: " + spec1CPU + "}}}", podOf("name: l-0", spec1CPU), "StatefulSet: {metadata: {name: l}, spec: {replicas: 2, template: {spec: " + spec1CPU + "}}}", anLWS}, "LeaderWorkerSet"},
		"too many workers of a leader":              {[]string{"StatefulSet: {metadata: {name: l-0}, spec: {replicas: 9, template: {spec: " + spec1CPU + "}}}", podOf("name: l-0", spec1CPU), "StatefulSet: {metadata: {name: l}, spec: {replicas: 2, template: {spec: " + spec1CPU + "}}}", anLWS}, own},
		"through all layers":                        {[]string{batchJob("s-w-0", "parallelism: 4, ", spec1CPU), aJobSet, "TrainJob: {metadata: {name: s}, spec: {}}"}, "TrainJob"},
		"a broken link above ends at the last good": {[]string{batchJob("s-w-0", "parallelism: 4, ", spec1CPU), aJobSet, "TrainJob: {metadata: {name: r}, spec: {}}"}, "JobSet"},
	}
	kinds := all.Descriptors()
	cfg := &plan.Config{ManageAll: true, VerifyOwners: true, Kinds: plan.Kinds{appsv1.SchemeGroupVersion.WithKind("ReplicaSet"): false}}
	for _, d := range kinds {
		cfg.Kinds[d.GVK] = true
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			chain := readChain(t, kinds, tc.chain)
			for verified, want := range map[bool]string{true: tc.want, false: chain[len(chain)-1].GVK.Kind} {
				rules := plan.NewOwnership(cfg, kinds)
				if !verified { // every reference is trusted
					rules = nil
				}
				v := plan.Judge(cfg, rules, nil, chain[0], chain[1:])
				got := ""
				if v.Ancestor != nil {
					got = v.Ancestor.GVK.Kind
				}
				if got != want || v.Err != nil || v.Need != nil || (want == own) != (v.Mode == plan.Managed) {
					t.Errorf("verified %v: it follows %q, want %q: %v, %v", verified, got, want, v.NotMade, v.Err)
				}
			}
		})
	}
}

// readChain reads objects as KIND: {...}, each owned by the next.
func readChain(t *testing.T, kinds []*plan.Descriptor, texts []string) []plan.Owner {
	t.Helper()
	var out []plan.Owner
	for i, text := range texts {
		kind, body, _ := strings.Cut(text, ": ")
		owner := plan.Owner{GVK: appsv1.SchemeGroupVersion.WithKind(kind)}
		var object plan.Object = &appsv1.ReplicaSet{}
		for _, d := range kinds {
			if d.GVK.Kind == kind {
				owner.GVK, object = d.GVK, d.New()
			}
		}
		tree := map[string]any{}
		if err := yaml.Unmarshal([]byte(body), &tree); err != nil {
			t.Fatalf("%s: %s", text, err)
		}
		u := &unstructured.Unstructured{Object: tree}
		u.SetGroupVersionKind(owner.GVK)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
			t.Fatal(err)
		}
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
		object.GetObjectKind().SetGroupVersionKind(owner.GVK)
		owner.Object = object
		if i > 0 {
			below := out[i-1].Object
			below.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(object, owner.GVK)})
		}
		out = append(out, owner)
	}
	return out
}

// TestEveryKindSaysWhatItOwns: a kind without an entry owns nothing, so every kind needs one.
func TestEveryKindSaysWhatItOwns(t *testing.T) {
	known := map[schema.GroupVersionKind]bool{appsv1.SchemeGroupVersion.WithKind("ReplicaSet"): true}
	for _, d := range all.Descriptors() {
		known[d.GVK] = true
	}
	for _, d := range all.Descriptors() {
		if len(d.Owns) == 0 {
			t.Errorf("%s owns nothing", d.Framework)
		}
		for _, c := range d.Owns {
			if !c.GVK.Empty() && !known[c.GVK] {
				t.Errorf("%s owns %s, which no kind is", d.Framework, c.GVK)
			}
			if c.Made == nil {
				t.Errorf("%s owns every %s", d.Framework, c.GVK.Kind)
			}
		}
	}
}
