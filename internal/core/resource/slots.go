package resource

// Slots give numbers to values, so that they are found without a name: what is looked at
// in every cycle has the number of its record and of its namespace. The number of what is
// gone is given to another one.
type Slots[T any] struct {
	All  []T
	Free []int32
}

// Put gives a value a number.
func (s *Slots[T]) Put(v T) (number int32) {
	if last := len(s.Free) - 1; last >= 0 {
		number, s.Free = s.Free[last], s.Free[:last]
		s.All[number] = v
		return number
	}
	s.All = append(s.All, v)
	return int32(len(s.All) - 1)
}

// Drop forgets the value of a number.
func (s *Slots[T]) Drop(number int32) {
	var blank T
	s.All[number] = blank
	s.Free = append(s.Free, number)
}
