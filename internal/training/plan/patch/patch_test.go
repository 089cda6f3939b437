package patch_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

var epoch = time.Date(2026, 3, 4, 5, 6, 7, 890, time.UTC)

const kueue = trainerv1alpha1.QueuePatchManager

func jobWith(patches ...trainerv1alpha1.RuntimePatch) *trainerv1alpha1.TrainJob {
	return &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "lark", Namespace: "lab"}, Spec: trainerv1alpha1.TrainJobSpec{RuntimePatches: patches}}
}

func texts(errs field.ErrorList) []string {
	out := []string{}
	for _, e := range errs {
		out = append(out, string(e.Type)+" "+e.Field+": "+e.Detail)
	}
	return out
}

// expectErrors checks that each wanted text is part of one error, in their order, and that there are no others.
func expectErrors(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	got := texts(errs)
	if len(got) != len(want) {
		t.Fatalf("want %d errors, got %d:\n%s", len(want), len(got), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("want an error with %q, got %q", want[i], got[i])
		}
	}
}

const basePod = `{"volumes":[{"name":"data","emptyDir":{}}],"initContainers":[{"name":"pre"}],"containers":[{"name":"node"},{"name":"proxy"}]}`

// TestValidate is 50 §3.4 and §4.13.3, on entries that are new.
func TestValidate(t *testing.T) {
	raw := func(s string) trainerv1alpha1.RuntimePatch { return *parse[trainerv1alpha1.RuntimePatch](s) }
	meta := func(m string) trainerv1alpha1.RuntimePatch {
		return raw(`{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"metadata":` + m + `,"spec":{"replicatedJobs":[{"name":"node","template":{"metadata":` + m + `,"spec":{"template":{"metadata":` + m + `}}}}]}}}}`)
	}
	tests := map[string]struct {
		patch trainerv1alpha1.RuntimePatch
		cfg   func(*patch.Config)
		want  []string
	}{
		"nothing":               {patch: entry("a.io/x", `{}`)},
		"manager has no domain": {patch: entry("nodomain", `{}`), want: []string{`spec.runtimePatches[0].manager: must be a domain-prefixed path (such as "acme.io/foo")`}},
		"manager has no path":   {patch: entry("acme.io/", `{}`), want: []string{"spec.runtimePatches[0].manager: must be"}},
		"job does not exist": {
			patch: raw(`{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"nope"}]}}}}`),
			want:  []string{"Invalid spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[nope]"},
		},
		"job does not exist, but that is not looked at": {
			patch: raw(`{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"nope"}]}}}}`),
			cfg:   func(c *patch.Config) { c.StrictTargets = false },
		},
		"container does not exist, and an init container is none": {
			patch: entry("a.io/x", `{"initContainers":[{"name":"proxy"}],"containers":[{"name":"pre"},{"name":"ghost"}]}`),
			want:  []string{"initContainers[proxy]", "containers[pre]", "containers[ghost]"},
		},
		"variables of what spec.trainer configures": {
			patch: entry("a.io/x", `{"containers":[{"name":"node","env":[{"name":"A"}]},{"name":"proxy","env":[{"name":"A"}]}]}`),
			want:  []string{"Forbidden spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[node].template.spec.template.spec.containers[node].env"},
		},
		"variables of what spec.initializer configures, and of init containers called so": {
			patch: entry("a.io/x", `{"initContainers":[{"name":"node","env":[{"name":"A"}]}],"containers":[{"name":"dataset-initializer","env":[{"name":"A"}]},{"name":"model-initializer","env":[{"name":"A"}]}]}`),
			cfg:   func(c *patch.Config) { c.StrictTargets = false },
			want:  []string{"initContainers[node].env", "containers[dataset-initializer].env", "containers[model-initializer].env"},
		},
		"init containers are checked too": {
			patch: entry("a.io/x", `{"initContainers":[{"name":"pre","env":[{"name":"A=B"}],"volumeMounts":[{"name":"ghost","mountPath":"/a"}]}]}`),
			want:  []string{"initContainers[pre].env[0].name", "NotFound"},
		},
		"only labels and annotations": {
			patch: meta(`{"name":"n","namespace":"m","finalizers":["a/b"],"labels":{"a":"b"},"annotations":{"c":"d"}}`),
			want: []string{
				"template.metadata.name: only labels and annotations may be patched", "template.metadata.namespace", "template.metadata.finalizers",
				"replicatedJobs[node].template.metadata.name", "replicatedJobs[node].template.metadata.namespace", "replicatedJobs[node].template.metadata.finalizers",
				"replicatedJobs[node].template.spec.template.metadata.name", "template.spec.template.metadata.namespace", "template.spec.template.metadata.finalizers",
			},
		},
		"metadata is not restricted": {
			patch: meta(`{"name":"n","finalizers":["a/b"],"labels":{"job-name":"b"}}`), cfg: func(c *patch.Config) { c.RestrictMetadata = false },
		},
		"keys that others set": {
			patch: raw(`{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"metadata":{"labels":{"trainer.kubeflow.org/trainjob-ancestor-step":"trainer","jobset.sigs.k8s.io/x":"y","batch.kubernetes.io/x":"y","controller-uid":"u","job-name":"j","mark":"m"},"annotations":{"alpha.jobset.sigs.k8s.io/exclusive-topology":"rack","kueue.x-k8s.io/podset-required-topology":"r","amark":"m","job-name":"fine"}}}}}`),
			want:  []string{"labels[batch.kubernetes.io/x]", "labels[controller-uid]", "labels[job-name]", "labels[jobset.sigs.k8s.io/x]", "labels[mark]", "labels[trainer.kubeflow.org/trainjob-ancestor-step]", "annotations[amark]"},
		},
		"directives": {
			patch: entry("a.io/x", `{"nodeSelector":{"$patch":"replace"}}`), want: []string{"nodeSelector[$patch]: must not begin with $", "nodeSelector: "},
		},
		"label syntax": {patch: meta(`{"labels":{"a b":"c"}}`), want: []string{"metadata.labels", "metadata.labels", "metadata.labels"}},
		"volumes": {
			patch: entry("a.io/x", `{"volumes":[{"name":"Bad","emptyDir":{}},{"name":"two","emptyDir":{},"secret":{"secretName":"s"}},{"name":"no","secret":{}},{"name":"owned","emptyDir":{}},{"name":"data"}]}`),
			want:  []string{"volumes[0].name", "volumes[1]: must have one source", "volumes[2].secret.secretName", "volumes[3].name: owned is a volume that the runtime's policy adds"},
		},
		"mounts": {
			patch: entry("a.io/x", `{"volumes":[{"name":"mine","emptyDir":{}}],"containers":[{"name":"proxy","volumeMounts":[{"name":"data","mountPath":"/a"},{"name":"mine","mountPath":"/a"},{"name":"ghost","mountPath":"/b"},{"name":"data2"},{"name":"claim","mountPath":"/c","subPath":"../x"},{"name":"data","mountPath":"/owned//"}]}]}`),
			want: []string{
				"volumeMounts[1].mountPath: must be unique", "NotFound", "volumeMounts[3].mountPath: must be set", "NotFound",
				"volumeMounts[4].subPath: must be a relative path", "volumeMounts[5].mountPath: /owned// is where",
			},
		},
		"variables": {
			patch: entry("a.io/x", `{"containers":[{"name":"proxy","env":[{"name":""},{"name":"A=B"},{"name":"A","value":"v","valueFrom":{"fieldRef":{"fieldPath":"f"}}},{"name":"B","valueFrom":{}},{"name":"OWNED"}]}]}`),
			want:  []string{"env[0].name: must be set", "env[1].name", "env[2].valueFrom: may not be set", "env[3].valueFrom: must have exactly one source", "env[4]: OWNED is set by"},
		},
		"tolerations and gates": {
			patch: entry("a.io/x", `{"tolerations":[{},{"operator":"Exists"},{"key":"a","operator":"Exists","value":"b"},{"key":"a","tolerationSeconds":3},{"key":"a","operator":"Like"},{"key":"a","effect":"Never"}],"schedulingGates":[{"name":"not a name"}]}`),
			want:  []string{"tolerations[0].operator", "tolerations[2].value", "tolerations[3].effect", "FieldValueNotSupported spec", "tolerations[5].effect", "schedulingGates[0].name"},
		},
		"the rest": {
			patch: entry("a.io/x", `{"serviceAccountName":"A B","terminationGracePeriodSeconds":-1,"imagePullSecrets":[{}]}`),
			want:  []string{"serviceAccountName", "terminationGracePeriodSeconds", "imagePullSecrets[0].name"},
		},
	}
	reserved := &patch.Reserved{
		Labels: []string{"mark"}, Annotations: []string{"amark"},
		Jobs: map[string]patch.ReservedJob{"node": {Volumes: []string{"owned"}, Mounts: map[string][]string{"proxy": {"/owned"}}, Env: map[string][]string{"proxy": {"OWNED"}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := patch.DefaultConfig()
			if tt.cfg != nil {
				tt.cfg(&cfg)
			}
			runtime := template(basePod)
			runtime.Spec.VolumeClaimPolicies = []jobsetv1alpha2.VolumeClaimPolicy{{}}
			runtime.Spec.VolumeClaimPolicies[0].Templates = append(runtime.Spec.VolumeClaimPolicies[0].Templates, *parse[corev1.PersistentVolumeClaim](`{"metadata":{"name":"claim"}}`))
			errs := patch.Validate(&patch.Request{New: jobWith(tt.patch), Config: &cfg}, runtime, reserved).Errors
			expectErrors(t, errs, tt.want...)

			old := jobWith(tt.patch)
			if errs := patch.Validate(&patch.Request{New: jobWith(tt.patch), Old: old, Config: &cfg}, runtime, reserved).Errors; len(errs) > 0 {
				t.Errorf("content that was there before is refused: %v", texts(errs))
			}
		})
	}
}

// TestTransition is the table of 50 §3.5, with and without a JobSet that is still active.
func TestTransition(t *testing.T) {
	busy := &jobsetv1alpha2.JobSet{Status: jobsetv1alpha2.JobSetStatus{ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Active: 2}, {Name: "idle", Ready: 1}, {Name: "side", Active: 1}}}}
	quiet := &jobsetv1alpha2.JobSet{Status: jobsetv1alpha2.JobSetStatus{ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Suspended: 1}}}}
	const message = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
	for _, was := range []*bool{nil, new(false), new(true)} {
		for _, is := range []*bool{nil, new(false), new(true)} {
			running := (was == nil || !*was) && (is == nil || !*is)
			job := func(suspend *bool, zone string) *trainerv1alpha1.TrainJob {
				j := jobWith(entry("a.io/x", `{"nodeSelector":{"zone":"`+zone+`"}}`))
				j.Spec.Suspend = suspend
				return j
			}
			name := fmt.Sprintf("%s to %s", text(was), text(is))
			expectErrors(t, patch.Transition(job(is, "a"), job(was, "a"), busy, nil))
			expectErrors(t, patch.Transition(job(is, "b"), nil, busy, nil))
			timed := job(is, "a")
			timed.Spec.RuntimePatches[0].Time = &metav1.Time{Time: epoch}
			expectErrors(t, patch.Transition(timed, job(was, "a"), busy, nil))
			finished := job(was, "a")
			finished.Status.Conditions = []metav1.Condition{{Type: "Complete", Status: "True"}}
			if running {
				expectErrors(t, patch.Transition(job(is, "b"), finished, quiet, nil), message)
				errs := patch.Transition(job(is, "b"), job(was, "a"), nil, nil)
				expectErrors(t, errs, "Forbidden spec.runtimePatches: "+message)
				if got := errs.ToAggregate().Error(); got != "spec.runtimePatches: Forbidden: "+message {
					t.Errorf("%s: the text is %q", name, got)
				}
				if patch.NeedsJobSet(job(is, "b"), job(was, "a")) {
					t.Errorf("%s: the JobSet is read in vain", name)
				}
				continue
			}
			expectErrors(t, patch.Transition(job(is, "b"), finished, quiet, nil))
			if !patch.NeedsJobSet(job(is, "b"), job(was, "a")) || patch.NeedsJobSet(job(is, "a"), job(was, "a")) {
				t.Errorf("%s: the JobSet is needed exactly if the patches change", name)
			}
			expectErrors(t, patch.Transition(job(is, "b"), job(was, "a"), nil, nil))
			expectErrors(t, patch.Transition(job(is, "b"), job(was, "a"), quiet, nil))
			expectErrors(t, patch.Transition(job(is, "b"), job(was, "a"), busy, nil), "ReplicatedJob node is still active", "ReplicatedJob side is still active")
			expectErrors(t, patch.Transition(job(is, "b"), job(was, "a"), nil, errors.New("no answer")), "InternalError spec.runtimePatches: reading the JobSet: no answer")
		}
	}
	two := jobWith(entry("a.io/x", `{}`), entry("b.io/y", `{}`))
	swapped := jobWith(two.Spec.RuntimePatches[1], two.Spec.RuntimePatches[0])
	expectErrors(t, patch.Transition(swapped, two, nil, nil), message)
}

