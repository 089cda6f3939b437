package job

import (
	"cmp"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Times returns n·each, a number of pods, computed in 64 bits. It is math.MaxInt32 where the product is larger, so that a
// job of any size asks for more than another, and never for a negative or a small number. Neither may be negative.
func Times(n, each int32) int32 { return Saturate(int64(n) * int64(each)) }

// Saturate returns the number of 32 bits that is nearest to n.
func Saturate(n int64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

// DefaultMaxChildren is how many objects may be made for one job unless the configuration says otherwise.
const DefaultMaxChildren = 100_000

// Size is a number of objects of one sort that are made for a job.
type Size struct {
	// Path is the field that says how many.
	Path *field.Path
	// What they are, in the plural, such as "pods".
	What string
	N    int32
}

// ValidateSize refuses a job in a queue for which more objects would be made than the configuration allows. A job that was larger
// already may change, and shrink.
func (c *Setting) ValidateSize(d *Descriptor, job, old Object) field.ErrorList {
	if d.Sizes == nil || !c.IsQueued(job) {
		return nil
	}
	before, sum, most := int64(0), int64(0), cmp.Or(c.MaxChildren, DefaultMaxChildren)
	if old != nil {
		before = total(d.Sizes(old, c))
	}
	list := d.Sizes(job, c)
	if all := total(list); all <= int64(most) || all <= before {
		return nil
	}
	for _, part := range list {
		if sum += int64(max(part.N, 0)); sum > int64(most) {
			return field.ErrorList{field.Invalid(part.Path, part.N, TooMany(total(list), part.What, most))}
		}
	}
	return nil
}

// total is the number of all.
func total(list []Size) (sum int64) {
	for _, part := range list {
		sum += int64(max(part.N, 0))
	}
	return sum
}

// TooMany is why a job is refused for which n objects would be made, such as pods, where most are allowed.
func TooMany(n int64, what string, most int32) string {
	return fmt.Sprintf("%d %s would be made for one job, and integrations.maxChildren allows %d; ask for fewer, or have an administrator raise it", n, what, most)
}
