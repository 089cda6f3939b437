package order

// heap is a binary heap that knows where everyone sits, so that removal from the
// middle costs no search. The zero value is empty, and cannot be pushed to.
type heap[T comparable] struct {
	compare func(a, b T) int
	items   []T
	index   map[T]int
}

func newHeap[T comparable](compare func(a, b T) int) heap[T] {
	return heap[T]{compare: compare, index: map[T]int{}}
}

func (h *heap[T]) has(x T) bool {
	_, ok := h.index[x]
	return ok
}

func (h *heap[T]) push(x T) {
	if h.has(x) {
		return
	}
	h.items = append(h.items, x)
	h.index[x] = len(h.items) - 1
	h.up(len(h.items) - 1)
}

func (h *heap[T]) remove(x T) bool {
	i, ok := h.index[x]
	if !ok {
		return false
	}
	last := len(h.items) - 1
	h.swap(i, last)
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	delete(h.index, x)
	if i < last {
		h.up(i)
		h.down(i)
	}
	return true
}

// fix finds the place of x again after its rank changed.
func (h *heap[T]) fix(x T) {
	if i, ok := h.index[x]; ok {
		h.up(i)
		h.down(h.index[x])
	}
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h.compare(h.items[parent], h.items[i]) <= 0 {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) {
	for {
		least := i
		for kid := 2*i + 1; kid <= 2*i+2 && kid < len(h.items); kid++ {
			if h.compare(h.items[kid], h.items[least]) < 0 {
				least = kid
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *heap[T]) swap(i, j int) {
	if i == j {
		return
	}
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.index[h.items[i]] = i
	h.index[h.items[j]] = j
}
