package devices

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Selection selects devices.
type Selection struct {
	// Driver is the driver of the devices, "" for any.
	Driver string
	// Expressions are CEL over device. Each must be true; the first that is false ends the evaluation.
	Expressions []string
}

// Key is a text that is equal for equal selections only.
func (s Selection) Key() string {
	var b strings.Builder
	b.WriteString(s.Driver)
	for _, e := range s.Expressions {
		b.WriteString("\x00" + strconv.Itoa(len(e)) + "\x00" + e)
	}
	return b.String()
}

// Selected are the devices of a selection.
type Selected struct {
	// Matches yields the devices, ordered by driver, pool, name of the slice and place in it.
	Matches iter.Seq[Match]
	// Problem is why an expression could not be evaluated, "" if all could.
	Problem string
}

// Match is a device that matches.
type Match struct {
	Driver, Pool string
	Device       *resourcev1.Device
	// Complete: all slices of its pool are known.
	Complete bool
}

// device names a device: it is unique in a cluster.
type device struct{ driver, pool, name string }

func (m *Match) device() device { return device{m.Driver, m.Pool, m.Device.Name} }

// Slice is a ResourceSlice of the newest generation of its pool.
type Slice struct {
	*resourcev1.ResourceSlice
	// Complete: all slices of the generation are there.
	Complete bool
}

// Current returns the slices of the newest generation of each pool, ordered by driver, pool and name. It sorts its argument.
func Current(list []*resourcev1.ResourceSlice) []Slice {
	slices.SortFunc(list, func(a, b *resourcev1.ResourceSlice) int {
		return cmp.Or(samePool(a, b), cmp.Compare(b.Spec.Pool.Generation, a.Spec.Pool.Generation), strings.Compare(a.Name, b.Name))
	})
	var out []Slice
	for i := 0; i < len(list); {
		first, end := list[i], i+1
		for end < len(list) && samePool(first, list[end]) == 0 && list[end].Spec.Pool.Generation == first.Spec.Pool.Generation {
			end++
		}
		complete := int64(end-i) == first.Spec.Pool.ResourceSliceCount
		for _, s := range list[i:end] {
			out = append(out, Slice{s, complete})
		}
		for i = end; i < len(list) && samePool(first, list[i]) == 0; { // older generations
			i++
		}
	}
	return out
}

func samePool(a, b *resourcev1.ResourceSlice) int {
	return cmp.Or(strings.Compare(a.Spec.Driver, b.Spec.Driver), strings.Compare(a.Spec.Pool.Name, b.Spec.Pool.Name))
}

// Backs reports whether an extended resource is one of a class: the one that it names, or the one that is named after it.
func Backs(class *resourcev1.DeviceClass, name corev1.ResourceName) bool {
	own := class.Spec.ExtendedResourceName
	return own != nil && *own == string(name) || resourcev1.ResourceDeviceClassPrefix+class.Name == string(name)
}

// Newest returns the class that backs an extended resource, of all that back it: the newest, and of several the first by name.
func Newest(classes []*resourcev1.DeviceClass) *resourcev1.DeviceClass {
	if len(classes) == 0 {
		return nil
	}
	return slices.MinFunc(classes, func(a, b *resourcev1.DeviceClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}
