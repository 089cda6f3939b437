package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
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
		`simulate takes no argument: a trace is --trace x`:                            {"x"},
		"-o xml: must be text, json or html":                                          {"-o", "xml"},
		"--live and --cluster: give one of them":                                      {"--live", "--cluster", "x"},
		"--jobs 0: must be from 1 to 10,000,000":                                      {"--jobs", "0"},
		"--days 0: must be above 0, and at most 3660":                                 {"--days", "0"},
		"--load NaN: must be above 0, and at most 100":                                {"--load", "NaN"},
		"--grace 0s: must be above 0, as in 30s":                                      {"--grace", "0"},
		"open x.csv: no such file or directory":                                       {"--trace", "x.csv"},
		"open x.yaml: no such file or directory":                                      {"--config", "x.yaml"},
		"e.csv has no jobs":                                                           {"--trace", "e.csv"},
		"t.csv:2: queue: as it is: there is no LocalQueue default/reserch":            {"--trace", "t.csv"},
		"--processor gpu: must be RESOURCE=AMOUNT, such as cpu=1 or nvidia.com/gpu=1": {"--trace", "t.swf", "--processor", "gpu"},
		"as it is: there is no LocalQueue to submit jobs to":                          {"--cluster", "empty.yaml"},
		"bad.yaml:3: fairSharin: unknown field; did you mean fairSharing?":            {"--config", "bad.yaml"},
		"f.yaml:3: ResourceFlavor f: spec.nodeLabel: there is no such field":          {"--cluster", "f.yaml"},
	} {
		_, _, err := run(t, map[string]string{
			"e.csv": "submit,run,cpu\n", "t.csv": "submit,run,queue,cpu\n0,1,reserch,1\n", "t.swf": "", "empty.yaml": "",
			"bad.yaml": settings + "fairSharin: {}\n",
			"f.yaml":   "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nspec: {nodeLabel: {}}\nmetadata: {name: f}\n",
		}, args...)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}
