package job

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Child is a kind of objects that the controller of another kind makes.
type Child struct {
	// GVK is the kind; the empty value matches any.
	GVK schema.GroupVersionKind
	// Relay reports that the owner's own Workload does not count the child: the owner's owner may count it.
	Relay bool
	// Relayed reports that Made also checks objects relayed from below: only such an owner counts them.
	Relayed bool
	// Made returns why the controller cannot have made the object, or nil. A nil function checks the kind only.
	Made func(*OwnedBy) error
}

// OwnedBy is an object and the controller owner that it names.
type OwnedBy struct {
	*Config
	// Owner is complete, and has the UID that the object names.
	Owner Object
	// Objects are the objects that the owner refers to; nil if they were not read.
	Objects map[Reference]Object
	// Held are the pod sets of the owner's Workload that holds quota; nil if they were not read.
	Held []kueue.PodSet
	// Child is the object; Kind describes it, or is nil. Made is not called for an object of which only the metadata was read.
	Child Object
	Kind  *Descriptor
	// Below is the chain of objects below the child for which the owners are walked, nearest first.
	Below []Object
}

// Setting returns the context of the owner.
func (k *OwnedBy) Setting() *Setting { return &Setting{Config: k.Config, Objects: k.Objects} }

// Maker is an owner's kind in an [Ownership].
type Maker struct {
	// New returns an empty object of the kind. Nil: only its metadata is read.
	New func() Object
	// Kind describes the kind; may be nil.
	Kind *Descriptor
	// Children are the kinds of objects that its controller makes.
	Children []Child
}

// Ownership is the table of kinds that may own others, by the kind of the owner. An owner that is not in it owns nothing. With a
// nil table every known kind owns everything, as upstream.
type Ownership map[schema.GroupVersionKind]*Maker

// NewOwnership returns the table of the described kinds, enabled or not, and of the external ones of the configuration; nil if
// owners are not verified.
func NewOwnership(cfg *Config, descriptors []*Descriptor) Ownership {
	if !cfg.VerifyOwners {
		return nil
	}
	out := Ownership{}
	for gvk, owned := range cfg.ExternalOwns { //berth:unordered fills a map
		m := &Maker{}
		for _, kind := range owned {
			m.Children = append(m.Children, Child{GVK: kind})
		}
		if owned == nil {
			m.Children = []Child{{}}
		}
		out[gvk] = m
	}
	for _, d := range descriptors {
		out[d.GVK] = &Maker{New: d.New, Kind: d, Children: d.Owns}
	}
	return out
}

// child returns the entry of the table for an owner and its dependent; false if there is none.
func (t Ownership) child(owner, owned schema.GroupVersionKind) (Child, bool) {
	if t == nil {
		return Child{}, true
	}
	m := t[owner]
	if m == nil {
		return Child{}, false
	}
	for _, c := range m.Children {
		if c.GVK == owned || c.GVK.Empty() {
			return c, true
		}
	}
	return Child{}, false
}

// Reads reports whether owners of the kind must be read completely.
func (t Ownership) Reads(owner schema.GroupVersionKind) bool {
	m := t[owner]
	return m != nil && m.New != nil && slices.ContainsFunc(m.Children, func(c Child) bool { return c.Made != nil })
}

// made checks whether the controller of an owner can have made an object; below is the chain of objects below it.
func (t Ownership) made(cfg *Config, c *Child, owner, owned *Owner, below []metav1.Object) error {
	if c.Made == nil {
		return nil
	}
	of, ok := complete(owner.Object)
	object, readable := complete(owned.Object)
	if !ok || !readable {
		return nil
	}
	k := &OwnedBy{Config: cfg, Owner: of, Objects: owner.Objects, Held: owner.Held, Child: object}
	if m := t[owned.GVK]; m != nil {
		k.Kind = m.Kind
	}
	for _, b := range slices.Backward(below) {
		if o, ok := complete(b); ok {
			k.Below = append(k.Below, o)
		}
	}
	if err := c.Made(k); err != nil {
		return fmt.Errorf("%s %s cannot have made it: %w", owner.GVK.Kind, owner.Object.GetName(), err)
	}
	return nil
}

// idle returns why the controller of a queued owner makes no pods now: no quota would count them. direct reports that the owner names the
// controller of the pod itself. Above that an owner that is being deleted may still have a Job that cleans up.
func (t Ownership) idle(of schema.GroupVersionKind, owner *Owner, direct bool) error {
	pods, m := t[of], t[owner.GVK]
	object, ok := complete(owner.Object)
	if !ok || pods == nil || pods.Kind == nil || pods.Kind.Once == nil || m == nil || m.Kind == nil || m.Kind.Serving {
		return nil
	}
	why := ""
	switch deleted := object.GetDeletionTimestamp() != nil; {
	case deleted && direct:
		why = "is being deleted"
	case !deleted && !m.Kind.Runs(object):
		why = "does not run"
	default:
		return nil
	}
	return fmt.Errorf("%s %s %s, so it makes no pods", owner.GVK.Kind, owner.Object.GetName(), why)
}

// complete returns an object of which more than the metadata was read.
func complete(o metav1.Object) (Object, bool) {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		return nil, false
	case Object:
		return o, true
	default:
		return nil, false
	}
}
