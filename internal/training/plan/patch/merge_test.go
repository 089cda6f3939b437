package patch_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// parse reads JSON, and returns nil if it is none of the type's.
func parse[T any](data string) *T {
	out := new(T)
	if json.Unmarshal([]byte(data), out) != nil {
		return nil
	}
	return out
}

// template is a runtime with one job node.
func template(pod string) *trainerv1alpha1.JobSetTemplateSpec {
	return parse[trainerv1alpha1.JobSetTemplateSpec](`{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"spec":` + pod + `}}}}]}}`)
}

// entry is a patch of the pods of job node.
func entry(manager, pod string) trainerv1alpha1.RuntimePatch {
	p := parse[trainerv1alpha1.RuntimePatch](`{"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"spec":` + pod + `}}}}]}}}}`)
	p.Manager = manager
	return *p
}

func pod(t *trainerv1alpha1.JobSetTemplateSpec) *corev1.PodSpec {
	return &t.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
}

func merge(base string, patches ...trainerv1alpha1.RuntimePatch) *corev1.PodSpec {
	cfg := patch.DefaultConfig()
	return pod(patch.Merge(template(base), patches, nil, &cfg))
}

// TestMerge is 50 §4.9 one case at a time.
func TestMerge(t *testing.T) {
	tests := map[string]struct {
		base    string
		patches []trainerv1alpha1.RuntimePatch
		want    string
	}{
		"a new element comes as early as it can": {
			`{"containers":[{"name":"c","env":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}]}`,
			[]trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"containers":[{"name":"c","env":[{"name":"n","value":"3"}]}]}`)},
			`{"containers":[{"name":"c","env":[{"name":"n","value":"3"},{"name":"a","value":"1"},{"name":"b","value":"2"}]}]}`,
		},
		"after one that is named before it": {
			`{"containers":[{"name":"c","env":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}]}`,
			[]trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"containers":[{"name":"c","env":[{"name":"a","value":"9"},{"name":"n","value":"3"}]}]}`)},
			`{"containers":[{"name":"c","env":[{"name":"a","value":"9"},{"name":"n","value":"3"},{"name":"b","value":"2"}]}]}`,
		},
		"the order of containers stays": {
			`{"initContainers":[{"name":"i"},{"name":"j"}],"containers":[{"name":"c"},{"name":"d"}]}`,
			[]trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"initContainers":[{"name":"j","env":[{"name":"e"}]}],"containers":[{"name":"d","env":[{"name":"e"}]},{"name":"new"}]}`)},
			`{"initContainers":[{"name":"i"},{"name":"j","env":[{"name":"e"}]}],"containers":[{"name":"c"},{"name":"d","env":[{"name":"e"}]}]}`,
		},
		"a variable of another kind is replaced whole": {
			`{"containers":[{"name":"c","env":[{"name":"a","value":"1"}]}]}`,
			[]trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"containers":[{"name":"c","env":[{"name":"a","valueFrom":{"fieldRef":{"fieldPath":"f"}}}]}]}`)},
			`{"containers":[{"name":"c","env":[{"name":"a","valueFrom":{"fieldRef":{"fieldPath":"f"}}}]}]}`,
		},
		"a variable without a value is empty": {
			`{"containers":[{"name":"c","env":[{"name":"a","value":"1"}]}]}`,
			[]trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"containers":[{"name":"c","env":[{"name":"a"}]}]}`)},
			`{"containers":[{"name":"c","env":[{"name":"a"}]}]}`,
		},
		"a volume of another kind is replaced whole, of the same kind merged, without a kind left alone": {
			`{"volumes":[{"name":"a","emptyDir":{}},{"name":"b","secret":{"secretName":"s","optional":true}},{"name":"c","emptyDir":{"medium":"Memory"}}],"containers":[]}`,
			[]trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"p"}},{"name":"b","secret":{"secretName":"t"}},{"name":"c"}]}`)},
			`{"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"p"}},{"name":"b","secret":{"secretName":"t","optional":true}},{"name":"c","emptyDir":{"medium":"Memory"}}],"containers":[]}`,
		},
		"tolerations replace, those of the queue are added, wherever its entry stands": {
			`{"tolerations":[{"key":"t0"}],"containers":[]}`,
			[]trainerv1alpha1.RuntimePatch{entry("kueue.x-k8s.io/manager", `{"tolerations":[{"key":"t1"},{"key":"t2"}]}`), entry("a.io/x", `{"tolerations":[{"key":"t2"}]}`)},
			`{"tolerations":[{"key":"t2"},{"key":"t1"}],"containers":[]}`,
		},
		"the queue's tolerations alone are added to the runtime's": {
			`{"tolerations":[{"key":"t0"}],"containers":[]}`,
			[]trainerv1alpha1.RuntimePatch{entry("kueue.x-k8s.io/manager", `{"tolerations":[{"key":"t1"},{"key":"t0"}]}`)},
			`{"tolerations":[{"key":"t0"},{"key":"t1"}],"containers":[]}`,
		},
		"the last of the list wins, the queue over all": {
			`{"nodeSelector":{"a":"0","b":"0","c":"0"},"containers":[]}`,
			[]trainerv1alpha1.RuntimePatch{entry("kueue.x-k8s.io/manager", `{"nodeSelector":{"a":"q"}}`), entry("a.io/x", `{"nodeSelector":{"a":"1","b":"1"}}`), entry("b.io/y", `{"nodeSelector":{"a":"2","b":"2"}}`)},
			`{"nodeSelector":{"a":"q","b":"2","c":"0"},"containers":[]}`,
		},
		"a directive is only a key": {
			`{"nodeSelector":{"a":"0"},"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[]}},"volumes":[{"name":"v","csi":{"driver":"d","volumeAttributes":{"x":"y"}}}],"containers":[]}`,
			[]trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"nodeSelector":{"$patch":"delete"},"volumes":[{"name":"v","csi":{"driver":"d","volumeAttributes":{"$patch":"delete"}}}]}`)},
			`{"nodeSelector":{"a":"0","$patch":"delete"},"affinity":{"podAffinity":{}},"volumes":[{"name":"v","csi":{"driver":"d","volumeAttributes":{"x":"y","$patch":"delete"}}}],"containers":[]}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(parse[corev1.PodSpec](tt.want), merge(tt.base, tt.patches...), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// anyPod draws what a pod may have and a patch may say: a few names, so that they meet. Values are of one kind each, since
// where the kinds differ Kubernetes' own merge makes pods that are not valid.
func anyPod(t *rapid.T, label string, isPatch bool) string {
	names := []string{"a", "b", "c", "d", "e"}
	list := func(what string, element func(name string, i int) string) string {
		chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 4, rapid.ID[string]).Draw(t, label+what)
		out := "["
		for i, name := range chosen {
			if i > 0 {
				out += ","
			}
			out += element(name, i)
		}
		return out + "]"
	}
	value := func(what string) string { return rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, label+what) }
	env := list("env", func(name string, _ int) string { return fmt.Sprintf(`{"name":%q,"value":%q}`, name, value(name)) })
	mounts := list("mounts", func(name string, i int) string {
		return fmt.Sprintf(`{"name":"v%d","mountPath":"/%s","subPath":%q}`, i, name, value(name))
	})
	volumes := list("volumes", func(name string, _ int) string {
		return fmt.Sprintf(`{"name":%q,"secret":{"secretName":%q}}`, name, value(name))
	})
	secrets := list("secrets", func(name string, _ int) string { return fmt.Sprintf(`{"name":%q}`, name) })
	gates := list("gates", func(name string, _ int) string { return fmt.Sprintf(`{"name":%q}`, name) })
	selector := map[string]string{}
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, label+"selector") {
		selector[name] = value("selector" + name)
	}
	containers := fmt.Sprintf(`[{"name":"main","env":%s,"volumeMounts":%s,"securityContext":{"runAsUser":%s,"capabilities":{"add":[%q]}}}`, env, mounts, value("user"), value("cap"))
	if !isPatch {
		containers += `,{"name":"second","image":"kept","args":["x"]}`
	}
	return fmt.Sprintf(`{"containers":%s],"volumes":%s,"imagePullSecrets":%s,"schedulingGates":%s,"nodeSelector":%s,"serviceAccountName":%q,"securityContext":{"fsGroup":%s}}`,
		containers, volumes, secrets, gates, text(selector), value("account"), value("group"))
}

