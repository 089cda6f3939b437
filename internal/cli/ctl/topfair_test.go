package ctl

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/standings"
)

// TestShareQueues: the order, places and shares of LocalQueues are as in the manager. spec: 20 §4.4.
func TestShareQueues(t *testing.T) {
	var queues []kueue.ClusterQueue
	for name, mode := range map[string]kueue.AdmissionMode{"b": kueue.UsageBasedAdmissionFairSharing, "a": kueue.UsageBasedAdmissionFairSharing, "plain": kueue.NoAdmissionFairSharing} {
		q := kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionScope: &kueue.AdmissionScope{AdmissionMode: mode}}}
		q.Name = name
		queues = append(queues, q)
	}
	queues = append(queues, kueue.ClusterQueue{})
	local := func(name, queue, weight, cpu, memory string) kueue.LocalQueue {
		lq := kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue)}}
		lq.Name, lq.Namespace = name, "team"
		if weight != "" {
			lq.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse(weight))}
		}
		if cpu != "" {
			lq.Status.FairSharing = &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: &kueue.AdmissionFairSharingStatus{
				ConsumedResources: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)},
			}}
		}
		return lq
	}
	o := fairTop{output: &output{}, weights: []string{"memory=0"}}
	rates, err := o.rates()
	if err != nil {
		t.Fatal(err)
	}
	rows := standings.Of(queues, []kueue.LocalQueue{
		local("red", "a", "", "7500m", "4Gi"), local("blue", "a", "2", "5", "1Gi"), local("last", "a", "0", "", ""), local("also", "a", "", "2500m", "0"),
		local("only", "b", "", "", ""), local("other", "plain", "", "1", "0"),
	}, rates)
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.ClusterQueue, " ", r.Place, " ", r.LocalQueue, " ", r.Usage, " ", r.Share, " ", r.Weight))
	}
	want := []string{"a 1 also 2.5 20% 1", "a 1 blue 2.5 20% 2", "a 3 red 7.5 60% 1", "a 4 last infinite - 0", "b 1 only 0 - 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, wrong := range []string{"memory", "memory=x", "memory=-1", "=1", "memory=Inf", "memory=NaN"} {
		if _, err := (&fairTop{weights: []string{wrong}}).rates(); err == nil {
			t.Errorf("--weight %s is accepted", wrong)
		}
	}
}

// TestTopFlags: what top shows is one of three, and each has its own flags.
func TestTopFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--fair --topology":           "--topology, --fair: choose one of them",
		"--weight cpu=1":              "--weight: is for --fair",
		"--hosts --fair":              "--hosts: is for --topology",
		"-o json":                     "-o: is for --topology and --fair",
		"--fair -o jsonpath={.items}": "with --fair, json and yaml",
		"--fair queue":                `unknown kind "queue"`,
		"--fair --weight cpu":         "--weight \"cpu\": write RESOURCE=WEIGHT",
	} {
		cmd := (&tool{}).newTop()
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
