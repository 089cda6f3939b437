package transform

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/cel"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func compiled(t testing.TB, text string) (*Framework, field.ErrorList) {
	t.Helper()
	var entry configv1beta2.MultiKueueExternalFramework
	if err := yaml.UnmarshalStrict([]byte(text), &entry); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	out, errs := Compile([]configv1beta2.MultiKueueExternalFramework{entry}, true, field.NewPath("externalFrameworks"))
	return out[0], errs
}

// TestMistakes: invalid configurations, with the fields of their errors (spec: 40 §4.13.1, §7.77).
func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ text, at, says string }{
		"a type":                           {"controllerType: Other", "controllerType", "supported values"},
		"external with more":               {"{controllerType: external, limits: {}}", "limits", "does not go with controllerType"},
		"managedBy outside":                {"managedBy: {path: .status.x}", "managedBy.path", "must be a field"},
		"managedBy in a list":              {"managedBy: {path: '.spec.x[0]'}", "managedBy.path", "must be a field"},
		"managedBy too deep":               {"managedBy: {path: .spec.a.b.c.d.e.f.g.h}", "managedBy.path", "must be a field"},
		"managedBy in a reserved key":      {"managedBy: {path: \".metadata.labels['kueue.x-k8s.io/queue-name']\"}", "managedBy.path", "belongs to"},
		"no worker value":                  {"managedBy: {onWorker: Set}", "managedBy.workerValue", "what the field has"},
		"a worker value for nothing":       {"managedBy: {workerValue: x}", "managedBy.workerValue", "needs onWorker"},
		"a path without a check":           {"managedBy: {mode: None, path: .spec.x}", "managedBy.path", "does not go with mode"},
		"metadata copied":                  {"copyFields: [metadata]", "copyFields[0]", "never copied"},
		"nothing copied":                   {"copyFields: []", "copyFields", "at least one"},
		"a field twice":                    {"copyFields: [spec, spec]", "copyFields[1]", "Duplicate"},
		"a variable twice":                 {"variables: [{name: a, expression: '1'}, {name: a, expression: '1'}]", "variables[1].name", "Duplicate"},
		"a variable of a later one":        {"variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]", "variables[0].expression", "not defined before"},
		"a variable of itself":             {"variables: [{name: a, expression: variables.a}]", "variables[0].expression", "not defined before"},
		"an unused variable that is wrong": {"variables: [{name: a, expression: nothing}]", "variables[0].expression", "nothing is called nothing"},
		"cluster in a precondition":        {"preconditions: [{name: p, expression: cluster.name == 'x'}]", "preconditions[0].expression", "nothing is called cluster"},
		"object in a precondition":         {"preconditions: [{name: p, expression: has(object.spec)}]", "preconditions[0].expression", "nothing is called object"},
		"object through a variable": {
			"{variables: [{name: v, expression: object.spec}, {name: w, expression: variables.v}], preconditions: [{name: p, expression: has(variables.w.x)}]}",
			"preconditions[0].expression", "variable w cannot be used here",
		},
		"an unknown variable":  {"preconditions: [{name: p, expression: variables.x == 1}]", "preconditions[0].expression", "there is no variable x"},
		"variables as a whole": {"{variables: [{name: a, expression: '1'}], preconditions: [{name: p, expression: size(variables) == 1}]}", "preconditions[0].expression", "variables.name only"},
		"variables by a computed key": {
			"{variables: [{name: a, expression: '1'}], preconditions: [{name: p, expression: 'variables[localObject.x] == 1'}]}", "preconditions[0].expression", "variables.name only",
		},
		"no bool":                 {"preconditions: [{name: p, expression: \"'x'\"}]", "preconditions[0].expression", "must give a bool"},
		"no name":                 {"preconditions: [{name: '', expression: 'true'}]", "preconditions[0].name", "Required"},
		"too long":                {"preconditions: [{name: p, expression: \"'" + strings.Repeat("x", 9000) + "' == ''\"}]", "preconditions[0].expression", "longer than"},
		"onError":                 {"creation: {onError: Panic}", "creation.onError", "supported values"},
		"no patch type":           {"creation: {mutations: [{name: m, jsonPatch: {expression: '[]'}}]}", "creation.mutations[0].patchType", "Required"},
		"the other patch":         {"creation: {mutations: [{name: m, patchType: JSONPatch, applyConfiguration: {expression: 'Object{}'}}]}", "creation.mutations[0].applyConfiguration", "does not go with"},
		"a patch that is no list": {"creation: {mutations: [{name: m, patchType: JSONPatch, jsonPatch: {expression: 'Object{}'}}]}", "creation.mutations[0].jsonPatch.expression", "must give a list"},
		"remoteObject too early":  {"creation: {mutations: [{name: m, patchType: JSONPatch, jsonPatch: {expression: 'remoteObject.x'}}]}", "creation.mutations[0].jsonPatch.expression", "nothing is called remoteObject"},
		"a map made by a loop":    {"preconditions: [{name: p, expression: 'localObject.transformMap(k, v, v).all(k, true)'}]", "preconditions[0].expression", "has no order"},
		"status mutations":        {"statusSync: {mutations: [{name: m, patchType: JSONPatch, jsonPatch: {expression: '[]'}}]}", "statusSync.mutations", "needs mode: Mutate"},
		"an empty prefix":         {"statusSync: {metadata: {labelPrefixes: ['']}}", "statusSync.metadata.labelPrefixes[0]", "Required"},
		"a reserved prefix":       {"statusSync: {metadata: {annotationPrefixes: [x.kubernetes.io/]}}", "statusSync.metadata.annotationPrefixes[0]", "belong to"},
		"no allowed path":         {"specSync: {mutations: [{name: m, patchType: JSONPatch, jsonPatch: {expression: '[]'}}]}", "specSync.allowedPaths", "Required"},
		"the whole spec":          {"specSync: {allowedPaths: [/spec]}", "specSync.allowedPaths[0]", "below /spec"},
		"an index":                {"specSync: {allowedPaths: [/spec/list/0]}", "specSync.allowedPaths[0]", "without indices"},
		"managedBy allowed":       {"specSync: {allowedPaths: [/spec/managedBy]}", "specSync.allowedPaths[0]", "managedBy"},
		"what is above managedBy": {"{managedBy: {path: .spec.runPolicy.managedBy}, specSync: {allowedPaths: [/spec/runPolicy]}}", "specSync.allowedPaths[0]", "managedBy"},
		"no lifecycle":            {"lifecycle: {workerIntegration: None}", "lifecycle.finished", "Required"},
		"half a lifecycle":        {"lifecycle: {finished: 'null'}", "lifecycle.finished", "needs workerIntegration"},
		"a raised limit":          {"limits: {costPerPass: 10000001}", "limits.costPerPass", "must be from 1 to 10000000"},
		"no limit":                {"limits: {maxObjectBytes: 0}", "limits.maxObjectBytes", "must be from 1"},
		"too many":                {"variables: [" + strings.TrimSuffix(strings.Repeat("{name: a, expression: '1'},", 17), ",") + "]", "variables", "Too many"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "name: Run.v1.x.dev\n" + tc.text
			if strings.HasPrefix(tc.text, "{") {
				text = "{name: Run.v1.x.dev, " + tc.text[1:]
			}
			_, errs := compiled(t, text)
			for _, err := range errs {
				if err.Field == "externalFrameworks[0]."+tc.at && strings.Contains(err.Error(), tc.says) {
					return
				}
			}
			t.Errorf("want %s: …%s…, got %v", tc.at, tc.says, errs)
		})
	}
	entry := configv1beta2.MultiKueueExternalFramework{Name: "Run.v1.x.dev", CopyFields: []string{"spec"}}
	if _, errs := Compile([]configv1beta2.MultiKueueExternalFramework{entry}, false, nil); len(errs) != 1 || !strings.Contains(errs[0].Error(), "needs featureGates") {
		t.Errorf("with the gate off: %v", errs)
	}
	entry.CopyFields = nil
	if out, errs := Compile([]configv1beta2.MultiKueueExternalFramework{entry}, false, nil); len(errs) > 0 || out[0].Extended {
		t.Errorf("a name alone with the gate off: %v", errs)
	}
}

