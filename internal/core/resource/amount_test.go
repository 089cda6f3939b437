package resource

import (
	"math"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestArithmetic(t *testing.T) {
	const most = Unlimited - 1
	tests := map[string]struct{ got, want Amount }{
		"unlimited and more":             {Unlimited.Add(5), Unlimited},
		"unlimited and a debt":           {Unlimited.Add(-5), Unlimited},
		"unlimited less something":       {Unlimited.Sub(5), Unlimited},
		"unlimited less unlimited":       {Unlimited.Sub(Unlimited), 0},
		"something less unlimited":       {Amount(5).Sub(Unlimited), math.MinInt64},
		"the most and one":               {most.Add(2), Unlimited},
		"the least and less":             {least.Add(-1), least},
		"the least less something":       {least.Sub(1), least},
		"nothing less the least":         {Amount(0).Sub(least), Unlimited},
		"a debt less the least":          {Amount(-1).Sub(least), Unlimited},
		"times none":                     {Unlimited.Mul(0), 0},
		"unlimited times two":            {Unlimited.Mul(2), Unlimited},
		"a debt times much":              {Amount(-3).Mul(math.MaxInt64), least},
		"the least, turned":              {least.Mul(-1), Unlimited},
		"turned by the least":            {Amount(-1).Mul(math.MinInt64), Unlimited},
		"10 of 4, for 2":                 {Amount(10).Scale(4, 2), 4},
		"10 of 4, for 4":                 {Amount(10).Scale(4, 4), 10},
		"of no parts, for some":          {Amount(10).Scale(0, 3), 0},
		"shrunk and grown, as if not so": {Amount(12).Scale(4, 2).Scale(2, 4), 12},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %d, want %d", tc.got, tc.want)
			}
		})
	}
}

// TestSaturation: finite sums, differences and products are exact or the nearest
// there is.
func TestSaturation(t *testing.T) {
	clamp := func(x *big.Int) Amount {
		switch {
		case x.Cmp(big.NewInt(math.MaxInt64)) > 0:
			return Unlimited
		case x.Cmp(big.NewInt(math.MinInt64)) < 0:
			return least
		}
		return Amount(x.Int64())
	}
	finite := rapid.OneOf( // both ends stand for no end
		rapid.Int64Range(math.MinInt64+2, math.MaxInt64-1),
		rapid.SampledFrom([]int64{-1<<62 - 1, -1 << 62, -1<<62 + 1, 1<<62 - 1, 1 << 62, 1<<62 + 1, math.MinInt64 + 2, math.MaxInt64 - 1}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		a, b := finite.Draw(rt, "a"), finite.Draw(rt, "b")
		x, y := big.NewInt(a), big.NewInt(b)
		if got, want := Amount(a).Add(Amount(b)), clamp(new(big.Int).Add(x, y)); got != want {
			rt.Errorf("%d+%d = %d, want %d", a, b, got, want)
		}
		if got, want := Amount(a).Sub(Amount(b)), clamp(new(big.Int).Sub(x, y)); got != want {
			rt.Errorf("%d-%d = %d, want %d", a, b, got, want)
		}
		if got, want := Amount(a).Mul(b), clamp(new(big.Int).Mul(x, y)); got != want {
			rt.Errorf("%d*%d = %d, want %d", a, b, got, want)
		}
	})
}

func TestFormat(t *testing.T) {
	tests := map[string]struct {
		amount   Amount
		resource string
		want     string
	}{
		"cores":          {2000, "cpu", "2"},
		"millicores":     {1500, "cpu", "1500m"},
		"no cores":       {0, "cpu", "0"},
		"gibibytes":      {3 << 30, "memory", "3Gi"},
		"odd bytes":      {1025, "memory", "1025"},
		"storage":        {1 << 20, "ephemeral-storage", "1Mi"},
		"huge pages":     {4 << 20, "hugepages-2Mi", "4Mi"},
		"gpus":           {2048, "nvidia.com/gpu", "2048"},
		"no end":         {Unlimited, "cpu", "<unlimited>"},
		"bytes, no end":  {Unlimited, "memory", "<unlimited>"},
		"a missing core": {-500, "cpu", "-500m"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.amount.Format(tc.resource); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTable(t *testing.T) {
	table := NewTable()
	cpu, a, b := table.ID("cpu"), table.FR("a", "cpu"), table.FR("b", "cpu")
	if table.ID("cpu") != cpu || table.FR("a", "cpu") != a || a == b {
		t.Error("names are not numbered once each")
	}
	if gpu := table.FR("a", "gpu"); table.ResourceOf(a) != cpu || table.ResourceOf(b) != cpu || table.ResourceOf(gpu) != table.ID("gpu") {
		t.Error("pairs do not know their resources")
	}
	if table.Name(cpu) != "cpu" || table.Pair(b) != (Pair{"b", "cpu"}) || table.Len() != 3 {
		t.Errorf("names got lost: %q, %v, %d pairs", table.Name(cpu), table.Pair(b), table.Len())
	}
}

func TestVector(t *testing.T) {
	table := NewTable()
	x, y, z := table.FR("z", "cpu"), table.FR("y", "memory"), table.FR("x", "gpu")
	var none Vector
	v := none.Plus(z, 1).Plus(x, 1000).Plus(y, 1<<30).Plus(x, 500)
	if diff := cmp.Diff(Vector{{x, 1500}, {y, 1 << 30}, {z, 1}}, v); diff != "" {
		t.Errorf("sorted by FR, one entry each:\n%s", diff)
	}
	more := v.Plus(x, 1)
	if v.Of(x) != 1500 || more.Of(x) != 1501 || v.Of(99) != 0 {
		t.Errorf("Plus changed the vector it started from, or Of does not find: %v, %v", v, more)
	}
	if got, want := v.Format(table), "x/gpu=1 y/memory=1Gi z/cpu=1500m"; got != want {
		t.Errorf("Format = %q, want %q", got, want)
	}
}
