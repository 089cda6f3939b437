// Package convert turns API objects into the engine's values and its grants back into
// API objects. A resource.Quantity goes no further than this package.
package convert

import (
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
)

// Amount counts a quantity in the engine's unit: millicores for cpu, whole units
// otherwise, rounded up. A quantity beyond int64 is resource.Unlimited.
// spec: 10 §4.2, §4.3.1.
func Amount(name corev1.ResourceName, q apiresource.Quantity) resource.Amount {
	q = bounded(q)
	if name == corev1.ResourceCPU {
		if q.CmpInt64(math.MaxInt64/1000) >= 0 {
			return resource.Unlimited
		}
		return resource.Amount(q.MilliValue())
	}
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return resource.Unlimited
	}
	return resource.Amount(q.Value())
}

// maxExponent bounds quantities, which are compared and added digit by digit: 1e999999999 has a billion. int64 ends long before.
const maxExponent = 30

// bounded returns a quantity within ±1e30.
func bounded(q apiresource.Quantity) apiresource.Quantity {
	near := q.AsApproximateFloat64()
	if math.Abs(near) < 1e30 {
		return q
	}
	b := apiresource.NewScaledQuantity(int64(q.Sign()), maxExponent)
	b.Format = apiresource.DecimalExponent
	return *b
}

// boundedList returns a list of bounded quantities. It does not change the list.
func boundedList(list corev1.ResourceList) corev1.ResourceList {
	out, own := list, false
	//berth:unordered each key by itself
	for name, q := range list {
		if b := bounded(q); b != q {
			if !own {
				out, own = maps.Clone(list), true
			}
			out[name] = b
		}
	}
	return out
}

// Quantity is the inverse of Amount, in the usual format of the resource.
func Quantity(name corev1.ResourceName, a resource.Amount) apiresource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *apiresource.NewMilliQuantity(int64(a), apiresource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return *apiresource.NewQuantity(int64(a), apiresource.BinarySI)
	}
	return *apiresource.NewQuantity(int64(a), apiresource.DecimalSI)
}

func limit(name corev1.ResourceName, q *apiresource.Quantity) resource.Amount {
	if q == nil {
		return quota.NoLimit
	}
	return Amount(name, *q)
}

// fine returns an amount that is not negative with as many of its decimals as a Quantity can have: nine of small ones.
func fine(amount float64) apiresource.Quantity {
	scale, factor := apiresource.Nano, 1e9
	for ; scale < 0 && amount*factor >= 1<<62; scale += 3 {
		factor /= 1000
	}
	q := apiresource.NewScaledQuantity(int64(math.Round(min(amount*factor, 1<<62))), scale)
	q.Format = apiresource.DecimalSI
	return *q
}
