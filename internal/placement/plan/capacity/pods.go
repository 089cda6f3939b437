package capacity

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	podresource "k8s.io/component-helpers/resource"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// largest bounds the request of one pod, so that the sums of a node are exact: no node has as much.
const largest resource.Amount = 1 << 50

// Counts reports whether a pod uses capacity of its node that no topology assignment accounts for: it has a node, is not over, and
// requests no topology. A pod that is being deleted still counts (spec: 20 §4.5).
func Counts(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !job.PodIsOver(pod) && !plan.AsksForTopology(pod)
}

// Requests returns the capacity that a pod uses: its requests, with init containers and sidecars by the rules of Kubernetes, and one pod.
// The requests of a pod that is resized count as far as its node still holds them.
func Requests(pod *corev1.Pod) Amounts {
	list := podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true})
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourcePods] = *apiresource.NewQuantity(1, apiresource.DecimalSI)
	return amounts(list, func(name corev1.ResourceName, q apiresource.Quantity) resource.Amount {
		return min(convert.Amount(name, q), largest)
	})
}

// Use is the capacity that a pod uses.
type Use struct {
	UID      types.UID
	Node     string
	Requests Amounts
}

// UseOf returns the capacity that a pod uses, and false if the pod does not count.
func UseOf(pod *corev1.Pod) (Use, bool) {
	if !Counts(pod) {
		return Use{UID: pod.UID}, false
	}
	return Use{pod.UID, pod.Spec.NodeName, Requests(pod)}, true
}

// Pods has the usage of each node by the pods that count, kept incrementally. A pod takes about 100 bytes: its node is interned, and pods
// with the same requests share them. Not safe for concurrent use. The zero value is empty.
type Pods struct {
	pods     map[types.UID]entry
	nodes    interned[string, usage]
	requests interned[string, Amounts]
}

// entry is a pod that counts.
type entry struct{ node, requests uint32 }

// usage is the sum of the requests of the pods of a node.
type usage struct {
	name string
	sum  map[string]resource.Amount
}

// Len returns how many pods count.
func (p *Pods) Len() int { return len(p.pods) }

// Usage returns the usage of a node.
func (p *Pods) Usage(node string) Amounts {
	id, known := p.nodes.ids[node]
	if !known {
		return nil
	}
	sum := p.nodes.values[id].sum
	out := make(Amounts, 0, len(sum))
	for name, amount := range sum { //berth:unordered sorted below
		out = append(out, state.Request{Resource: name, Amount: amount})
	}
	slices.SortFunc(out, func(a, b state.Request) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// Nodes returns the names of the nodes with usage, sorted.
func (p *Pods) Nodes() []string {
	out := make([]string, 0, len(p.nodes.ids))
	for name := range p.nodes.ids { //berth:unordered sorted below
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Set notes a pod as it is now, and returns the nodes whose usage changed: none, its node, or its former node and its node.
func (p *Pods) Set(pod *corev1.Pod) []string {
	use, counts := UseOf(pod)
	if !counts {
		return p.Remove(pod.UID)
	}
	return p.put(use)
}

func (p *Pods) put(use Use) []string {
	old, had := p.pods[use.UID]
	if had && p.nodes.values[old.node].name == use.Node && slices.Equal(p.requests.values[old.requests], use.Requests) {
		return nil
	}
	changed := p.Remove(use.UID)
	if p.pods == nil {
		p.pods = map[types.UID]entry{}
	}
	e := entry{
		p.nodes.add(use.Node, func(name string) usage { return usage{name, map[string]resource.Amount{}} }),
		p.requests.add(keyOf(use.Requests), func(string) Amounts { return use.Requests }),
	}
	p.pods[types.UID(strings.Clone(string(use.UID)))] = e // the UID may be a part of a larger text
	sum := p.nodes.values[e.node].sum
	for _, q := range use.Requests {
		sum[q.Resource] += q.Amount
	}
	if !slices.Contains(changed, use.Node) {
		changed = append(changed, use.Node)
	}
	return changed
}

// Remove notes that a pod is gone, and returns its node if its usage changed.
func (p *Pods) Remove(uid types.UID) []string {
	e, had := p.pods[uid]
	if !had {
		return nil
	}
	delete(p.pods, uid)
	node := &p.nodes.values[e.node]
	name := node.name
	for _, q := range p.requests.values[e.requests] {
		if node.sum[q.Resource] -= q.Amount; node.sum[q.Resource] == 0 {
			delete(node.sum, q.Resource)
		}
	}
	p.requests.drop(e.requests)
	p.nodes.drop(e.node)
	return []string{name}
}

// Replace notes that the pods that count are exactly these, and returns the nodes whose usage changed, sorted.
func (p *Pods) Replace(uses []Use) []string {
	is := make(map[types.UID]bool, len(uses))
	var changed []string
	for _, use := range uses {
		is[use.UID] = true
		changed = append(changed, p.put(use)...)
	}
	var gone []types.UID
	for uid := range p.pods { //berth:unordered sums do not depend on the order, and the names are sorted below
		if !is[uid] {
			gone = append(gone, uid)
		}
	}
	for _, uid := range gone {
		changed = append(changed, p.Remove(uid)...)
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// keyOf returns a text that equals that of no other amounts: no name of a resource contains a space.
func keyOf(a Amounts) string {
	var key []byte
	for _, q := range a {
		key = append(append(key, q.Resource...), ' ')
		key = append(strconv.AppendInt(key, int64(q.Amount), 10), ' ')
	}
	return string(key)
}

// interned gives values small numbers, and forgets values that are not used any more.
type interned[K comparable, V any] struct {
	ids    map[K]uint32
	values []V
	keys   []K
	uses   []int
	free   []uint32
}

// add returns the number of the value of a key, which it makes if there is none, and counts the use.
func (t *interned[K, V]) add(key K, made func(K) V) uint32 {
	id, known := t.ids[key]
	switch {
	case known:
	case len(t.free) > 0:
		id, t.free = t.free[len(t.free)-1], t.free[:len(t.free)-1]
		t.ids[key], t.values[id], t.keys[id] = id, made(key), key
	default:
		if t.ids == nil {
			t.ids = map[K]uint32{}
		}
		id = uint32(len(t.values))
		t.ids[key] = id
		t.values, t.keys, t.uses = append(t.values, made(key)), append(t.keys, key), append(t.uses, 0)
	}
	t.uses[id]++
	return id
}

// drop ends one use of a value.
func (t *interned[K, V]) drop(id uint32) {
	if t.uses[id]--; t.uses[id] > 0 {
		return
	}
	var none V
	var noKey K
	delete(t.ids, t.keys[id])
	t.values[id], t.keys[id] = none, noKey
	t.free = append(t.free, id)
}
