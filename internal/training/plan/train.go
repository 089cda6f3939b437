// Package plan says what a TrainJob wants: pure functions from the TrainJob, the
// snapshot of its runtime and the runtime patches to its JobSet, ConfigMaps,
// Secrets and pod groups, and the rules of its admission.
//
//	runtime ──► patch.Merge ─► counts ─► trainer, initializers ─► ML policy ─► pod group ─► Plan
//	                                     (trainer.go …)        (torch.go …)  (podgroup.go)
//
// A [Draft] is the one way from a TrainJob to its objects: the controller, the webhook and
// the queue each make one and complete it, so they cannot disagree. The same input
// gives the same output to the byte, and no input is ever changed. Keys are arguments:
// the caller generates and reads them.
//
// What may be stored is decided by [Validate], what the status says by [Status].
// Runtime patches have a package of their own, patch.
package plan

import (
	"fmt"
	"iter"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Input is everything that a plan depends on. Build changes none of it.
type Input struct {
	// TrainJob is what the user wants.
	TrainJob *trainerv1alpha1.TrainJob
	// Runtime is the snapshot of the TrainJob's runtime, or the live one if there is none yet.
	Runtime *Runtime
	// Config is how to merge and what to inject.
	Config *Config
	// Keys are for Secrets that do not exist yet. A Secret whose keys are absent is left out of the plan.
	Keys Keys
	// Overheads are the pod overheads of RuntimeClasses, by name of the class. They count in pod groups.
	Overheads map[string]corev1.ResourceList
}

// Keys is key material, made once for each TrainJob.
type Keys struct {
	// SSHPrivate is a PEM block of type EC PRIVATE KEY, and SSHPublic the line of authorized_keys that belongs to it.
	SSHPrivate, SSHPublic []byte
	// CurvePublic and CurveSecret are an X25519 pair in Z85, 40 characters each.
	CurvePublic, CurveSecret string
	// CA is the authority of the progress server's certificate, in PEM.
	CA []byte
}

// Plan is what a TrainJob wants to exist. Every object has the TrainJob as its controller and nothing besides.
type Plan struct {
	// JobSet is complete, and to be applied after everything else.
	JobSet *jobsetv1alpha2.JobSet
	// ConfigMaps are to be applied each time.
	ConfigMaps []*corev1.ConfigMap
	// Secrets are to be created if they do not exist, and left alone if they do.
	Secrets []*corev1.Secret
	// PodGroups are to be created, and to be applied again only while the TrainJob is suspended (spec: 50 §4.7).
	PodGroups []*unstructured.Unstructured
	// PodSets are the groups of pods of the JobSet, in the order of its replicated jobs.
	PodSets []PodSet
}

// PodSet is the pods of one replicated job, as the queue counts them.
type PodSet struct {
	// Name is that of the replicated job, and Ancestor the part of the TrainJob that configures it, or "".
	Name, Ancestor string
	// Replicas is the number of Jobs, and Count the number of pods of each.
	Replicas, Count int32
	// Template is that of the JobSet; it is not a copy.
	Template *corev1.PodTemplateSpec
}

// builder is a plan in the making.
type builder struct {
	*Input

	merged *trainerv1alpha1.JobSetTemplateSpec // the template of set, with the patches
	set    *jobsetv1alpha2.JobSet
	steps  []step
	plan   *Plan
	files  bool // makes the hostfile, too
}

// step is one replicated job of the JobSet in the making.
type step struct {
	job      *jobsetv1alpha2.ReplicatedJob
	pod      *corev1.PodTemplateSpec
	ancestor string
	count    int32
}

// Build makes the plan of a TrainJob (spec: 50 §4.1, §4.4). An error means that the runtime cannot be used as it is, that
// a patch names what the runtime does not have, or that the TrainJob is TooLarge.
func Build(in *Input) (*Plan, error) {
	d, err := NewDraft(in)
	if err != nil {
		return nil, err
	}
	return d.build(true)
}

// BuildJobSet makes the JobSet and the pod sets of a TrainJob, and none of the files beside it. It takes time and memory by the
// size of the objects, and not by the numbers in them: it is what a webhook and the queue call.
func BuildJobSet(in *Input) (*Plan, error) {
	d, err := NewDraft(in)
	if err != nil {
		return nil, err
	}
	return d.BuildJobSet()
}

// Draft is the JobSet of a TrainJob with the patches merged and the pods counted, and nothing injected yet. What decides about
// the TrainJob is asked of the draft, and it is completed at most once, by Build or BuildJobSet.
type Draft struct{ b *builder }

// NewDraft drafts the JobSet of a TrainJob. Keys and Overheads of the input are not needed yet. The error is a TooLarge. It takes
// time and memory by the size of the objects, and not by the numbers in them.
func NewDraft(in *Input) (*Draft, error) {
	b := newBuilder(in)
	if err := b.tooLarge(); err != nil {
		return nil, TooLarge{err}
	}
	return &Draft{b}, nil
}

// newBuilder merges the patches and counts the pods.
func newBuilder(in *Input) *builder {
	b := &builder{Input: in, plan: &Plan{}}
	b.begin()
	b.counts()
	return b
}

// Build completes the draft, like the function Build.
func (d *Draft) Build(keys Keys, overheads map[string]corev1.ResourceList) (*Plan, error) {
	in := *d.b.Input
	in.Keys, in.Overheads = keys, overheads
	d.b.Input = &in
	return d.build(true)
}

// BuildJobSet completes the draft, like the function BuildJobSet.
func (d *Draft) BuildJobSet() (*Plan, error) { return d.build(false) }

func (d *Draft) build(files bool) (*Plan, error) {
	if err := buildable(d.b.Input); err != nil {
		return nil, err
	}
	b := d.b
	b.files = files
	b.trainer()
	b.initializers()
	switch b.policy() {
	case policyTorch:
		b.torch()
	case policyMPI:
		b.mpi()
	case policyJAX:
		b.jax()
	case policyXGBoost:
		b.xgboost()
	case policyFlux:
		b.flux()
	default:
		b.plainEnv()
	}
	b.progress()
	b.lastEnv()
	b.podGroups()
	b.finish()
	return b.plan, nil
}

// buildable refuses what no plan can be made of.
func buildable(in *Input) error {
	if err := mpiSupported(in.Runtime); err != nil {
		return err
	}
	if !in.Config.Patches.StrictTargets || len(in.TrainJob.Spec.RuntimePatches) == 0 {
		return nil
	}
	template := &in.Runtime.Spec.Template
	if errs := patch.MissingTargets(template, patch.Expand(in.TrainJob.Spec.RuntimePatches, patch.SelectedOf(in.TrainJob), template)); len(errs) > 0 {
		return errs.ToAggregate()
	}
	return nil
}

// mpiSupported refuses a runtime with an MPI policy for an implementation that Berth has no variables for.
func mpiSupported(r *Runtime) error {
	if p := r.Spec.MLPolicy; p != nil && p.MPI != nil {
		if i := p.MPI.MPIImplementation; i != nil && *i != trainerv1alpha1.MPIImplementationOpenMPI {
			return fmt.Errorf("runtime %s: spec.mlPolicy.mpi.mpiImplementation %q is not supported; use %s", r.Name, *i, trainerv1alpha1.MPIImplementationOpenMPI)
		}
	}
	return nil
}

// begin copies the runtime's template, with the patches merged into it.
func (b *builder) begin() {
	b.set = &jobsetv1alpha2.JobSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: jobsetv1alpha2.GroupVersion.String(), Kind: "JobSet"},
		ObjectMeta: b.child(""),
	}
	template := patch.Merge(&b.Runtime.Spec.Template, b.TrainJob.Spec.RuntimePatches, patch.SelectedOf(b.TrainJob), &b.Config.Patches)
	b.merged = template
	b.set.Labels, b.set.Annotations = template.Labels, template.Annotations
	b.set.Spec = template.Spec
	b.steps = make([]step, len(b.set.Spec.ReplicatedJobs))
	for i := range b.set.Spec.ReplicatedJobs {
		rj := &b.set.Spec.ReplicatedJobs[i]
		b.steps[i] = step{job: rj, pod: &rj.Template.Spec.Template, ancestor: rj.Template.Labels[trainerv1alpha1.AncestorStepLabel]}
	}
}