// TestMergeIsStrategic compares the merge, order of lists and all, with Kubernetes' own strategic merge patch.
func TestMergeIsStrategic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, p := anyPod(t, "base", false), anyPod(t, "patch", true)
		want, err := strategicpatch.StrategicMergePatch([]byte(text(parse[corev1.PodSpec](base))), []byte(text(parse[trainerv1alpha1.PodSpecPatch](p))), corev1.PodSpec{})
		if err != nil {
			t.Fatal(err)
		}
		got := merge(base, entry("a.io/x", p))
		if diff := cmp.Diff(parse[corev1.PodSpec](string(want)), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("merge of %s\ninto %s\n-strategic +ours:\n%s", p, base, diff)
		}
	})
}

// leavesOf flattens JSON into paths and values; list elements are found by their key.
func leavesOf(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			leavesOf(out, path+"."+key, value)
		}
	case []any:
		for i, value := range v {
			key := fmt.Sprint(i)
			if m, ok := value.(map[string]any); ok {
				for _, k := range []string{"mountPath", "name"} {
					if m[k] != nil {
						key = fmt.Sprint(m[k])
						break
					}
				}
			}
			leavesOf(out, path+"["+key+"]", value)
		}
	default:
		out[path] = fmt.Sprint(v)
	}
}

