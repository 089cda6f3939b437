package state

import "iter"

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