// child is the metadata of an object of the TrainJob: name, namespace and owner, and nothing else (spec: 50 §4.2).
func (b *builder) child(suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: b.TrainJob.Name + suffix, Namespace: b.TrainJob.Namespace, OwnerReferences: []metav1.OwnerReference{Owner(b.TrainJob)}}
}

// Owner is the reference that every object of a TrainJob carries.
func Owner(job *trainerv1alpha1.TrainJob) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindTrainJob, Name: job.Name, UID: job.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// finish writes the counts into the JobSet and lists the pod sets.
func (b *builder) finish() {
	b.set.Spec.Suspend = new(suspended(b.TrainJob))
	b.plan.JobSet = b.set
	for i := range b.steps {
		s := &b.steps[i]
		if isAncestor(s.ancestor) {
			s.job.Replicas = new(int32(1))
		}
		spec := &s.job.Template.Spec
		spec.Parallelism, spec.Completions = new(s.count), new(s.count)
		b.plan.PodSets = append(b.plan.PodSets, PodSet{
			Name: s.job.Name, Ancestor: s.ancestor, Replicas: replicas(s.job), Count: s.count, Template: s.pod,
		})
	}
}

// isAncestor reports whether a value of the ancestor label is one that a TrainJob configures.
func isAncestor(value string) bool {
	switch value {
	case trainerv1alpha1.AncestorTrainer, trainerv1alpha1.AncestorDatasetInitializer, trainerv1alpha1.AncestorModelInitializer:
		return true
	}
	return false
}

