// Package topology reads the topology annotations of pod templates (spec: 30 §3.3).
package topology

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Gates are the feature gates of topology.
type Gates struct {
	Topology bool // gate TopologyAwareScheduling; without it annotations are ignored
	Layers   bool // gate TASMultiLayerTopology
}

// maxSliceLayers is how many layers podset-slice-required-topology-constraints may have.
const maxSliceLayers = 3

// ofCount is the origin of an error about the number of pods, which is in the message.
const ofCount = "pods"

// Ranks are the labels that number the pods of a pod set. Empty ones do not exist.
type Ranks struct {
	// PodIndex is the label with the number of a pod, in its group if there are groups.
	PodIndex string
	// SubGroup is the label with the number of a group; SubGroups is their number.
	SubGroup  string
	SubGroups int32
}

// Request returns the topology request of a pod set from the annotations of its template and the labels of its pods; nil if there
// are none (spec: 30 §3.3).
func (g Gates) Request(template *metav1.ObjectMeta, ranks Ranks) *kueue.PodSetTopologyRequest {
	if !g.Topology {
		return nil
	}
	var r kueue.PodSetTopologyRequest
	a := template.Annotations
	found := true
	if v, ok := a[kueue.PodSetRequiredTopologyAnnotation]; ok {
		r.Required = &v
	} else if v, ok := a[kueue.PodSetPreferredTopologyAnnotation]; ok {
		r.Preferred = &v
	} else if v, ok := a[kueue.PodSetUnconstrainedTopologyAnnotation]; ok {
		unconstrained, _ := strconv.ParseBool(v) // as Validate reads it
		r.Unconstrained = &unconstrained
	} else {
		found = false
	}
	if group, ok := a[kueue.PodSetGroupNameAnnotation]; ok && (r.Required != nil || r.Preferred != nil) {
		r.PodSetGroupName = &group
	}
	found = g.sliceRequest(a, &r) || found
	if ranks.PodIndex != "" {
		r.PodIndexLabel, found = &ranks.PodIndex, true
	}
	if ranks.SubGroup != "" {
		r.SubGroupIndexLabel, r.SubGroupCount, found = &ranks.SubGroup, &ranks.SubGroups, true
	}
	if !found {
		return nil
	}
	return &r
}

// sliceRequest reads the annotations about slices. Invalid values are ignored.
func (g Gates) sliceRequest(a map[string]string, r *kueue.PodSetTopologyRequest) bool {
	if text, ok := a[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation]; ok && g.Layers {
		if layers, err := sliceLayers(text); err == nil {
			r.PodSetSliceRequiredTopologyConstraints = layers
			return true
		}
		return false
	}
	topology, ok := a[kueue.PodSetSliceRequiredTopologyAnnotation]
	size, err := strconv.ParseInt(a[kueue.PodSetSliceSizeAnnotation], 10, 32)
	if !ok || err != nil {
		return false
	}
	r.PodSetSliceRequiredTopology, r.PodSetSliceSize = &topology, new(int32(size))
	return true
}

func sliceLayers(text string) ([]kueue.PodSetSliceTopologyConstraint, error) {
	var layers []kueue.PodSetSliceTopologyConstraint
	err := json.Unmarshal([]byte(text), &layers)
	return layers, err
}

// Validate checks the topology annotations of a pod template at the given path of its metadata. count is the number of pods, or
// negative if it is unknown (spec: 30 §3.3).
func (g Gates) Validate(template *metav1.ObjectMeta, path *field.Path, count int32) field.ErrorList {
	if !g.Topology {
		return nil
	}
	a := template.Annotations
	path = path.Child("annotations")
	var errs field.ErrorList
	var wishes int
	for _, key := range []string{kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation} {
		if _, ok := a[key]; ok {
			wishes++
		}
	}
	if wishes > 1 {
		errs = append(errs, field.Invalid(path, wishes, "at most one of podset-required-topology, podset-preferred-topology and podset-unconstrained-topology may be set"))
	}
	for _, key := range []string{kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetSliceRequiredTopologyAnnotation} {
		if value, ok := a[key]; ok {
			errs = append(errs, validation.ValidateLabelName(value, path.Key(key))...)
		}
	}
	if value, ok := a[kueue.PodSetUnconstrainedTopologyAnnotation]; ok {
		if _, err := strconv.ParseBool(value); err != nil {
			errs = append(errs, field.Invalid(path.Key(kueue.PodSetUnconstrainedTopologyAnnotation), value, "must be true or false"))
		}
	}
	errs = append(errs, validateGroupName(a, path)...)
	errs = append(errs, validateSlice(a, path, count)...)
	return append(errs, g.validateLayers(a, path, count)...)
}

