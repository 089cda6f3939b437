package multikueue

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/goldentest"
	"github.com/berth-project/berth/internal/options"
)

// tekton is the configuration in the documents.
func tekton(t *testing.T) *options.Options {
	t.Helper()
	o, err := options.LoadWithGates([]string{filepath.Join("..", "..", "..", "docs", "examples", "multicluster", "tekton.yaml")}, "")
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestRules(t *testing.T) {
	for _, role := range []string{Manager, Worker} {
		var out bytes.Buffer
		if err := PrintRules(&out, tekton(t), role); err != nil {
			t.Fatal(err)
		}
		goldentest.Check(t, "testdata/"+role+".yaml", out.String())
	}
	if err := PrintRules(&bytes.Buffer{}, tekton(t), "other"); err == nil {
		t.Error("there is no such role")
	}
}

// TestRulesOfFrameworks: the manager's rights on kinds of external frameworks, and no more (spec: 40 §4.12).
func TestRulesOfFrameworks(t *testing.T) {
	const reading, patching = "  verbs:\n  - get\n  - list\n  - watch\n", "  verbs:\n  - get\n  - list\n  - patch\n  - watch\n"
	for entry, tc := range map[string]struct {
		verbs  string
		status bool
	}{
		"{name: Run.v1.x.dev}":                                                                     {reading, true},
		"{name: Run.v1.x.dev, controllerType: External}":                                           {reading, false},
		"{name: Run.v1.x.dev, statusSync: {mode: Disabled}}":                                       {reading, true},
		"{name: Run.v1.x.dev, statusSync: {subresource: Status}}":                                  {reading, true},
		"{name: Run.v1.x.dev, statusSync: {subresource: Main}}":                                    {patching, true},
		"{name: Run.v1.x.dev, statusSync: {metadata: {labelPrefixes: [a/]}, subresource: Status}}": {patching, true},
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmultiKueue: {externalFrameworks: [" + entry + "]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := options.LoadWithGates([]string{file}, "")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := PrintRules(&out, &o, Manager); err != nil {
			t.Fatal(err)
		}
		const of, on = "- apiGroups:\n  - x.dev\n  resources:\n  - runs", "/status\n  verbs:\n  - get\n  - patch\n"
		if !strings.Contains(out.String(), of+"\n"+tc.verbs) || strings.Contains(out.String(), of+"/status") != tc.status || strings.Contains(out.String(), of+on) != tc.status {
			t.Errorf("%s:\n%s", entry, out.String())
		}
	}
}

const run = `
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata:
  namespace: team
  name: build
  uid: u1
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {results.tekton.dev/record: r, note: text}
spec:
  managedBy: kueue.x-k8s.io/multikueue
  pipelineRef: {name: build}
`

func TestCheckFramework(t *testing.T) {
	with := func(text string) string { return strings.TrimPrefix(run, "\n") + text }
	cases := map[string]struct {
		object, remote, err string
	}{
		"created": {object: run},
		"followed": {
			object: with("  status: Cancelled\n"),
			remote: with("  status: PipelineRunPending\nstatus: {startTime: \"2026-01-01T00:00:00Z\"}\n"),
		},
		"precondition":     {object: with("  workspaces: [{name: w, persistentVolumeClaim: {claimName: c}}]\n"), err: "[PreconditionFailed]"},
		"not managed":      {object: strings.Replace(run, "  managedBy: kueue.x-k8s.io/multikueue\n", "", 1), err: "not managed by Kueue"},
		"of no framework":  {object: strings.Replace(run, "PipelineRun", "TaskRun", 1), err: "no entry for tekton.dev/v1, Kind=TaskRun"},
		"without identity": {object: "spec: {}", err: "--object: an object with apiVersion"},
		"not text":         {object: strings.Replace(run, "note: text", "note: 1", 1), err: "--object: .metadata.annotations"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := Check{Object: []byte(tc.object), Cluster: "w1"}
			if tc.remote != "" {
				c.Remote = []byte(tc.remote)
			}
			var out bytes.Buffer
			err := c.Run(&out, tekton(t))
			switch {
			case tc.err != "":
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
			case err != nil:
				t.Fatal(err)
			default:
				goldentest.Check(t, "testdata/"+name+".yaml", out.String())
			}
		})
	}
}

// TestRulesOfRay: resized jobs may be patched, and the children of RayServices on a worker may be read, also if RayClusters are not
// dispatched themselves.
func TestRulesOfRay(t *testing.T) {
	for frameworks, want := range map[string]string{
		"ray.io/rayservice":                    "- apiGroups:\n  - ray.io\n  resources:\n  - rayclusters\n  verbs:\n  - get\n  - list\n  - watch\n",
		"ray.io/rayjob":                        "- apiGroups:\n  - ray.io\n  resources:\n  - rayjobs\n  verbs:\n  - create\n  - delete\n  - get\n  - list\n  - patch\n  - watch\n",
		"ray.io/rayservice, ray.io/raycluster": "- apiGroups:\n  - ray.io\n  resources:\n  - rayclusters\n  verbs:\n  - create\n  - delete\n  - get\n  - list\n  - patch\n  - watch\n",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [" + frameworks + "]}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := options.LoadWithGates([]string{path}, "")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := PrintRules(&out, &o, Worker); err != nil || strings.Count(out.String(), "- rayclusters\n") > 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", frameworks, err, out.String())
		}
	}
}

// TestNumbers: an expression sees the same numbers here as in a manager.
func TestNumbers(t *testing.T) {
	o, err := parse([]byte("apiVersion: x.dev/v1\nkind: Run\nmetadata: {name: r}\nspec: {whole: 3, half: 0.5}\n"), "--object")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"whole": int64(3), "half": 0.5}
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
