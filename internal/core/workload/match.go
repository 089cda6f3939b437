package workload

import (
	"slices"
	"strconv"
)

// Constraints restrict the nodes that the pods of a pod set may run on.
type Constraints struct {
	Selector    map[string]string
	Affinity    []Term // ORed; nil is no requirement
	Tolerations []Toleration
	// Flavors are the names of the flavors that it may get; none is any. spec: 20 §4.13.
	Flavors []string `json:",omitempty"`
}

// Term is a conjunction of expressions.
type Term []Expr

// Operator compares a label with values.
type Operator string

// The operators of node affinity and label selectors.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	Gt           Operator = "Gt"
	Lt           Operator = "Lt"
)

// NodeName is the key of an Expr about the name of a node. No label has it.
const NodeName = "@metadata.name"

// Expr is a requirement on one label, or on the name of a node.
type Expr struct {
	Key    string
	Op     Operator
	Values []string
}

// Matches reports whether labels satisfy the expression. Gt and Lt on a label or value
// that is no integer do not match.
func (e Expr) Matches(labels map[string]string) bool {
	value, has := labels[e.Key]
	switch e.Op {
	case In:
		return has && slices.Contains(e.Values, value)
	case NotIn:
		return !has || !slices.Contains(e.Values, value)
	case Exists:
		return has
	case DoesNotExist:
		return !has
	case Gt, Lt:
		if !has || len(e.Values) != 1 {
			return false
		}
		have, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		want, err := strconv.ParseInt(e.Values[0], 10, 64)
		if err != nil {
			return false
		}
		return (e.Op == Gt && have > want) || (e.Op == Lt && have < want)
	}
	return false
}

// Matches reports whether labels satisfy every expression.
func (t Term) Matches(labels map[string]string) bool {
	for _, e := range t {
		if !e.Matches(labels) {
			return false
		}
	}
	return true
}

// Taint repels pods that do not tolerate it.
type Taint struct {
	Key, Value, Effect string
}

// Repels reports whether the taint keeps pods from starting: PreferNoSchedule does not.
func (t Taint) Repels() bool { return t.Effect == "NoSchedule" || t.Effect == "NoExecute" }

// Toleration tolerates taints. An empty key with Exists tolerates everything, an empty effect
// every effect; an empty operator is Equal.
type Toleration struct {
	Key, Operator, Value, Effect string
}

// Tolerates reports whether the toleration tolerates taint. The numeric operators Gt and Lt
// compare the taint's value with the toleration's.
func (t Toleration) Tolerates(taint Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", "Equal":
		return t.Key != "" && t.Value == taint.Value
	case "Exists":
		return true
	case "Gt", "Lt":
		return Expr{Key: "value", Op: Operator(t.Operator), Values: []string{t.Value}}.
			Matches(map[string]string{"value": taint.Value})
	}
	return false
}