// rejecting is a configuration under which conflicts are refused and everybody may write every entry.
func rejecting() patch.Config {
	cfg := patch.DefaultConfig()
	cfg.ConflictPolicy, cfg.Ownership.Mode = patch.ConflictReject, patch.OwnershipOff
	return cfg
}

// TestWinner: the warning names the manager whose value counts, which is that of the queue wherever its entry stands.
func TestWinner(t *testing.T) {
	cfg := patch.DefaultConfig()
	cfg.Ownership.Mode = patch.OwnershipOff
	for _, managers := range [][2]string{{"a.io/x", "b.io/y"}, {"b.io/y", "a.io/x"}, {"a.io/x", kueue}, {kueue, "a.io/x"}} {
		winner := managers[1]
		if managers[0] == kueue {
			winner = kueue
		}
		job := jobWith(entry(managers[0], `{"nodeSelector":{"zone":"a"}}`), entry(managers[1], `{"nodeSelector":{"zone":"b"}}`))
		found := patch.Validate(&patch.Request{New: job, Config: &cfg}, template(basePod), &patch.Reserved{})
		if len(found.Errors) > 0 || len(found.Warnings) != 1 || !strings.Contains(found.Warnings[0], "the value of "+winner+" is used") {
			t.Errorf("%v: warnings %q, errors %v", managers, found.Warnings, texts(found.Errors))
		}
	}
}