// Warn returns a warning about the pods of a pod set with valid annotations that will never have a place: the rest when the outermost
// slices are full. count is as in Validate (spec: 20 §6 #12, §7 #25).
func (g Gates) Warn(template *metav1.ObjectMeta, path *field.Path, count int32) []string {
	r := g.Request(template, Ranks{})
	if r == nil || count < 0 {
		return nil
	}
	key, size := kueue.PodSetSliceSizeAnnotation, ptr.Deref(r.PodSetSliceSize, 1)
	if layers := r.PodSetSliceRequiredTopologyConstraints; len(layers) > 0 {
		key, size = kueue.PodSetSliceRequiredTopologyConstraintsAnnotation, layers[0].Size
	}
	left := count % max(size, 1)
	if left == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d pods are no multiple of the slice size %d: %d of them will have quota but no place, and stay gated",
		path.Child("annotations").Key(key), count, size, left)}
}

func validateGroupName(a map[string]string, path *field.Path) field.ErrorList {
	group, ok := a[kueue.PodSetGroupNameAnnotation]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	path = path.Key(kueue.PodSetGroupNameAnnotation)
	if _, err := strconv.ParseInt(group, 10, 64); err == nil {
		errs = append(errs, field.Invalid(path, group, "must not be a number"))
	}
	_, required := a[kueue.PodSetRequiredTopologyAnnotation]
	_, preferred := a[kueue.PodSetPreferredTopologyAnnotation]
	if !required && !preferred {
		errs = append(errs, field.Forbidden(path, "needs podset-required-topology or podset-preferred-topology"))
	}
	_, slices := a[kueue.PodSetSliceRequiredTopologyAnnotation]
	_, size := a[kueue.PodSetSliceSizeAnnotation]
	if slices || size {
		errs = append(errs, field.Forbidden(path, "may not be set together with podset-slice-required-topology or podset-slice-size"))
	}
	return errs
}

func validateSlice(a map[string]string, path *field.Path, count int32) field.ErrorList {
	_, topology := a[kueue.PodSetSliceRequiredTopologyAnnotation]
	text, ok := a[kueue.PodSetSliceSizeAnnotation]
	switch {
	case topology && !ok:
		return field.ErrorList{field.Required(path.Key(kueue.PodSetSliceSizeAnnotation), "must be set together with podset-slice-required-topology")}
	case !ok:
		return nil
	}
	path = path.Key(kueue.PodSetSliceSizeAnnotation)
	if !topology {
		return field.ErrorList{field.Forbidden(path, "may only be set together with podset-slice-required-topology")}
	}
	size, err := strconv.ParseInt(text, 10, 32)
	if err != nil || size < 1 {
		return field.ErrorList{field.Invalid(path, text, "must be a whole number of at least 1")}
	}
	if count >= 0 && size > int64(count) {
		return field.ErrorList{field.Invalid(path, text, fmt.Sprintf("must not exceed the number of pods, %d", count)).WithOrigin(ofCount)}
	}
	return nil
}

func (g Gates) validateLayers(a map[string]string, path *field.Path, count int32) field.ErrorList {
	text, ok := a[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation]
	if !ok {
		return nil
	}
	path = path.Key(kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)
	if !g.Layers {
		return field.ErrorList{field.Invalid(path, text, "needs the feature gate TASMultiLayerTopology")}
	}
	var errs field.ErrorList
	for _, key := range []string{kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceSizeAnnotation, kueue.PodSetGroupNameAnnotation} {
		if _, both := a[key]; both {
			errs = append(errs, field.Forbidden(path, "may not be set together with "+key))
		}
	}
	layers, err := sliceLayers(text)
	if err != nil || len(layers) == 0 || len(layers) > maxSliceLayers {
		return append(errs, field.Invalid(path, text, fmt.Sprintf(`must be a JSON list of 1 to %d entries like {"topology":"cloud/rack","size":4}`, maxSliceLayers)))
	}
	return append(errs, validateLayerList(layers, path, count)...)
}

func validateLayerList(layers []kueue.PodSetSliceTopologyConstraint, path *field.Path, count int32) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, l := range layers {
		at := path.Index(i)
		errs = append(errs, validation.ValidateLabelName(l.Topology, at.Child("topology"))...)
		if seen[l.Topology] {
			errs = append(errs, field.Duplicate(at.Child("topology"), l.Topology))
		}
		seen[l.Topology] = true
		switch {
		case l.Size < 1:
			errs = append(errs, field.Invalid(at.Child("size"), l.Size, "must be at least 1"))
		case i == 0 && count >= 0 && l.Size > count:
			errs = append(errs, field.Invalid(at.Child("size"), l.Size, fmt.Sprintf("must not exceed the number of pods, %d", count)).WithOrigin(ofCount))
		case i > 0 && layers[i-1].Size%l.Size != 0:
			errs = append(errs, field.Invalid(at.Child("size"), l.Size, fmt.Sprintf("must divide the size of the layer before it, %d", layers[i-1].Size)))
		}
	}
	return errs
}
