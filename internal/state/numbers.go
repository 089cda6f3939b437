package state

// slots gives numbers to values, so that they are found without a name: what is looked at
// in every cycle has the number of its record and of its namespace. The number of what is
// gone is given to another one.
type slots[T any] struct {
	all  []T
	free []int32
}

func (s *slots[T]) put(v T) (number int32) {
	if last := len(s.free) - 1; last >= 0 {
		number, s.free = s.free[last], s.free[:last]
		s.all[number] = v
		return number
	}
	s.all = append(s.all, v)
	return int32(len(s.all) - 1)
}

func (s *slots[T]) drop(number int32) {
	var blank T
	s.all[number] = blank
	s.free = append(s.free, number)
}

// space is a namespace that exists, or that classes are of.
type space struct {
	labels  map[string]string
	exists  bool
	classes int32
}

// space returns the number of a namespace, which it gets with its first class or when it
// is made.
func (s *State) space(name string) int32 {
	number, known := s.namespaces[name]
	if !known {
		number = s.spaces.put(space{})
		s.namespaces[name] = number
	}
	return number
}

// sweepSpace forgets a namespace that does not exist and that nobody is in.
func (s *State) sweepSpace(name string) {
	number := s.namespaces[name]
	if n := &s.spaces.all[number]; !n.exists && n.classes == 0 {
		delete(s.namespaces, name)
		s.spaces.drop(number)
	}
}

// newRecord files a blank record of a UID.
func (s *State) newRecord(uid string) *record {
	r := &record{}
	r.number = s.byNumber.put(r)
	s.records[uid] = r
	return r
}
