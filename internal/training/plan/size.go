package plan

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
)

// maxHostfile is the limit of a ConfigMap in bytes.
const maxHostfile = 1 << 20

// TooLarge is the error of a TrainJob that cannot be planned: its MPI hostfile does not fit into a ConfigMap, or its pods exceed 32 bits.
// The cause names the field of the TrainJob.
type TooLarge struct{ Cause *field.Error }

func (e TooLarge) Error() string { return e.Cause.Error() }

func (b *builder) tooLarge() *field.Error {
	if b.pods() > math.MaxInt32 {
		return b.nodesError("the TrainJob would have more than %d pods; ask for fewer nodes", math.MaxInt32)
	}
	if b.policy() != policyMPI {
		return nil
	}
	if size := b.hostfileSize(b.slots(b.Runtime.Spec.MLPolicy.MPI)); size > maxHostfile {
		return b.nodesError("the MPI hostfile would have at least %d bytes, and a ConfigMap holds %d; ask for fewer nodes, or choose a shorter name", size, maxHostfile)
	}
	return nil
}

// tooMany returns why a new TrainJob has more pods than the configuration allows, or more processes than 32 bits count. tooLarge comes
// first.
func (b *builder) tooMany() *field.Error {
	if pods, most := b.pods(), b.Config.maxPods(); pods > int64(most) {
		return b.nodesError("%s", job.TooMany(pods, "pods", most))
	}
	procs := int64(b.processes())
	total := b.trainingPods() * procs
	if total <= math.MaxInt32 {
		return nil
	}
	why := "the TrainJob would have %d processes, %d on each node, and may have %d; ask for fewer"
	if t := b.TrainJob.Spec.Trainer; t != nil && t.NumProcPerNode != nil {
		return field.Invalid(trainerPath.Child("numProcPerNode"), procs, fmt.Sprintf(why, total, procs, math.MaxInt32))
	}
	return b.nodesError(why, total, procs, math.MaxInt32)
}

func (b *builder) nodesError(format string, args ...any) *field.Error {
	why := fmt.Sprintf(format, args...)
	if t := b.TrainJob.Spec.Trainer; t != nil && t.NumNodes != nil {
		return field.Invalid(trainerPath.Child("numNodes"), *t.NumNodes, why)
	}
	return field.Invalid(runtimeRefPath, b.TrainJob.Spec.RuntimeRef.Name, why)
}

// pods is the number of pods of all steps. It stops counting above math.MaxInt32.
func (b *builder) pods() (sum int64) {
	for i := range b.steps {
		if sum += b.steps[i].pods(); sum > math.MaxInt32 {
			return sum
		}
	}
	return sum
}

func (b *builder) trainingPods() (sum int64) {
	for i := range b.steps {
		s := &b.steps[i]
		if b.takesTrainer(s) || (b.policy() == policyMPI && s.job.Name == trainerv1alpha1.JobNode) {
			sum += s.pods()
		}
	}
	return sum
}

// pods is the number of pods of the step. A step that a TrainJob configures has one Job.
func (s *step) pods() int64 {
	return int64(s.jobs()) * int64(max(s.count, 0))
}

func (s *step) jobs() int32 {
	if isAncestor(s.ancestor) {
		return 1
	}
	return max(replicas(s.job), 0)
}

// processes is the number of processes on a node by the TrainJob or its ML policy, or 1.
func (b *builder) processes() int32 {
	if t := b.TrainJob.Spec.Trainer; t != nil && t.NumProcPerNode != nil {
		return *t.NumProcPerNode
	}
	switch p := b.Runtime.Spec.MLPolicy; {
	case p == nil:
	case p.MPI != nil:
		return b.slots(p.MPI)
	case p.Flux != nil && p.Flux.NumProcPerNode != nil:
		return *p.Flux.NumProcPerNode
	}
	return 1
}

// hostfileSize is the length of the hostfile in bytes. Above maxHostfile it may be less, the number of lines.
func (b *builder) hostfileSize(slots int32) (size int64) {
	for i := range b.steps {
		s := &b.steps[i]
		if !b.inHostfile(s) {
			continue
		}
		jobs, pods := int64(s.jobs()), int64(max(s.count, 0))
		if lines := jobs * pods; lines > maxHostfile {
			return lines
		}
		name := job.ExpectedName(b.TrainJob)
		subdomain := b.subdomain()
		if subdomain == b.TrainJob.Name {
			subdomain = name
		}
		line := len(name) + len(s.job.Name) + len(subdomain) + len("---.") + len(hostfileSlots) + len(itoa(slots)) + len("\n")
		size += jobs*pods*int64(line) + pods*digitsBelow(jobs) + jobs*digitsBelow(pods)
	}
	return size
}

// digitsBelow is the total number of digits of the numbers below n.
func digitsBelow(n int64) (sum int64) {
	for from, digits := int64(0), int64(1); from < n; digits++ {
		to := int64(math.Pow10(int(digits)))
		sum += (min(n, to) - from) * digits
		from = to
	}
	return sum
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
