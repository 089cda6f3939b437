package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// example is the expected outcome of a JobSet of docs/examples.
type example struct {
	pods  int // that it ever had, by their host names
	left  int // Jobs at its end: the succeeded ones
	order []after
}

// after: Jobs of then are made only once all pods of first are ready, or all its Jobs are complete.
type after struct {
	then, first string
	complete    bool
}

// jobSetExamples are uses of JobSets that users know from public documentation: PyTorch, MPI's leader with workers, start in order, a
// coordinator.
var jobSetExamples = map[string]example{
	"pytorch":  {pods: 4, left: 2},
	"mpi":      {pods: 4, left: 1, order: []after{{"leader", "workers", false}}},
	"in-order": {pods: 6, left: 2, order: []after{{"driver", "store", false}, {"workers", "driver", false}}},
	"pipeline": {pods: 5, left: 4, order: []after{
		{"train", "prepare", true}, {"train", "store", false}, {"evaluate", "train", true},
	}},
	"coordinated": {pods: 5, left: 3},
}

// TestJobSetExamples runs the JobSets of docs/examples like a user: through the webhooks of a manager, with the Job controller, the
// scheduler and the garbage collector, on simulated nodes.
func TestJobSetExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	files, err := filepath.Glob("../../docs/examples/jobset-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	c := up(t)
	c.manager(t)
	played := map[string]*playedJobSet{}
	for _, file := range files {
		for _, js := range jobSetsIn(t, file) {
			if _, known := jobSetExamples[js.Name]; !known {
				t.Fatalf("%s: nothing is known of %s", file, js.Name)
			}
			played[js.Name] = &playedJobSet{example: jobSetExamples[js.Name], js: js, pods: map[string]*corev1.Pod{}, ready: map[string]bool{}}
			c.create(t, js)
		}
	}
	if len(played) != len(jobSetExamples) {
		t.Fatalf("%d JobSets, want %d", len(played), len(jobSetExamples))
	}
	wait.Until(t, "all complete, and what still ran is deleted", func() error {
		var waiting []error
		for _, p := range played {
			if err := p.look(c); err != nil {
				waiting = append(waiting, fmt.Errorf("%s: %w", p.js.Name, err))
			}
		}
		return errors.Join(waiting...)
	})
	for name, p := range played {
		t.Run(name, func(t *testing.T) { p.check(t, c) })
	}
}

// jobSetsIn reads a file of manifests.
func jobSetsIn(t *testing.T, file string) (out []*jobsetv1alpha2.JobSet) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		js := &jobsetv1alpha2.JobSet{}
		if err := yaml.UnmarshalStrict([]byte(doc), js); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, js)
	}
	return out
}

// playedJobSet is an example with its observed objects.
type playedJobSet struct {
	example
	js     *jobsetv1alpha2.JobSet
	pods   map[string]*corev1.Pod // by host name
	ready  map[string]bool        // replicated jobs of which all pods were once ready
	faults []string
}

// look records the present objects, and returns the conditions that are still missing.
func (p *playedJobSet) look(c *cluster) error {
	ctx, mine := context.Background(), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: p.js.Name}
	var jobs batchv1.JobList
	if err := c.List(ctx, &jobs, client.InNamespace(p.js.Namespace), mine); err != nil {
		return err
	}
	var pods corev1.PodList // after the Jobs: their preconditions have happened by now
	if err := c.List(ctx, &pods, client.InNamespace(p.js.Namespace), mine); err != nil {
		return err
	}
	running, complete, made := map[string]int32{}, map[string]int32{}, map[string]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		p.pods[pod.Spec.Hostname] = pod
		if isReady(pod) || pod.Status.Phase == corev1.PodSucceeded {
			running[pod.Labels[jobsetv1alpha2.ReplicatedJobNameKey]]++
		}
	}
	for i := range jobs.Items {
		of := jobs.Items[i].Labels[jobsetv1alpha2.ReplicatedJobNameKey]
		made[of] = true
		if jobs.Items[i].Status.CompletionTime != nil {
			complete[of]++
		}
	}
	for i := range p.js.Spec.ReplicatedJobs {
		rj := &p.js.Spec.ReplicatedJobs[i]
		p.ready[rj.Name] = p.ready[rj.Name] || running[rj.Name] == *rj.Replicas*podsOfJob(rj)
	}
	for _, o := range p.order {
		ended := p.replicatedJob(o.first) != nil && complete[o.first] == *p.replicatedJob(o.first).Replicas
		if made[o.then] && (o.complete && !ended || !p.ready[o.first]) {
			p.faults = append(p.faults, fmt.Sprintf("%s began before %s had come so far", o.then, o.first))
		}
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(p.js), p.js); err != nil {
		return err
	}
	if p.js.Status.TerminalState == "" || len(jobs.Items) != p.left {
		return fmt.Errorf("%d Jobs, status %+v", len(jobs.Items), p.js.Status)
	}
	return nil
}

func (p *playedJobSet) replicatedJob(name string) *jobsetv1alpha2.ReplicatedJob {
	for i := range p.js.Spec.ReplicatedJobs {
		if p.js.Spec.ReplicatedJobs[i].Name == name {
			return &p.js.Spec.ReplicatedJobs[i]
		}
	}
	return nil
}

func podsOfJob(rj *jobsetv1alpha2.ReplicatedJob) int32 {
	if n := rj.Template.Spec.Parallelism; n != nil {
		return *n
	}
	return 1
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// check compares an example with its expectation: every host name that a pod gets is one of its pods, every label that it refers to
// exists, and the order was kept.
func (p *playedJobSet) check(t *testing.T, c *cluster) {
	if s := &p.js.Status; s.TerminalState != jobsetv1alpha2.TerminalStateCompleted || s.Restarts != 0 {
		t.Errorf("status %+v", s)
	}
	for _, fault := range p.faults {
		t.Error(fault)
	}
	if len(p.pods) != p.example.pods {
		t.Errorf("%d pods, want %d", len(p.pods), p.example.pods)
	}
	service := &corev1.Service{}
	service.Namespace, service.Name = p.js.Namespace, p.js.Name
	if p.js.Spec.Network.Subdomain != "" {
		service.Name = p.js.Spec.Network.Subdomain
	}
	if err := c.get(t, service); err != nil || service.Spec.ClusterIP != corev1.ClusterIPNone || service.Spec.Selector[jobsetv1alpha2.JobSetNameKey] != p.js.Name {
		t.Errorf("service %s: %v, %+v", service.Name, err, service.Spec)
	}
	address := regexp.MustCompile(`([a-z0-9-]+)\.` + service.Name + `\b`)
	for name, pod := range p.pods {
		if pod.Spec.Subdomain != service.Name {
			t.Errorf("%s has the subdomain %q", name, pod.Spec.Subdomain)
		}
		main := &pod.Spec.Containers[0]
		told := append(append([]string{}, main.Command...), main.Args...)
		for _, env := range main.Env {
			told = append(told, env.Value)
			if env.ValueFrom == nil {
				continue
			}
			label := strings.TrimSuffix(strings.TrimPrefix(env.ValueFrom.FieldRef.FieldPath, "metadata.labels['"), "']")
			value, ok := pod.Labels[label]
			if !ok {
				t.Errorf("%s has no label %s", name, label)
			}
			told = append(told, value)
		}
		for _, host := range address.FindAllStringSubmatch(strings.Join(told, " "), -1) {
			if p.pods[host[1]] == nil {
				t.Errorf("%s is told of %s, and there is no such pod", name, host[0])
			}
		}
	}
}
