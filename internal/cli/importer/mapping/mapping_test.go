package mapping

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(class string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{PriorityClassName: class}}
}

const rules = `
- match: {labels: {team: a, tier: batch}}
  toLocalQueue: batch
- match: {priorityClassName: urgent}
  toLocalQueue: fast
- match: {labels: {team: b}, priorityClassName: low}
  skip: true
- match: {labels: {team: b}}
  toLocalQueue: b
`

func TestRulesOfAFile(t *testing.T) {
	r, err := Parse("rules.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want Target
		err  string
	}{
		"the first that matches counts":  {pod("urgent", map[string]string{"team": "a", "tier": "batch"}), Target{Queue: "batch"}, ""},
		"all labels have to be there":    {pod("urgent", map[string]string{"team": "a"}), Target{Queue: "fast"}, ""},
		"and to be equal":                {pod("urgent", map[string]string{"team": "a", "tier": "web"}), Target{Queue: "fast"}, ""},
		"a class and labels":             {pod("low", map[string]string{"team": "b"}), Target{Skip: true}, ""},
		"a rule without a class":         {pod("other", map[string]string{"team": "b"}), Target{Queue: "b"}, ""},
		"none":                           {pod("", map[string]string{"team": "c", "app": "x"}), Target{}, "no rule matches the labels app=x,team=c"},
		"none, with a class":             {pod("low", nil), Target{}, "no rule matches the labels (none) and the priority class low"},
		"an empty value is not a label ": {pod("", map[string]string{"team": ""}), Target{}, "no rule matches the labels team="},
	} {
		t.Run(name, func(t *testing.T) { check(t, r, tc.pod, tc.want, tc.err) })
	}
	all, err := Parse("rules.yaml", []byte("- toLocalQueue: all\n"))
	if err != nil {
		t.Fatal(err)
	}
	check(t, all, pod("", nil), Target{Queue: "all"}, "")
}

func check(t *testing.T, r *Rules, p *corev1.Pod, want Target, text string) {
	t.Helper()
	got, err := r.Of(p)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if (err == nil) != (text == "") || err != nil && err.Error() != text {
		t.Errorf("error %v, want %q", err, text)
	}
}

func TestRulesOfALabel(t *testing.T) {
	r, err := FromLabel("src.lbl", map[string]string{"one": "user-queue", "": "rest"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		labels map[string]string
		want   Target
		err    string
	}{
		"mapped":     {map[string]string{"src.lbl": "one"}, Target{Queue: "user-queue"}, ""},
		"empty":      {map[string]string{"src.lbl": ""}, Target{Queue: "rest"}, ""},
		"not mapped": {map[string]string{"src.lbl": "two"}, Target{}, "--queuemapping has no LocalQueue for the label src.lbl=two"},
		"no label":   {map[string]string{"other": "one"}, Target{}, "it has no label src.lbl"},
	} {
		t.Run(name, func(t *testing.T) { check(t, r, pod("", tc.labels), tc.want, tc.err) })
	}
	for name, tc := range map[string]struct {
		label  string
		queues map[string]string
		want   string
	}{
		"no label":   {"-x", map[string]string{"a": "q"}, `--queuelabel "-x": is no label`},
		"no mapping": {"x", nil, "--queuemapping: is missing"},
		"no value":   {"x", map[string]string{"a b": "q"}, `--queuemapping a b=q: "a b" is no value of a label`},
		"no queue":   {"x", map[string]string{"a": ""}, `--queuemapping a=: "" is no name of a LocalQueue`},
		"long queue": {"x", map[string]string{"a": strings.Repeat("q", 64)}, "--queuemapping a=" + strings.Repeat("q", 64) + ": pods cannot name the LocalQueue"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := FromLabel(tc.label, tc.queues); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":         {"", "f: has no rules: write a list of them, each with match and toLocalQueue or skip"},
		"an empty list":   {"[]", "f: has no rules: write a list of them, each with match and toLocalQueue or skip"},
		"a mapping":       {"a: b", "f:1: want a list, got a mapping"},
		"no YAML":         {"- a: b\n  - c", "f:1: not valid YAML: did not find expected key"},
		"two documents":   {"- toLocalQueue: a\n---\n- toLocalQueue: b\n", "f:3: the file has a second document; put all rules into one list"},
		"a typo":          {"- match: {label: {a: b}}\n  toLocalQueue: a", "f:1: [0].match.label: unknown field; did you mean labels?"},
		"a number":        {"- match:\n    labels:\n      a: 1\n  toLocalQueue: a", "f:3: [0].match.labels[a]: want a text, got 1; put it in quotes"},
		"both":            {"- toLocalQueue: a\n- toLocalQueue: a\n  skip: true", "f:2: [1]: has both toLocalQueue and skip; keep one"},
		"neither":         {"- match: {}\n  skip: false", "f:1: [0]: has neither toLocalQueue nor skip: true"},
		"a bad queue":     {"- match: {}\n  toLocalQueue: A_b", `f:2: [0].toLocalQueue: "A_b" is no name of a LocalQueue: `},
		"a bad class":     {"- match: {priorityClassName: 'x y'}\n  skip: true", `f:1: [0].match.priorityClassName: "x y" is no name of a PriorityClass: `},
		"a bad key":       {"- skip: true\n  match:\n    labels:\n      a b: c", `f:4: [0].match.labels[a b]: "a b" is no key of a label: `},
		"a bad value":     {"- skip: true\n  match:\n    labels:\n      a: 'b c'", `f:4: [0].match.labels[a]: "b c" is no value of a label: `},
		"written twice":   {"- skip: true\n  skip: false", "f:2: [0].skip: written twice, first on line 1; remove one"},
		"more than one":   {"- {skip: true, x: 1}\n- {skip: 2}", "f:1: [0].x: unknown field; "},
		"and the other":   {"- {skip: true}\n- {skip: 2}", "f:2: [1].skip: want true or false, got \"2\""},
		"ten rules apart": {strings.Repeat("- skip: true\n", 10) + "- match: {labels: {'': x}}\n  skip: true\n", `f:11: [10].match.labels[]: "" is no key of a label`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f", []byte(tc.text))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%v\nwant %s", err, tc.want)
			}
		})
	}
	if _, err := Read("testdata/none.yaml"); err == nil || !strings.HasPrefix(err.Error(), "testdata/none.yaml: cannot read the file of --queuemapping-file: no such file") {
		t.Errorf("%v", err)
	}
}