func flat(v any) map[string]string {
	out := map[string]string{}
	leavesOf(out, "", *parse[any](text(v)))
	return out
}

// A patch leaves all other fields unchanged and sets its own, the inputs do not change,
// and each of two calls gives the same bytes.
func TestMergeKeepsTheRest(t *testing.T) {
	cfg := patch.DefaultConfig()
	rapid.Check(t, func(t *rapid.T) {
		base := template(anyPod(t, "base", false))
		said := anyPod(t, "patch", true)
		patches := []trainerv1alpha1.RuntimePatch{entry("a.io/x", said)}
		before := text(base) + text(patches)
		got := patch.Merge(base, patches, nil, &cfg)
		if text(base)+text(patches) != before {
			t.Fatal("an input was changed")
		}
		if text(patch.Merge(base, patches, nil, &cfg)) != text(got) {
			t.Fatal("two merges differ")
		}
		named, old, merged := flat(parse[any](said)), flat(pod(base)), flat(pod(got))
		for path, value := range old {
			if _, ok := named[path]; !ok && merged[path] != value {
				t.Fatalf("%s was %s, is %q, and no patch names it", path, value, merged[path])
			}
		}
		for path, value := range named {
			if merged[path] != value {
				t.Fatalf("%s should be %s and is %q", path, value, merged[path])
			}
		}
		for path := range merged {
			if _, ok := old[path]; !ok && named[path] == "" {
				t.Fatalf("%s comes from nowhere", path)
			}
		}
	})
}

// The result shares no memory with a patch, so that changes of the one do not affect the other.
func TestMergeShares(t *testing.T) {
	cfg := patch.DefaultConfig()
	patches := []trainerv1alpha1.RuntimePatch{entry("a.io/x", `{"securityContext":{"fsGroup":1},"affinity":{"nodeAffinity":{}},"terminationGracePeriodSeconds":1,
		"tolerations":[{"key":"t","tolerationSeconds":1}],"volumes":[{"name":"v","secret":{"secretName":"s"}}],"nodeSelector":{"a":"1"},
		"containers":[{"name":"c","env":[{"name":"e","valueFrom":{"fieldRef":{"fieldPath":"f"}}}],"securityContext":{"runAsUser":1}}]}`)}
	before := text(patches)
	got := pod(patch.Merge(template(`{"containers":[{"name":"c"}]}`), patches, nil, &cfg))
	*got.SecurityContext.FSGroup, *got.TerminationGracePeriodSeconds, *got.Tolerations[0].TolerationSeconds = 2, 2, 2
	got.Affinity.NodeAffinity, got.Tolerations[0].Key, got.NodeSelector["a"] = nil, "u", "2"
	got.Volumes[0].Secret.SecretName, got.Containers[0].Env[0].ValueFrom.FieldRef.FieldPath, *got.Containers[0].SecurityContext.RunAsUser = "t", "g", 2
	if after := text(patches); after != before {
		t.Errorf("the patch was %s\nand is %s", before, after)
	}
}

