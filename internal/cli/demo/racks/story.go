package racks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/simnode"
)

const (
	gpu        = corev1.ResourceName("nvidia.com/gpu")
	nodeGPUs   = 8 // a pod takes a whole node
	namespace  = "team"
	queueName  = "main"
	blockLabel = "cloud.provider.com/topology-block"
	rackLabel  = "cloud.provider.com/topology-rack"

	// patience is how many seconds a pod tolerates a node that does not answer; Kubernetes' default of 300 is too long to watch.
	patience = 1
)

// gang is a Job whose pods have to be in one rack.
type gang struct {
	letter         rune
	name, priority string
	pods           int32
}

// The gangs of the demo. The sweeps leave one node idle in each of their racks, so that there is room for urgent, but not in one rack.
var (
	pretrain = gang{'P', "pretrain", "normal", 4}
	sweeps   = []gang{{'A', "sweep-a", "low", 3}, {'B', "sweep-b", "low", 3}, {'C', "sweep-c", "low", 3}}
	urgent   = gang{'U', "urgent", "high", 3}
	gangs    = append(append([]gang{pretrain}, sweeps...), urgent)

	priorities = map[string]int32{"low": 100, "normal": 500, "high": 1000}
)

// act is one change of the cluster: a Job is submitted or deleted, or a node fails or recovers.
type act struct {
	submit *gang
	cancel string
	node   string
	fails  bool
}

// step is a part of the demo. acts and check get the cluster as it was when the step before was done.
type step struct {
	says string // the event, and the expected effect
	acts func(before world) []act
	done func(w world) bool
	// check returns a sentence about the effect, or an error if another one was expected.
	check func(before, after world) (string, error)
}

// story is the whole demo.
var story = []step{
	{
		says: "pretrain needs 4 nodes of one rack",
		acts: submits(pretrain),
		done: func(w world) bool { return w.runs(pretrain) },
		check: func(_, after world) (string, error) {
			rack, err := after.rackOf(pretrain.name)
			return fmt.Sprintf("It got rack %s.", rack), err
		},
	},
	{
		says: "three sweeps of low priority need 3 nodes of one rack each",
		acts: submits(sweeps...),
		done: func(w world) bool { return allRun(w, sweeps...) },
		check: func(_, after world) (string, error) {
			racks := map[string]string{}
			for _, g := range sweeps {
				rack, err := after.rackOf(g.name)
				if err != nil {
					return "", err
				}
				if other := racks[rack]; other != "" {
					return "", fmt.Errorf("%s and %s share rack %s, which has too few nodes for both", other, g.name, rack)
				}
				racks[rack] = g.name
			}
			all, together := after.idle()
			return fmt.Sprintf("Each got a rack of its own; %d nodes are idle, no more than %d of them in one rack.", all, together), nil
		},
	},
	{
		says: "urgent needs 3 nodes of one rack: there is quota for it, and there are 3 idle nodes, but not in one rack",
		acts: submits(urgent),
		done: func(w world) bool { return w.runs(urgent) && len(stopped(w)) > 0 && settled(w) },
		check: func(before, after world) (string, error) {
			rack, err := after.rackOf(urgent.name)
			if err != nil {
				return "", err
			}
			victims := stopped(after)
			if len(victims) != 1 {
				return "", fmt.Errorf("%d jobs were preempted (%s), and one is enough", len(victims), names(victims))
			}
			if moved := changed(before, after, pretrain.name); len(moved) > 0 {
				return "", errors.New("pretrain was disturbed, which has no part in this")
			}
			return fmt.Sprintf("%s was preempted, and urgent got rack %s. The other jobs run on.", victims[0].name, rack), nil
		},
	},
	{
		says: "a node of urgent fails: only its pod has to move, to the idle node of the same rack",
		acts: func(before world) []act { return []act{{node: before.runningOf(urgent.name)[0].node, fails: true}} },
		done: func(w world) bool {
			return w.runs(urgent) && slices.ContainsFunc(w.hosts, func(h host) bool { return !h.ready })
		},
		check: checkMove,
	},
	{
		says: "the node recovers, and urgent is deleted: the preempted sweep returns",
		acts: func(before world) []act {
			out := []act{{cancel: urgent.name}}
			for _, h := range before.hosts {
				if !h.ready {
					out = append(out, act{node: h.name})
				}
			}
			return out
		},
		done: func(w world) bool {
			_, stays := w.job(urgent.name)
			return !stays && allRun(w, append([]gang{pretrain}, sweeps...)...) && settled(w)
		},
		check: func(before, after world) (string, error) {
			victims := stopped(before)
			if len(victims) == 0 {
				return "", errors.New("no sweep was preempted")
			}
			rack, err := after.rackOf(victims[0].name)
			return fmt.Sprintf("%s runs again, in rack %s.", victims[0].name, rack), err
		},
	},
}

