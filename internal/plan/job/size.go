package job

import (
	"fmt"
	"math"
)

// Times returns n·each, a number of pods, computed in 64 bits. It is math.MaxInt32 where the product is larger, so that a
// job of any size asks for more than another, and never for a negative or a small number. Neither may be negative.
func Times(n, each int32) int32 { return Saturate(int64(n) * int64(each)) }

// Saturate returns the number of 32 bits that is nearest to n.
func Saturate(n int64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

// DefaultMaxChildren is how many objects may be made for one job unless the configuration says otherwise.
const DefaultMaxChildren = 100_000

// TooMany is why a job is refused of which n objects would be made, such as pods, where most are allowed.
func TooMany(n int64, what string, most int32) string {
	return fmt.Sprintf("%d %s would be made for one job, and integrations.maxChildren allows %d; ask for fewer, or have an administrator raise it", n, what, most)
}
