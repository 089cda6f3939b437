package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/training/plan"
)

// TestTuneCommand is the table of 50 §4.6.2: recipe and configuration by nodes, devices and arguments, and whether processes
// have to meet.
func TestTuneCommand(t *testing.T) {
	const lora, qlora = "model.lora_attn_modules=['q_proj']", "my.model.quantize_base= True"
	const meets = "--rdzv_endpoint=lark-node-0-0.lark:29500"
	tests := map[string]struct {
		model     string
		trainer   string
		args      []string
		want      string
		endpoints bool
	}{
		"one GPU":                           {trainer: "resourcesPerNode: {limits: {nvidia.com/gpu: 1}}", want: "full_finetune_single_device --config llama3_2/1B_full_single_device"},
		"one GPU, whatever the processes":   {trainer: "numProcPerNode: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 1}}", want: "full_finetune_single_device --config llama3_2/1B_full_single_device", endpoints: true},
		"one process, whatever the GPUs":    {trainer: "numProcPerNode: 1", want: "full_finetune_single_device --config llama3_2/1B_full_single_device"},
		"LoRA on one device":                {trainer: "numProcPerNode: 1", args: []string{lora}, want: "lora_finetune_single_device --config llama3_2/1B_lora_single_device"},
		"QLoRA on one device":               {trainer: "numProcPerNode: 1", args: []string{qlora}, want: "lora_finetune_single_device --config llama3_2/1B_qlora_single_device"},
		"QLoRA wins over LoRA":              {trainer: "numProcPerNode: 1", args: []string{qlora, lora}, want: "lora_finetune_single_device --config llama3_2/1B_qlora_single_device"},
		"with DoRA it is LoRA":              {trainer: "numProcPerNode: 1", args: []string{qlora, lora, "model.use_dora=true"}, want: "lora_finetune_single_device --config llama3_2/1B_lora_single_device"},
		"the runtime's two GPUs":            {want: "full_finetune_distributed --config llama3_2/1B_full", endpoints: true},
		"processes":                         {trainer: "numProcPerNode: 2", want: "full_finetune_distributed --config llama3_2/1B_full", endpoints: true},
		"LoRA on two":                       {args: []string{lora}, want: "lora_finetune_distributed --config llama3_2/1B_lora", endpoints: true},
		"QLoRA on two":                      {args: []string{qlora}, want: "lora_finetune_distributed --config llama3_2/1B_qlora", endpoints: true},
		"another model":                     {model: "torchtune-qwen2.5-1.5b", args: []string{lora}, want: "lora_finetune_distributed --config qwen2_5/1.5B_lora", endpoints: true},
		"nodes":                             {model: "torchtune-llama3.3-70b", trainer: "numNodes: 2", want: "full_finetune_distributed --config llama3_3/70B_full_multinode", endpoints: true},
		"nodes of one device, with LoRA":    {model: "torchtune-llama3.3-70b", trainer: "numNodes: 2, numProcPerNode: 1", args: []string{lora}, want: "full_finetune_distributed --config llama3_3/70B_full_multinode", endpoints: true},
		"a name that is not of three parts": {model: "torchtune-llama", want: "full_finetune_distributed --config _full", endpoints: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := builtin(t, "torchtune-llama3.2-1b")
			if tt.model != "" {
				r.Name = tt.model
			}
			job := trainJob(t, "{runtimeRef: {name: "+r.Name+"}, trainer: {command: [tune, run], "+tt.trainer+"}}")
			job.Spec.Trainer.Args = tt.args
			built, err := plan.Build(&plan.Input{TrainJob: job, Runtime: r, Config: plan.DefaultConfig()})
			if err != nil {
				t.Fatal(err)
			}
			c := built.PodSets[2].Template.Spec.Containers[0]
			want := []string{"tune", "run"}
			if tt.endpoints {
				want = append(want, meets)
			}
			want = append(want, strings.Fields(tt.want)...)
			want = append(want, "output_dir=/workspace/output", "tokenizer.path=/workspace/model/original/tokenizer.model", "checkpointer.checkpoint_dir=/workspace/model")
			if diff := cmp.Diff(want, c.Command); diff != "" || !slices.Equal(c.Args, tt.args) {
				t.Errorf("args %q, command (-want +got):\n%s", c.Args, diff)
			}
			for _, e := range c.Env {
				if strings.HasPrefix(e.Name, "PET_MASTER") {
					t.Errorf("variable %s", e.Name)
				}
			}
		})
	}
}

