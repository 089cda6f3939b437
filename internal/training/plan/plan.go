// Package plan has the pure functions from a TrainJob, the snapshot of its runtime and
// the runtime patches to its JobSet, ConfigMaps, Secrets and pod groups, and to its
// status, and the rules of its admission.
//
//	runtime ─► patch.Merge ─► pods counted = Draft ─► trainer, initializers ─► ML policy ─► pod group ─► Plan
//	                                                  (trainer.go …)        (torch.go …)  (podgroup.go)
//
// Controller, webhook and queue plan by the same [Draft], so they cannot disagree. The
// same input gives the same output to the byte, and no input is changed. Keys are
// arguments: the caller generates and reads them.
//
// [Validate] has the rules of admission, and [Status] the status. Runtime patches have
// a package of their own, patch.
package plan

import (
	"fmt"
	"iter"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Input is everything that a plan depends on. It is never changed.
type Input struct {
	TrainJob *trainerv1alpha1.TrainJob
	// Runtime is that of the snapshot, or the live one if no snapshot exists.
	Runtime *Runtime
	Config  *Config
	// Keys are for Secrets that do not exist. The plan has no Secret whose keys are empty.
	Keys Keys
	// Overheads are the pod overheads of RuntimeClasses by name, for pod groups.
	Overheads map[string]corev1.ResourceList
}

// Keys is key material, generated once for each TrainJob.
type Keys struct {
	// SSHPrivate is a PEM block of type EC PRIVATE KEY, and SSHPublic its line of authorized_keys.
	SSHPrivate, SSHPublic []byte
	// CurvePublic and CurveSecret are an X25519 pair in Z85, 40 characters each.
	CurvePublic, CurveSecret string
	// CA is the certificate authority of the progress server, in PEM.
	CA []byte
}

// Plan is the set of objects of a TrainJob, which is the controller of each.
type Plan struct {
	// JobSet is to be applied after all others.
	JobSet *jobsetv1alpha2.JobSet
	// ConfigMaps are to be applied.
	ConfigMaps []*corev1.ConfigMap
	// Secrets are to be created if they do not exist, and never changed.
	Secrets []*corev1.Secret
	// PodGroups are to be created, and applied again only while the TrainJob is suspended (spec: 50 §4.7).
	PodGroups []*unstructured.Unstructured
	// PodSets are the pod sets of the JobSet, in the order of its replicated jobs.
	PodSets []PodSet
}

// PodSet is the pods of one replicated job, as the queue counts them.
type PodSet struct {
	// Name is that of the replicated job, and Ancestor the part of the TrainJob that configures it, or "".
	Name, Ancestor string
	// Replicas is the number of Jobs, and Count the number of pods in each.
	Replicas, Count int32
	// Template is shared with the JobSet.
	Template *corev1.PodTemplateSpec
}

type builder struct {
	*Input

	merged *trainerv1alpha1.JobSetTemplateSpec // the template of set, with the patches
	set    *jobsetv1alpha2.JobSet
	steps  []step
	plan   *Plan
	files  bool // makes the hostfile, too
}

type step struct {
	job      *jobsetv1alpha2.ReplicatedJob
	pod      *corev1.PodTemplateSpec
	ancestor string
	count    int32
}

// Build plans a TrainJob (spec: 50 §4.1, §4.4). Errors: the runtime is not supported, a patch names parts that the runtime does not have, or
// TooLarge.
func Build(in *Input) (*Plan, error) {
	d, err := NewDraft(in)
	if err != nil {
		return nil, err
	}
	return d.build(true)
}

// BuildJobSet plans the JobSet and the pod sets only, without files. Its time and memory depend on the size of the objects, not on the
// numbers in them.
func BuildJobSet(in *Input) (*Plan, error) {
	d, err := NewDraft(in)
	if err != nil {
		return nil, err
	}
	return d.BuildJobSet()
}

// Draft is the JobSet of a TrainJob with the patches merged and the pods counted, before anything is injected. Decisions about the TrainJob
// are methods of the draft. It is completed at most once, by Build or BuildJobSet.
type Draft struct{ b *builder }

// NewDraft drafts the JobSet of a TrainJob, without Keys and Overheads. The error is a TooLarge. Its time and memory depend on the size of
// the objects, not on the numbers in them.
func NewDraft(in *Input) (*Draft, error) {
	b := newBuilder(in)
	if err := b.tooLarge(); err != nil {
		return nil, TooLarge{err}
	}
	return &Draft{b}, nil
}

func newBuilder(in *Input) *builder {
	b := &builder{Input: in, plan: &Plan{}}
	b.mergeTemplate()
	b.countPods()
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
	b.configureTrainer()
	b.configureInitializers()
	switch b.policy() {
	case policyTorch:
		b.applyTorch()
	case policyMPI:
		b.applyMPI()
	case policyJAX:
		b.applyJAX()
	case policyXGBoost:
		b.applyXGBoost()
	case policyFlux:
		b.applyFlux()
	default:
		b.setTrainerEnv()
	}
	b.injectProgress()
	b.overrideEnv()
	b.addPodGroups()
	b.completeJobSet()
	return b.plan, nil
}

// buildable returns why no plan can be made of the runtime and the patches.
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

// mpiSupported returns an error for an MPI implementation that Berth has no variables for.
func mpiSupported(r *Runtime) error {
	if p := r.Spec.MLPolicy; p != nil && p.MPI != nil {
		if i := p.MPI.MPIImplementation; i != nil && *i != trainerv1alpha1.MPIImplementationOpenMPI {
			return fmt.Errorf("runtime %s: spec.mlPolicy.mpi.mpiImplementation %q is not supported; use %s", r.Name, *i, trainerv1alpha1.MPIImplementationOpenMPI)
		}
	}
	return nil
}

func (b *builder) mergeTemplate() {
	b.set = &jobsetv1alpha2.JobSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: jobsetv1alpha2.GroupVersion.String(), Kind: "JobSet"},
		ObjectMeta: b.childMeta(""),
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

// childMeta is the metadata of an object of the TrainJob: name, namespace and owner (spec: 50 §4.2).
func (b *builder) childMeta(suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: b.TrainJob.Name + suffix, Namespace: b.TrainJob.Namespace, OwnerReferences: []metav1.OwnerReference{Owner(b.TrainJob)}}
}