func suspended(job *trainerv1alpha1.TrainJob) bool {
	return job.Spec.Suspend != nil && *job.Spec.Suspend
}

func replicas(rj *jobsetv1alpha2.ReplicatedJob) int32 {
	if rj.Replicas == nil {
		return 1
	}
	return *rj.Replicas
}

// subdomain is the domain of the pods' host names.
func (b *builder) subdomain() string {
	if n := b.set.Spec.Network; n != nil && n.Subdomain != "" {
		return n.Subdomain
	}
	return b.TrainJob.Name
}

// master is the host name of the first training pod, also if there is none (spec: 50 §4.6).
func (b *builder) master() string {
	name := trainerv1alpha1.JobNode
	if s := b.ofAncestor(trainerv1alpha1.AncestorTrainer); s != nil {
		name = s.job.Name
	}
	return b.TrainJob.Name + "-" + name + "-0-0." + b.subdomain()
}

// endpoints are the host names of a step's pods, replica by replica.
func (b *builder) endpoints(s *step) iter.Seq[string] {
	prefix, suffix := b.TrainJob.Name+"-"+s.job.Name+"-", "."+b.subdomain()
	return func(yield func(string) bool) {
		for r := range s.jobs() {
			for p := range s.count {
				if !yield(prefix + itoa(r) + "-" + itoa(p) + suffix) {
					return
				}
			}
		}
	}
}

// ofAncestor finds the first step with a value of the ancestor label, or nil.
func (b *builder) ofAncestor(value string) *step {
	for i := range b.steps {
		if b.steps[i].ancestor == value {
			return &b.steps[i]
		}
	}
	return nil
}

// named finds a step by the name of its replicated job, or nil.
func (b *builder) named(name string) *step {
	for i := range b.steps {
		if b.steps[i].job.Name == name {
			return &b.steps[i]
		}
	}
	return nil
}

// container finds a regular container of the step, or nil.
func (s *step) container(name string) *corev1.Container {
	return containerNamed(s.pod.Spec.Containers, name)
}

// jobNamed finds a replicated job, or nil.
func jobNamed(spec *jobsetv1alpha2.JobSetSpec, name string) *jobsetv1alpha2.ReplicatedJob {
	for i := range spec.ReplicatedJobs {
		if spec.ReplicatedJobs[i].Name == name {
			return &spec.ReplicatedJobs[i]
		}
	}
	return nil
}

func containerNamed(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// index is the number of a pod in its Job, as the value of a variable.
func index() *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']"}}
}