// TestHostile: valid expressions that are expensive to evaluate (spec: 40 §4.13.4, §7.53).
func TestHostile(t *testing.T) {
	long := []any{}
	for i := range 10000 {
		long = append(long, int64(i))
	}
	scope := map[string]any{"localObject": map[string]any{"list": long, "text": strings.Repeat("a", 5_000), "number": int64(7), "huge": "1e30000000", "tiny": "1e-9999999999999999999"}, "workload": map[string]any{}}
	for name, tc := range map[string]struct {
		expression string
		tooMuch    bool
	}{
		"every pair":              {"localObject.list.all(x, localObject.list.all(y, x + y >= 0))", true},
		"text that doubles":       {"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24].map(i, localObject.text.replace('a', localObject.text)).size() > 0", true},
		"formatted":               {"'%s%s%s%s%s%s%s%s%s%s'.format(localObject.list) == '' || localObject.list.all(x, '%s'.format([localObject.text + localObject.text]) != '')", true},
		"a set":                   {"sets.contains(localObject.list, localObject.list)", true},
		"no two alike":            {"localObject.list.distinct().size() > 0", true},
		"a regex":                 {"localObject.list.all(x, !localObject.text.matches('(a*)*b'))", true},
		"joined":                  {"localObject.list.map(x, localObject.text).join(localObject.text).size() > 0", true},
		"flattened":               {"localObject.list.map(x, localObject.list).flatten().size() > 0", true},
		"flattened deeply":        {"[localObject.list.map(x, localObject.list)].flatten(2).size() > 0", true},
		"a huge quantity":         {"quantity(localObject.huge).isLessThan(quantity('4Gi'))", true},
		"a tiny quantity":         {"isQuantity(localObject.tiny)", true},
		"survives its own error":  {"localObject.list.all(x, localObject.list.all(y, x + y >= 0)) || true", true},
		"a type error":            {"localObject.text + localObject.number == ''", false},
		"no such field":           {"localObject.none.deeper", false},
		"an index out of bounds":  {"localObject.list[20000] == 1", false},
		"division by zero":        {"localObject.number / 0 == 1", false},
		"overflow":                {"localObject.number * 9223372036854775807 == 1", false},
		"a bool that is a number": {"localObject.number", false},
	} {
		t.Run(name, func(t *testing.T) {
			f, errs := compiled(t, "{name: Run.v1.x.dev, preconditions: [{name: p, expression: \""+tc.expression+"\"}]}")
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			began := time.Now()
			_, _, _, err := f.Preconditions(scope)
			var failure *Failure
			if !errors.As(err, &failure) || failure.TooMuch() != tc.tooMuch {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > wait.Patience { // without a limit of its cost it would take hours
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestLargeValues: values far larger than their inputs are refused.
func TestLargeValues(t *testing.T) {
	long := []any{}
	for i := range 3000 {
		long = append(long, int64(i))
	}
	vars := map[string]any{"object": map[string]any{"list": long}}
	for text, want := range map[string]bool{
		"object.list": false,
		"object.list.map(x, {'all': object.list})":                                   true,
		"[JSONPatch{op: 'add', path: '/x', value: object.list}]":                     false,
		"[JSONPatch{op: 'add', path: '/x', value: object.list.map(x, object.list)}]": true,
		"Object{spec: Object.spec{x: object.list}}":                                  false,
		"Object{spec: Object.spec{x: object.list.map(x, object.list)}}":              true,
		"optional.of(object.list.map(x, object.list))":                               true,
	} {
		e, err := cel.Compile("it", text, cel.Scope{Names: []string{"object"}, Patches: true}, cel.Any)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if _, err = e.Eval(vars); errors.Is(err, cel.ErrTooMuch) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestPassCost: many cheap expressions exceed the limit of a pass.
func TestPassCost(t *testing.T) {
	f, errs := compiled(t, `
name: Run.v1.x.dev
variables: [{name: loop, expression: "localObject.list.filter(x, x > 0)"}]
preconditions:
- {name: a, expression: variables.loop.size() > 0}
- {name: b, expression: "localObject.list.all(x, x >= 0)"}
limits: {costPerPass: 500}`)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	list := []any{}
	for i := range 60 {
		list = append(list, int64(i))
	}
	_, _, _, err := f.Preconditions(map[string]any{"localObject": map[string]any{"list": list}})
	var failure *Failure
	if !errors.As(err, &failure) || !failure.TooMuch() {
		t.Errorf("got %v", err)
	}
	if _, _, ok, err := f.Preconditions(map[string]any{"localObject": map[string]any{"list": list[:3]}}); err != nil || !ok {
		t.Errorf("a small object: %v, %v", ok, err)
	}
}

// TestLazyVariables: a variable is only evaluated if it is read.
func TestLazyVariables(t *testing.T) {
	f, errs := compiled(t, `
name: Run.v1.x.dev
variables:
- {name: broken, expression: localObject.none}
- {name: base, expression: localObject.n}
- {name: double, expression: variables.base * 2}
preconditions: [{name: p, expression: "localObject.n == 3 ? variables.double == 6 : variables.broken == 1"}]`)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if _, _, ok, err := f.Preconditions(map[string]any{"localObject": map[string]any{"n": int64(3)}}); err != nil || !ok {
		t.Errorf("got %v, %v", ok, err)
	}
	if _, _, _, err := f.Preconditions(map[string]any{"localObject": map[string]any{"n": int64(4)}}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
}

// TestSameBytes: a mutation over the keys of a map always returns the same patch (spec: 40 §7.75).
func TestSameBytes(t *testing.T) {
	f, errs := compiled(t, `
name: Run.v1.x.dev
creation:
  mutations:
  - name: m
    patchType: JSONPatch
    jsonPatch:
      expression: "object.metadata.annotations.map(k, JSONPatch{op: 'add', path: '/spec/' + jsonpatch.escapeKey(k), value: {'b': 1, 'a': [object.metadata.annotations[k]]}})"`)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	annotations := map[string]any{}
	for i := range 20 {
		annotations[fmt.Sprintf("key~%d/x", i)] = fmt.Sprint(i)
	}
	object := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	var first any
	for range 300 {
		if _, err := f.Mutate(Creation, object, map[string]any{}, func(o map[string]any, patch any) (map[string]any, error) {
			if first == nil {
				first = patch
			}
			if diff := cmp.Diff(first, patch); diff != "" {
				t.Fatalf("another patch:\n%s", diff)
			}
			return o, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	op := first.([]any)[0].(map[string]any)
	if op["path"] != "/spec/key~00~1x" {
		t.Errorf("the first operation is %v", op)
	}
}

// TestPatches: the forms of patches.
func TestPatches(t *testing.T) {
	for expression, want := range map[string]any{
		`[JSONPatch{op: "add", path: "/a", value: Object.spec{x: [1, Object.spec.x{y: dyn("z")}]}}]`: []any{map[string]any{
			"op": "add", "path": "/a", "value": map[string]any{"x": []any{int64(1), map[string]any{"y": "z"}}},
		}},
		`[JSONPatch{op: "move", from: "/b", path: "/a"}, JSONPatch{op: "test", path: "/a", value: null}]`: []any{
			map[string]any{"op": "move", "path": "/a", "from": "/b"}, map[string]any{"op": "test", "path": "/a", "value": nil},
		},
		`object.n > 1 ? [JSONPatch{op: "remove", path: "/n"}] : []`: []any{map[string]any{"op": "remove", "path": "/n"}},
	} {
		check(t, "JSONPatch", "jsonPatch", expression, want)
	}
	for expression, want := range map[string]any{
		`Object{spec: Object.spec{status: "Pending", n: object.n, m: {"a": {"b": 1.5}}}}`: map[string]any{
			"spec": map[string]any{"status": "Pending", "n": int64(2), "m": map[string]any{"a": map[string]any{"b": 1.5}}},
		},
		`Object{}`: map[string]any{},
		`Object{spec: Object.spec{list: [1, 2]}}`: map[string]any{"spec": map[string]any{"list": []any{int64(1), int64(2)}}},
	} {
		check(t, "ApplyConfiguration", "applyConfiguration", expression, want)
	}
}

func check(t *testing.T, kind, name, expression string, want any) {
	t.Helper()
	f, errs := compiled(t, fmt.Sprintf("name: Run.v1.x.dev\ncreation:\n  mutations:\n  - name: m\n    patchType: %s\n    %s:\n      expression: >-\n        %s\n", kind, name, expression))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	_, err := f.Mutate(Creation, map[string]any{"n": int64(2)}, map[string]any{}, func(o map[string]any, patch any) (map[string]any, error) {
		if diff := cmp.Diff(want, patch); diff != "" {
			t.Errorf("%s -want +got:\n%s", expression, diff)
		}
		return o, nil
	})
	if err != nil {
		t.Errorf("%s: %v", expression, err)
	}
}

// TestExample compiles the configuration of the documentation.
func TestExample(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/examples/multicluster/tekton.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c configv1beta2.Configuration
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		t.Fatal(err)
	}
	if _, errs := Compile(c.MultiKueue.ExternalFrameworks, true, nil); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

// TestObserved: every pass is observed with its result and cost.
func TestObserved(t *testing.T) {
	f, errs := compiled(t, `
name: Run.v1.x.dev
preconditions: [{name: p, expression: "localObject.list.all(x, x >= 0)"}]
limits: {costPerExpression: 1000}`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var got []string
	var costs []uint64
	f.Observed = func(phase, result string, cost uint64, _ time.Duration) {
		got, costs = append(got, phase+" "+result), append(costs, cost)
	}
	long := make([]any, 10_000)
	for i := range long {
		long[i] = int64(i)
	}
	for _, list := range []any{[]any{int64(1)}, "no list", long} {
		_, _, _, _ = f.Preconditions(map[string]any{"localObject": map[string]any{"list": list}}) // the result is tested above
	}
	if diff := cmp.Diff([]string{"precondition success", "precondition error", "precondition too_costly"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if costs[0] == 0 || costs[2] < 1000 {
		t.Errorf("costs %v", costs)
	}
}
