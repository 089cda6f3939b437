package options

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	configv1beta1 "github.com/berth-project/berth/api/config/v1beta1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

const oldHeader = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"

func parseOld(body, flag string) (Options, error) {
	return Parse("c.yaml", []byte(oldHeader+strings.TrimPrefix(body, "\n")), flag)
}

// Defaults and warnings of a file of the old version (spec: 70 §3.2, §7 examples 5 to 7).
func TestOldVersion(t *testing.T) {
	both := []configv1beta2.PreemptionStrategy{configv1beta2.LessThanOrEqualToFinalShare, configv1beta2.LessThanInitialShare}
	on := func(timeout, recovery time.Duration, block bool) PodsReady {
		return PodsReady{
			Enabled: true, Timeout: timeout, Recovery: recovery, BlockAdmission: block,
			RequeueBy: "Eviction", BackoffBase: time.Minute, BackoffMax: time.Hour, BackoffLimit: NoLimit,
		}
	}
	cases := map[string]struct {
		body      string
		flag      string
		podsReady PodsReady
		fair      FairSharing
		told      []string
		notTold   []string
	}{
		"bare": {
			told:    []string{"waitForPodsReady is on unless featureGates.DisableWaitForPodsReady is true; it is off here"},
			notTold: []string{"fairSharing", "enable"},
		},
		"switched off": {
			body: "waitForPodsReady: {enable: false, timeout: -1s}\nfairSharing: {enable: false}",
			told: []string{"it is off here", "waitForPodsReady.enable is gone", "fairSharing is on when it is present; it is off here"},
		},
		"off without a word": {
			body: "waitForPodsReady: {timeout: 1m}\nfairSharing: {preemptionStrategies: [LessThanInitialShare]}",
			told: []string{"DisableWaitForPodsReady", "fairSharing is on when it is present"},
		},
		"off, whatever the gate is": {
			flag: "DisableWaitForPodsReady=false", told: []string{"it is off here"},
		},
		"switched on": {
			body:      "waitForPodsReady: {enable: true}\nfairSharing: {enable: true}",
			podsReady: on(5*time.Minute, 5*time.Minute, true), fair: FairSharing{Enabled: true, Strategies: both},
			told: []string{
				"timeout is 30m unless it is written; it is 5m here", "blockAdmission is false unless it is written; it is true here",
				"preemptionStrategies has to be written",
			},
			notTold: []string{"DisableWaitForPodsReady"},
		},
		"switched on, with all that differs written out": {
			body: `
waitForPodsReady: {enable: true, timeout: 7m, recoveryTimeout: 1m, blockAdmission: false}
fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}`,
			podsReady: on(7*time.Minute, time.Minute, false), fair: FairSharing{Enabled: true, Strategies: both[1:]},
			told:    []string{"waitForPodsReady.enable is gone", "fairSharing.enable is gone"},
			notTold: []string{"5m", "true here", "both"},
		},
		"no time is no time given": {
			body: "waitForPodsReady: {enable: true, timeout: 0s}", podsReady: on(5*time.Minute, 5*time.Minute, true),
			told: []string{"it is 5m here"},
		},
		"what has no effect": {
			body: `
queueVisibility: {clusterQueues: {maxCount: 3}, updateIntervalSeconds: 5}
integrations: {frameworks: [batch/job], podOptions: {namespaceSelector: {matchLabels: {a: b}}, podSelector: {}}}`,
			told: []string{"queueVisibility is gone", "integrations.podOptions is gone"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := parseOld(tc.body, tc.flag)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.podsReady, o.PodsReady); diff != "" {
				t.Errorf("waitForPodsReady (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.fair, o.FairSharing); diff != "" {
				t.Errorf("fairSharing (-want +got):\n%s", diff)
			}
			i := slices.IndexFunc(o.Warnings, func(w string) bool { return strings.HasPrefix(w, "config.kueue.x-k8s.io/v1beta1 is deprecated") })
			if i < 0 {
				t.Fatalf("no warning about the version: %q", o.Warnings)
			}
			for _, piece := range tc.told {
				if !strings.Contains(o.Warnings[i], piece) {
					t.Errorf("%q does not say %q", o.Warnings[i], piece)
				}
			}
			for _, piece := range tc.notTold {
				if strings.Contains(o.Warnings[i], piece) {
					t.Errorf("%q says %q", o.Warnings[i], piece)
				}
			}
			if tc.flag == "" {
				again := mustParseText(t, o)
				if diff := cmp.Diff(o.Effective, again.Effective); diff != "" || again.PodsReady != o.PodsReady {
					t.Errorf("effective configuration (-first +again):\n%s", diff)
				}
			}
		})
	}
}

// mustParseText parses the effective configuration again.
func mustParseText(t *testing.T, o Options) Options {
	t.Helper()
	text, err := o.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, configv1beta2.GroupVersion.String()) {
		t.Errorf("not logged as v1beta2:\n%s", text)
	}
	again, err := Parse("again.yaml", []byte(text), "")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return again
}

