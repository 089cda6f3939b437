package dash

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestShareOfViews: however many views a caller has open, and however long each takes, they take their share of the time together; views of
// others and cheap ones do not count.
func TestShareOfViews(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := costly{of: map[string]int{}}
		c.pause("other", 0, time.Hour)
		takes := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(int64(cheap), int64(time.Second)).Draw(rt, "ns"))
		}), 1, 20).Draw(rt, "takes")
		for _, took := range takes {
			c.pause("a", 0, took)
		}
		part := 0.0
		for _, took := range takes {
			part += took.Seconds() / (took + c.pause("a", took, took)).Seconds()
		}
		if part > 1.0/share+1e-9 {
			rt.Fatalf("%v take %f of the time", takes, part)
		}
		if got := c.pause("a", 0, cheap-1); got < (share-1)*(cheap-1) {
			rt.Fatalf("a cheap view rests for %s", got)
		}
		for _, took := range takes {
			c.pause("a", took, 0)
		}
		if got := c.pause("a", 0, cheap); got != (share-1)*cheap {
			rt.Fatalf("a view rests for %s after the others have closed", got)
		}
		if c.pause("a", cheap, 0); len(c.of) != 1 {
			rt.Fatalf("kept are %v", c.of)
		}
	})
}