// TestConflicts is 50 §4.13.1: what two managers may say about one field.
func TestConflicts(t *testing.T) {
	tests := map[string]struct {
		a, b     string
		managers [2]string
		want     string // the leaf, or "" if there is no conflict
	}{
		"a map key":                        {`{"nodeSelector":{"zone":"a"}}`, `{"nodeSelector":{"zone":"b"}}`, [2]string{}, "spec.nodeSelector[zone]"},
		"equal values are shared":          {`{"nodeSelector":{"zone":"a"}}`, `{"nodeSelector":{"zone":"a","more":"c"}}`, [2]string{}, ""},
		"a key, even with the queue":       {`{"nodeSelector":{"zone":"a"}}`, `{"nodeSelector":{"zone":"b"}}`, [2]string{"a.io/x", kueue}, "nodeSelector[zone]"},
		"different names":                  {`{"volumes":[{"name":"a","emptyDir":{}}],"containers":[{"name":"proxy","env":[{"name":"A"}]}]}`, `{"volumes":[{"name":"b","emptyDir":{}}],"containers":[{"name":"proxy","env":[{"name":"B"}]}]}`, [2]string{}, ""},
		"a variable, value and valueFrom":  {`{"containers":[{"name":"proxy","env":[{"name":"A","value":"1"}]}]}`, `{"containers":[{"name":"proxy","env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"f"}}}]}]}`, [2]string{}, "containers[name=proxy].env[name=A]"},
		"a mount path":                     {`{"containers":[{"name":"proxy","volumeMounts":[{"name":"a","mountPath":"/m"}]}]}`, `{"containers":[{"name":"proxy","volumeMounts":[{"name":"b","mountPath":"/m"}]}]}`, [2]string{}, "volumeMounts[mountPath=/m]"},
		"one volume, two paths":            {`{"containers":[{"name":"proxy","volumeMounts":[{"name":"a","mountPath":"/m"}]}]}`, `{"containers":[{"name":"proxy","volumeMounts":[{"name":"a","mountPath":"/n"}]}]}`, [2]string{}, ""},
		"a volume is one":                  {`{"volumes":[{"name":"a","secret":{"secretName":"s"}}]}`, `{"volumes":[{"name":"a","secret":{"secretName":"s","optional":true}}]}`, [2]string{}, "volumes[name=a]"},
		"quantities mean, not read, alike": {`{"volumes":[{"name":"a","emptyDir":{"sizeLimit":"1Gi"}}]}`, `{"volumes":[{"name":"a","emptyDir":{"sizeLimit":"1024Mi"}}]}`, [2]string{}, ""},
		"tolerations are one list":         {`{"tolerations":[{"key":"a"}]}`, `{"tolerations":[{"key":"b"}]}`, [2]string{}, "spec.tolerations"},
		"their order means nothing":        {`{"tolerations":[{"key":"a"},{"key":"b"}]}`, `{"tolerations":[{"key":"b"},{"key":"a"}]}`, [2]string{}, ""},
		"the queue only adds some":         {`{"tolerations":[{"key":"a"}]}`, `{"tolerations":[{"key":"b"}]}`, [2]string{"a.io/x", kueue}, ""},
		"secrets and gates cannot differ":  {`{"imagePullSecrets":[{"name":"a"}],"schedulingGates":[{"name":"g"}]}`, `{"imagePullSecrets":[{"name":"a"}],"schedulingGates":[{"name":"g"}]}`, [2]string{}, ""},
		"scalars":                          {`{"serviceAccountName":"a"}`, `{"serviceAccountName":"b"}`, [2]string{}, "spec.serviceAccountName"},
		"grace periods":                    {`{"terminationGracePeriodSeconds":1}`, `{"terminationGracePeriodSeconds":2}`, [2]string{}, "terminationGracePeriodSeconds"},
		"parts of a security context":      {`{"securityContext":{"fsGroup":1}}`, `{"securityContext":{"runAsUser":1}}`, [2]string{}, ""},
		"capabilities are sets":            {`{"containers":[{"name":"proxy","securityContext":{"capabilities":{"add":["A","B"]}}}]}`, `{"containers":[{"name":"proxy","securityContext":{"capabilities":{"add":["B","A"]}}}]}`, [2]string{}, ""},
		"groups are sets":                  {`{"securityContext":{"supplementalGroups":[1,2]}}`, `{"securityContext":{"supplementalGroups":[2,1]}}`, [2]string{}, ""},
		"parts of an affinity":             {`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}}`, `{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"t"}]}}}`, [2]string{}, ""},
		"lists in an affinity":             {`{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"s"}]}}}`, `{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"t"}]}}}`, [2]string{}, "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.managers[0] == "" {
				tt.managers = [2]string{"a.io/x", "b.io/y"}
			}
			a, b := entry(tt.managers[0], tt.a), entry(tt.managers[1], tt.b)
			cfg := rejecting()
			check := func(old *trainerv1alpha1.TrainJob) (warnings []string, found field.ErrorList) {
				judged := patch.Validate(&patch.Request{New: jobWith(a, b), Old: old, Config: &cfg}, nil, &patch.Reserved{})
				for _, e := range judged.Errors {
					if strings.Contains(e.Detail, "to different values") {
						found = append(found, e)
					}
				}
				if denied := slices.Contains(judged.Denied, patch.DeniedConflict); denied != (len(found) > 0) || (denied && judged.Conflicts == 0) {
					t.Errorf("denied for %q with %d conflicts", judged.Denied, judged.Conflicts)
				}
				return judged.Warnings, found
			}
			_, errs := check(nil)
			if tt.want == "" {
				expectErrors(t, errs)
				return
			}
			expectErrors(t, errs, tt.want+": managers "+a.Manager+" and "+b.Manager)
			if strings.Contains(errs[0].Error(), "fieldPath") {
				t.Error("a value is printed")
			}
			if _, errs = check(jobWith(a)); len(errs) != 1 {
				t.Errorf("a conflict that an update brings: %v", texts(errs))
			}
			warnings, errs := check(jobWith(a, b))
			if len(errs) > 0 || len(warnings) != 1 {
				t.Errorf("a conflict that was there before: warnings %v, errors %v", warnings, texts(errs))
			}
			cfg.ConflictPolicy = patch.ConflictWarn
			if warnings, errs = check(nil); len(errs) > 0 || len(warnings) != 1 {
				t.Errorf("policy Warn: warnings %v, errors %v", warnings, texts(errs))
			}
			cfg.ConflictPolicy = patch.ConflictIgnore
			if warnings, errs = check(nil); len(errs)+len(warnings) > 0 {
				t.Errorf("policy Ignore: warnings %v, errors %v", warnings, texts(errs))
			}
			record := patch.Record(jobWith(a, b), template(basePod), nil, &cfg, patch.Hashes([]trainerv1alpha1.RuntimePatch{a, b}, nil), epoch)
			if record[0].State != trainerv1alpha1.RuntimePatchOverridden || record[0].OverriddenBy[0].Manager != b.Manager || record[1].State != trainerv1alpha1.RuntimePatchApplied {
				t.Errorf("the record is %s", text(record))
			}
		})
	}
	t.Run("different levels and jobs", func(t *testing.T) {
		level := func(m, s string) trainerv1alpha1.RuntimePatch {
			p := parse[trainerv1alpha1.RuntimePatch](s)
			p.Manager = m
			return *p
		}
		cfg := patch.DefaultConfig()
		errs := patch.Validate(&patch.Request{Config: &cfg, New: jobWith(
			level("a.io/x", `{"trainingRuntimeSpec":{"template":{"metadata":{"labels":{"l":"1"}}}}}`),
			level("b.io/x", `{"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"metadata":{"labels":{"l":"2"}}}}]}}}}`),
			level("c.io/x", `{"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"metadata":{"labels":{"l":"3"}}}}}}]}}}}`),
			level("d.io/x", `{"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"side","template":{"spec":{"template":{"metadata":{"labels":{"l":"4"}}}}}}]}}}}`),
		)}, nil, &patch.Reserved{}).Errors
		expectErrors(t, errs)
	})
	t.Run("labels under the queue's domain", func(t *testing.T) {
		at := func(m, level, key, value string) trainerv1alpha1.RuntimePatch {
			meta := `{"metadata":{"labels":{"` + key + `":"` + value + `"}}}`
			if level == "pod" {
				meta = `{"spec":{"template":` + meta + `}}`
			}
			p := parse[trainerv1alpha1.RuntimePatch](`{"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":` + meta + `}]}}}}`)
			p.Manager = m
			return *p
		}
		for name, tt := range map[string]struct {
			level, key, other string
			refused           bool
		}{
			"of pods":                      {"pod", "kueue.x-k8s.io/podset", kueue, false},
			"of pods, under another one":   {"pod", "acme.io/podset", kueue, true},
			"of pods, without the queue":   {"pod", "kueue.x-k8s.io/podset", "b.io/y", true},
			"of Jobs, which it never sets": {"job", "kueue.x-k8s.io/podset", kueue, true},
		} {
			cfg := rejecting()
			errs := patch.Validate(&patch.Request{Config: &cfg, New: jobWith(at("a.io/x", tt.level, tt.key, "1"), at(tt.other, tt.level, tt.key, "2"))}, nil, &patch.Reserved{}).Errors
			if (len(errs) > 0) != tt.refused {
				t.Errorf("%s: %v", name, texts(errs))
			}
		}
	})
	t.Run("many", func(t *testing.T) {
		selector := func(value string) string {
			keys := []string{}
			for i := range 13 {
				keys = append(keys, fmt.Sprintf(`"k%02d":%q`, i, value))
			}
			return `{"nodeSelector":{` + strings.Join(keys, ",") + `}}`
		}
		cfg := rejecting()
		job := jobWith(entry("a.io/x", selector("1")), entry("b.io/x", selector("2")))
		errs := patch.Validate(&patch.Request{Config: &cfg, New: job}, nil, &patch.Reserved{}).Errors
		if len(errs) != 11 || !strings.Contains(errs[10].Detail, "3 more conflicts") {
			t.Errorf("%v", texts(errs))
		}
		cfg.ConflictPolicy = patch.ConflictWarn
		warnings := patch.Validate(&patch.Request{Config: &cfg, New: job}, nil, &patch.Reserved{}).Warnings
		if len(warnings) != 11 || !strings.Contains(warnings[10], "3 more conflicts") {
			t.Errorf("%q", warnings)
		}
	})
}

