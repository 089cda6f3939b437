package ledger

import (
	"iter"
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
)

// Usage is everything that a workload holds, or asks for, in every dimension. It is as large as
// a slice and a pointer. The zero value is nothing.
//
// Structures that are stored embed it: its names in JSON are the ones in stored flight records,
// which contain no dimension but quota so far.
type Usage struct {
	Quota resource.Vector `json:"Usage"`
	rest  *[]Part         // immutable, by Key, nil for none of that dimension; the pointer is nil without any
}

// With returns u with p as its part of a dimension; nil is none.
func (u Usage) With(key Key, p Part) Usage {
	var parts []Part
	if u.rest != nil {
		parts = slices.Clone(*u.rest)
	}
	for len(parts) <= int(key) {
		parts = append(parts, nil)
	}
	parts[key] = p
	if u.rest = nil; slices.ContainsFunc(parts, func(p Part) bool { return p != nil }) {
		u.rest = &parts
	}
	return u
}

// WithQuota returns u with another amount of quota.
func (u Usage) WithQuota(v resource.Vector) Usage { return Usage{Quota: v, rest: u.rest} }

// Part returns the part of a dimension, nil for none.
func (u Usage) Part(key Key) Part {
	if u.rest == nil || int(key) >= len(*u.rest) {
		return nil
	}
	return (*u.rest)[key]
}

// parts yields the parts of the dimensions besides quota, in the order of their keys.
func (u Usage) parts() iter.Seq2[Key, Part] {
	return func(yield func(Key, Part) bool) {
		if u.rest == nil {
			return
		}
		for key, p := range *u.rest {
			if p != nil && !yield(Key(key), p) {
				return
			}
		}
	}
}

// Dimensions yields the keys of the dimensions besides quota that u has a part of.
func (u Usage) Dimensions() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for key := range u.parts() {
			if !yield(key) {
				return
			}
		}
	}
}

// Beyond returns the part of u past o, in every dimension; it shares no amounts of quota with u.
func (u Usage) Beyond(o Usage) Usage {
	out := Usage{Quota: u.Quota.Beyond(o.Quota), rest: u.rest}
	if u.rest == nil || o.rest == nil {
		return out
	}
	for key, p := range o.parts() {
		if had := u.Part(key); had != nil {
			out = out.With(key, had.Beyond(p))
		}
	}
	return out
}

// Shares reports whether u is more than quota: capacity that other cohort trees use as well.
func (u Usage) Shares() bool { return u.rest != nil }

// IsZero reports whether u is nothing, in any dimension.
func (u Usage) IsZero() bool { return len(u.Quota) == 0 && u.rest == nil }

// Equal reports whether both are the same amounts, in every dimension.
func (u Usage) Equal(o Usage) bool {
	if !slices.Equal(u.Quota, o.Quota) || (u.rest == nil) != (o.rest == nil) {
		return false
	}
	return u.rest == nil || u.equalRest(o)
}

func (u Usage) equalRest(o Usage) bool {
	for key := range Key(max(len(*u.rest), len(*o.rest))) {
		a, b := u.Part(key), o.Part(key)
		if (a == nil) != (b == nil) || (a != nil && !a.Equal(b)) {
			return false
		}
	}
	return true
}

// Clone returns a copy whose amounts of quota are not shared.
func (u Usage) Clone() Usage { return u.Copy(Usage{}) }

// Copy is Clone in the memory of into, if there is room.
func (u Usage) Copy(into Usage) Usage {
	return Usage{Quota: append(into.Quota[:0], u.Quota...), rest: u.rest}
}

// Blank returns nothing, in the memory of u.
func (u Usage) Blank() Usage { return Usage{Quota: u.Quota[:0]} }
