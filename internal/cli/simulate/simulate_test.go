package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/goldentest"
)

// run runs the command in a folder with files.
func run(t *testing.T, files map[string]string, args ...string) (out, errs string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd := New("test")
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

const settings = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"

// files are two configurations: one that shares fairly, and one without preemption.
var files = map[string]string{
	"fair.yaml": settings + "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}\n",
	"calm.yaml": strings.NewReplacer("reclaimWithinCohort: Any", "reclaimWithinCohort: Never", "withinClusterQueue: LowerPriority", "withinClusterQueue: Never").Replace(string(usual)),
}

func TestText(t *testing.T) {
	golden, err := filepath.Abs("testdata/text.txt")
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, files, "--jobs", "3000", "--load", "2", "--config", "fair.yaml", "--config", "calm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Check(t, golden, out)
}

// racks is a queue whose flavor has racks of one host.
const racks = `apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f}
spec: {topologyName: racks, nodeLabels: {pool: f}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: f, resources: [{name: cpu, nominalQuota: 16}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: q, namespace: default}
spec: {clusterQueue: q}
---
apiVersion: v1
kind: Node
metadata: {name: a, labels: {pool: f, rack: a, kubernetes.io/hostname: a}}
status: {allocatable: {cpu: "8", pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {pool: f, rack: b, kubernetes.io/hostname: b}}
status: {allocatable: {cpu: "8", pods: "110"}}
`

// TestTopology: a job that requires a rack waits for one, and the reports show how fragmented the racks were.
func TestTopology(t *testing.T) {
	files := map[string]string{"racks.yaml": racks, "t.csv": "submit,run,pods,cpu,required\n0,60,1,8,\n0,60,4,1,\n1,60,8,1,rack\n"}
	text, _, err := run(t, files, "--cluster", "racks.yaml", "--trace", "t.csv")
	if err != nil || !regexp.MustCompile(`(?m)^FRAGMENTED f, rack +0.0 %$`).MatchString(text) || !regexp.MustCompile(`(?m)^2 to 8 pods +2 +0s +59s`).MatchString(text) {
		t.Errorf("%v:\n%s", err, text)
	}
	page, _, err := run(t, files, "--cluster", "racks.yaml", "--trace", "t.csv", "-o", "html")
	if err != nil || !strings.Contains(page, "<tr><td>fragmented f, kubernetes.io/hostname</td><td>0.0 %</td></tr>") {
		t.Errorf("%v:\n%s", err, page)
	}
	text, _, err = run(t, files, "--cluster", "racks.yaml", "--jobs", "20", "--preferred", "rack", "-o", "json")
	if err != nil || !strings.Contains(text, `"fragmentation": [`) {
		t.Errorf("%v:\n%s", err, text)
	}
}

// TestSlices: two slices of five pods wait for a rack each, though ten pods would fit on what is left of both.
func TestSlices(t *testing.T) {
	for columns, want := range map[string]string{"rack,5": "59s", ",": "0s"} {
		trace := "submit,run,pods,cpu,slice,slice-size\n0,60,1,5,,\n1,60,10,1," + columns + "\n"
		text, _, err := run(t, map[string]string{"racks.yaml": racks, "t.csv": trace}, "--cluster", "racks.yaml", "--trace", "t.csv")
		if err != nil || !regexp.MustCompile(`(?m)^9 to 64 pods +1 +`+want+" ").MatchString(text) {
			t.Errorf("%q: %v:\n%s", columns, err, text)
		}
	}
}

func TestFormats(t *testing.T) {
	trace := map[string]string{"t.csv": "submit,run,queue,nvidia.com/gpu\n0,60,research/research,8\n"}
	out, _, err := run(t, trace, "--trace", "t.csv", "-o", "json")
	var got struct {
		Configurations []struct {
			Name     string
			Finished int
			Makespan float64 `json:"makespanSeconds"`
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Configurations) != 1 || got.Configurations[0].Finished != 1 || got.Configurations[0].Makespan != 60 {
		t.Errorf("%v: %s", err, out)
	}
	out, _, err = run(t, trace, "--trace", "t.csv", "-o", "html")
	if err != nil || !strings.Contains(out, "<polyline") || !strings.Contains(out, "research/research") || strings.Contains(out, "ZgotmplZ") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`simulate takes no argument: a trace is --trace x`:                                                   {"x"},
		"-o xml: must be text, json or html":                                                                 {"-o", "xml"},
		"--live and --cluster: give one of them":                                                             {"--live", "--cluster", "x"},
		"--jobs 0: must be from 1 to 10,000,000":                                                             {"--jobs", "0"},
		"--days 0: must be above 0, and at most 3660":                                                        {"--days", "0"},
		"--load NaN: must be above 0, and at most 100":                                                       {"--load", "NaN"},
		"--required: as it is: no flavor has a topology":                                                     {"--required", "rack"},
		"--required and --preferred: give one of them":                                                       {"--required", "rack", "--preferred", "rack"},
		"--required and --preferred are for jobs that are made up":                                           {"--preferred", "rack", "--trace", "t.csv"},
		`racks.csv:2: required: as it is: no flavor has a topology with the level rak; did you mean "rack"?`: {"--cluster", "racks.yaml", "--trace", "racks.csv"},
		`both.csv:2: preferred: "rack": a job that has a required level has no preferred one`:                {"--cluster", "racks.yaml", "--trace", "both.csv"},
		`slice.csv:2: slice: as it is: no flavor has a topology with the level rak; did you mean "rack"?`:    {"--cluster", "racks.yaml", "--trace", "slice.csv"},
		`unsized.csv:2: slice: "rack": it needs a slice-size`:                                                {"--cluster", "racks.yaml", "--trace", "unsized.csv"},
		"nowhere.csv:2: slice-size: 2: it needs a slice":                                                     {"--cluster", "racks.yaml", "--trace", "nowhere.csv"},
		"large.csv:2: slice-size: 3: the job has only 2 pods":                                                {"--cluster", "racks.yaml", "--trace", "large.csv"},
		"--grace 0s: must be above 0, as in 30s":                                                             {"--grace", "0"},
		"open x.csv: no such file or directory":                                                              {"--trace", "x.csv"},
		"open x.yaml: no such file or directory":                                                             {"--config", "x.yaml"},
		"e.csv has no jobs":                                                                                  {"--trace", "e.csv"},
		"t.csv:2: queue: as it is: there is no LocalQueue default/reserch":                                   {"--trace", "t.csv"},
		"--processor gpu: must be RESOURCE=AMOUNT, such as cpu=1 or nvidia.com/gpu=1":                        {"--trace", "t.swf", "--processor", "gpu"},
		"as it is: there is no LocalQueue to submit jobs to":                                                 {"--cluster", "empty.yaml"},
		"bad.yaml:3: fairSharin: unknown field; did you mean fairSharing?":                                   {"--config", "bad.yaml"},
		"f.yaml:3: ResourceFlavor f: spec.nodeLabel: there is no such field":                                 {"--cluster", "f.yaml"},
	} {
		_, _, err := run(t, map[string]string{
			"e.csv": "submit,run,cpu\n", "t.csv": "submit,run,queue,cpu\n0,1,reserch,1\n", "t.swf": "", "empty.yaml": "",
			"racks.yaml": racks, "racks.csv": "submit,run,cpu,required\n0,1,1,rak\n", "both.csv": "submit,run,cpu,required,preferred\n0,1,1,rack,rack\n",
			"slice.csv": "submit,run,cpu,slice,slice-size\n0,1,1,rak,1\n", "unsized.csv": "submit,run,cpu,slice\n0,1,1,rack\n",
			"nowhere.csv": "submit,run,pods,cpu,slice-size\n0,1,2,1,2\n", "large.csv": "submit,run,pods,cpu,slice,slice-size\n0,1,2,1,rack,3\n",
			"bad.yaml": settings + "fairSharin: {}\n",
			"f.yaml":   "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nspec: {nodeLabel: {}}\nmetadata: {name: f}\n",
		}, args...)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}
