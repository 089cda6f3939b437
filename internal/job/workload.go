package job

import (
	"crypto/sha1" //nolint:gosec // names must be those that upstream gives; nothing secret depends on them
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// Lengths of Workload names, in bytes.
const (
	maxName      = 253
	maxShortName = 63
	hashLength   = 5
)

// maxPodSets is the maximum number of pod sets of a Workload.
const maxPodSets = 18

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