// TestMergeInOrder: merging entries at once is merging them one after the other.
func TestMergeInOrder(t *testing.T) {
	cfg := patch.DefaultConfig()
	rapid.Check(t, func(t *rapid.T) {
		base := template(anyPod(t, "base", false))
		var patches []trainerv1alpha1.RuntimePatch
		for i := range rapid.IntRange(1, 4).Draw(t, "entries") {
			patches = append(patches, entry(fmt.Sprintf("a.io/%d", i), anyPod(t, fmt.Sprint(i), true)))
		}
		once := patch.Merge(base, patches, nil, &cfg)
		step := base
		for _, p := range patches {
			step = patch.Merge(step, []trainerv1alpha1.RuntimePatch{p}, nil, &cfg)
		}
		if diff := cmp.Diff(step, once); diff != "" {
			t.Fatalf("-one by one +at once:\n%s", diff)
		}
		queued := slices.Clone(patches)
		queued[0].Manager = "kueue.x-k8s.io/manager"
		rotated := append(slices.Clone(queued[1:]), queued[0])
		if diff := cmp.Diff(patch.Merge(base, rotated, nil, &cfg), patch.Merge(base, queued, nil, &cfg)); diff != "" {
			t.Fatalf("the place of the queue's entry matters:\n%s", diff)
		}
	})
}

// dropped names something of a pod that a patch does not name and that is not as it was after the merge; "" if there is none. It
// reads JSON, and knows of the types only which lists have keys and which of them may grow.
func dropped(base *corev1.PodSpec, patch *trainerv1alpha1.PodSpecPatch, got *corev1.PodSpec) string {
	asMap := func(v any) map[string]any {
		m, _ := (*parse[any](text(v))).(map[string]any)
		return m
	}
	return droppedIn("", asMap(base), asMap(patch), asMap(got))
}

// keyOf are the keys of the lists that are merged, by their last name.
var keyOf = map[string]string{
	"volumes": "name", "imagePullSecrets": "name", "schedulingGates": "name", "initContainers": "name", "containers": "name", "env": "name", "volumeMounts": "mountPath",
}

func droppedIn(path string, base, patch, got map[string]any) string {
	for key, was := range base {
		at := path + "." + key
		named, isNamed := patch[key]
		switch was := was.(type) {
		case map[string]any:
			if isNamed {
				inner, _ := named.(map[string]any)
				is, _ := got[key].(map[string]any)
				if lost := droppedIn(at, was, inner, is); lost != "" {
					return lost
				}
				continue
			}
		case []any:
			if isNamed && keyOf[key] == "" {
				continue // the whole list is named
			}
			if isNamed {
				is, _ := got[key].([]any)
				if lost := droppedOf(at, key, was, named.([]any), is); lost != "" {
					return lost
				}
				continue
			}
		default:
			if isNamed {
				continue
			}
		}
		if !reflect.DeepEqual(was, got[key]) {
			return at
		}
	}
	return ""
}

// union names what either of two patches of one thing names.
func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range b {
		switch value := value.(type) {
		case map[string]any:
			inner, _ := out[key].(map[string]any)
			out[key] = union(inner, value)
		case []any:
			list, _ := out[key].([]any)
			out[key] = slices.Concat(list, value)
		default:
			out[key] = value
		}
	}
	return out
}

