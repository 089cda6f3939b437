package job

import (
	"cmp"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Times returns n·each, a number of pods, saturated at math.MaxInt32, so that a large job never wraps to a small or negative
// number. Neither may be negative.
func Times(n, each int32) int32 { return Saturate(int64(n) * int64(each)) }

// Saturate returns the int32 nearest to n.
func Saturate(n int64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

// DefaultMaxChildren is the default maximum number of objects for one job.
const DefaultMaxChildren = 100_000

// Size is a number of objects of one sort that are made for a job.
type Size struct {
	// Path is the field that holds the number.
	Path *field.Path
	// What is the sort, in the plural, such as "pods".
	What string
	N    int32
}

// ValidateSize refuses a queued job that needs more objects than the configuration allows. A job that was larger before the change
// may change, and shrink.
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

func total(list []Size) (sum int64) {
	for _, part := range list {
		sum += int64(max(part.N, 0))
	}
	return sum
}

// TooMany is the refusal of a job that needs n objects, such as pods, and may have most.
func TooMany(n int64, what string, most int32) string {
	return fmt.Sprintf("%d %s would be made for one job, and integrations.maxChildren allows %d; ask for fewer, or have an administrator raise it", n, what, most)
}
