package convert

import (
	"math/big"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
)

// charge returns the requests of one pod set: the requests of one pod, transformed and without excluded
// resources, and its charges for devices, which these settings leave alone, times the number of pods. spec: 10 §4.2.
func (r *Requests) charge(pod corev1.ResourceList, devices map[corev1.ResourceName]resource.Amount, count int32) []state.Request {
	var out []state.Request
	add := func(name corev1.ResourceName, each resource.Amount) {
		out = append(out, state.Request{Resource: string(name), Amount: max(0, each).Mul(int64(count))})
	}
	asked := corev1.ResourceList{}
	//berth:unordered each key by itself
	for name, q := range pod {
		if !slices.ContainsFunc(r.ExcludePrefixes, func(p string) bool { return strings.HasPrefix(string(name), p) }) {
			asked[name] = q
		}
	}
	exact := r.transform(asked)
	//berth:unordered sorted below
	for name, q := range asked {
		if exact[name] == nil {
			add(name, Amount(name, q))
		}
	}
	//berth:unordered sorted below
	for name, q := range exact {
		if q != dropped {
			add(name, amount(name, q))
		}
	}
	//berth:unordered each key by itself, and sorted below
	for name, each := range devices {
		if name == corev1.ResourceCPU {
			each = each.Mul(1000)
		}
		if i := slices.IndexFunc(out, func(q state.Request) bool { return q.Resource == string(name) }); i >= 0 {
			out[i].Amount = out[i].Amount.Add(each.Mul(int64(count)))
		} else {
			add(name, each)
		}
	}
	slices.SortFunc(out, func(a, b state.Request) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// dropped stands for a resource that is replaced by others.
var dropped = new(big.Rat)

// transform returns the resources that transformations change, with their amounts;
// nil for unchanged resources.
func (r *Requests) transform(asked corev1.ResourceList) map[corev1.ResourceName]*big.Rat {
	var made map[corev1.ResourceName]*big.Rat
	replaced := map[corev1.ResourceName]bool{}
	for i := range r.Transformations {
		t := &r.Transformations[i]
		q, matches := asked[t.Input]
		if !matches {
			continue
		}
		base := rational(q)
		if factor, has := asked[t.MultiplyBy]; has {
			base.Mul(base, rational(factor))
		}
		if made == nil {
			made = map[corev1.ResourceName]*big.Rat{}
		}
		replaced[t.Input] = t.Strategy != nil && *t.Strategy == configv1beta2.ReplaceInput
		//berth:unordered sums of exact numbers, one a key
		for name, each := range t.Outputs {
			if made[name] == nil {
				made[name] = new(big.Rat)
			}
			made[name].Add(made[name], new(big.Rat).Mul(base, rational(each)))
		}
	}
	//berth:unordered each key by itself
	for name, q := range made {
		if q.Sign() < 0 {
			q.SetInt64(0)
		}
		if kept, has := asked[name]; has && !replaced[name] {
			q.Add(q, rational(kept))
		}
	}
	//berth:unordered each key by itself
	for name, is := range replaced {
		if is && made[name] == nil {
			made[name] = dropped
		}
	}
	return made
}

func rational(q apiresource.Quantity) *big.Rat {
	q = q.DeepCopy() // AsDec changes its representation
	d := q.AsDec()
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(d.Scale(), -d.Scale()))), nil)
	if d.Scale() < 0 {
		return new(big.Rat).SetInt(scale.Mul(scale, d.UnscaledBig()))
	}
	return new(big.Rat).SetFrac(d.UnscaledBig(), scale)
}

// amount is Amount of an exact value.
func amount(name corev1.ResourceName, q *big.Rat) resource.Amount {
	if name == corev1.ResourceCPU {
		q = new(big.Rat).Mul(q, big.NewRat(1000, 1))
	}
	// Round up.
	up := new(big.Int).Add(q.Num(), q.Denom())
	up.Sub(up, big.NewInt(1)).Div(up, q.Denom())
	if !up.IsInt64() {
		return resource.Unlimited // negative amounts were set to 0
	}
	return resource.Amount(up.Int64())
}
