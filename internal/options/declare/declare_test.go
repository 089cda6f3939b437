package declare

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/cel"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

var taken = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}

// valid is a declaration without mistakes.
func valid() *configv1beta2.DeclaredKind {
	return &configv1beta2.DeclaredKind{
		Name: "Crew.v1.crew.example.com", Suspend: configv1beta2.SuspendField{Path: "spec.suspend"},
		PodSets:  `object.spec.roles.map(r, {"name": r, "count": object.spec.roles[r].replicas, "path": "spec.roles." + r + ".template"})`,
		Started:  "has(object.status) && object.status.active > 0",
		Finished: `has(object.status) && has(object.status.phase) ? {"success": object.status.phase == "Done", "message": "it is " + object.status.phase} : {}`,
	}
}

func compiled(t *testing.T, change func(*configv1beta2.DeclaredKind)) *Kind {
	t.Helper()
	k := valid()
	if change != nil {
		change(k)
	}
	out, errs := Compile([]configv1beta2.DeclaredKind{*k}, nil, field.NewPath("kinds"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return out[0]
}

func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return whole(out).(map[string]any)
}

// whole converts floats to whole numbers, as the API server's client does.
func whole(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = whole(v[key])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case float64:
		return int64(v)
	}
	return value
}

func TestMistakesOfAFile(t *testing.T) {
	long := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	for name, test := range map[string]struct {
		change func(*configv1beta2.DeclaredKind)
		want   string
	}{
		"unknown name": {
			func(k *configv1beta2.DeclaredKind) { k.Started = "objekt.status.active > 0" },
			`kinds[0].started: Invalid value: "objekt.status.active > 0": Crew.v1.crew.example.com: line 1, column 1: nothing is called objekt; did you mean object?`,
		},
		"syntax": {
			func(k *configv1beta2.DeclaredKind) { k.Ready = "object.status.active >" },
			`kinds[0].ready: Invalid value: "object.status.active >": Crew.v1.crew.example.com: line 1, column 23: Syntax error: mismatched input '<EOF>' expecting ` +
				`{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}; look for a missing bracket, quote or comma before that`,
		},
		"second line": {
			func(k *configv1beta2.DeclaredKind) { k.Started = "true &&\n  1 == 'a'" },
			`kinds[0].started: Invalid value: "true && 1 == 'a'": Crew.v1.crew.example.com: line 2, column 5: found no matching overload for '_==_' applied to '(int, string)'; ` +
				"the types do not go together: convert one, as with int(…) or string(…)",
		},
		"wrong type": {
			func(k *configv1beta2.DeclaredKind) { k.Started = "size(object.spec.roles)" },
			`kinds[0].started: Invalid value: "size(object.spec.roles)": Crew.v1.crew.example.com: gives int and must give a bool: compare something, such as object.spec.phase == "Done"`,
		},
		"null where it may not be": {
			func(k *configv1beta2.DeclaredKind) { k.PodSets = "null" },
			`kinds[0].podSets: Invalid value: "null": Crew.v1.crew.example.com: gives null_type and must give a list: put the entries in brackets: […, …]`,
		},
		"pod sets where there are none": {
			func(k *configv1beta2.DeclaredKind) { k.Stop = `{"spec": {"x": podSets[0].count}}` },
			`kinds[0].stop: Invalid value: "{\"spec\": {\"x\": podSets[0].count}}": Crew.v1.crew.example.com: line 1, column 16: nothing is called podSets; known here: object, and the functions of CEL`,
		},
		"missing": {
			func(k *configv1beta2.DeclaredKind) { k.Finished = " " },
			`kinds[0].finished: Required value: Crew.v1.crew.example.com: an expression such as ` + examples["finished"],
		},
		"too long": {
			func(k *configv1beta2.DeclaredKind) { k.Started = "true" + strings.Repeat(" ", cel.MaxLength) },
			`kinds[0].started: Invalid value: "true": Crew.v1.crew.example.com: is longer than 8192 bytes: make it shorter`,
		},
		"too dear": {
			func(k *configv1beta2.DeclaredKind) {
				k.Started = fmt.Sprintf("size(%s.map(a, %s.map(b, %s.map(c, a * b * c)))) > 0", long(120), long(120), long(120))
			},
			"loop over less",
		},
		"suspend outside of the spec": {
			func(k *configv1beta2.DeclaredKind) { k.Suspend.Path = "status.suspend" },
			`kinds[0].suspend.path: Invalid value: "status.suspend": must be a field below spec, such as spec.suspend: names with dots between them`,
		},
		"suspend in a list": {
			func(k *configv1beta2.DeclaredKind) { k.Suspend.Path = "spec.roles[0].suspend" },
			"must be a field below spec",
		},
		"no suspend":   {func(k *configv1beta2.DeclaredKind) { k.Suspend.Path = "" }, "kinds[0].suspend.path: Required value"},
		"only resume":  {func(k *configv1beta2.DeclaredKind) { k.Suspend.Resume = "Run" }, "kinds[0].suspend.resume: Forbidden: needs value"},
		"resume twice": {func(k *configv1beta2.DeclaredKind) { k.Suspend.Value, k.Suspend.Resume = "A", "A" }, "must not be the same as value"},
		"no name":      {func(k *configv1beta2.DeclaredKind) { k.Name = "" }, "kinds[0].name: Required value: must have the form Kind.version.group"},
		"name":         {func(k *configv1beta2.DeclaredKind) { k.Name = "crew" }, `kinds[0].name: Invalid value: "crew": must have the form Kind.version.group`},
		"taken":        {func(k *configv1beta2.DeclaredKind) { k.Name = "Job.v2.batch" }, `kinds[0].name: Duplicate value: "Job.v2.batch"`},
		"resource":     {func(k *configv1beta2.DeclaredKind) { k.Resource = "Crews/x" }, `kinds[0].resource: Invalid value: "Crews/x"`},
	} {
		t.Run(name, func(t *testing.T) {
			k := valid()
			test.change(k)
			_, errs := Compile([]configv1beta2.DeclaredKind{*k}, []schema.GroupVersionKind{taken}, field.NewPath("kinds"))
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) {
				t.Errorf("got  %v\nwant %s", errs.ToAggregate(), test.want)
			}
		})
	}
}