// checkMove: the pod of the failed node runs on another one of the same rack, and no other pod was touched.
func checkMove(before, after world) (string, error) {
	rack, err := before.rackOf(urgent.name)
	if err != nil {
		return "", err
	}
	if now, err := after.rackOf(urgent.name); err != nil || now != rack {
		return "", errors.Join(err, fmt.Errorf("urgent was in rack %s and is in rack %q", rack, now))
	}
	for _, g := range gangs {
		limit := 0
		if g.name == urgent.name {
			limit = 1
		}
		if moved := changed(before, after, g.name); len(moved) != limit {
			return "", fmt.Errorf("%d pods of %s were replaced, want %d", len(moved), g.name, limit)
		}
	}
	from := changed(before, after, urgent.name)[0]
	to := changed(after, before, urgent.name)[0]
	return fmt.Sprintf("Its pod on %s runs on %s now. All other pods run on.", from.node, to.node), nil
}

// changed are the running pods of a job in one world that do not run in the other.
func changed(in, from world, job string) (out []pod) {
	others := from.runningOf(job)
	for _, p := range in.runningOf(job) {
		if !slices.ContainsFunc(others, func(o pod) bool { return o.uid == p.uid && o.node == p.node }) {
			out = append(out, p)
		}
	}
	return out
}

func submits(list ...gang) func(world) []act {
	return func(world) (out []act) {
		for i := range list {
			out = append(out, act{submit: &list[i]})
		}
		return out
	}
}

func allRun(w world, list ...gang) bool {
	return !slices.ContainsFunc(list, func(g gang) bool { return !w.runs(g) })
}

// stopped are the sweeps without a quota reservation.
func stopped(w world) (out []gang) {
	for _, g := range sweeps {
		if j, found := w.job(g.name); found && !j.reserved {
			out = append(out, g)
		}
	}
	return out
}

// settled reports whether no pod starts or stops.
func settled(w world) bool {
	return !slices.ContainsFunc(w.pods, func(p pod) bool { return p.stopping || p.node != "" && !p.running })
}

func names(list []gang) string {
	out := make([]string, 0, len(list))
	for _, g := range list {
		out = append(out, g.name)
	}
	return strings.Join(out, ", ")
}

// queues are a Topology, a flavor that is placed by it, and a queue with the quota of all nodes.
func queues(levels []string, nodes int) []client.Object {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
	for _, label := range levels {
		topology.Spec.Levels = append(topology.Spec.Levels, kueue.TopologyLevel{NodeLabel: label})
	}
	out := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		topology,
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{simnode.Label: "true"}, TopologyName: kueue.TopologyReference(topology.Name),
		}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpu},
				Flavors: []kueue.FlavorQuotas{{Name: "gpus", Resources: []kueue.ResourceQuota{{
					Name: gpu, NominalQuota: *resource.NewQuantity(int64(nodes)*nodeGPUs, resource.DecimalSI),
				}}}},
			}},
			Preemption: &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionLowerPriority},
		}},
		&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: queueName}, Spec: kueue.LocalQueueSpec{ClusterQueue: namespace},
		},
	}
	for _, name := range []string{"low", "normal", "high"} {
		out = append(out, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: priorities[name]})
	}
	return out
}

// job is the Job of a gang. It runs until it is deleted.
func (g gang) job() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.name, Labels: map[string]string{
			kueue.QueueNameLabel: queueName, kueue.PriorityClassLabel: g.priority,
		}},
		Spec: batchv1.JobSpec{
			Parallelism: &g.pods, Completions: &g.pods,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					kueue.PodSetRequiredTopologyAnnotation: rackLabel,
					"berth.dev/run-seconds":                "86400",
				}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Tolerations: []corev1.Toleration{{
						Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
						TolerationSeconds: new(int64(patience)),
					}},
					Containers: []corev1.Container{{
						Name: "main", Image: "simulated",
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: *resource.NewQuantity(nodeGPUs, resource.DecimalSI)}},
					}},
				},
			},
		},
	}
}
