package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	now   = time.Date(2026, 11, 21, 10, 0, 0, 250_000_000, time.UTC)
	later = now.Add(3 * time.Second)
)

func testPod(restart corev1.RestartPolicy, annotations map[string]string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Annotations: annotations},
		Spec: corev1.PodSpec{
			NodeName:      "n",
			RestartPolicy: restart,
			InitContainers: []corev1.Container{
				{Name: "init", Image: "i"},
				{Name: "sidecar", Image: "s", RestartPolicy: &always},
			},
			Containers: []corev1.Container{{Name: "a", Image: "x"}, {Name: "b", Image: "y"}},
		},
	}
}

func TestRunTime(t *testing.T) {
	const forever = -1
	for name, tc := range map[string]struct {
		restart    corev1.RestartPolicy
		annotation string // "-" is none
		want       time.Duration
		reason     string
	}{
		"no annotation":                   {corev1.RestartPolicyNever, "-", 2 * time.Second, "DefaultRunSeconds"},
		"no annotation, OnFailure":        {corev1.RestartPolicyOnFailure, "-", 2 * time.Second, "DefaultRunSeconds"},
		"no annotation, Always":           {corev1.RestartPolicyAlways, "-", forever, "DefaultRunSeconds"},
		"seconds":                         {corev1.RestartPolicyNever, "30", 30 * time.Second, "RunSeconds"},
		"a fraction":                      {corev1.RestartPolicyNever, "0.5", 500 * time.Millisecond, "RunSeconds"},
		"zero":                            {corev1.RestartPolicyNever, "0", 0, "RunSeconds"},
		"seconds beat Always":             {corev1.RestartPolicyAlways, "7", 7 * time.Second, "RunSeconds"},
		"the longest":                     {corev1.RestartPolicyNever, "1e9", 1e9 * time.Second, "RunSeconds"},
		"empty":                           {corev1.RestartPolicyNever, "", 2 * time.Second, "InvalidRunSeconds"},
		"a word":                          {corev1.RestartPolicyNever, "soon", 2 * time.Second, "InvalidRunSeconds"},
		"a unit":                          {corev1.RestartPolicyNever, "5s", 2 * time.Second, "InvalidRunSeconds"},
		"negative":                        {corev1.RestartPolicyNever, "-1", 2 * time.Second, "InvalidRunSeconds"},
		"not a number":                    {corev1.RestartPolicyNever, "NaN", 2 * time.Second, "InvalidRunSeconds"},
		"infinite":                        {corev1.RestartPolicyNever, "Inf", 2 * time.Second, "InvalidRunSeconds"},
		"more than a time can hold":       {corev1.RestartPolicyNever, "1e10", 2 * time.Second, "InvalidRunSeconds"},
		"a word, Always: as if not given": {corev1.RestartPolicyAlways, "soon", forever, "InvalidRunSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			if tc.annotation != "-" {
				annotations[RunSecondsAnnotation] = tc.annotation
			}
			status := started(testPod(tc.restart, annotations), "10.32.0.1", "10.64.0.1", now)
			until := condition(status, RunsUntil)
			if tc.want == forever {
				if until != nil {
					t.Fatalf("runs until %s, want for ever", until.Message)
				}
				return
			}
			if until == nil {
				t.Fatal("runs for ever")
			}
			moment, err := time.Parse(time.RFC3339Nano, until.Message)
			if err != nil {
				t.Fatal(err)
			}
			if got := moment.Sub(now); got != tc.want || until.Reason != tc.reason {
				t.Errorf("runs for %v (%s), want %v (%s)", got, until.Reason, tc.want, tc.reason)
			}
		})
	}
}

