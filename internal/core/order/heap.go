package order

// item is an element of a heap. before is a total order; moved is called with the new index,
// so that removal from the middle costs no search.
type item[T any] interface {
	before(o T) bool
	moved(i int)
}

// heap is a binary heap. The zero value is empty.
type heap[T item[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
}

// remove removes the item at index i.
func (h *heap[T]) remove(i int) {
	items := *h
	last := len(items) - 1
	moved := items[last]
	var none T
	items[last] = none
	*h = items[:last]
	if i < last {
		items[i] = moved
		h.fix(i)
	}
}

// fix moves the item at index i to its place after its rank changed.
func (h *heap[T]) fix(i int) { h.down(h.up(i)) }

// up moves the item at index i towards the top, and returns its new index.
func (h *heap[T]) up(i int) int {
	items := *h
	x := items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !x.before(items[parent]) {
			break
		}
		items[i] = items[parent]
		items[i].moved(i)
		i = parent
	}
	items[i] = x
	x.moved(i)
	return i
}

func (h *heap[T]) down(i int) {
	items := *h
	x := items[i]
	for {
		kid := 2*i + 1
		if kid >= len(items) {
			break
		}
		if kid+1 < len(items) && items[kid+1].before(items[kid]) {
			kid++
		}
		if !items[kid].before(x) {
			break
		}
		items[i] = items[kid]
		items[i].moved(i)
		i = kid
	}
	items[i] = x
	x.moved(i)
}
