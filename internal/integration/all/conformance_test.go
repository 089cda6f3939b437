package all_test

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/integration/all"
	"github.com/berth-project/berth/internal/integration/integrationtest"
	"github.com/berth-project/berth/internal/integration/job"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// pod is a pod template's spec, for indentation by eight.
const pod = `
        nodeSelector: {zone: a}
        restartPolicy: Never
        tolerations: [{key: own, operator: Exists}]
        containers:
        - name: c
          image: busybox
          ports: [{containerPort: 80}]
          resources: {requests: {cpu: "1"}}
`

// kinds is what the suite has to know of each kind.
var kinds = map[string]*integrationtest.Kind{
	"batch/job": {
		Manifest: `
apiVersion: batch/v1
kind: Job
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {labels: {app: x}}
    spec:` + pod,
		PodSets: []string{"main:2"},
		Status: map[integrationtest.State]string{
			integrationtest.Active:  "{startTime: '2026-01-02T03:04:05Z', active: 2}",
			integrationtest.Stopped: "{active: 0}",
			integrationtest.Succeeded: `
active: 0
succeeded: 2
startTime: '2026-01-02T03:04:05Z'
completionTime: '2026-01-02T03:05:05Z'
conditions:
- {type: SuccessCriteriaMet, status: "True", lastTransitionTime: '2026-01-02T03:05:05Z'}
- {type: Complete, status: "True", message: done, lastTransitionTime: '2026-01-02T03:05:05Z'}`,
			integrationtest.Failed: `
active: 0
failed: 2
conditions:
- {type: FailureTarget, status: "True", lastTransitionTime: '2026-01-02T03:05:05Z'}
- {type: Failed, status: "True", message: broken, lastTransitionTime: '2026-01-02T03:05:05Z'}`,
		},
	},
	"jobset.x-k8s.io/jobset": {
		Manifest: `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
  - name: leader
    replicas: 1
    template:
      spec:
        parallelism: 1
        completions: 1
        template:
          spec:` + indent(pod, 4) + `
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 3
        completions: 2
        template:
          metadata: {labels: {app: x}, annotations: {b: c}}
          spec:` + indent(pod, 4),
		PodSets: []string{"leader:1", "workers:4"},
		Status: map[integrationtest.State]string{
			integrationtest.Active:    "replicatedJobsStatus: [{name: leader, active: 1, failed: 0, ready: 0, succeeded: 0, suspended: 0}]",
			integrationtest.Stopped:   "replicatedJobsStatus: [{name: leader, active: 0, failed: 0, ready: 0, succeeded: 0, suspended: 1}]",
			integrationtest.Succeeded: conditionText("Completed"),
			integrationtest.Failed:    conditionText("Failed"),
		},
	},
}

// conditionText is a status with a true condition.
func conditionText(kind string) string {
	return "conditions: [{type: " + kind + `, status: "True", reason: R, message: m, lastTransitionTime: '2026-01-02T03:05:05Z'}]`
}

func TestConformance(t *testing.T) {
	for _, d := range all.Descriptors() {
		t.Run(d.Framework, func(t *testing.T) {
			kind := kinds[d.Framework]
			if kind == nil {
				t.Fatal("the suite knows no job of this kind: add one")
			}
			kind.Descriptor = d
			integrationtest.Run(t, kind, job.Descriptor())
		})
	}
}

// indent moves lines to the right.
func indent(text string, by int) string {
	return strings.ReplaceAll(text, "\n ", "\n "+strings.Repeat(" ", by))
}