// TestOwners is 50 §4.13.2.
func TestOwners(t *testing.T) {
	const self, ann = "system:serviceaccount:berth-system:berth", "ann"
	queued := entry(kueue, `{"nodeSelector":{"zone":"a"}}`)
	moved := entry(kueue, `{"nodeSelector":{"zone":"b"}}`)
	mine := entry("a.io/x", `{"nodeSelector":{"own":"1"}}`)
	changed := entry("a.io/x", `{"nodeSelector":{"own":"2"}}`)
	tests := map[string]struct {
		mode    patch.OwnershipMode
		old     []trainerv1alpha1.RuntimePatch
		owners  string // the annotation of the old object
		new     []trainerv1alpha1.RuntimePatch
		user    patch.User
		granted string
		asked   []string
		refused bool
	}{
		"ann leaves the queue's entry alone":      {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{queued, mine}, user: patch.User{Name: ann}},
		"ann changes the queue's entry":           {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: ann}, asked: []string{kueue}, refused: true},
		"ann removes the queue's entry":           {old: []trainerv1alpha1.RuntimePatch{queued}, user: patch.User{Name: ann}, asked: []string{kueue}, refused: true},
		"ann adds an entry for the queue":         {old: []trainerv1alpha1.RuntimePatch{mine}, new: []trainerv1alpha1.RuntimePatch{mine, queued}, user: patch.User{Name: ann}, asked: []string{kueue}, refused: true},
		"a webhook adds the skeleton in her name": {old: []trainerv1alpha1.RuntimePatch{mine}, new: []trainerv1alpha1.RuntimePatch{mine, patch.Skeleton(kueue)}, user: patch.User{Name: ann}},
		"RBAC lets her":                           {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: ann}, granted: kueue},
		"Berth itself":                            {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: self}},
		"an account of the configuration":         {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: "system:serviceaccount:queues:manager"}},
		"the same name in another namespace":      {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: "system:serviceaccount:kueue-system:kueue-controller-manager"}, asked: []string{kueue}, refused: true},
		"a user with the name of a group":         {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: "queue-admins"}, asked: []string{kueue}, refused: true},
		"a group with the name of a user":         {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: ann, Groups: []string{"system:serviceaccount:queues:manager"}}, asked: []string{kueue}, refused: true},
		"a group of the configuration":            {old: []trainerv1alpha1.RuntimePatch{queued}, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: ann, Groups: []string{"queue-admins"}}},
		"nothing is protected":                    {mode: patch.OwnershipOff, old: []trainerv1alpha1.RuntimePatch{queued}, user: patch.User{Name: ann}},
		"strict: first write":                     {mode: patch.OwnershipStrict, new: []trainerv1alpha1.RuntimePatch{mine}, user: patch.User{Name: ann}},
		"strict: her own":                         {mode: patch.OwnershipStrict, old: []trainerv1alpha1.RuntimePatch{mine}, owners: `{"a.io/x":"ann"}`, new: []trainerv1alpha1.RuntimePatch{changed}, user: patch.User{Name: ann}},
		"strict: bob's":                           {mode: patch.OwnershipStrict, old: []trainerv1alpha1.RuntimePatch{mine}, owners: `{"a.io/x":"bob"}`, new: []trainerv1alpha1.RuntimePatch{changed}, user: patch.User{Name: ann}, asked: []string{"a.io/x"}, refused: true},
		"strict: nobody's":                        {mode: patch.OwnershipStrict, old: []trainerv1alpha1.RuntimePatch{mine}, new: []trainerv1alpha1.RuntimePatch{changed}, user: patch.User{Name: ann}, asked: []string{"a.io/x"}, refused: true},
		"strict: reserved ones have no creator":   {mode: patch.OwnershipStrict, old: []trainerv1alpha1.RuntimePatch{queued}, owners: `{"kueue.x-k8s.io/manager":"ann"}`, new: []trainerv1alpha1.RuntimePatch{moved}, user: patch.User{Name: ann}, asked: []string{kueue}, refused: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := patch.DefaultConfig()
			cfg.Ownership.Self = self
			cfg.Ownership.Reserved[0].Users = []string{"system:serviceaccount:queues:manager"}
			cfg.Ownership.Reserved[0].Groups = []string{"queue-admins"}
			if tt.mode != "" {
				cfg.Ownership.Mode = tt.mode
			}
			r := &patch.Request{New: jobWith(tt.new...), Config: &cfg, User: tt.user, Granted: map[string]bool{tt.granted: true}}
			if tt.old != nil {
				r.Old = jobWith(tt.old...)
				r.Old.Annotations = map[string]string{patch.OwnersAnnotation: tt.owners}
				// What the client claims does not count.
				r.New.Annotations = map[string]string{patch.OwnersAnnotation: `{"a.io/x":"ann"}`}
			}
			if diff := cmp.Diff(tt.asked, r.Questions()); diff != "" {
				t.Errorf("RBAC is asked about (-want +got):\n%s", diff)
			}
			patch.Default(r, epoch)
			errs := patch.Validate(r, nil, &patch.Reserved{}).Errors
			if refused := len(errs) > 0; refused != tt.refused {
				t.Errorf("refused %v: %v", refused, texts(errs))
			}
			if tt.mode == patch.OwnershipStrict && tt.owners != "" && r.New.Annotations[patch.OwnersAnnotation] != tt.owners && len(tt.new) > 0 {
				t.Errorf("the owners are %s, and were %s", r.New.Annotations[patch.OwnersAnnotation], tt.owners)
			}
		})
	}
	if diff := cmp.Diff([]string{"acme.io/tuner", "acme.io/*"}, patch.OwnershipNames("acme.io/tuner")); diff != "" {
		t.Error(diff)
	}
}