// Problems have the positions of the old file.
func TestOldVersionProblems(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"unknown field":              {"waitForPodReady: {}", "c.yaml:3: waitForPodReady: unknown field; did you mean waitForPodsReady?"},
		"visibilityServer":           {"visibilityServer: {}", "c.yaml:3: visibilityServer: unknown field"},
		"quotaCheckStrategy":         {"resources:\n  quotaCheckStrategy: IgnoreUndeclared", "c.yaml:4: resources.quotaCheckStrategy: unknown field"},
		"sources of a class mapping": {"resources:\n  deviceClassMappings:\n  - {name: a.b/c, deviceClassNames: [d], sources: []}", "c.yaml:5: resources.deviceClassMappings[0].sources: unknown field"},
		"clusterProfile":             {"multiKueue: {clusterProfile: {}}", "c.yaml:3: multiKueue.clusterProfile: unknown field"},
		"step size":                  {"multiKueue: {incrementalDispatcherConfig: {stepSize: 2}}", "c.yaml:3: multiKueue.incrementalDispatcherConfig: unknown field"},
		"source kind":                {"metrics: {customLabels: [{name: a, sourceKind: Cohort}]}", "c.yaml:3: metrics.customLabels[0].sourceKind: unknown field"},
		"tracked values":             {"metrics: {customLabels: [{name: a, trackedValues: [b]}]}", "c.yaml:3: metrics.customLabels[0].trackedValues: unknown field"},
		"wrong type":                 {"fairSharing:\n  enable: 3", `c.yaml:4: fairSharing.enable: want true or false, got "3"`},
		"a rule":                     {"waitForPodsReady:\n  enable: true\n  timeout: -1s", "c.yaml:5: waitForPodsReady.timeout: "},
		"strategies in wrong order":  {"\nfairSharing:\n  enable: true\n  preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]", "c.yaml:5: fairSharing.preemptionStrategies"},
		"a framework twice":          {"integrations:\n  frameworks:\n  - batch/job\n  - batch/job", "c.yaml:6: integrations.frameworks[1]: "},
		"an unknown gate":            {"featureGates:\n  Magic: true", "c.yaml:4: featureGates[Magic]: unknown feature gate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseOld(tc.body, "")
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v\nwant %s…", err, tc.want)
			}
		})
	}
	_, err := Parse("c.yaml", []byte("apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Config\n"), "")
	if want := `c.yaml:2: kind: "Config" is not read; write kind: Configuration`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Fields of both versions have the same meaning.
func TestOldVersionFullFile(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	within := func(keys ...any) map[string]any {
		var at any = file
		for _, key := range keys {
			switch k := key.(type) {
			case string:
				at = at.(map[string]any)[k]
			case int:
				at = at.([]any)[k]
			}
		}
		return at.(map[string]any)
	}
	delete(file, "visibilityServer")
	delete(file, "jobSet")
	delete(file, "localQueues")
	delete(file, "trainer")
	delete(file, "failureRecovery")
	delete(file, "preemption")
	delete(file, "scheduling")
	delete(within("resources"), "quotaCheckStrategy")
	for i := range within("resources")["deviceClassMappings"].([]any) {
		delete(within("resources", "deviceClassMappings", i), "sources")
	}
	delete(within("integrations"), "declaredKinds")
	delete(within("integrations"), "spark")
	delete(within("integrations"), "rayService")
	delete(within("integrations"), "honourUserSuspend")
	delete(within("integrations"), "maxChildren")
	delete(within("integrations"), "verifyOwners")
	delete(within("integrations"), "externalChildren")
	delete(within("multiKueue"), "clusterProfile")
	for _, key := range []string{"incrementalDispatcherConfig", "previousOrigins", "remoteRetentionAfterFinish", "singleClusterPreemptionTimeout", "allowHTTP"} {
		delete(within("multiKueue"), key)
	}
	frameworks := within("multiKueue")["externalFrameworks"].([]any)
	for i := range frameworks {
		frameworks[i] = map[string]any{"name": frameworks[i].(map[string]any)["name"]}
	}
	for i := range within("metrics")["customLabels"].([]any) {
		delete(within("metrics", "customLabels", i), "sourceKind")
		delete(within("metrics", "customLabels", i), "trackedValues")
	}
	load := func() Options {
		t.Helper()
		text, err := yaml.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		o, err := Parse("c.yaml", text, "")
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	want := load()
	file["apiVersion"] = configv1beta1.GroupVersion.String()
	within("waitForPodsReady")["enable"] = true
	within("fairSharing")["enable"] = true
	if diff := cmp.Diff(want.Effective, load().Effective); diff != "" {
		t.Errorf("(-v1beta2 +v1beta1):\n%s", diff)
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range allPaths(reflect.TypeFor[configv1beta1.Configuration](), "") {
		last := path[strings.LastIndex(path, ".")+1:]
		if gone := strings.HasPrefix(path, "queueVisibility") || strings.HasPrefix(path, "integrations.podOptions"); !gone && !strings.Contains(string(text), last+":") {
			t.Errorf("%s is not in the file of this test", path)
		}
	}
}
