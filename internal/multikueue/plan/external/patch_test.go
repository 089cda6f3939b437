package external

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestApplyJSON: the subtle cases of RFC 6902.
func TestApplyJSON(t *testing.T) {
	type m = map[string]any
	op := func(verb, path string, rest ...any) []any {
		o := m{"op": verb, "path": path}
		for i := 0; i+1 < len(rest); i += 2 {
			o[rest[i].(string)] = rest[i+1]
		}
		return []any{o}
	}
	object := func() m { return m{"l": []any{"a", "b"}, "x": m{"y": "z"}, "~1": "odd"} }
	for name, tc := range map[string]struct {
		patch []any
		want  m
		err   string
	}{
		"replaces in a list":            {op("replace", "/l/0", "value", "c"), m{"l": []any{"c", "b"}, "x": m{"y": "z"}, "~1": "odd"}, ""},
		"inserts into a list":           {op("add", "/l/0", "value", "c"), m{"l": []any{"c", "a", "b"}, "x": m{"y": "z"}, "~1": "odd"}, ""},
		"adds at the end":               {op("add", "/l/-", "value", "c"), m{"l": []any{"a", "b", "c"}, "x": m{"y": "z"}, "~1": "odd"}, ""},
		"the end is no entry":           {op("replace", "/l/-", "value", "c"), nil, "no place"},
		"an escaped tilde before a one": {op("replace", "/~01", "value", "even"), m{"l": []any{"a", "b"}, "x": m{"y": "z"}, "~1": "even"}, ""},
		"replaces what is not there":    {op("replace", "/q", "value", "c"), nil, "does not exist"},
		"moves into itself":             {op("move", "/x/in", "from", "/x"), nil, "into itself"},
		"a number too low":              {op("add", "/q", "value", -int64(maxNumber)-1), nil, "too large"},
		"a number too high":             {op("add", "/q", "value", int64(maxNumber)+1), nil, "too large"},
		"the lowest number":             {op("add", "/x/y", "value", -int64(maxNumber)), m{"l": []any{"a", "b"}, "x": m{"y": -int64(maxNumber)}, "~1": "odd"}, ""},
	} {
		got, err := applyJSON(object(), tc.patch, 1000)
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) || tc.err == "" && err != nil {
			t.Errorf("%s: error %v, want %q", name, err, tc.err)
		}
		if tc.err == "" && !cmp.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// TestChanges: null in place of an absent field is a change.
func TestChanges(t *testing.T) {
	type m = map[string]any
	if got := changes(m{}, m{"a": nil}); !cmp.Equal(got, [][]string{{"a"}}) {
		t.Errorf("null: %v", got)
	}
}

// rules are expressions with constant results.
type rules struct {
	Expressions
	ok, now bool
}

func (r rules) Preconditions(map[string]any) (name, message string, ok bool, err error) {
	return "rule", "no", r.ok, nil
}
func (r rules) When(map[string]any) (bool, error) { return r.now, nil }

// TestFramework: the options of a framework besides its mutations.
func TestFramework(t *testing.T) {
	type m = map[string]any
	reserved := func(key string) bool { return strings.HasPrefix(key, "k8s.io/") }
	f := &Framework{
		Name: "f", Extended: true, Preconditions: true, ManagedBy: []string{"spec", "managedBy"}, MaxBytes: 1000, Reserved: reserved,
		AnnotationPrefixes: []string{"our/", "k8s.io/"}, WorkerValue: new("there"), Expressions: rules{ok: false, now: false},
	}
	if e := f.Precondition(&Scope{}); e == nil || e.Code != Precondition || !strings.Contains(e.Text, `"rule": no`) {
		t.Errorf("precondition: %v", e)
	}
	if got, err := f.Status(&Scope{Local: m{}, Remote: m{"status": m{"a": "b"}}}); err != nil || !got.Deferred || got.Status {
		t.Errorf("not yet: %+v, %v", got, err)
	}
	f.Expressions = rules{ok: true, now: true}
	if e := f.Precondition(&Scope{}); e != nil {
		t.Errorf("precondition: %v", e)
	}
	copied := m{"spec": m{"managedBy": "here"}}
	if f.Release(copied); !cmp.Equal(copied, m{"spec": m{"managedBy": "there"}}) {
		t.Errorf("on the worker: %v", copied)
	}
	annotations := func(a m) m { return m{"metadata": m{"annotations": a}} }
	const had, has = `{"copy":"","annotations":["k8s.io/x","mine","our/gone"]}`, `{"copy":"","annotations":["our/new"]}`
	local := annotations(m{"our/gone": "1", "mine": "2", "k8s.io/x": "3", "our/mine": "7", MirroredAnnotation: had})
	got, err := f.Status(&Scope{Local: local, Remote: annotations(m{"our/new": "4", "k8s.io/x": "5", "theirs": "6"})})
	if want := annotations(m{"our/new": "4", "mine": "2", "k8s.io/x": "3", "our/mine": "7", MirroredAnnotation: has}); err != nil || !got.Metadata || !cmp.Equal(got.Object, want) {
		t.Errorf("keys: %v, %v", got.Object, err)
	}
	if f.mayFollow([]string{"metadata", "annotations", "k8s.io/x"}) || !f.mayFollow([]string{"metadata", "annotations", "our/x"}) {
		t.Error("which keys may follow")
	}
	if plain(m{"metadata": m{"managedFields": "x", "name": "n"}})["metadata"].(m)["managedFields"] != nil {
		t.Error("who wrote what is nobody's business")
	}
	for phase, want := range map[string]string{creation: Forbidden, statusSync: StatusFailed, specSync: SpecFailed} {
		if e := f.fail(phase, "w1", Failed, forbidden(nil)); e.Code != want {
			t.Errorf("%s: %s", phase, e.Code)
		}
	}
	if !errors.As(error(f.fail(creation, "", Failed, errors.New("x"))), new(*Error)) {
		t.Error("no error of ours")
	}
}