// TestResetForeign: an exported manifest can be created again by somebody who may not write all of it.
func TestResetForeign(t *testing.T) {
	cfg := patch.DefaultConfig()
	r := &patch.Request{New: jobWith(entry(kueue, `{"nodeSelector":{"zone":"a"}}`), entry("a.io/x", `{"nodeSelector":{"b":"c"}}`)), Config: &cfg, User: patch.User{Name: "ann"}}
	if diff := cmp.Diff([]string{kueue}, r.Questions()); diff != "" {
		t.Error(diff)
	}
	warnings := patch.Default(r, epoch)
	want := patch.Skeleton(kueue)
	want.Time = r.New.Spec.RuntimePatches[0].Time
	if diff := cmp.Diff(want, r.New.Spec.RuntimePatches[0]); diff != "" || len(warnings) != 1 {
		t.Errorf("warnings %v, -want +got:\n%s", warnings, diff)
	}
	errs := patch.Validate(r, nil, &patch.Reserved{}).Errors
	expectErrors(t, errs)

	// An entry that says something by selectors alone says something too.
	said := *parse[[]patch.SelectedJob](`[{"name":"t","selector":{},"template":{"metadata":{"labels":{"a":"b"}}}}]`)
	r = &patch.Request{New: jobWith(patch.Skeleton(kueue)), Selected: patch.Selected{kueue: said}, Config: &cfg, User: patch.User{Name: "ann"}}
	if warnings = patch.Default(r, epoch); len(warnings) != 1 || len(r.Selected) > 0 {
		t.Errorf("warnings %v, selected %v", warnings, r.Selected)
	}
}

