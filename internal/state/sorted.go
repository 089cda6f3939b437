package state

import (
	"iter"
	"slices"
)

// sorted is an immutable sorted set, a tree balanced by size. A change returns another set, which shares all but a path of nodes
// with the first: it costs log n, and readers of the first are not disturbed. The zero value is empty. The comparison is the
// same in all calls.
type sorted[T any] struct{ *branch[T] }

type branch[T any] struct {
	item        T
	left, right *branch[T]
	size        int32
}

// sortedOf returns a set of items that are in order.
func sortedOf[T any](items []T) sorted[T] { return sorted[T]{grow(items)} }

func grow[T any](items []T) *branch[T] {
	if len(items) == 0 {
		return nil
	}
	middle := len(items) / 2
	return join(items[middle], grow(items[:middle]), grow(items[middle+1:]))
}

// Len returns the number of items.
func (s sorted[T]) Len() int { return int(s.count()) }

// put adds an item, in place of an equal one.
func (s sorted[T]) put(x T, compare func(a, b T) int) sorted[T] {
	return sorted[T]{s.branch.put(x, compare)}
}

// putAll is put for items in order. It costs the path of an item only where no other item shares it.
func (s sorted[T]) putAll(items []T, compare func(a, b T) int) sorted[T] {
	var added []T
	b := s.branch.replaceAll(items, compare, &added)
	for _, x := range added {
		b = b.put(x, compare)
	}
	return sorted[T]{b}
}

// drop removes the item that equals x, if there is one.
func (s sorted[T]) drop(x T, compare func(a, b T) int) sorted[T] {
	return sorted[T]{s.branch.drop(x, compare)}
}

// find returns the item for which compare is 0, and the number of items before it: those for which compare is negative. compare
// compares an item with what is looked for.
func (s sorted[T]) find(compare func(T) int) (x T, before int, found bool) {
	for b := s.branch; b != nil; {
		switch c := compare(b.item); {
		case c > 0:
			b = b.left
		case c < 0:
			before += int(b.left.count()) + 1
			b = b.right
		default:
			return b.item, before + int(b.left.count()), true
		}
	}
	return x, before, false
}

// at returns the item with so many before it.
func (s sorted[T]) at(before int) T {
	b := s.branch
	for {
		switch left := int(b.left.count()); {
		case before < left:
			b = b.left
		case before > left:
			before -= left + 1
			b = b.right
		default:
			return b.item
		}
	}
}

// all returns the items in their order.
func (s sorted[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) { s.visit(yield) }
}

func (b *branch[T]) count() int32 {
	if b == nil {
		return 0
	}
	return b.size
}

func (b *branch[T]) visit(yield func(T) bool) bool {
	return b == nil || b.left.visit(yield) && yield(b.item) && b.right.visit(yield)
}

func (b *branch[T]) put(x T, compare func(a, b T) int) *branch[T] {
	if b == nil {
		return join(x, nil, nil)
	}
	switch c := compare(x, b.item); {
	case c < 0:
		return balanced(b.item, b.left.put(x, compare), b.right)
	case c > 0:
		return balanced(b.item, b.left, b.right.put(x, compare))
	}
	return join(x, b.left, b.right)
}

// replaceAll puts items in place of equal ones, and appends the others to rest.
func (b *branch[T]) replaceAll(items []T, compare func(a, b T) int, rest *[]T) *branch[T] {
	if b == nil {
		*rest = append(*rest, items...)
		return nil
	}
	if len(items) == 0 {
		return b
	}
	at, has := slices.BinarySearchFunc(items, b.item, compare)
	item, after := b.item, at
	if has {
		item, after = items[at], at+1
	}
	left, right := b.left.replaceAll(items[:at], compare, rest), b.right.replaceAll(items[after:], compare, rest)
	if !has && left == b.left && right == b.right {
		return b
	}
	return &branch[T]{item, left, right, b.size}
}

