package plan

import (
	"cmp"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Config is how TrainJobs are handled.
type Config struct {
	// Patches is how runtime patches are.
	Patches patch.Config
	// ExtraGPUs are resource names that count as GPUs besides those that contain "gpu".
	ExtraGPUs []string
	// MergedResources counts the processes of a node by the resources that its pods end up with, also if the TrainJob names CPUs or
	// GPUs of its own.
	MergedResources bool
	// MaxPods is how many pods a new TrainJob may have; 0 is job.DefaultMaxChildren.
	MaxPods int32
	// Progress is where training code reports; nil if the gate TrainJobStatus is off.
	Progress *Progress
	// Recorded returns the runtime that the status of a TrainJob records, or nil if its snapshot has to be read. Nil: read it always.
	Recorded func(*trainerv1alpha1.TrainJob) *Runtime `json:"-"`
}

// Progress is the progress server (spec: 50 §4.8).
type Progress struct {
	// URL is the base of the server, such as https://name.namespace.svc:10443.
	URL string
}

// DefaultConfig is the configuration of a manager that was told nothing.
func DefaultConfig() *Config { return &Config{Patches: patch.DefaultConfig()} }

func (c *Config) maxPods() int32 { return cmp.Or(c.MaxPods, job.DefaultMaxChildren) }

// policy is the kind of an ML policy.
type policy int

const (
	policyPlain policy = iota
	policyTorch
	policyMPI
	policyJAX
	policyXGBoost
	policyFlux
)

func (b *builder) policy() policy { return policyOf(b.Runtime) }

func policyOf(r *Runtime) policy {
	p := r.Spec.MLPolicy
	switch {
	case p == nil:
		return policyPlain
	case p.Torch != nil:
		return policyTorch
	case p.MPI != nil:
		return policyMPI
	case p.JAX != nil:
		return policyJAX
	case p.XGBoost != nil:
		return policyXGBoost
	case p.Flux != nil:
		return policyFlux
	}
	return policyPlain
}

// launcherIsNode reports whether an MPI launcher trains too.
func launcherIsNode(p *trainerv1alpha1.MPIPolicy) bool {
	return p != nil && p.RunLauncherAsNode != nil && *p.RunLauncherAsNode
}