func condition(status corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

func TestStarted(t *testing.T) {
	status := started(testPod(corev1.RestartPolicyNever, nil), "10.32.0.1", "10.64.0.1", now)
	if status.Phase != corev1.PodRunning || status.PodIP != "10.64.0.1" || status.HostIP != "10.32.0.1" || !status.StartTime.Time.Equal(now) {
		t.Errorf("wrong status: %+v", status)
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if c := condition(status, kind); c == nil || c.Status != corev1.ConditionTrue {
			t.Errorf("condition %s is not true", kind)
		}
	}
	if init := status.InitContainerStatuses[0]; init.State.Terminated == nil || init.State.Terminated.ExitCode != 0 || !init.Ready {
		t.Errorf("the init container is not done: %+v", init)
	}
	for _, c := range append(status.ContainerStatuses, status.InitContainerStatuses[1]) {
		if c.State.Running == nil || !c.Ready || !*c.Started {
			t.Errorf("container %s does not run: %+v", c.Name, c)
		}
	}
}

func TestEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		end         func(*corev1.Pod, time.Time) corev1.PodStatus
		phase       corev1.PodPhase
		code        int32
		note        string
	}{
		"succeeds":             {nil, finished, corev1.PodSucceeded, 0, ""},
		"code 0":               {map[string]string{ExitCodeAnnotation: "0"}, finished, corev1.PodSucceeded, 0, ""},
		"code 3":               {map[string]string{ExitCodeAnnotation: "3"}, finished, corev1.PodFailed, 3, ""},
		"code 255":             {map[string]string{ExitCodeAnnotation: "255"}, finished, corev1.PodFailed, 255, ""},
		"code 256":             {map[string]string{ExitCodeAnnotation: "256"}, finished, corev1.PodSucceeded, 0, `berth.dev/exit-code="256"`},
		"code -1":              {map[string]string{ExitCodeAnnotation: "-1"}, finished, corev1.PodSucceeded, 0, `berth.dev/exit-code="-1"`},
		"bad code":             {map[string]string{ExitCodeAnnotation: "x"}, finished, corev1.PodSucceeded, 0, `berth.dev/exit-code="x"`},
		"bad run time":         {map[string]string{RunSecondsAnnotation: "x"}, finished, corev1.PodSucceeded, 0, `berth.dev/run-seconds="x"`},
		"deleted":              {nil, terminated, corev1.PodFailed, 143, ""},
		"deleted, has a code":  {map[string]string{ExitCodeAnnotation: "3"}, terminated, corev1.PodFailed, 143, ""},
		"deleted, has code 0":  {map[string]string{ExitCodeAnnotation: "0"}, terminated, corev1.PodFailed, 143, ""},
		"both are wrong":       {map[string]string{ExitCodeAnnotation: "x", RunSecondsAnnotation: "y"}, finished, corev1.PodSucceeded, 0, `run-seconds="y"`},
		"the code is wrong, 2": {map[string]string{ExitCodeAnnotation: "x", RunSecondsAnnotation: "y"}, finished, corev1.PodSucceeded, 0, `exit-code="x"`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(corev1.RestartPolicyOnFailure, tc.annotations)
			pod.Status = started(pod, "10.32.0.1", "10.64.0.1", now)
			status := tc.end(pod, later)
			if status.Phase != tc.phase {
				t.Errorf("phase %s, want %s", status.Phase, tc.phase)
			}
			if ready := condition(status, corev1.PodReady); ready == nil || ready.Status != corev1.ConditionFalse {
				t.Errorf("still ready: %+v", ready)
			}
			for _, c := range status.ContainerStatuses {
				end := c.State.Terminated
				if end == nil || end.ExitCode != tc.code || !end.StartedAt.Time.Equal(now) || !end.FinishedAt.Time.Equal(later) || c.Ready {
					t.Errorf("container %s ended as %+v", c.Name, c)
				} else if !strings.Contains(end.Message, tc.note) || tc.note == "" && end.Message != "" {
					t.Errorf("container %s says %q, want %q in it", c.Name, end.Message, tc.note)
				}
			}
			for _, c := range status.InitContainerStatuses {
				if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
					t.Errorf("init container %s ended as %+v", c.Name, c)
				}
			}
		})
	}
}

// A pod that is deleted before it ran has no statuses with times.
func TestTerminatedBeforeItRan(t *testing.T) {
	status := terminated(testPod(corev1.RestartPolicyNever, nil), now)
	if end := status.ContainerStatuses[0].State.Terminated; status.Phase != corev1.PodFailed || !end.StartedAt.Time.Equal(now) {
		t.Errorf("wrong status: %+v", status)
	}
}
