package job

import (
	"crypto/sha1" //nolint:gosec // names must be those that upstream gives; nothing secret depends on them
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/podset"
)

// Lengths of Workload names, in bytes.
const (
	maxName      = 253
	maxShortName = 63
	hashLength   = 5
)

// maxPodSets is how many pod sets a Workload may have.
const maxPodSets = 18

// WorkloadName is the name of the Workload of a job. Names must be exactly these, so that a running Workload that was
// made by another controller is found again. Slices of an elastic job have something extra in their names
// (spec: 30 §4.4.5).
func (c *Config) WorkloadName(gvk schema.GroupVersionKind, name string, uid types.UID, extra ...string) string {
	limit := maxName
	if c.ShortNames {
		limit = maxShortName
	}
	parts := append([]string{gvk.Kind, gvk.Group, name, string(uid)}, extra...)
	sum := sha1.Sum([]byte(strings.Join(parts, "\n"))) //nolint:gosec // see the import
	prefix := strings.ToLower(gvk.Kind) + "-" + name
	prefix = prefix[:min(len(prefix), limit-hashLength-1)]
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// PodSets are the pod sets of the job as a Workload has them: lower-case names, each environment variable once, no minimum
// if partial admission is off.
func (c *Setting) PodSets(d *Descriptor, job Object) ([]kueue.PodSet, error) {
	podSets, err := d.PodSets(job, c)
	if err != nil {
		return nil, err
	}
	if len(podSets) == 0 || len(podSets) > maxPodSets {
		return nil, fmt.Errorf("the job has %d pod sets: a workload takes 1 to %d", len(podSets), maxPodSets)
	}
	for i := range podSets {
		podSets[i].Name = kueue.PodSetReference(strings.ToLower(string(podSets[i].Name)))
		if !c.PartialAdmission {
			podSets[i].MinCount = nil
		}
	}
	podset.Normalise(podSets)
	return podSets, nil
}

// newWorkload makes the Workload of a job. The error says that the objects of a composite job disagree about what it is to
// copy (spec: 30 §4.4.6).
func (c *Config) newWorkload(d *Descriptor, job Object, podSets []kueue.PodSet, priority Priority) (*kueue.Workload, error) {
	if whole, ok := job.(Composite); ok {
		return c.newTogether(d, whole, podSets, priority)
	}
	w := c.NewWorkload(job, podSets, priority)
	w.Name = c.WorkloadName(d.GVK, job.GetName(), job.GetUID())
	w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, d.GVK)}
	labelUID(w, job)
	for _, key := range c.LabelKeysToCopy {
		if value, ok := job.GetLabels()[key]; ok {
			w.Labels[key] = value
		}
	}
	return w, nil
}

// labelUID writes the UID of the job on its Workload, if it can be a label.
func labelUID(w *kueue.Workload, job Object) {
	if uid := string(job.GetUID()); len(validation.IsValidLabelValue(uid)) == 0 {
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		w.Labels[kueue.JobUIDLabel] = uid
	}
}

// NewWorkload makes the Workload of a job without what tells whose it is: a name, labels, owners.
func (c *Config) NewWorkload(job Object, podSets []kueue.PodSet, priority Priority) *kueue.Workload {
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.GetNamespace(), Finalizers: []string{kueue.ResourceInUseFinalizer},
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: c.workloadSpec(job, podSets, priority),
	}
	for key, value := range job.GetAnnotations() { //berth:unordered copies a map
		if strings.HasPrefix(key, kueue.ProvisioningRequestParameterPrefix) {
			w.Annotations[key] = value
		}
	}
	if gates := job.GetAnnotations()[kueue.AdmissionGatedByAnnotation]; c.AdmissionGatedBy && gates != "" {
		w.Annotations[kueue.AdmissionGatedByAnnotation] = gates
	}
	return w
}

func (c *Config) workloadSpec(job Object, podSets []kueue.PodSet, priority Priority) kueue.WorkloadSpec {
	return kueue.WorkloadSpec{
		QueueName: kueue.LocalQueueName(QueueName(job)), PodSets: podSets, MaximumExecutionTimeSeconds: maximumExecutionTime(job),
		PriorityClassRef: priority.Ref, Priority: new(priority.Value),
	}
}

// maximumExecutionTime reads the label. What is not a positive number of seconds counts as absent.
func maximumExecutionTime(job Object) *int32 {
	seconds, err := strconv.ParseInt(job.GetLabels()[kueue.MaxExecTimeSecondsLabel], 10, 32)
	if err != nil || seconds <= 0 || seconds > math.MaxInt32 {
		return nil
	}
	return new(int32(seconds))
}

// hasFinalizer says whether Berth still holds the Workload.
func hasFinalizer(w *kueue.Workload) bool {
	return slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizer)
}

// withoutFinalizer is the Workload let go.
func withoutFinalizer(w *kueue.Workload) *kueue.Workload {
	out := w.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == kueue.ResourceInUseFinalizer })
	return out
}
