package plan

import (
	"cmp"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Config configures the plan and the validation of TrainJobs.
type Config struct {
	Patches patch.Config
	// ExtraGPUs are names of resources that count as GPUs, besides names that contain "gpu".
	ExtraGPUs []string
	// MergedResources counts the processes of a node by the resources of runtime and TrainJob together, also if the TrainJob names CPUs or
	// GPUs.
	MergedResources bool
	// MaxPods limits the pods of a new TrainJob; 0 is job.DefaultMaxChildren.
	MaxPods int32
	// Progress is nil if the gate TrainJobStatus is off.
	Progress *Progress
	// Recorded returns the runtime that the status of a TrainJob records, or nil if its snapshot has to be read. Nil: it is always read.
	Recorded func(*trainerv1alpha1.TrainJob) *Runtime `json:"-"`
}

// Progress is the progress server (spec: 50 §4.8).
type Progress struct {
	// URL is the base of the server, such as https://name.namespace.svc:10443.
	URL string
}

// DefaultConfig returns the configuration of a manager without a configuration file.
func DefaultConfig() *Config { return &Config{Patches: patch.DefaultConfig()} }

func (c *Config) maxPods() int32 { return cmp.Or(c.MaxPods, job.DefaultMaxChildren) }

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

func launcherIsNode(p *trainerv1alpha1.MPIPolicy) bool {
	return p != nil && p.RunLauncherAsNode != nil && *p.RunLauncherAsNode
}