func (b *branch[T]) drop(x T, compare func(a, b T) int) *branch[T] {
	if b == nil {
		return nil
	}
	switch c := compare(x, b.item); {
	case c < 0:
		if left := b.left.drop(x, compare); left != b.left {
			return balanced(b.item, left, b.right)
		}
	case c > 0:
		if right := b.right.drop(x, compare); right != b.right {
			return balanced(b.item, b.left, right)
		}
	case b.left == nil:
		return b.right
	case b.right == nil:
		return b.left
	default:
		next, right := b.right.dropFirst()
		return balanced(next, b.left, right)
	}
	return b
}

// dropFirst returns the first item, and the rest.
func (b *branch[T]) dropFirst() (first T, rest *branch[T]) {
	if b.left == nil {
		return b.item, b.right
	}
	first, left := b.left.dropFirst()
	return first, balanced(b.item, left, b.right)
}

// A side has at most heavier times the items of the other; a rotation is single if the inner grandchild is less than double the
// outer one.
const heavier, double = 3, 2

func join[T any](x T, left, right *branch[T]) *branch[T] {
	return &branch[T]{x, left, right, left.count() + 1 + right.count()}
}

// balanced is join for sides of which one has an item more or less than a balanced tree had.
func balanced[T any](x T, left, right *branch[T]) *branch[T] {
	switch l, r := left.count(), right.count(); {
	case l+r <= 1:
	case r > heavier*l && right.left.count() < double*right.right.count():
		return join(right.item, join(x, left, right.left), right.right)
	case r > heavier*l:
		middle := right.left
		return join(middle.item, join(x, left, middle.left), join(right.item, middle.right, right.right))
	case l > heavier*r && left.right.count() < double*left.left.count():
		return join(left.item, left.left, join(x, left.right, right))
	case l > heavier*r:
		middle := left.right
		return join(middle.item, join(left.item, left.left, middle.left), join(x, middle.right, right))
	}
	return join(x, left, right)
}

// differences calls change for the items that only one of two sets has, and for equal items that are not the same, in order; the zero
// value stands for none. Branches that both sets share are passed over.
func differences[T comparable](before, now sorted[T], compare func(a, b T) int, change func(old, now T)) {
	var none T
	a, b := walkOf(before), walkOf(now)
	for len(a)+len(b) > 0 {
		switch {
		case len(a) > 0 && len(b) > 0 && a.next() == b.next():
			a, b = a[:len(a)-1], b[:len(b)-1]
		case a.size() >= b.size() && a.size() > 0:
			a = a.expanded()
		case b.size() > 0:
			b = b.expanded()
		default:
			c := 0
			switch {
			case len(a) == 0:
				c = 1
			case len(b) == 0:
				c = -1
			default:
				c = compare(a.next().item, b.next().item)
			}
			old, is := none, none
			if c <= 0 {
				old, a = a.next().item, a[:len(a)-1]
			}
			if c >= 0 {
				is, b = b.next().item, b[:len(b)-1]
			}
			if old != is {
				change(old, is)
			}
		}
	}
}

// walk is what is left of a set in its order, the next part last.
type walk[T any] []part[T]

// part is a branch, or the item of one alone.
type part[T any] struct {
	*branch[T]
	alone bool
}

func walkOf[T any](s sorted[T]) walk[T] { return walk[T]{}.with(s.branch, false) }

func (w walk[T]) with(b *branch[T], alone bool) walk[T] {
	if b == nil {
		return w
	}
	return append(w, part[T]{b, alone})
}

func (w walk[T]) next() part[T] { return w[len(w)-1] }

// size is the number of items of the next part, 0 for an item alone and for none.
func (w walk[T]) size() int32 {
	if len(w) == 0 || w.next().alone {
		return 0
	}
	return w.next().branch.size
}

// expanded returns the walk with the parts of its next branch.
func (w walk[T]) expanded() walk[T] {
	b := w.next().branch
	return w[:len(w)-1].with(b.right, false).with(b, true).with(b.left, false)
}
