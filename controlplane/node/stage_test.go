package node

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"

	"github.com/berth-project/berth/controlplane/capacity"
)

func lifecycleOf(t *testing.T, kind string) lifecycle.Lifecycle {
	t.Helper()
	byKind, err := stages()
	if err != nil {
		t.Fatal(err)
	}
	list := byKind[internalversion.StageResourceRef{APIGroup: "v1", Kind: kind}]
	if len(list) == 0 {
		t.Fatalf("no stages for %s", kind)
	}
	cycle, err := lifecycle.NewLifecycle(list)
	if err != nil {
		t.Fatal(err)
	}
	return cycle
}

// At any time at most one stage applies to a pod: KWOK would choose between two at random.
func TestPodStages(t *testing.T) {
	cycle := lifecycleOf(t, "Pod")
	stamp := metav1.NewTime(now)
	grace := func(seconds int64) *int64 { return &seconds }
	for name, tc := range map[string]struct {
		restart corev1.RestartPolicy
		phase   corev1.PodPhase
		deleted bool
		grace   *int64
		runs    bool // has its finishing time
		stage   string
		delay   time.Duration
	}{
		"new":                            {restart: corev1.RestartPolicyNever, phase: corev1.PodPending, stage: "pod-start"},
		"running":                        {restart: corev1.RestartPolicyNever, phase: corev1.PodRunning, runs: true, stage: "pod-finish", delay: 90 * time.Second},
		"running, lost its time":         {restart: corev1.RestartPolicyNever, phase: corev1.PodRunning, stage: "pod-finish", delay: 2 * time.Second},
		"running for ever":               {restart: corev1.RestartPolicyAlways, phase: corev1.PodRunning},
		"Always, with a time":            {restart: corev1.RestartPolicyAlways, phase: corev1.PodRunning, runs: true, stage: "pod-finish", delay: 90 * time.Second},
		"succeeded":                      {restart: corev1.RestartPolicyNever, phase: corev1.PodSucceeded, runs: true},
		"failed":                         {restart: corev1.RestartPolicyNever, phase: corev1.PodFailed, runs: true},
		"deleted when new":               {phase: corev1.PodPending, deleted: true, grace: grace(30), stage: "pod-terminate"},
		"deleted when running":           {phase: corev1.PodRunning, deleted: true, grace: grace(30), runs: true, stage: "pod-terminate"},
		"deleted by force, finalizers":   {phase: corev1.PodRunning, deleted: true, grace: grace(0), stage: "pod-terminate"},
		"deleted and ended":              {phase: corev1.PodFailed, deleted: true, grace: grace(30), stage: "pod-remove"},
		"deleted, ended, only finalizer": {phase: corev1.PodSucceeded, deleted: true, grace: grace(0)},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(tc.restart, map[string]string{RunSecondsAnnotation: "90"})
			pod.Status.Phase = tc.phase
			pod.DeletionGracePeriodSeconds = tc.grace
			if tc.deleted {
				pod.DeletionTimestamp = &stamp
			}
			if tc.runs {
				pod.Status.Conditions = started(pod, "10.32.0.1", "10.64.0.1", now).Conditions
			}
			event := &lifecycle.Event{Labels: pod.Labels, Annotations: pod.Annotations, Data: pod}
			possible, err := cycle.ListAllPossible(context.Background(), event)
			if err != nil {
				t.Fatal(err)
			}
			names := ""
			for _, stage := range possible {
				names += stage.Name()
			}
			if names != tc.stage {
				t.Fatalf("stages %q, want %q", names, tc.stage)
			}
			if tc.stage == "" {
				return
			}
			delay, _, err := possible[0].Delay(context.Background(), event, now)
			if err != nil || delay != tc.delay {
				t.Errorf("delay %v (error %v), want %v", delay, err, tc.delay)
			}
		})
	}
}

func TestTemplates(t *testing.T) {
	resources, err := capacity.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	managed := true
	functions := functions(fleet{capacity: resources, version: "v1.2.3"}, func(string) bool { return managed }, func() time.Time { return now })
	functions["NodeIPWith"] = func(string) string { return "10.32.0.1" }
	functions["PodIPWith"] = func(string, bool, string, string, string) string { return "10.64.0.1" }
	renderer := gotpl.NewRenderer(functions)
	byKind, err := stages()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"pod-start": "Running", "pod-finish": "Succeeded", "pod-terminate": "Failed"}
	for _, stage := range byKind[internalversion.StageResourceRef{APIGroup: "v1", Kind: "Pod"}] {
		for _, step := range stage.Spec.Steps {
			if step.Patch == nil {
				continue
			}
			data, err := renderer.ToJSON(step.Patch.Template, testPod(corev1.RestartPolicyNever, nil))
			if err != nil {
				t.Fatalf("stage %s: %v", stage.Name, err)
			}
			var patch corev1.Pod
			if err := json.Unmarshal(data, &patch); err != nil {
				t.Fatalf("stage %s: %v", stage.Name, err)
			}
			if string(patch.Status.Phase) != want[stage.Name] || patch.UID != "u" {
				t.Errorf("stage %s patches %s", stage.Name, data)
			}
			delete(want, stage.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("stages that patch nothing: %v", want)
	}
	managed = false // the node has failed after the stage was scheduled
	for name, function := range functions {
		if patch, ok := function.(func(any) (string, error)); ok && name != "NodeStatus" {
			if got, err := patch(testPod(corev1.RestartPolicyNever, nil)); err != nil || got != "{}" {
				t.Errorf("%s patches a pod of a failed node: %s (error %v)", name, got, err)
			}
		}
	}
}

func TestNodeStatus(t *testing.T) {
	resources, err := capacity.Parse("cpu=4")
	if err != nil {
		t.Fatal(err)
	}
	own, err := capacity.Parse("cpu=1,memory=1Gi")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		has, want corev1.ResourceList
	}{
		"empty node gets the default": {nil, resources},
		"a size of its own is kept":   {own, own},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: tc.has}}
			status := fleet{capacity: resources, version: "v1.2.3"}.status(node, now)
			if diff := cmp.Diff(tc.want, status.Allocatable); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
			if status.Conditions[0].Type != corev1.NodeReady || status.Conditions[0].Status != corev1.ConditionTrue || status.NodeInfo.KubeletVersion != "v1.2.3" {
				t.Errorf("wrong status: %+v", status)
			}
		})
	}
}

func TestNodeStage(t *testing.T) {
	cycle := lifecycleOf(t, "Node")
	for name, tc := range map[string]struct {
		ready corev1.ConditionStatus
		want  bool
	}{
		"no condition": {"", true},
		"not ready":    {corev1.ConditionFalse, true},
		"unknown":      {corev1.ConditionUnknown, true},
		"ready":        {corev1.ConditionTrue, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			if tc.ready != "" {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.ready}}
			}
			stage, err := cycle.Match(context.Background(), &lifecycle.Event{Data: node})
			if err != nil || (stage != nil) != tc.want {
				t.Errorf("stage %v (error %v), want one: %v", stage, err, tc.want)
			}
		})
	}
}