const crewJob = `
spec:
  suspend: true
  roles:
    zulu: {replicas: 2, template: {spec: {a: z}}}
    alpha: {replicas: 1, template: {spec: {a: a}}}
    mike: {replicas: 3, template: {spec: {a: m}}}
status: {active: 1}
`

func TestPodSetsComeInOneOrder(t *testing.T) {
	k := compiled(t, nil)
	for range 50 {
		sets, err := k.PodSets(tree(t, crewJob))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range sets {
			got = append(got, fmt.Sprintf("%s:%d:%s:%v", s.Name, *s.Count, s.Path, s.Template))
		}
		want := []string{
			"alpha:1:spec.roles.alpha.template:map[spec:map[a:a]]", "mike:3:spec.roles.mike.template:map[spec:map[a:m]]",
			"zulu:2:spec.roles.zulu.template:map[spec:map[a:z]]",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	literal := compiled(t, func(k *configv1beta2.DeclaredKind) {
		k.PodSets = `{"z": 1, "a": 2, "m": 3, "b": 4}.map(k, {"name": k, "count": 1, "template": {"spec": {}}})`
	})
	for range 50 {
		sets, err := literal.PodSets(nil)
		if err != nil || sets[0].Name+sets[1].Name+sets[2].Name+sets[3].Name != "abmz" {
			t.Fatal(sets, err)
		}
	}
}

func TestPodSetsThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ expression, want string }{
		"no map":       {`["a"]`, `entry 0: is "a" and not a map with name, count, minCount, path, template`},
		"unknown key":  {`[{"name": "a", "count": 1, "replicas": 2}]`, `has "replicas": only name, count, minCount, path, template are read`},
		"no name":      {`[{"count": 1, "path": "spec.roles.mike.template"}]`, "has the name nothing: it must be a DNS label"},
		"bad name":     {`[{"name": "a b", "count": 1, "path": "spec.roles.mike.template"}]`, `has the name "a b"`},
		"no count":     {`[{"name": "a", "path": "spec.roles.mike.template"}]`, "a has no count"},
		"text count":   {`[{"name": "a", "count": "1", "path": "spec.roles.mike.template"}]`, `has the count "1": it must be a whole number of pods`},
		"half a pod":   {`[{"name": "a", "count": 0.5, "path": "spec.roles.mike.template"}]`, "has the count 0.5"},
		"fewer than 0": {`[{"name": "a", "count": 1, "minCount": -1, "path": "spec.roles.mike.template"}]`, "has the minCount -1"},
		"no template":  {`[{"name": "a", "count": 1}]`, "needs either a path"},
		"both":         {`[{"name": "a", "count": 1, "path": "spec.roles.mike.template", "template": {}}]`, "needs either a path"},
		"nowhere":      {`[{"name": "a", "count": 1, "path": "spec.roles.bravo.template"}]`, "a has the path spec.roles.bravo.template, where the job has no pod template"},
		"absent field": {`[{"name": "a", "count": object.spec.size, "template": {}}]`, "no such key: size: ask with has() before"},
		"no list":      {`object.spec`, "gives a map with roles, suspend and must give a list"},
		"endless": {
			`[1,2,3,4,5,6,7,8,9,10].map(a, object.spec.many.filter(b, object.spec.many.exists(c, b == c + 1)))`,
			"on this object: loop over less", // either limit, depending on the machine
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := compiled(t, func(k *configv1beta2.DeclaredKind) { k.PodSets = test.expression })
			o := tree(t, crewJob)
			var many []any
			for i := range int64(1000) {
				many = append(many, i)
			}
			if name == "endless" {
				o["spec"].(map[string]any)["many"] = many
			}
			_, err := k.PodSets(o)
			if err == nil || !strings.HasPrefix(err.Error(), "Crew.v1.crew.example.com podSets (") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestLimits evaluates expressions that are cheap to compile and expensive to run: each limit stops one that the other permits.
func TestLimits(t *testing.T) {
	texts := make([]any, 50)
	for i := range texts {
		texts[i] = strings.Repeat("a", 10_000)
	}
	numbers := func(n int) []any {
		out := make([]any, n)
		for i := range out {
			out[i] = int64(i)
		}
		return out
	}
	for name, test := range map[string]struct {
		expression string
		spec       map[string]any
		want       string
	}{
		"cost": { // a regular expression costs its length times the length of the text, and is fast
			`object.spec.texts.all(t, !t.matches("(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)(b|c)"))`,
			map[string]any{"texts": texts},
			"costs more than 1000000 on this object: loop over less",
		},
		"time": { // comparing deeply nested lists costs little, and takes long
			`object.spec.many.all(i, object.spec.left == object.spec.right)`,
			map[string]any{"many": numbers(20_000), "left": []any{numbers(20_000)}, "right": []any{numbers(20_000)}},
			"took longer than 1s on this object: loop over less",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := compiled(t, func(k *configv1beta2.DeclaredKind) { k.Started = test.expression })
			start := time.Now()
			_, err := k.Started(map[string]any{"spec": test.spec})
			if err == nil || !strings.HasPrefix(err.Error(), "Crew.v1.crew.example.com started (") || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if took := time.Since(start); took > wait.Patience { // without its limit it would take hours
				t.Errorf("it took %s", took)
			}
			little := map[string]any{"texts": []any{"a"}, "many": numbers(2), "left": numbers(2), "right": numbers(2)}
			if ok, err := k.Started(map[string]any{"spec": little}); err != nil || !ok {
				t.Errorf("on a small object: %v, %v", ok, err)
			}
		})
	}
}

func TestWhatAJobTells(t *testing.T) {
	k := compiled(t, func(k *configv1beta2.DeclaredKind) {
		k.Ready, k.Reclaimable = "object.status.ready == 3.0", `{"alpha": object.status.?through.orValue(0)}`
	})
	o := tree(t, "{spec: {suspend: false}, status: {active: 0, ready: 3, through: 2, phase: Done}}")
	started, err := k.Started(o)
	if err != nil || started {
		t.Error(started, err)
	}
	ready, err := k.Ready(o)
	if err != nil || !ready {
		t.Error(ready, err)
	}
	reclaimable, err := k.Reclaimable(o)
	if err != nil || !k.HasReclaimable() || reclaimable["alpha"] != 2 {
		t.Error(reclaimable, err)
	}
	end, err := k.Finished(o)
	if diff := cmp.Diff(&End{Success: true, Message: "it is Done"}, end); diff != "" || err != nil {
		t.Error(diff, err)
	}
	delete(o["status"].(map[string]any), "phase")
	if end, err := k.Finished(o); end != nil || err != nil {
		t.Error(end, err)
	}
	odd := compiled(t, func(k *configv1beta2.DeclaredKind) { k.Finished = `{"success": "yes"}` })
	if _, err := odd.Finished(o); err == nil || !strings.Contains(err.Error(), "success, a bool") {
		t.Error(err)
	}
	odd = compiled(t, func(k *configv1beta2.DeclaredKind) { k.Started = `object.spec.suspend ? true : object.status.active` })
	if _, err := odd.Started(o); err == nil || !strings.Contains(err.Error(), "gives 0 and must give a bool") {
		t.Error(err)
	}
	if def := compiled(t, nil); def.Resource != "crews" || def.HasInject() || def.HasStop() || def.HasReclaimable() {
		t.Error(def)
	} else if ready, err := def.Ready(tree(t, crewJob)); err != nil || !ready {
		t.Error("ready is started unless it is said", ready, err)
	}
}

func TestSuspend(t *testing.T) {
	flag := compiled(t, nil)
	state := compiled(t, func(k *configv1beta2.DeclaredKind) {
		k.Suspend = configv1beta2.SuspendField{Path: ".spec.run.state", Value: "Waiting"}
	})
	word := compiled(t, func(k *configv1beta2.DeclaredKind) {
		k.Suspend = configv1beta2.SuspendField{Path: "spec.state", Value: "Waiting", Resume: "Go"}
	})
	for name, test := range map[string]struct {
		kind              *Kind
		before            string
		suspended         bool
		waiting, resuming string
	}{
		"absent":      {flag, "{}", false, "{spec: {suspend: true}}", "{spec: {suspend: false}}"},
		"a bool":      {flag, "{spec: {suspend: true, a: b}}", true, "{spec: {suspend: true, a: b}}", "{spec: {suspend: false, a: b}}"},
		"text, there": {state, "{spec: {run: {state: Waiting, a: b}}}", true, "{spec: {run: {state: Waiting, a: b}}}", "{spec: {run: {a: b}}}"},
		"text, not":   {state, "{spec: {a: b}}", false, "{spec: {a: b, run: {state: Waiting}}}", "{spec: {a: b}}"},
		"two texts":   {word, "{spec: {state: Go}}", false, "{spec: {state: Waiting}}", "{spec: {state: Go}}"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tree(t, test.before)
			if got := test.kind.Suspended(o); got != test.suspended {
				t.Errorf("suspended %v", got)
			}
			test.kind.Suspend(o)
			if diff := cmp.Diff(tree(t, test.waiting), o); diff != "" || !test.kind.Suspended(o) {
				t.Error(diff)
			}
			o = tree(t, test.before)
			test.kind.Resume(o)
			if diff := cmp.Diff(tree(t, test.resuming), o); diff != "" || test.kind.Suspended(o) {
				t.Error(diff)
			}
		})
	}
}

func TestPatches(t *testing.T) {
	for name, test := range map[string]struct{ expression, before, after, fails string }{
		"adds":             {`{"spec": {"a": {"b": podSets[0].nodeSelector}}}`, "{spec: {}}", "{spec: {a: {b: {pool: h100}}}}", ""},
		"without a spec":   {`{"spec": {"a": 1}}`, "{}", "{spec: {a: 1}}", ""},
		"takes away":       {`{"spec": {"a": {"b": {}, "c": []}, "d": null}}`, "{spec: {a: {b: {x: y}, c: [1]}, d: 1, e: 2}}", "{spec: {e: 2}}", ""},
		"leaves what is":   {`{"spec": {"a": {"b": {}}}}`, "{spec: {a: {c: d}, e: {}}}", "{spec: {a: {c: d}, e: {}}}", ""},
		"leaves the empty": {`{"spec": {"a": {"b": {}}}}`, "{spec: {a: {}}}", "{spec: {a: {}}}", ""},
		"nothing":          {`{}`, "{spec: {a: b}}", "{spec: {a: b}}", ""},
		"nothing of spec":  {`{"spec": {}}`, "{spec: {a: b}}", "{spec: {a: b}}", ""},
		"metadata":         {`{"metadata": {"labels": {"a": "b"}}}`, "{}", "", "the patch changes more than spec"},
		"both":             {`{"spec": {}, "status": {}}`, "{}", "", "the patch changes more than spec"},
		"odd value":        {`{"spec": {"a": duration("1s")}}`, "{}", "", "gives a google.protobuf.Duration, which a field cannot hold"},
		"odd key":          {`{"spec": {1: "a"}}`, "{}", "", "keys must be texts"},
	} {
		t.Run(name, func(t *testing.T) {
			k := compiled(t, func(k *configv1beta2.DeclaredKind) { k.Inject = test.expression })
			o := tree(t, test.before)
			err := k.Inject(o, []any{map[string]any{"nodeSelector": map[string]any{"pool": "h100"}}})
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("got %v, want %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tree(t, test.after), o); diff != "" {
				t.Error(diff)
			}
		})
	}
	k := compiled(t, func(k *configv1beta2.DeclaredKind) { k.Stop = `{"spec": {"state": "Over", "size": quantity("1500m")}}` })
	o := tree(t, "{}")
	if err := k.Stop(o); err != nil || !k.HasStop() {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, "{spec: {state: Over, size: 1500m}}"), o); diff != "" {
		t.Error(diff)
	}
}
