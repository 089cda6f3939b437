package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/goldentest"
	"github.com/berth-project/berth/internal/training/plan"
)

// mark separates the input of a golden file from the output.
const mark = "# ==== the plan ====\n"

// builtin returns a built-in runtime.
func builtin(t testing.TB, name string) *plan.Runtime {
	t.Helper()
	for _, dir := range []string{"runtimes/", "runtimes/optional/"} {
		data, err := fs.ReadFile(config.FS, dir+name+".yaml")
		if err != nil {
			continue
		}
		for _, doc := range documents(t, data) {
			if doc.GetKind() == trainerv1alpha1.KindClusterTrainingRuntime {
				return asRuntime(t, doc)
			}
		}
	}
	t.Fatalf("no runtime %s", name)
	return nil
}

func asRuntime(t testing.TB, u *unstructured.Unstructured) *plan.Runtime {
	t.Helper()
	r := &trainerv1alpha1.ClusterTrainingRuntime{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, r, true); err != nil {
		t.Fatal(err)
	}
	return plan.ClusterRuntime(r)
}

func documents(t testing.TB, data []byte) (out []*unstructured.Unstructured) {
	t.Helper()
	docs := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := docs.Decode(u)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// question reads the upper part of a golden file: a TrainJob, a runtime unless it is a built-in one, and perhaps a RuntimeClass.
func question(t *testing.T, text string) *plan.Input {
	t.Helper()
	in := &plan.Input{Config: plan.DefaultConfig(), Keys: plan.Keys{
		SSHPrivate: []byte("private"), SSHPublic: []byte("public"), CurvePublic: strings.Repeat("p", 40), CurveSecret: strings.Repeat("s", 40), CA: []byte("authority"),
	}}
	if strings.Contains(text, "# gate: TrainJobStatus") {
		in.Config.Progress = &plan.Progress{URL: "https://trainer.system.svc:10443"}
	}
	read := func(u *unstructured.Unstructured, into any) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, into, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range documents(t, []byte(text)) {
		switch u.GetKind() {
		case trainerv1alpha1.KindTrainJob:
			in.TrainJob = &trainerv1alpha1.TrainJob{}
			read(u, in.TrainJob)
		case "RuntimeClass":
			var class nodev1.RuntimeClass
			read(u, &class)
			in.Overheads = map[string]corev1.ResourceList{class.Name: class.Overhead.PodFixed}
		default:
			in.Runtime = asRuntime(t, u)
		}
	}
	if in.Runtime == nil {
		in.Runtime = builtin(t, in.TrainJob.Spec.RuntimeRef.Name)
	}
	return in
}

// answer writes a plan as YAML: all objects, then the pod sets.
func answer(t *testing.T, p *plan.Plan) string {
	t.Helper()
	var out strings.Builder
	write := func(o runtime.Object) {
		u, err := plan.Manifest(o)
		if err != nil {
			t.Fatal(err)
		}
		u = u.DeepCopy()
		u.SetOwnerReferences(nil) // the same everywhere; TestOwner checks it
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(data))
	}
	write(p.JobSet)
	for _, o := range p.ConfigMaps {
		write(o)
	}
	for _, o := range p.Secrets {
		write(o)
	}
	for _, o := range p.PodGroups {
		write(o)
	}
	out.WriteString("---\n# pod sets\n")
	for _, s := range p.PodSets {
		fmt.Fprintf(&out, "# %s, ancestor %q: %d x %d\n", s.Name, s.Ancestor, s.Replicas, s.Count)
	}
	return out.String()
}

// TestGolden plans the TrainJobs in testdata. It also plans each of them again, from inputs that must not have changed.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d golden files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			asked, _, _ := strings.Cut(string(data), mark)
			in := question(t, asked)
			before := inputText(t, in)
			built, err := plan.Build(in)
			got := ""
			if err != nil {
				got = "# error: " + err.Error() + "\n"
			} else {
				got = answer(t, built)
			}
			if after := inputText(t, in); after != before {
				t.Errorf("planning changed its input (-before +after):\n%s", cmp.Diff(before, after))
			}
			if again, err := plan.Build(in); err == nil && answer(t, again) != got {
				t.Errorf("two plans of one input differ:\n%s", cmp.Diff(got, answer(t, again)))
			}
			goldentest.Check(t, file, asked+mark+got)
		})
	}
}

func inputText(t *testing.T, in *plan.Input) string {
	t.Helper()
	data, err := json.Marshal(struct {
		Job     *trainerv1alpha1.TrainJob
		Runtime *plan.Runtime
		Config  *plan.Config
	}{in.TrainJob, in.Runtime, in.Config})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
