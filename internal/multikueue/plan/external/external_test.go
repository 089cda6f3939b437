package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/berth-project/berth/internal/options/transform"
)

// tree parses YAML with whole numbers as int64, as in an object of an API server.
func tree(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.ToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := unmarshal(raw, &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// patches is a framework with given mutations.
type patches struct {
	Expressions
	list []any
}

func (p patches) Mutate(_ string, object, _ map[string]any, apply func(map[string]any, any) (map[string]any, error)) (map[string]any, error) {
	var err error
	for _, patch := range p.list {
		if object, err = apply(object, patch); err != nil {
			return nil, err
		}
	}
	return object, nil
}

func (patches) When(map[string]any) (bool, error) { return true, nil }

func framework(list ...any) *Framework {
	return &Framework{
		Name: "Run.v1.x.dev", Extended: true, Creates: true, Mutates: true, ManagedBy: []string{"spec", "managedBy"}, CopyFields: []string{"spec"},
		MaxBytes: 1 << 20, Reserved: transform.Reserved, Expressions: patches{list: list},
		AnnotationPrefixes: []string{"results.x.dev/"}, SpecPaths: [][]string{{"spec", "status"}},
	}
}

const base = `
apiVersion: x.dev/v1
kind: Run
metadata: {name: r, namespace: ns, labels: {own: l, kueue.x-k8s.io/queue-name: q}, annotations: {a: b, "slash/ed": "1"}}
spec: {managedBy: kueue.x-k8s.io/multikueue, size: 2, list: [1, 2, 3], deep: {er: x}}`

// ops returns operations, each given as op, path and value or from.
func ops(list ...[]any) []any {
	out := []any{}
	for _, o := range list {
		op := map[string]any{"op": o[0], "path": o[1]}
		switch {
		case len(o) > 2 && (o[0] == "move" || o[0] == "copy"):
			op["from"] = o[2]
		case len(o) > 2:
			op["value"] = o[2]
		}
		out = append(out, op)
	}
	return out
}

// TestCreate: allowed and forbidden changes of a creation (spec: 40 §4.13.2, §4.13.3, §7.51 to §7.55).
func TestCreate(t *testing.T) {
	for name, tc := range map[string]struct {
		patch any
		want  string // the changes, as path=value; or the code of the error
	}{
		"nothing":                         {ops(), ""},
		"a field":                         {ops([]any{"replace", "/spec/size", int64(5)}), "/spec/size=5"},
		"a label":                         {ops([]any{"add", "/metadata/labels/new", "x"}), "/metadata/labels/new=\"x\""},
		"a list":                          {ops([]any{"add", "/spec/list/-", int64(4)}, []any{"remove", "/spec/list/0"}), "/spec/list=[2,3,4]"},
		"escaped":                         {ops([]any{"remove", "/metadata/annotations/slash~1ed"}), "/metadata/annotations/slash~1ed=gone"},
		"a move":                          {ops([]any{"move", "/spec/moved", "/spec/deep"}), "/spec/deep/er=gone /spec/moved/er=\"x\""},
		"a copy":                          {ops([]any{"copy", "/spec/moved", "/spec/deep"}), "/spec/moved/er=\"x\""},
		"a test that holds":               {ops([]any{"test", "/spec/size", 2.0}, []any{"add", "/spec/size", int64(3)}), "/spec/size=3"},
		"a test that does not":            {ops([]any{"add", "/spec/size", int64(3)}, []any{"test", "/spec/size", int64(2)}), ""},
		"removed and put back":            {ops([]any{"remove", "/spec/managedBy"}, []any{"add", "/spec/managedBy", "kueue.x-k8s.io/multikueue"}), ""},
		"merged":                          {map[string]any{"spec": map[string]any{"deep": map[string]any{"new": "y"}}}, "/spec/deep/new=\"y\""},
		"a list merged":                   {map[string]any{"spec": map[string]any{"list": []any{}}}, UnsupportedList},
		"null merged":                     {map[string]any{"spec": map[string]any{"size": nil}}, Failed},
		"what is not there":               {ops([]any{"remove", "/spec/none"}), Failed},
		"behind the end":                  {ops([]any{"replace", "/spec/list/3", int64(1)}), Failed},
		"a leading zero":                  {ops([]any{"replace", "/spec/list/01", int64(1)}), Failed},
		"no pointer":                      {ops([]any{"add", "spec/size", int64(1)}), Failed},
		"a bad escape":                    {ops([]any{"add", "/spec/~2", int64(1)}), Failed},
		"into itself":                     {ops([]any{"move", "/spec/deep/er/x", "/spec/deep"}), Failed},
		"an unknown op":                   {ops([]any{"merge", "/spec/size", int64(1)}), Failed},
		"a number that JSON rounds":       {ops([]any{"add", "/spec/size", int64(1) << 60}), Failed},
		"owners":                          {ops([]any{"add", "/metadata/ownerReferences", []any{}}), Forbidden},
		"finalizers":                      {ops([]any{"add", "/metadata/finalizers", []any{"f"}}), Forbidden},
		"the name":                        {ops([]any{"replace", "/metadata/name", "other"}), Forbidden},
		"the kind":                        {ops([]any{"replace", "/kind", "Other"}), Forbidden},
		"a status":                        {ops([]any{"add", "/status", map[string]any{"done": true}}), Forbidden},
		"another field":                   {ops([]any{"add", "/data", "x"}), Forbidden},
		"an empty other field":            {ops([]any{"add", "/data", map[string]any{}}), Forbidden},
		"managedBy":                       {ops([]any{"replace", "/spec/managedBy", "other"}), Forbidden},
		"managedBy by its parent":         {ops([]any{"replace", "/spec", map[string]any{"size": int64(2)}}), Forbidden},
		"the queue's label":               {ops([]any{"remove", "/metadata/labels/kueue.x-k8s.io~1queue-name"}), Forbidden},
		"the queue's label by its map":    {ops([]any{"replace", "/metadata/labels", map[string]any{"own": "l"}}), Forbidden},
		"a reserved key":                  {ops([]any{"add", "/metadata/annotations/x.KUBERNETES.io~1y", "z"}), Forbidden},
		"a label that is no text":         {ops([]any{"add", "/metadata/labels/new", map[string]any{"a": "b"}}), Forbidden},
		"labels that are no map":          {ops([]any{"replace", "/metadata/labels", "x"}), Forbidden},
		"a new object":                    {ops([]any{"replace", "", map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}}}), Forbidden},
		"no object":                       {ops([]any{"replace", "", "x"}), Forbidden},
		"everything removed":              {ops([]any{"remove", ""}), Failed},
		"the name through a copy":         {ops([]any{"copy", "/metadata/name", "/kind"}), Forbidden},
		"metadata moved away and back":    {ops([]any{"move", "/spec/m", "/metadata"}, []any{"replace", "/spec/m/name", "evil"}, []any{"move", "/metadata", "/spec/m"}), Forbidden},
		"doubled again and again":         {ops(doubled(40)...), TooLarge},
		"deep":                            {ops([]any{"add", "/spec/d", nested(70)}), TooLarge},
		"large":                           {ops([]any{"add", "/spec/s", strings.Repeat("x", 1<<20)}), TooLarge},
		"too many operations":             {ops(slices.Repeat([][]any{{"add", "/spec/size", int64(2)}}, 257)...), Failed},
		"no list of operations":           {[]any{"x"}, Failed},
		"an app label of Kubernetes' own": {ops([]any{"add", "/metadata/labels/app.kubernetes.io~1name", "x"}), "/metadata/labels/app.kubernetes.io~1name=\"x\""},
	} {
		t.Run(name, func(t *testing.T) {
			before := tree(t, base)
			kept := runtime.DeepCopyJSON(before)
			got, err := framework(tc.patch).Create(before, &Scope{Cluster: map[string]any{"name": "w1"}})
			if diff := cmp.Diff(kept, before); diff != "" {
				t.Errorf("the base was changed:\n%s", diff)
			}
			if coded := As(err); coded != nil {
				if coded.Code != tc.want || !strings.HasPrefix(coded.Text, "Run.v1.x.dev/creation") || !strings.Contains(coded.Text, `on "w1"`) {
					t.Errorf("got [%s] %s, want %s", coded.Code, coded.Text, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, told(before, got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestManagedByOverlaps: the managedBy field cannot be changed by a path above or below it, in a creation and later. Without such a field no
// path is forbidden for it.
func TestManagedByOverlaps(t *testing.T) {
	for name, tc := range map[string]struct {
		managedBy []string
		patch     any
		want      bool
	}{
		"itself":                        {[]string{"spec", "by"}, ops([]any{"add", "/spec/by", "x"}), false},
		"what it is in, as a text":      {[]string{"spec", "run", "by"}, ops([]any{"add", "/spec/run", "x"}), false},
		"what it is in, empty":          {[]string{"spec", "run", "by"}, ops([]any{"add", "/spec/run", []any{}}), false},
		"what it is in, as it was":      {[]string{"spec", "deep", "by"}, ops([]any{"replace", "/spec/deep", "x"}), false},
		"below it":                      {[]string{"spec", "run"}, ops([]any{"add", "/spec/run", map[string]any{"a": map[string]any{"b": "x"}}}), false},
		"below it, where something was": {[]string{"spec", "deep"}, ops([]any{"replace", "/spec/deep/er", "y"}), false},
		"beside it":                     {[]string{"spec", "deep", "by"}, ops([]any{"replace", "/spec/deep/er", "y"}), true},
		"a longer name":                 {[]string{"spec", "siz"}, ops([]any{"replace", "/spec/size", int64(3)}), true},
		"a shorter name":                {[]string{"spec", "sizes"}, ops([]any{"replace", "/spec/size", int64(3)}), true},
		"no field":                      {nil, ops([]any{"replace", "/spec/size", int64(3)}), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := framework(tc.patch)
			f.ManagedBy = tc.managedBy
			if _, err := f.Create(tree(t, base), &Scope{}); (err == nil) != tc.want || (!tc.want && As(err).Code != Forbidden) {
				t.Errorf("creation: %v", err)
			}
			f.SpecPaths = [][]string{{"spec"}}
			next, err := f.Spec(&Scope{Remote: tree(t, base), Cluster: map[string]any{"name": "w1"}})
			if (err == nil && next != nil) != tc.want || (!tc.want && As(err).Code != SpecFailed) {
				t.Errorf("afterwards: %v, %v", next, err)
			}
		})
	}
}

// TestSpecPaths: only the allowed paths may change on a copy. Maps around them stay, even if they become empty.
func TestSpecPaths(t *testing.T) {
	for name, tc := range map[string]struct {
		paths [][]string
		patch any
		want  string // the changes; or the code of the error
	}{
		"a path":                        {[][]string{{"spec", "deep", "er"}}, ops([]any{"replace", "/spec/deep/er", "y"}), `/spec/deep/er="y"`},
		"removed":                       {[][]string{{"spec", "deep", "er"}}, ops([]any{"remove", "/spec/deep/er"}), "/spec/deep/er=gone"},
		"removed with what is around":   {[][]string{{"spec", "deep", "er"}}, ops([]any{"remove", "/spec/deep/er"}, []any{"remove", "/spec/deep"}), SpecFailed},
		"what is around, at once":       {[][]string{{"spec", "deep", "er"}}, ops([]any{"remove", "/spec/deep"}), SpecFailed},
		"what is around, which is more": {[][]string{{"spec", "deep"}}, ops([]any{"remove", "/spec/deep"}), "/spec/deep/er=gone"},
		"made with what is around":      {[][]string{{"spec", "new", "er"}}, ops([]any{"add", "/spec/new", map[string]any{"er": "y"}}), `/spec/new/er="y"`},
		"beside it":                     {[][]string{{"spec", "siz"}}, ops([]any{"replace", "/spec/size", int64(3)}), SpecFailed},
	} {
		f := framework(tc.patch)
		f.SpecPaths = tc.paths
		next, err := f.Spec(&Scope{Remote: tree(t, base), Cluster: map[string]any{"name": "w1"}})
		got := ""
		if err != nil {
			got = As(err).Code
		} else {
			got = told(tree(t, base), next)
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s (%v)", name, got, tc.want, err)
		}
	}
}

func told(before, after map[string]any) string {
	var out []string
	for _, path := range changes(before, after) {
		value, err := get(after, path)
		text, _ := json.Marshal(value)
		if err != nil {
			text = []byte("gone")
		}
		out = append(out, join(path)+"="+string(text))
	}
	return strings.Join(out, " ")
}

func doubled(n int) [][]any {
	var out [][]any
	for i := range n {
		out = append(out, []any{"copy", fmt.Sprintf("/spec/x%d", i), "/spec"})
	}
	return out
}

func nested(n int) any {
	var out any = "x"
	for range n {
		out = map[string]any{"d": out}
	}
	return out
}

// FuzzGuard: with any operations, the result of a creation has the identity and the reserved keys of the base.
func FuzzGuard(f *testing.F) {
	for _, seed := range []string{
		`[{"op":"replace","path":"","value":{"kind":"Secret"}}]`, `[{"op":"move","from":"/metadata","path":"/spec/m"},{"op":"copy","from":"/spec/m","path":"/metadata"}]`,
		`[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"other"}]`, `[{"op":"add","path":"/metadata/annotations/kueue.x-k8s.io~01a","value":"x"}]`,
		`[{"op":"copy","from":"","path":"/spec/all"},{"op":"move","from":"/spec/all/spec","path":"/spec"}]`, `[{"op":"remove","path":"/metadata/labels"}]`,
		`[{"op":"replace","path":"/spec","value":null}]`, `[{"op":"add","path":"/metadata/","value":{}}]`, `[{"op":"test","path":"/x","value":1}]`,
		`{"metadata":{"name":"other"}}`, `{"spec":{"managedBy":"x"}}`,
	} {
		f.Add(seed)
	}
	before := tree(f, base)
	fixed := func(o map[string]any) string {
		var out []string
		for _, path := range [][]string{
			{"apiVersion"},
			{"kind"},
			{"metadata", "name"},
			{"metadata", "namespace"},
			{"metadata", "ownerReferences"},
			{"metadata", "finalizers"},
			{"metadata", "generateName"},
			{"metadata", "uid"},
			{"status"},
			{"spec", "managedBy"},
		} {
			value, err := get(o, path)
			out = append(out, fmt.Sprint(value, err == nil))
		}
		for _, kind := range []string{"labels", "annotations"} {
			value, _ := get(o, []string{"metadata", kind})
			m, _ := value.(map[string]any)
			for _, key := range sortedKeys(m) {
				if transform.Reserved(key) {
					out = append(out, fmt.Sprint(key, m[key]))
				}
				if _, ok := m[key].(string); !ok {
					out = append(out, "no text: "+key)
				}
			}
		}
		return strings.Join(out, "\n")
	}
	want := fixed(before)
	f.Fuzz(func(t *testing.T, text string) {
		var patch any
		if unmarshal([]byte(text), &patch) != nil {
			return
		}
		out, err := framework(patch).Create(before, &Scope{})
		if err != nil {
			var coded *Error
			if !errors.As(err, &coded) || coded.Code == "" {
				t.Errorf("an error without a code: %v", err)
			}
			return
		}
		if diff := cmp.Diff(want, fixed(out)); diff != "" {
			t.Errorf("%s got through:\n%s", text, diff)
		}
	})
}

// unmarshal reads JSON as an API server's client does.
func unmarshal(raw []byte, into any) error {
	switch into := into.(type) {
	case *map[string]any:
		var value any
		if err := unmarshal(raw, &value); err != nil {
			return err
		}
		m, ok := value.(map[string]any)
		if !ok {
			return errors.New("no map")
		}
		*into = m
		return nil
	case *any:
		wrapped := map[string]any{}
		if err := utiljson.Unmarshal(fmt.Appendf(nil, `{"v":%s}`, raw), &wrapped); err != nil {
			return err
		}
		*into = wrapped["v"]
	}
	return nil
}

// TestMirroredKeys: a key is removed here only after its copy had it and lost it. Keys that the creation dropped, of another copy, or of the
// user stay (spec: 40 §4.13.1).
func TestMirroredKeys(t *testing.T) {
	const r = "results.x.dev/"
	for name, tc := range map[string]struct {
		local  map[string]any   // annotations, and labels alike
		copies []map[string]any // the same of the copy, over time; another "uid" is another copy
		want   map[string]any
	}{
		"left out by the creation":     {map[string]any{r + "a": "1", "own": "x"}, []map[string]any{{}, {}}, map[string]any{r + "a": "1", "own": "x"}},
		"changed there":                {map[string]any{r + "a": "1"}, []map[string]any{{r + "a": "2"}}, map[string]any{r + "a": "2"}},
		"added and removed there":      {nil, []map[string]any{{r + "a": "1", r + "b": "2"}, {r + "b": "2"}}, map[string]any{r + "b": "2"}},
		"the last one is removed":      {map[string]any{"own": "x"}, []map[string]any{{r + "a": "1"}, {}}, map[string]any{"own": "x"}},
		"copied, then removed there":   {map[string]any{r + "a": "1"}, []map[string]any{{r + "a": "1"}, {}}, map[string]any{}},
		"removed, added, removed":      {nil, []map[string]any{{r + "a": "1"}, {}, {r + "a": "2"}, {}}, map[string]any{}},
		"another run never had it":     {nil, []map[string]any{{r + "a": "1"}, {"uid": "2"}}, map[string]any{r + "a": "1"}},
		"another run has it, too":      {nil, []map[string]any{{r + "a": "1"}, {"uid": "2", r + "a": "2"}, {"uid": "2"}}, map[string]any{}},
		"a key without the prefix":     {map[string]any{"own": "x"}, []map[string]any{{"own": "y", "other": "z"}}, map[string]any{"own": "x"}},
		"a note that cannot be read":   {map[string]any{r + "a": "1", MirroredAnnotation: "?"}, []map[string]any{{}}, map[string]any{r + "a": "1"}},
		"a note of keys of the user's": {map[string]any{"own": "x", MirroredAnnotation: `{"copy":"1","annotations":["own"],"labels":["own"]}`}, []map[string]any{{}}, map[string]any{"own": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := framework()
			f.LabelPrefixes = f.AnnotationPrefixes
			job := tree(t, "metadata: {name: r, namespace: ns, labels: {}, annotations: {}}\nspec: {}")
			meta := job["metadata"].(map[string]any)
			for key, value := range tc.local {
				meta["annotations"].(map[string]any)[key] = value
				if key != MirroredAnnotation {
					meta["labels"].(map[string]any)[key] = value
				}
			}
			for _, keys := range tc.copies {
				uid := "1"
				if other, ok := keys["uid"]; ok {
					uid = other.(string)
					delete(keys, "uid")
				}
				remote := map[string]any{"metadata": map[string]any{"uid": uid, "annotations": keys, "labels": maps.Clone(keys)}}
				for pass, changes := range []bool{true, false} { // the second one changes nothing
					next, err := f.Status(&Scope{Local: job, Remote: remote})
					if err != nil {
						t.Fatal(err)
					}
					if pass == 1 && next.Metadata != changes {
						t.Errorf("%v: written again", keys)
					}
					job = next.Object
				}
			}
			annotations := maps.Clone(job["metadata"].(map[string]any)["annotations"].(map[string]any))
			delete(annotations, MirroredAnnotation)
			if diff := cmp.Diff([]any{tc.want, tc.want}, []any{annotations, job["metadata"].(map[string]any)["labels"]}); diff != "" {
				t.Errorf("annotations and labels: %s", diff)
			}
		})
	}
}
