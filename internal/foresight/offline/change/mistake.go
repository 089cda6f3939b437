package change

// Part is a part of a change.
type Part string

// The parts.
const (
	OfQuota  Part = "quotas"
	OfDrain  Part = "drains"
	OfDelete Part = "deletes"
	OfSubmit Part = "submit"
	OfFile   Part = "files"
)

// Mistake is an error in one part of a change. Index is its place in its Part, and Field what is wrong in it, "" for all of it. Errors about
// files name these, and have neither.
type Mistake struct {
	Part  Part
	Index int
	Field string
	Err   error
}

func (m *Mistake) Error() string { return m.Err.Error() }

func (m *Mistake) Unwrap() error { return m.Err }

// Mistakes are one or more mistakes. Its text is that of the first.
type Mistakes []*Mistake

func (m Mistakes) Error() string { return m[0].Error() }

// Unwrap returns all of them.
func (m Mistakes) Unwrap() []error {
	out := make([]error, len(m))
	for i := range m {
		out[i] = m[i]
	}
	return out
}
