package v1beta2

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestNanoseconds(t *testing.T) {
	for name, tc := range map[string]struct {
		in, out string
		want    time.Duration
		bad     bool
	}{
		"number":   {in: "120000000000", want: 2 * time.Minute, out: `"2m0s"`},
		"text":     {in: `"90s"`, want: 90 * time.Second, out: `"1m30s"`},
		"zero":     {in: "0", out: `"0s"`},
		"fraction": {in: "1.5", bad: true},
		"words":    {in: `"two minutes"`, bad: true},
		"object":   {in: "{}", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			var n Nanoseconds
			err := json.Unmarshal([]byte(tc.in), &n)
			if tc.bad {
				if err == nil || !strings.Contains(err.Error(), "want a duration") {
					t.Errorf("want an error that names the expected value, got %v", err)
				}
				return
			}
			if err != nil || n.Duration != tc.want {
				t.Fatalf("got %v, %v; want %v", n, err, tc.want)
			}
			if out, err := json.Marshal(n); err != nil || string(out) != tc.out {
				t.Errorf("written as %s, %v; want %s", out, err, tc.out)
			}
		})
	}
}

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if o, err := s.New(GroupVersion.WithKind(Kind)); err != nil {
		t.Error(err)
	} else if _, ok := o.(*Configuration); !ok {
		t.Errorf("%s is a %T", Kind, o)
	}
}

// A bare configuration is written without the sections that it does not set.
func TestEmptySectionsAreNotWritten(t *testing.T) {
	out, err := json.Marshal(Configuration{})
	if err != nil || string(out) != "{}" {
		t.Errorf("got %s, %v; want {}", out, err)
	}
}

// Every field needs a JSON name that begins in lower case and an omit rule or
// a reason (required fields have none).
func TestFieldNames(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[typ] || typ.PkgPath() != reflect.TypeFor[Configuration]().PkgPath() {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.Anonymous && (name == "" || name[0] < 'a' || name[0] > 'z') {
				t.Errorf("%s.%s has the JSON name %q", typ.Name(), f.Name, name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Configuration]())
	if len(seen) < 20 {
		t.Errorf("walked only %d types", len(seen))
	}
}
