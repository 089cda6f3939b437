package state

// space is a namespace that exists, or that classes refer to.
type space struct {
	labels  map[string]string
	exists  bool
	classes int32
}

// space returns the number of a namespace, a new one on first use.
func (s *State) space(name string) int32 {
	number, known := s.namespaces[name]
	if !known {
		number = s.spaces.Put(space{})
		s.namespaces[name] = number
	}
	return number
}

// sweepSpace forgets a namespace that does not exist and has no classes.
func (s *State) sweepSpace(name string) {
	number := s.namespaces[name]
	if n := &s.spaces.All[number]; !n.exists && n.classes == 0 {
		delete(s.namespaces, name)
		s.spaces.Drop(number)
	}
}

// newRecord makes a blank record of a UID and a key.
func (s *State) newRecord(uid, key string) *record {
	r := &record{}
	s.addRecord(r, uid, key)
	return r
}

// addRecord gives a zero record a UID, a key and a number.
func (s *State) addRecord(r *record, uid, key string) {
	r.def = undefined
	r.first.UID, r.first.Key, r.first.Record = uid, key, s.byNumber.put(r)
	s.records[uid] = r
}

// pieces is an array that grows without a copy. A copy of a large array takes milliseconds: while garbage is collected, its owner has to
// mark as much as it allocates.
type pieces[T any] struct{ of []*[pieceLen]T }

const pieceLen = 1024

// at returns the element of a number, nil past the end.
func (p *pieces[T]) at(number int32) *T {
	if int(number) >= pieceLen*len(p.of) {
		return nil
	}
	return &p.of[number/pieceLen][number%pieceLen]
}

// reach is at for an array that reaches as far.
func (p *pieces[T]) reach(number int32) *T {
	for int(number) >= pieceLen*len(p.of) {
		p.of = append(p.of, new([pieceLen]T))
	}
	return p.at(number)
}

// numbered is the records by number. The number of a deleted record is reused.
type numbered struct {
	pieces[*record]
	len  int32
	free []int32
}

// record returns the record of a number, nil if it was deleted.
func (n *numbered) record(number int32) *record { return *n.at(number) }

// put numbers a record.
func (n *numbered) put(r *record) (number int32) {
	if last := len(n.free) - 1; last >= 0 {
		number, n.free = n.free[last], n.free[:last]
	} else {
		number = n.len
		n.len++
	}
	*n.reach(number) = r
	return number
}

// drop removes the record of a number.
func (n *numbered) drop(number int32) {
	*n.at(number) = nil
	n.free = append(n.free, number)
}
