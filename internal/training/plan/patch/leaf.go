package patch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// leaf is one field that an entry sets: the unit of conflicts (spec: 50 §4.13.1).
type leaf struct {
	// path starts below trainingRuntimeSpec; elements of keyed lists appear as [name=x].
	path  string
	value string
	kind  leafKind
	key   string
}

type leafKind int

const (
	leafPlain leafKind = iota
	// leafAdded is a list to which scheduling managers add: tolerations and scheduling gates.
	leafAdded
	leafPodMeta
)

// leavesOf returns the leaves of an entry in a fixed order.
func leavesOf(p *trainerv1alpha1.RuntimePatch) []leaf {
	t := templateOf(p)
	if t == nil {
		return nil
	}
	out := metaLeaves(nil, "template.metadata", t.Metadata, leafPlain)
	if t.Spec == nil {
		return out
	}
	for i := range t.Spec.ReplicatedJobs {
		out = append(out, jobLeaves(&t.Spec.ReplicatedJobs[i])...)
	}
	return out
}

func jobLeaves(p *trainerv1alpha1.ReplicatedJobPatch) []leaf {
	if p.Template == nil {
		return nil
	}
	path := "template.spec.replicatedJobs[name=" + p.Name + "].template"
	out := metaLeaves(nil, path+".metadata", p.Template.Metadata, leafPlain)
	if p.Template.Spec == nil || p.Template.Spec.Template == nil {
		return out
	}
	path += ".spec.template"
	out = metaLeaves(out, path+".metadata", p.Template.Spec.Template.Metadata, leafPodMeta)
	if s := p.Template.Spec.Template.Spec; s != nil {
		out = podLeaves(out, path+".spec", s)
	}
	return out
}

func metaLeaves(out []leaf, path string, m *metav1.ObjectMeta, kind leafKind) []leaf {
	if m == nil {
		return out
	}
	out = mapLeaves(out, path+".labels", m.Labels, kind)
	return mapLeaves(out, path+".annotations", m.Annotations, kind)
}

func mapLeaves(out []leaf, path string, m map[string]string, kind leafKind) []leaf {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, leaf{path: path + "[" + key + "]", value: m[key], kind: kind, key: key})
	}
	return out
}

func podLeaves(out []leaf, path string, s *trainerv1alpha1.PodSpecPatch) []leaf {
	if s.ServiceAccountName != nil {
		out = append(out, leaf{path: path + ".serviceAccountName", value: *s.ServiceAccountName})
	}
	if s.TerminationGracePeriodSeconds != nil {
		out = append(out, leaf{path: path + ".terminationGracePeriodSeconds", value: text(*s.TerminationGracePeriodSeconds)})
	}
	for i := range s.Volumes {
		out = append(out, leaf{path: path + ".volumes[name=" + s.Volumes[i].Name + "]", value: text(s.Volumes[i])})
	}
	out = containerLeaves(out, path+".initContainers", s.InitContainers)
	out = containerLeaves(out, path+".containers", s.Containers)
	for _, secret := range s.ImagePullSecrets {
		out = append(out, leaf{path: path + ".imagePullSecrets[name=" + secret.Name + "]"})
	}
	if s.SecurityContext != nil {
		out = anyLeaves(out, path+".securityContext", jsonValue(s.SecurityContext))
	}
	out = mapLeaves(out, path+".nodeSelector", s.NodeSelector, leafPlain)
	if s.Affinity != nil {
		out = anyLeaves(out, path+".affinity", jsonValue(s.Affinity))
	}
	if len(s.Tolerations) > 0 {
		out = append(out, leaf{path: path + ".tolerations", value: setText(anyList(s.Tolerations)), kind: leafAdded})
	}
	for _, gate := range s.SchedulingGates {
		out = append(out, leaf{path: path + ".schedulingGates[name=" + gate.Name + "]", kind: leafAdded})
	}
	return out
}

func anyList(tolerations []corev1.Toleration) []any {
	out := make([]any, 0, len(tolerations))
	for _, t := range tolerations {
		out = append(out, t)
	}
	return out
}

func containerLeaves(out []leaf, path string, containers []trainerv1alpha1.ContainerPatch) []leaf {
	for i := range containers {
		c := &containers[i]
		at := path + "[name=" + c.Name + "]"
		for _, v := range c.Env {
			out = append(out, leaf{path: at + ".env[name=" + v.Name + "]", value: text(v)})
		}
		for _, m := range c.VolumeMounts {
			out = append(out, leaf{path: at + ".volumeMounts[mountPath=" + m.MountPath + "]", value: text(m)})
		}
		if c.SecurityContext != nil {
			out = anyLeaves(out, at+".securityContext", jsonValue(c.SecurityContext))
		}
	}
	return out
}

// anyLeaves descends into structures; a list is one leaf.
func anyLeaves(out []leaf, path string, value any) []leaf {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out = anyLeaves(out, path+"."+key, v[key])
		}
		return out
	case []any:
		if isSet(path) {
			return append(out, leaf{path: path, value: setText(v)})
		}
	}
	return append(out, leaf{path: path, value: text(value)})
}

// isSet reports whether the order of a list is irrelevant.
func isSet(path string) bool {
	return slices.Contains([]string{"add", "drop", "supplementalGroups"}, path[strings.LastIndexByte(path, '.')+1:])
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// setText is the canonical text of a list whose order is irrelevant.
func setText(list []any) string {
	texts := make([]string, 0, len(list))
	for _, v := range list {
		texts = append(texts, text(v))
	}
	slices.Sort(texts)
	return text(slices.Compact(texts))
}

func isEmpty(p *trainerv1alpha1.RuntimePatch, selected []SelectedJob) bool {
	return len(leavesOf(p)) == 0 && len(selected) == 0 && !hasOtherMeta(p)
}

// hasOtherMeta reports whether an entry sets metadata that is never merged.
func hasOtherMeta(p *trainerv1alpha1.RuntimePatch) bool {
	found := false
	eachMeta(p, func(_ metaPlace, m *metav1.ObjectMeta) { found = found || len(otherMeta(m)) > 0 })
	return found
}

func sameContent(a, b *trainerv1alpha1.RuntimePatch, selectedA, selectedB []SelectedJob) bool {
	return Hash(a, selectedA) == Hash(b, selectedB)
}

// Hash returns the first 16 hexadecimal digits of the SHA-256 of an entry without its time (spec: 50 §4.13.6).
func Hash(p *trainerv1alpha1.RuntimePatch, selected []SelectedJob) string {
	content := struct {
		Manager  string                                    `json:"manager"`
		Spec     *trainerv1alpha1.TrainingRuntimeSpecPatch `json:"trainingRuntimeSpec,omitempty"`
		Selected []SelectedJob                             `json:"selectedReplicatedJobs,omitempty"`
	}{p.Manager, p.TrainingRuntimeSpec, selected}
	sum := sha256.Sum256([]byte(text(content)))
	return hex.EncodeToString(sum[:8])
}

// Hashes returns the hashes of all entries that have leaves, by manager.
func Hashes(patches []trainerv1alpha1.RuntimePatch, selected Selected) map[string]string {
	out := map[string]string{}
	for i := range patches {
		if p := &patches[i]; !isEmpty(p, selected[p.Manager]) {
			out[p.Manager] = Hash(p, selected[p.Manager])
		}
	}
	return out
}

func patchOf(patches []trainerv1alpha1.RuntimePatch, manager string) *trainerv1alpha1.RuntimePatch {
	for i := range patches {
		if patches[i].Manager == manager {
			return &patches[i]
		}
	}
	return nil
}
