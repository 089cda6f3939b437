package resource

// Slots number values, so that they are found without a name. The number of a removed value is
// reused.
type Slots[T any] struct {
	All  []T
	Free []int32
}

// Put numbers a value.
func (s *Slots[T]) Put(v T) (number int32) {
	if last := len(s.Free) - 1; last >= 0 {
		number, s.Free = s.Free[last], s.Free[:last]
		s.All[number] = v
		return number
	}
	s.All = append(s.All, v)
	return int32(len(s.All) - 1)
}

// Drop removes the value of a number.
func (s *Slots[T]) Drop(number int32) {
	var blank T
	s.All[number] = blank
	s.Free = append(s.Free, number)
}
