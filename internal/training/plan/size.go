package plan

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
)

// maxHostfile is how many bytes the values of a ConfigMap may have.
const maxHostfile = 1 << 20

// TooLarge is the error of a TrainJob of which no plan can be made, because a number in it is too large: its MPI hostfile
// does not fit into a ConfigMap, or 32 bits do not count its pods. The cause names the field of the TrainJob.
type TooLarge struct{ Cause *field.Error }

func (e TooLarge) Error() string { return e.Cause.Error() }

// tooLarge finds the number for which no plan can be made, or nil.
func (b *builder) tooLarge() *field.Error {
	if b.pods() > math.MaxInt32 {
		return b.ofNodes("the TrainJob would have more than %d pods; ask for fewer nodes", math.MaxInt32)
	}
	if b.policy() != policyMPI {
		return nil
	}
	if size := b.hostfileSize(b.slots(b.Runtime.Spec.MLPolicy.MPI)); size > maxHostfile {
		return b.ofNodes("the MPI hostfile would have at least %d bytes, and a ConfigMap holds %d; ask for fewer nodes, or choose a shorter name", size, maxHostfile)
	}
	return nil
}

// tooMany refuses a new TrainJob with more pods than the configuration allows, or more processes than frameworks count. The
// pods are at most math.MaxInt32.
func (b *builder) tooMany() *field.Error {
	if pods, most := b.pods(), b.Config.maxPods(); pods > int64(most) {
		return b.ofNodes("%s", job.TooMany(pods, "pods", most))
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
	return b.ofNodes(why, total, procs, math.MaxInt32)
}

// ofNodes refuses the field that says how many nodes there are: the TrainJob's own, or its runtime.
func (b *builder) ofNodes(format string, args ...any) *field.Error {
	why := fmt.Sprintf(format, args...)
	if t := b.TrainJob.Spec.Trainer; t != nil && t.NumNodes != nil {
		return field.Invalid(trainerPath.Child("numNodes"), *t.NumNodes, why)
	}
	return field.Invalid(runtimeRefPath, b.TrainJob.Spec.RuntimeRef.Name, why)
}

// pods is the number of pods of all steps. It is more than math.MaxInt32, and otherwise of no meaning, if 64 bits do not
// hold it.
func (b *builder) pods() (sum int64) {
	for i := range b.steps {
		if sum += b.steps[i].pods(); sum > math.MaxInt32 {
			return sum
		}
	}
	return sum
}

// trainingPods is the number of pods among them that run the processes of the training.
func (b *builder) trainingPods() (sum int64) {
	for i := range b.steps {
		s := &b.steps[i]
		if b.trains(s) || (b.policy() == policyMPI && s.job.Name == trainerv1alpha1.JobNode) {
			sum += s.pods()
		}
	}
	return sum
}

// pods is the number of pods of a step. A step that a TrainJob configures is one Job.
func (s *step) pods() int64 {
	return int64(s.jobs()) * int64(max(s.count, 0))
}

// jobs is the number of Jobs of a step.
func (s *step) jobs() int32 {
	if isAncestor(s.ancestor) {
		return 1
	}
	return max(replicas(s.job), 0)
}

// processes is the number of processes on a node that the TrainJob or its ML policy asks for, or 1.
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

// hostfileSize is the length of the hostfile in bytes. Above maxHostfile it may be the number of its lines, which is less.
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

// digitsBelow is how many digits the numbers below n have together.
func digitsBelow(n int64) (sum int64) {
	for from, digits := int64(0), int64(1); from < n; digits++ {
		to := int64(math.Pow10(int(digits)))
		sum += (min(n, to) - from) * digits
		from = to
	}
	return sum
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