// TestForgottenOwners: who once had an entry that is gone is not the owner of a new one.
func TestForgottenOwners(t *testing.T) {
	cfg := patch.DefaultConfig()
	cfg.Ownership.Mode = patch.OwnershipStrict
	r := &patch.Request{New: jobWith(entry("a.io/x", `{"nodeSelector":{"a":"1"}}`)), Old: jobWith(), Config: &cfg, User: patch.User{Name: "ann"}}
	r.Old.Annotations = map[string]string{patch.OwnersAnnotation: `{"a.io/x":"bob"}`}
	patch.Default(r, epoch)
	if got := r.New.Annotations[patch.OwnersAnnotation]; got != `{"a.io/x":"ann"}` {
		t.Errorf("the owners are %s", got)
	}
}

// TestStamp is 50 §4.13.5.
func TestStamp(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: epoch.Add(d).Truncate(time.Second)} }
	tests := map[string]struct {
		mode           patch.OwnershipMode
		old, new, want *metav1.Time
		changed, is    bool // whether the content changed, and whether there was an entry before
	}{
		"a new entry":                        {want: at(0)},
		"a new entry from the future":        {new: at(time.Hour), want: at(0)},
		"a new entry from the past":          {new: at(-time.Hour), want: at(-time.Hour)},
		"a new entry from the past, strict":  {mode: patch.OwnershipStrict, new: at(-time.Hour), want: at(0)},
		"the same content":                   {is: true, old: at(-time.Hour), new: at(-time.Minute), want: at(-time.Hour)},
		"the same content without time":      {is: true, old: at(-time.Hour), want: at(-time.Hour)},
		"other content":                      {is: true, changed: true, old: at(-time.Hour), new: at(-time.Hour), want: at(0)},
		"other content soon after":           {is: true, changed: true, old: at(-10 * time.Second), new: at(-10 * time.Second), want: at(0)},
		"other content at a time of its own": {is: true, changed: true, old: at(-time.Hour), new: at(-2 * time.Hour), want: at(0)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := patch.DefaultConfig()
			if tt.mode != "" {
				cfg.Ownership.Mode = tt.mode
			}
			p := entry("a.io/x", `{"nodeSelector":{"a":"1"}}`)
			r := &patch.Request{New: jobWith(p), Config: &cfg, User: patch.User{Name: "ann"}}
			r.New.Spec.RuntimePatches[0].Time = tt.new
			if tt.is {
				old := p
				if tt.changed {
					old = entry("a.io/x", `{"nodeSelector":{"a":"2"}}`)
				}
				old.Time = tt.old
				r.Old = jobWith(old)
			}
			patch.Default(r, epoch)
			if diff := cmp.Diff(tt.want, r.New.Spec.RuntimePatches[0].Time); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			before := text(r.New)
			patch.Default(r, epoch.Add(3*time.Second))
			if text(r.New) != before {
				t.Errorf("a second call changes %s to %s", before, text(r.New))
			}
		})
	}
}