// Owner returns the owner reference of the objects of a TrainJob.
func Owner(job *trainerv1alpha1.TrainJob) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindTrainJob, Name: job.Name, UID: job.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// completeJobSet sets the counts of the JobSet and lists the pod sets.
func (b *builder) completeJobSet() {
	b.set.Spec.Suspend = new(IsSuspended(b.TrainJob))
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

// PodSetsOf returns the pod sets with which a JobSet runs, in the order of its replicated jobs.
func PodSetsOf(jobset *jobsetv1alpha2.JobSet) []PodSet {
	out := make([]PodSet, 0, len(jobset.Spec.ReplicatedJobs))
	for i := range jobset.Spec.ReplicatedJobs {
		rj := &jobset.Spec.ReplicatedJobs[i]
		spec := &rj.Template.Spec
		count := ptr.Deref(spec.Parallelism, 1)
		out = append(out, PodSet{
			Name: rj.Name, Ancestor: rj.Template.Labels[trainerv1alpha1.AncestorStepLabel], Replicas: replicas(rj),
			Count: min(count, ptr.Deref(spec.Completions, count)), Template: &spec.Template,
		})
	}
	return out
}

func isAncestor(value string) bool {
	ancestors := []string{trainerv1alpha1.AncestorTrainer, trainerv1alpha1.AncestorDatasetInitializer, trainerv1alpha1.AncestorModelInitializer}
	return slices.Contains(ancestors, value)
}

func replicas(rj *jobsetv1alpha2.ReplicatedJob) int32 { return ptr.Deref(rj.Replicas, 1) }

func (b *builder) subdomain() string {
	if n := b.set.Spec.Network; n != nil && n.Subdomain != "" {
		return n.Subdomain
	}
	return b.TrainJob.Name
}

// master is the host name of the first training pod, even if the pod does not exist (spec: 50 §4.6).
func (b *builder) master() string {
	name := trainerv1alpha1.JobNode
	if s := b.stepOfAncestor(trainerv1alpha1.AncestorTrainer); s != nil {
		name = s.job.Name
	}
	return b.TrainJob.Name + "-" + name + "-0-0." + b.subdomain()
}

// endpoints are the host names of the pods of a step, by replica.
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

func (b *builder) stepOfAncestor(value string) *step {
	for i := range b.steps {
		if b.steps[i].ancestor == value {
			return &b.steps[i]
		}
	}
	return nil
}

func (b *builder) stepNamed(name string) *step {
	for i := range b.steps {
		if b.steps[i].job.Name == name {
			return &b.steps[i]
		}
	}
	return nil
}

func (s *step) container(name string) *corev1.Container {
	return patch.ContainerNamed(s.pod.Spec.Containers, name)
}

// index is a variable's reference to the index of a pod in its Job.
func index() *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']"}}
}