// TestGPUs is 50 §4.6: which resource tells the GPUs of a node, as XGBoost's workers do.
func TestGPUs(t *testing.T) {
	for name, tt := range map[string]struct{ resources, want string }{
		"none":                     {"{requests: {cpu: 3}}", "2"},
		"requests before limits":   {"{requests: {a.io/gpu: 2}, limits: {a.io/gpu: 4}}", "4"},
		"the first by name":        {"{limits: {b.io/gpu: 4, a.io/gpu: 3}}", "6"},
		"slices of one do not":     {"{limits: {nvidia.com/mig-1g.5gb: 4}}", "2"},
		"limits without a request": {"{requests: {cpu: 1}, limits: {a.io/gpu: 4}}", "8"},
	} {
		r := runtimeOf(t, fmt.Sprintf(`{mlPolicy: {numNodes: 2, xgboost: {}}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {%s: trainer}}, spec: {template: {spec: {containers: [{name: node, resources: %s}]}}}}}]}}}`, anc, tt.resources))
		built, err := plan.Build(&plan.Input{TrainJob: trainJob(t, "{}"), Runtime: r, Config: plan.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if got := built.PodSets[0].Template.Spec.Containers[0].Env[3].Value; got != tt.want {
			t.Errorf("%s: %s workers, want %s", name, got, tt.want)
		}
	}
}

// TestProcesses is 50 §4.6: how many processes a launcher starts, by what the TrainJob and the resources say.
func TestProcesses(t *testing.T) {
	tests := map[string]struct {
		trainer, resources, extra string
		merged                    bool
		want                      string
	}{
		"nothing":                          {want: "1"},
		"CPUs, rounded up":                 {resources: "{requests: {cpu: 2500m}}", want: "3"},
		"less than one":                    {resources: "{requests: {cpu: 700m}}", want: "1"},
		"limits if nothing is requested":   {resources: "{limits: {cpu: 4}}", want: "4"},
		"requests before limits":           {resources: "{requests: {cpu: 2}, limits: {cpu: 4}}", want: "2"},
		"GPUs":                             {resources: "{limits: {nvidia.com/gpu: 4}}", want: "auto"},
		"GPUs of any case":                 {resources: "{limits: {acme.io/vGPU: 4}}", want: "auto"},
		"no GPUs":                          {resources: "{limits: {nvidia.com/gpu: 0, cpu: 3}}", want: "3"},
		"what is not a GPU":                {resources: "{limits: {habana.ai/gaudi: 8, cpu: 3}}", want: "3"},
		"what the configuration calls one": {resources: "{limits: {habana.ai/gaudi: 8, cpu: 3}}", extra: "habana.ai/gaudi", want: "auto"},
		"the TrainJob says so":             {trainer: "numProcPerNode: 7", resources: "{limits: {nvidia.com/gpu: 4}}", want: "7"},
		"the TrainJob's own CPUs":          {trainer: "resourcesPerNode: {requests: {cpu: 4}}", resources: "{limits: {nvidia.com/gpu: 4}}", want: "4"},
		"its own limit of CPUs":            {trainer: "resourcesPerNode: {limits: {cpu: 4}}", resources: "{requests: {cpu: 2}, limits: {nvidia.com/gpu: 4}}", want: "4"},
		"its own GPUs":                     {trainer: "resourcesPerNode: {limits: {cpu: 4, nvidia.com/gpu: 2}}", resources: "{limits: {cpu: 8}}", want: "auto"},
		"merged: CPUs beside GPUs":         {trainer: "resourcesPerNode: {requests: {cpu: 4}}", resources: "{limits: {nvidia.com/gpu: 4}}", merged: true, want: "auto"},
		"own memory says nothing":          {trainer: "resourcesPerNode: {limits: {memory: 8Gi}}", resources: "{limits: {nvidia.com/gpu: 4}}", want: "auto"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.resources == "" {
				tt.resources = "{}"
			}
			r := runtimeOf(t, fmt.Sprintf(`{mlPolicy: {torch: {}}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {%s: trainer}}, spec: {template: {spec: {containers: [{name: node, resources: %s}]}}}}}]}}}`, anc, tt.resources))
			cfg := plan.DefaultConfig()
			cfg.MergedResources = tt.merged
			if tt.extra != "" {
				cfg.ExtraGPUs = []string{tt.extra}
			}
			built, err := plan.Build(&plan.Input{TrainJob: trainJob(t, "{trainer: {"+tt.trainer+"}}"), Runtime: r, Config: cfg})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range built.PodSets[0].Template.Spec.Containers[0].Env {
				if e.Name == "PET_NPROC_PER_NODE" && e.Value != tt.want {
					t.Errorf("%s processes, want %s", e.Value, tt.want)
				}
			}
		})
	}
}