// TestRecord is 50 §4.13.6.
func TestRecord(t *testing.T) {
	cfg := patch.DefaultConfig()
	runtime := template(basePod)
	p := entry("a.io/x", `{"nodeSelector":{"a":"1"}}`)
	p.Time = &metav1.Time{Time: epoch.Truncate(time.Second)}
	job := jobWith(p, patch.Skeleton(kueue))
	record := func(built map[string]string, now time.Time) []trainerv1alpha1.RuntimePatchStatus {
		job.Status.RuntimePatches = patch.Record(job, runtime, nil, &cfg, built, now)
		return job.Status.RuntimePatches
	}
	if s := record(nil, epoch); len(s) != 1 || s[0].State != trainerv1alpha1.RuntimePatchPending || s[0].Hash != "" {
		t.Errorf("before it is applied: %s", text(s))
	}
	built := patch.Hashes(job.Spec.RuntimePatches, nil)
	annotations, err := patch.Annotations(built)
	if err != nil {
		t.Fatal(err)
	}
	if read, ok := patch.BuiltFrom(annotations); !ok || cmp.Diff(built, read) != "" {
		t.Errorf("the annotation %v reads as %v", annotations, read)
	}
	s := record(built, epoch)
	want := trainerv1alpha1.RuntimePatchStatus{
		Manager: "a.io/x", State: trainerv1alpha1.RuntimePatchApplied, ObservedTime: p.Time, AppliedTime: p.Time, Hash: built["a.io/x"],
		Fields: []string{"template.spec.replicatedJobs[name=node].template.spec.template.spec.nodeSelector[a]"},
	}
	if diff := cmp.Diff([]trainerv1alpha1.RuntimePatchStatus{want}, s); diff != "" || len(want.Hash) != 16 {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if s = record(built, epoch.Add(time.Hour)); !s[0].AppliedTime.Equal(p.Time) {
		t.Errorf("it was applied at %v, not at %v", p.Time, s[0].AppliedTime)
	}
	job.Spec.RuntimePatches[0] = entry("a.io/x", `{"nodeSelector":{"a":"2"}}`)
	if s = record(built, epoch); s[0].State != trainerv1alpha1.RuntimePatchPending || s[0].Hash != want.Hash {
		t.Errorf("changed and not yet applied: %s", text(s))
	}
	job.Spec.RuntimePatches = nil
	if s = record(built, epoch); len(s) != 1 || s[0].State != trainerv1alpha1.RuntimePatchPending {
		t.Errorf("removed, and still in the JobSet: %s", text(s))
	}
	if s = record(map[string]string{}, epoch); len(s) != 0 {
		t.Errorf("removed: %s", text(s))
	}

	// The queue's entry is merged last, wherever it stands, so it is never the one that was overridden.
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{entry(kueue, `{"nodeSelector":{"a":"q"}}`), entry("a.io/x", `{"nodeSelector":{"a":"1"}}`)}
	s = record(patch.Hashes(job.Spec.RuntimePatches, nil), epoch)
	if s[0].State != trainerv1alpha1.RuntimePatchApplied || s[1].State != trainerv1alpha1.RuntimePatchOverridden || s[1].OverriddenBy[0].Manager != kueue {
		t.Errorf("who was overridden: %s", text(s))
	}

	// What there is too much of is cut.
	zones := func(value string) string {
		keys := make([]string, 0, 70)
		for i := range 70 {
			keys = append(keys, fmt.Sprintf(`"k%02d":%q`, i, value))
		}
		return `{"nodeSelector":{` + strings.Join(keys, ",") + `}}`
	}
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{entry("a.io/x", zones("1")), entry("b.io/x", zones("2"))}
	s = record(patch.Hashes(job.Spec.RuntimePatches, nil), epoch)
	if n := len(s[0].Fields); n != 65 || s[0].Fields[64] != "…" || len(s[0].OverriddenBy) != 16 || !strings.Contains(s[0].Message, "70 of its fields") {
		t.Errorf("%d fields, %d overridden: %s", n, len(s[0].OverriddenBy), s[0].Message)
	}
}

// TestRecordOfMany: only the first fields of an entry are compared with each other. To compare all of these would take minutes on a busy machine.
func TestRecordOfMany(t *testing.T) {
	labels := map[string]string{}
	for i := range 200_000 {
		labels[fmt.Sprintf("label-%06d", i)] = ""
	}
	many := trainerv1alpha1.RuntimePatch{Manager: "a.io/x", TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{
		Template: &trainerv1alpha1.JobSetTemplatePatch{Metadata: &metav1.ObjectMeta{Labels: labels}},
	}}
	cfg := patch.DefaultConfig()
	built := patch.Hashes([]trainerv1alpha1.RuntimePatch{many}, nil)
	s := patch.Record(jobWith(many), template(basePod), nil, &cfg, built, epoch)
	if len(s) != 1 || len(s[0].Fields) != 65 || s[0].Fields[63] != "template.metadata.labels[label-000063]" || s[0].Fields[64] != "…" {
		t.Errorf("record %+v", s)
	}
}

// TestSelectors is 50 §4.13.4.
func TestSelectors(t *testing.T) {
	runtime := parse[trainerv1alpha1.JobSetTemplateSpec](`{"spec":{"replicatedJobs":[
		{"name":"workers","template":{"metadata":{"labels":{"trainer.kubeflow.org/trainjob-ancestor-step":"trainer"}},"spec":{"template":{"spec":{"containers":[{"name":"node"}]}}}}},
		{"name":"side","template":{"spec":{"template":{"spec":{"containers":[{"name":"proxy"}]}}}}}]}}`)
	selected := func(list string) patch.Selected { return patch.Selected{"a.io/x": *parse[[]patch.SelectedJob](list)} }
	const trainer = `{"matchLabels":{"trainer.kubeflow.org/trainjob-ancestor-step":"trainer"}}`
	said := func(zone string) string {
		return `{"spec":{"template":{"spec":{"nodeSelector":{"zone":"` + zone + `"}}}}}`
	}
	many := func(n int) patch.Selected {
		list := make([]string, 0, n)
		for i := range n {
			list = append(list, fmt.Sprintf(`{"name":"t%d","selector":{},"template":%s}`, i, said("a")))
		}
		return selected("[" + strings.Join(list, ",") + "]")
	}
	byName := *parse[trainerv1alpha1.RuntimePatch](`{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"workers","template":` + said("named") + `}]}}}}`)
	empty := trainerv1alpha1.RuntimePatch{Manager: "a.io/x"}
	on := patch.DefaultConfig()
	on.Selectors = true
	tests := map[string]struct {
		entry    trainerv1alpha1.RuntimePatch
		selected patch.Selected
		off      bool
		want     []string
		zones    [2]string
	}{
		"by label":                {entry: empty, selected: selected(`[{"name":"t","selector":` + trainer + `,"template":` + said("a") + `}]`), zones: [2]string{"a", ""}},
		"all":                     {entry: empty, selected: selected(`[{"name":"t","selector":{},"template":` + said("a") + `}]`), zones: [2]string{"a", "a"}},
		"a name is more specific": {entry: byName, selected: selected(`[{"name":"t","selector":{},"template":` + said("a") + `}]`), zones: [2]string{"named", "a"}},
		"nothing matches":         {entry: empty, selected: selected(`[{"name":"t","selector":{"matchLabels":{"a":"b"}}}]`), want: []string{"selectedReplicatedJobs[0].selector: matches no replicated job"}},
		"gate off":                {entry: empty, selected: selected(`[{"name":"t","selector":{}}]`), off: true, want: []string{"Forbidden spec.runtimePatches[0].trainingRuntimeSpec.template.spec.selectedReplicatedJobs: needs the feature gate"}},
		"names":                   {entry: empty, selected: selected(`[{"name":"","selector":{}},{"name":"t","selector":{}},{"name":"t","selector":{}}]`), want: []string{"[0].name: must identify", "[2].name"}},
		"too many":                {entry: empty, selected: many(33), want: []string{"selectedReplicatedJobs: "}},
		"32":                      {entry: empty, selected: many(32), zones: [2]string{"a", "a"}},
		"containers of each match": {
			entry: empty, selected: selected(`[{"name":"t","selector":{},"template":{"spec":{"template":{"spec":{"containers":[{"name":"proxy"}]}}}}}]`),
			want: []string{"replicatedJobs[workers].template.spec.template.spec.containers[proxy]"},
		},
		"two that disagree": {
			entry: empty, selected: selected(`[{"name":"t","selector":{},"template":` + said("a") + `},{"name":"u","selector":` + trainer + `,"template":` + said("b") + `}]`),
			want: []string{"selectedReplicatedJobs[1]: sets template.spec.replicatedJobs[name=workers]"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := on
			cfg.Selectors = !tt.off
			errs := patch.Validate(&patch.Request{New: jobWith(tt.entry), Selected: tt.selected, Config: &cfg}, runtime, &patch.Reserved{}).Errors
			expectErrors(t, errs, tt.want...)
			if len(tt.want) > 0 {
				return
			}
			got := patch.Merge(runtime, []trainerv1alpha1.RuntimePatch{tt.entry}, tt.selected, &cfg)
			for i, want := range tt.zones {
				if zone := got.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.NodeSelector["zone"]; zone != want {
					t.Errorf("job %d is in zone %q, not %q", i, zone, want)
				}
			}
		})
	}
}
