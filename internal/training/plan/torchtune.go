package plan

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Models of torchtune.
const (
	tuneLlama1B  = "llama3_2/1B"
	tuneLlama3B  = "llama3_2/3B"
	tuneLlama70B = "llama3_3/70B"
	tuneQwen     = "qwen2_5/1.5B"
)

// tuneReserved are the settings of the runtime's command that the final command retains. Users may not set them.
var tuneReserved = []string{"output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir"}

// isTune reports whether the command of a TrainJob is exactly `tune run` (spec: 50 §4.6.2).
func isTune(job *trainerv1alpha1.TrainJob) bool {
	return job.Spec.Trainer != nil && slices.Equal(job.Spec.Trainer.Command, []string{"tune", "run"})
}

// tuneModel returns the model in the name of a runtime, or "": torchtune-llama3.2-1b is llama3_2/1B.
func tuneModel(runtime string) string {
	parts := strings.Split(runtime, "-")
	if len(parts) != 3 {
		return ""
	}
	return strings.ReplaceAll(parts[1], ".", "_") + "/" + strings.ToUpper(parts[2])
}

type tuning struct {
	nodes, gpus int32
	procs       processes
	args        []string
}

func (t *tuning) isSingleProcess() bool { return t.gpus == 1 || (!t.procs.auto && t.procs.n == 1) }

func (t *tuning) needsRendezvous() bool {
	return t.nodes > 1 || (!t.procs.auto && t.procs.n > 1) || (t.procs.auto && t.gpus > 1)
}

func (t *tuning) usesLoRA() (lora, quantized bool) {
	dora := false
	for _, arg := range t.args {
		lora = lora || strings.Contains(arg, "model.lora_attn_modules")
		key, value, ok := strings.Cut(arg, "=")
		if ok && strings.EqualFold(strings.TrimSpace(value), "true") {
			quantized = quantized || strings.Contains(key, "model.quantize_base")
			dora = dora || strings.Contains(key, "model.use_dora")
		}
	}
	return lora, quantized && !dora
}

// recipe returns torchtune's recipe and the suffix of its configuration (spec: 50 §4.6.2).
func (t *tuning) recipe() (recipe, suffix string) {
	lora, quantized := t.usesLoRA()
	kind := ""
	switch {
	case t.nodes > 1:
		return "full_finetune_distributed", "_full_multinode"
	case quantized:
		recipe, kind = "lora_finetune", "_qlora"
	case lora:
		recipe, kind = "lora_finetune", "_lora"
	default:
		recipe, kind = "full_finetune", "_full"
	}
	if t.isSingleProcess() {
		return recipe + "_single_device", kind + "_single_device"
	}
	return recipe + "_distributed", kind
}

func (b *builder) tuneCommand(t tuning) []string {
	command := []string{"tune", "run"}
	if t.needsRendezvous() {
		command = append(command, "--rdzv_endpoint="+b.master()+":"+strconv.Itoa(rendezvousPort))
	}
	recipe, suffix := t.recipe()
	command = append(command, recipe, "--config", tuneModel(b.Runtime.Name)+suffix)
	for _, item := range tuneRuntimeCommand(b.Runtime) {
		if key, _, _ := strings.Cut(item, "="); slices.Contains(tuneReserved, key) {
			command = append(command, item)
		}
	}
	return command
}

func tuneRuntimeCommand(r *Runtime) []string {
	for i := range r.Spec.Template.Spec.ReplicatedJobs {
		rj := &r.Spec.Template.Spec.ReplicatedJobs[i]
		if rj.Template.Labels[trainerv1alpha1.AncestorStepLabel] != trainerv1alpha1.AncestorTrainer {
			continue
		}
		if c := patch.ContainerNamed(rj.Template.Spec.Template.Spec.Containers, trainerv1alpha1.ContainerNode); c != nil {
			return c.Command
		}
	}
	return nil
}

// validateTune checks the combinations of model and tuning that torchtune supports (spec: 50 §4.6.2). It ignores the number of nodes of
// the runtime.
func (v *validation) validateTune() (errs field.ErrorList) {
	spec := field.NewPath("spec")
	trainer, name := spec.Child("trainer"), spec.Child("runtimeRef", "name")
	r := v.Runtime
	model, t := tuneModel(r.Name), v.draft.tuning()
	lora, quantized := t.usesLoRA()
	if !slices.Contains([]string{tuneLlama1B, tuneLlama3B, tuneLlama70B, tuneQwen}, model) {
		errs = append(errs, field.Invalid(name, r.Name, "names no model that torchtune supports; use "+strings.Join([]string{tuneLlama1B, tuneLlama3B, tuneLlama70B, tuneQwen}, ", ")))
	}
	if t.nodes > 1 && model != tuneLlama70B {
		errs = append(errs, field.Invalid(trainer.Child("numNodes"), t.nodes, "must be 1: only "+tuneLlama70B+" can be fine-tuned on several nodes"))
	}
	if quantized && model == tuneQwen {
		errs = append(errs, field.Invalid(name, r.Name, "QLoRA is not supported for "+tuneQwen))
	}
	if quantized && !t.isSingleProcess() && (model == tuneLlama1B || model == tuneLlama3B) {
		text := "QLoRA of " + model + " runs on a single device only"
		errs = append(errs,
			field.Invalid(trainer.Child("numProcPerNode"), t.procs.String(), text),
			field.Invalid(trainer.Child("resourcesPerNode"), t.gpus, text),
		)
	}
	if (lora || quantized) && t.nodes > 1 {
		errs = append(errs, field.Invalid(trainer.Child("numNodes"), t.nodes, "must be 1 for LoRA and QLoRA"))
	}
	for i, arg := range v.New.Spec.Trainer.Args {
		if key, _, _ := strings.Cut(arg, "="); slices.Contains(tuneReserved, key) {
			errs = append(errs, field.Invalid(trainer.Child("args").Index(i), arg, "is set by the runtime; remove it"))
		}
	}
	return errs
}

// tuning returns the TrainJob's own numbers, and the GPUs by which processes are counted.
func (b *builder) tuning() tuning {
	trainer := b.TrainJob.Spec.Trainer
	t := tuning{nodes: 1, procs: processes{auto: true}, args: trainer.Args}
	if n := trainer.NumNodes; n != nil {
		t.nodes = *n
	}
	if n := trainer.NumProcPerNode; n != nil {
		t.procs = processes{n: *n}
	}
	b.configureTrainer() // a second time changes nothing
	resources := b.resources()
	t.gpus = b.Config.gpus(&resources)
	return t
}