// droppedOf is droppedIn of a list with keys: what the patch does not name is there as it was, in its order. Containers are
// merged, and there are neither more nor less.
func droppedOf(path, list string, base, patch, got []any) string {
	key := keyOf[list]
	of := func(e any) any { return e.(map[string]any)[key] }
	named := map[any]map[string]any{}
	for _, e := range patch {
		named[of(e)] = union(named[of(e)], e.(map[string]any))
	}
	if strings.HasSuffix(list, "ontainers") {
		if len(base) != len(got) {
			return path
		}
		for i := range base {
			if lost := droppedIn(fmt.Sprintf("%s[%d]", path, i), base[i].(map[string]any), named[of(base[i])], got[i].(map[string]any)); lost != "" {
				return lost
			}
		}
		return ""
	}
	rest := got
	for i, e := range base {
		if _, ok := named[of(e)]; ok {
			continue
		}
		at := slices.IndexFunc(rest, func(g any) bool { return reflect.DeepEqual(e, g) })
		if at < 0 {
			return fmt.Sprintf("%s[%d]", path, i)
		}
		rest = rest[at+1:]
	}
	return ""
}

// FuzzMerge feeds the merge, and every rule about patches, with what a decoder lets through.
func FuzzMerge(f *testing.F) {
	seeds := [][2]string{
		{`{"containers":[{"name":"c"}]}`, `{"containers":[{"name":"c","env":[{"name":"a"}]}]}`},
		{`{"volumes":[{"name":"v","csi":{"driver":"d"}}]}`, `{"volumes":[{"name":"v","csi":{"driver":"e","volumeAttributes":{"$patch":"x"}}},{"name":"v"}]}`},
		{`{"affinity":{"nodeAffinity":{}}}`, `{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[null]}}},"tolerations":[{}]}`},
		{
			`{"containers":[{"name":"c","image":"i","env":[{"name":"a","value":"1"},{"name":"b"}],"volumeMounts":[{"name":"v","mountPath":"/a"}]},{"name":"c"}],"tolerations":[{"key":"t"}],"nodeSelector":{"a":"b"}}`,
			`{"containers":[{"name":"c","env":[{"name":"n"},{"name":"a","valueFrom":{"fieldRef":{"fieldPath":"f"}}}],"securityContext":{"runAsUser":1}}],"nodeSelector":{"c":"d"},"terminationGracePeriodSeconds":3}`,
		},
		{`{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}]}`, `{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"-1"}}],"securityContext":{"sysctls":[{}]}}`},
	}
	for _, s := range seeds {
		f.Add(s[0], s[1])
	}
	cfg := patch.DefaultConfig()
	f.Fuzz(func(t *testing.T, base, said string) {
		b, p := parse[corev1.PodSpec](base), parse[trainerv1alpha1.PodSpecPatch](said)
		if b == nil || p == nil {
			t.Skip()
		}
		runtimeTemplate, mine := template(text(b)), entry("a.io/x", text(p))
		other := entry("kueue.x-k8s.io/manager", text(p))
		patches := []trainerv1alpha1.RuntimePatch{mine, other}
		before := text(runtimeTemplate) + text(patches)
		got := patch.Merge(runtimeTemplate, patches, nil, &cfg)
		if text(runtimeTemplate)+text(patches) != before {
			t.Error("an input was changed")
		}
		if lost := dropped(pod(runtimeTemplate), mine.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec, pod(got)); lost != "" {
			t.Errorf("%s is another, and no patch names it:\n%s\n%s", lost, text(runtimeTemplate), text(got))
		}
		if text(patch.Merge(runtimeTemplate, patches, nil, &cfg)) != text(got) {
			t.Error("two merges differ")
		}
		job := &trainerv1alpha1.TrainJob{Spec: trainerv1alpha1.TrainJobSpec{RuntimePatches: patches}}
		patch.Validate(&patch.Request{New: job, Config: &cfg}, runtimeTemplate, &patch.Reserved{})
		patch.Record(job, runtimeTemplate, nil, &cfg, patch.Hashes(patches, nil), epoch)
		if _, err := runtime.DefaultUnstructuredConverter.ToUnstructured(got); err != nil {
			t.Errorf("the result cannot be written: %v", err)
		}
	})
}
