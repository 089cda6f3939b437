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
	r.first.UID, r.first.Key, r.first.Record = uid, key, s.byNumber.Put(r)
	s.records[uid] = r
}
