// Package simnode names and labels the simulated nodes of a control plane, and reads their topology from its command-line form, such as
// block=2,rack=4,host=8: 2 blocks of 4 racks of 8 hosts.
package simnode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// Label is "true" on the nodes of the control plane itself. It makes, resizes and deletes no others.
	Label = "berth.dev/simulated"
	// FailureAnnotation makes a node fail while it is "true": heartbeats stop, the node is NotReady, and its pods neither run on nor end,
	// as on a machine that died. Without the annotation, or with another value, the node recovers.
	FailureAnnotation = "berth.dev/simulated-failure"
	// LevelsAnnotation lists the topology labels of a node, separated by commas, so that a later start can replace them.
	LevelsAnnotation = "berth.dev/topology-levels"

	// MaxNodes is how many nodes a control plane simulates at most.
	MaxNodes = 5000

	maxLevels = 16 // as in a Topology. spec: 20 §2.2
	hostLevel = "host"
	minDigits = 2 // of the number of a host
)

// Node is the name and the labels of a node.
type Node struct {
	Name   string
	Labels map[string]string
}

// Level is a level of a topology.
type Level struct {
	// Label is the key of the node label.
	Label string
	// Name is the name of the level on the command line.
	Name string
	// Count is how many domains of this level are in each domain of the level above.
	Count int
}

// Topology lists levels from the broadest to the narrowest, which is kubernetes.io/hostname.
type Topology []Level

// ParseTopology reads level=count pairs separated by commas, the broadest level first and host last. A level is a label key with a slash,
// or a short name: zone and region are topology.kubernetes.io/NAME, any other is cloud.provider.com/topology-NAME.
func ParseTopology(text string) (Topology, error) {
	const example = "as in block=2,rack=4,host=8"
	var out Topology
	nodes := 1
	for pair := range strings.SplitSeq(text, ",") {
		name, number, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found {
			return nil, fmt.Errorf("%q is not of the form level=count, %s", pair, example)
		}
		count, err := strconv.Atoi(number)
		if err != nil || count < 1 {
			return nil, fmt.Errorf("%s=%s: %q is not a whole number of at least 1", name, number, number)
		}
		if count > MaxNodes/nodes {
			return nil, fmt.Errorf("%s=%s: that makes more than %d nodes", name, number, MaxNodes)
		}
		nodes *= count
		label, err := labelOf(name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(l Level) bool { return l.Label == label }) {
			return nil, fmt.Errorf("%s is given twice", label)
		}
		if len(out) > 0 && out[len(out)-1].Label == corev1.LabelHostname {
			return nil, fmt.Errorf("%s comes after %s, which must be the last level, %s", name, hostLevel, example)
		}
		out = append(out, Level{Label: label, Name: name, Count: count})
	}
	if last := out[len(out)-1]; last.Label != corev1.LabelHostname {
		return nil, fmt.Errorf("the last level is %s: it must be %s, the nodes themselves, %s", last.Name, hostLevel, example)
	}
	if len(out) > maxLevels {
		return nil, fmt.Errorf("%d levels: at most %d are possible", len(out), maxLevels)
	}
	if problems := validation.IsDNS1123Label(out.nodeName(nodes - 1)); len(problems) > 0 {
		return nil, fmt.Errorf("nodes would get names such as %s: %s", out.nodeName(nodes-1), strings.Join(problems, "; "))
	}
	return out, nil
}

// labelOf returns the label key of a level.
func labelOf(name string) (string, error) {
	label := name
	switch {
	case name == hostLevel:
		return corev1.LabelHostname, nil
	case name == "zone":
		return corev1.LabelTopologyZone, nil
	case name == "region":
		return corev1.LabelTopologyRegion, nil
	case !strings.Contains(name, "/"):
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return "", fmt.Errorf("%q is neither a short name of a level, such as rack, nor a label key with a slash: %s",
				name, strings.Join(problems, "; "))
		}
		label = "cloud.provider.com/topology-" + name
	}
	if problems := validation.IsQualifiedName(label); len(problems) > 0 {
		return "", fmt.Errorf("%q is not a label key: %s", label, strings.Join(problems, "; "))
	}
	if label == Label || label == corev1.LabelOSStable || label == corev1.LabelArchStable {
		return "", fmt.Errorf("%s is a label that every simulated node has: choose another", label)
	}
	return label, nil
}

// Labels are the label keys of the levels, the broadest first.
func (t Topology) Labels() []string {
	out := make([]string, 0, len(t))
	for _, l := range t {
		out = append(out, l.Label)
	}
	return out
}

// String describes the topology: 2 block × 4 rack × 8 host.
func (t Topology) String() string {
	parts := make([]string, 0, len(t))
	for _, l := range t {
		parts = append(parts, fmt.Sprintf("%d %s", l.Count, lastPart(l.Name)))
	}
	return strings.Join(parts, " × ")
}

// Count is the number of nodes.
func (t Topology) Count() int {
	n := 1
	for _, l := range t {
		n *= l.Count
	}
	return n
}

// Nodes are the nodes of the topology in order, host by host. The value of a level's label is the part of the name of a node down to that
// level, and so unique: rack b1-r2 is in block b1, and has the host b1-r2-h03.
func (t Topology) Nodes() []Node {
	out := make([]Node, 0, t.Count())
	for i := range t.Count() {
		node := Node{Name: t.nodeName(i), Labels: map[string]string{}}
		for depth, l := range t {
			node.Labels[l.Label] = strings.Join(t.path(i)[:depth+1], "-")
		}
		out = append(out, node)
	}
	return out
}

// Plain are nodes without a topology.
func Plain(count int) []Node {
	out := make([]Node, 0, count)
	for i := range count {
		name := "berth-node-" + strconv.Itoa(i)
		out = append(out, Node{Name: name, Labels: map[string]string{corev1.LabelHostname: name}})
	}
	return out
}

// HasFailed reports whether a node is made to fail.
func HasFailed(node *corev1.Node) bool { return node.Annotations[FailureAnnotation] == "true" }

func (t Topology) nodeName(index int) string { return strings.Join(t.path(index), "-") }

// path has the part of each level of the name of a node, such as b1, r2 and h03. Numbers are of one width, so that names sort.
func (t Topology) path(index int) []string {
	out := make([]string, len(t))
	for depth, l := range slices.Backward(t) {
		width := len(strconv.Itoa(l.Count))
		if l.Label == corev1.LabelHostname {
			width = max(width, minDigits)
		}
		out[depth] = fmt.Sprintf("%s%0*d", t.short(depth), width, index%l.Count+1)
		index /= l.Count
	}
	return out
}

// short is the first letter of a level's name, or the whole name where two levels have the same letter.
func (t Topology) short(depth int) string {
	word := lastPart(t[depth].Name)
	for other, l := range t {
		if other != depth && lastPart(l.Name)[0] == word[0] {
			return word
		}
	}
	return word[:1]
}

// lastPart is a level's name without the prefix of a label key, as a word for names of nodes.
func lastPart(name string) string {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.TrimPrefix(name, "topology-"))
}
