package job

import (
	"crypto/sha1" //nolint:gosec // names must be those that upstream gives; nothing secret depends on them
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// Lengths of Workload names, in bytes.
const (
	maxName      = 253
	maxShortName = 63
	hashLength   = 5
)

// WorkloadName is the name of the Workload of a job. It equals the upstream name, so that a running Workload of another controller
// is found again. Names of slices of an elastic job have an extra part (spec: 30 §4.4.5).
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

// PodSets returns the pod sets of the job for a Workload: names in lower case, unique environment variables, and no minimum count
// without partial admission.
func (c *Setting) PodSets(d *Descriptor, job Object) ([]kueue.PodSet, error) {
	podSets, err := d.PodSets(job, c)
	if err != nil {
		return nil, err
	}
	if len(podSets) == 0 || len(podSets) > podset.Most {
		return nil, podset.WrongNumber(len(podSets))
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

// ValidatePodSets refuses a job that enters its queue with more pod sets than a Workload takes. A job with an owner may be counted by
// the Workload of the owner.
func (c *Setting) ValidatePodSets(d *Descriptor, job, old Object) field.ErrorList {
	if d.PodSets == nil || !c.IsQueued(job) || (old != nil && c.IsQueued(old)) || c.HasManagedOwner(job) {
		return nil
	}
	podSets, err := d.PodSets(job, c)
	if err != nil || len(podSets) <= podset.Most {
		return nil // other rules report the error
	}
	path := field.NewPath("spec")
	if d.Sizes != nil {
		if sizes := d.Sizes(job, c); len(sizes) == len(podSets) {
			path = sizes[podset.Most].Path
		}
	}
	return field.ErrorList{field.Forbidden(path, podset.WrongNumber(len(podSets)).Error())}
}

// WorkloadNames are the possible names of the Workload of an object, under any configuration.
func WorkloadNames(gvk schema.GroupVersionKind, object Object) []string {
	var out []string
	for _, cfg := range []*Config{{}, {ShortNames: true}} {
		if name := cfg.WorkloadName(gvk, object.GetName(), object.GetUID()); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
