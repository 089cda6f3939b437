package plan_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/training/plan"
)

// mpiRuntime is a runtime with an MPI policy whose job node has some replicas.
func mpiRuntime(t testing.TB, replicas int, policy string) *plan.Runtime {
	t.Helper()
	return runtimeOf(t, fmt.Sprintf(`
mlPolicy: {mpi: {%s}}
template:
  spec:
    replicatedJobs:
      - name: node
        replicas: %d
        template: {spec: {template: {spec: {containers: [{name: node}]}}}}
      - name: launcher
        template:
          metadata: {labels: {`+anc+`: trainer}}
          spec: {template: {spec: {containers: [{name: node}]}}}
`, policy, replicas))
}

// TestTooLarge: a TrainJob is refused, with the field, if its hostfile would not fit into a ConfigMap, if 32 bits do not count
// its pods or its processes, or if it has more pods than the configuration allows. Nothing of that size is built to find out.
func TestTooLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		spec     string
		replicas int
		policy   string
		want     []string
	}{
		"a hostfile that fits":     {spec: `{trainer: {numNodes: 20000}}`, replicas: 1},
		"hostfile":                 {spec: `{trainer: {numNodes: 40000}}`, replicas: 1, want: []string{"spec.trainer.numNodes: Invalid value: 40000: the MPI hostfile would have at least "}},
		"the most nodes":           {spec: `{trainer: {numNodes: 2147483647}}`, replicas: 1, policy: "runLauncherAsNode: true", want: []string{"spec.trainer.numNodes: Invalid value: 2147483647: the MPI hostfile"}},
		"one pod more":             {spec: `{trainer: {numNodes: 2147483647}}`, replicas: 1, want: []string{"spec.trainer.numNodes: Invalid value: 2147483647: the TrainJob would have more than 2147483647 pods"}},
		"times replicas":           {spec: `{trainer: {numNodes: 65536}}`, replicas: 65536, want: []string{"spec.trainer.numNodes: Invalid value: 65536: the TrainJob would have more than 2147483647 pods"}},
		"the most of all":          {spec: `{trainer: {numNodes: 2147483647}}`, replicas: 2147483647, want: []string{"spec.trainer.numNodes: Invalid value: 2147483647: the TrainJob would have more"}},
		"by the runtime":           {spec: `{}`, replicas: 2147483647, want: []string{`spec.runtimeRef: Invalid value: "custom": the TrainJob would have more`}},
		"times processes":          {spec: `{trainer: {numNodes: 100, numProcPerNode: 100000000}}`, replicas: 1, want: []string{"spec.trainer.numProcPerNode: Invalid value: 100000000: the TrainJob would have 10100000000 processes, 100000000 on each node"}},
		"processes of the runtime": {spec: `{trainer: {numNodes: 100}}`, policy: "numProcPerNode: 100000000", replicas: 1, want: []string{"spec.trainer.numNodes: Invalid value: 100: the TrainJob would have 10100000000 processes"}},
	} {
		t.Run(name, func(t *testing.T) {
			took := allocated(func() {
				expect(t, plan.Validate(request(trainJob(t, tc.spec), nil, mpiRuntime(t, tc.replicas, tc.policy))), tc.want...)
			})
			if took > 1<<20 {
				t.Errorf("it took %d bytes", took)
			}
		})
	}
	plain := runtimeOf(t, simpleRuntime("torch: {}"))
	expect(t, plan.Validate(request(trainJob(t, `{trainer: {numNodes: 100001}}`), nil, plain)),
		"spec.trainer.numNodes: Invalid value: 100001: 100003 pods would be made for one job, and integrations.maxChildren allows 100000")
	r := request(trainJob(t, `{trainer: {numNodes: 100001}}`), nil, plain)
	r.Config.MaxPods = 200_000
	expect(t, plan.Validate(r))
}

// A TrainJob that was stored before webhooks refused it is an error of every plan, and takes no memory.
func TestStoredTooLarge(t *testing.T) {
	in := &plan.Input{TrainJob: trainJob(t, `{trainer: {numNodes: 2147483647}}`), Runtime: mpiRuntime(t, 1, "runLauncherAsNode: true"), Config: plan.DefaultConfig()}
	for name, call := range map[string]func() error{
		"Build":       func() error { _, err := plan.Build(in); return err },
		"BuildJobSet": func() error { _, err := plan.BuildJobSet(in); return err },
		"NewDraft":    func() error { _, err := plan.NewDraft(in); return err },
	} {
		var err error
		took := allocated(func() { err = call() })
		if _, ok := errors.AsType[plan.TooLarge](err); !ok || !strings.HasPrefix(err.Error(), "spec.trainer.numNodes: ") {
			t.Errorf("%s: %v, want TooLarge with the field", name, err)
		}
		if took > 1<<20 {
			t.Errorf("%s took %d bytes", name, took)
		}
	}
}

// TestNoFiles: the memory that webhook and queue need for a TrainJob does not grow with its number of nodes.
func TestNoFiles(t *testing.T) {
	build := func(nodes int) *plan.Input {
		return &plan.Input{TrainJob: trainJob(t, fmt.Sprintf(`{trainer: {numNodes: %d}}`, nodes)), Runtime: mpiRuntime(t, 1, ""), Config: plan.DefaultConfig()}
	}
	few, many := build(1), build(20_000)
	took := func(in *plan.Input) uint64 {
		return allocated(func() {
			if p, err := plan.BuildJobSet(in); err != nil || len(p.ConfigMaps) > 0 || len(p.PodSets) != 2 {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	if a, b := took(few), took(many); b > a+64<<10 {
		t.Errorf("%d bytes for 20,000 nodes, %d for one", b, a)
	}
}

// TestHostfileSize: the size is known without the file.
func TestHostfileSize(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes, replicas := rapid.IntRange(0, 120).Draw(rt, "nodes"), rapid.IntRange(0, 12).Draw(rt, "replicas")
		policy := fmt.Sprintf("runLauncherAsNode: %t, numProcPerNode: %d", rapid.Bool().Draw(rt, "launcher"), rapid.IntRange(1, 1000).Draw(rt, "slots"))
		in := &plan.Input{TrainJob: trainJob(t, fmt.Sprintf(`{trainer: {numNodes: %d}}`, nodes)), Runtime: mpiRuntime(t, replicas, policy), Config: plan.DefaultConfig()}
		p, err := plan.Build(in)
		if err != nil {
			rt.Fatal(err)
		}
		if have, want := plan.HostfileSize(in), int64(len(p.ConfigMaps[0].Data["hostfile"])); have != want {
			rt.Fatalf("%d bytes, want %d", have, want)
		}
	})
}

// allocated returns the allocated bytes, including released ones.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
