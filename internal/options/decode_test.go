package options

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each case is a file with mistakes and the expected lines of the error. The first field of a body is on line 3.
func TestStrictDecoding(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want []string
	}{
		"unknown field at the top": {
			body: "integration: {}",
			want: []string{"c.yaml:3: integration: unknown field; did you mean integrations?"},
		},
		"unknown field below": {
			body: "waitForPodsReady:\n  requeuingStrategy:\n    backoffLimit: 3",
			want: []string{"c.yaml:5: waitForPodsReady.requeuingStrategy.backoffLimit: unknown field; known here: backoffBaseSeconds, backoffLimitCount, backoffMaxSeconds, timestamp"},
		},
		"case matters": {
			body: "manageJobsWithoutQueuename: true",
			want: []string{"c.yaml:3: manageJobsWithoutQueuename: unknown field; did you mean manageJobsWithoutQueueName?"},
		},
		"unknown field in a list": {
			body: "multiKueue:\n  externalFrameworks:\n  - name: A.v1.b\n  - nam: C.v1.d",
			want: []string{"c.yaml:6: multiKueue.externalFrameworks[1].nam: unknown field; did you mean name?"},
		},
		"nothing near": {
			body: "clientConnection: {kubeconfig: x}",
			want: []string{"c.yaml:3: clientConnection.kubeconfig: unknown field; known here: burst, qps"},
		},
		"field of v1beta1": {
			body: "fairSharing:\n  enable: true",
			want: []string{"c.yaml:4: fairSharing.enable: unknown field; remove it: fairSharing is on when it is present, off when it is absent"},
		},
		"written twice": {
			body: "namespace: a\nhealth: {}\nnamespace: b",
			want: []string{"c.yaml:5: namespace: written twice, first on line 3; remove one"},
		},
		"map key twice": {
			body: "featureGates:\n  MultiKueue: true\n  MultiKueue: true",
			want: []string{"c.yaml:5: featureGates[MultiKueue]: written twice, first on line 4; remove one"},
		},
		"bool": {
			body: "manageJobsWithoutQueueName: maybe",
			want: []string{`c.yaml:3: manageJobsWithoutQueueName: want true or false, got "maybe"`},
		},
		"quoted bool": {
			body: "leaderElection: {leaderElect: \"true\"}",
			want: []string{`c.yaml:3: leaderElection.leaderElect: want true or false, got "true"`},
		},
		"number for text": {
			body: "multiKueue:\n  origin: 12",
			want: []string{"c.yaml:4: multiKueue.origin: want a text, got 12; put it in quotes"},
		},
		"text for number": {
			body: "webhook: {port: https}",
			want: []string{`c.yaml:3: webhook.port: want a whole number of 32 bits, got "https"`},
		},
		"number too large": {
			body: "webhook: {port: 5000000000}",
			want: []string{`c.yaml:3: webhook.port: want a whole number of 32 bits, got "5000000000"`},
		},
		"fraction": {
			body: "clientConnection: {burst: 1.5}",
			want: []string{`c.yaml:3: clientConnection.burst: want a whole number of 32 bits, got "1.5"`},
		},
		"not a finite number": {
			body: "clientConnection: {qps: .nan}",
			want: []string{`c.yaml:3: clientConnection.qps: want a number, got ".nan"`},
		},
		"duration": {
			body: "waitForPodsReady:\n  timeout: 5 minutes",
			want: []string{`c.yaml:4: waitForPodsReady.timeout: want a duration such as "30s" or "5m", got "5 minutes"`},
		},
		"bare number for a duration": {
			body: "waitForPodsReady: {timeout: 300}",
			want: []string{`c.yaml:3: waitForPodsReady.timeout: want a duration such as "30s" or "5m", got "300"`},
		},
		"nanoseconds": {
			body: "controller: {cacheSyncTimeout: soon}",
			want: []string{`c.yaml:3: controller.cacheSyncTimeout: want a duration such as "2m", or a whole number of nanoseconds, got "soon"`},
		},
		"quantity": {
			body: "resources:\n  transformations:\n  - input: a\n    outputs:\n      b: lots",
			want: []string{`c.yaml:7: resources.transformations[0].outputs[b]: want a quantity such as 2, "500m" or "4Gi", got "lots"`},
		},
		"list for mapping": {
			body: "metrics: []",
			want: []string{"c.yaml:3: metrics: want a mapping with fields of its own, got a list"},
		},
		"text for list": {
			body: "integrations: {frameworks: batch/job}",
			want: []string{`c.yaml:3: integrations.frameworks: want a list, got "batch/job"`},
		},
		"text for map": {
			body: "featureGates: A=true",
			want: []string{`c.yaml:3: featureGates: want a mapping of names to values, got "A=true"`},
		},
		"nothing in a map": {
			body: "featureGates:\n  MultiKueue:",
			want: []string{"c.yaml:4: featureGates[MultiKueue]: want true or false, got nothing"},
		},
		"nothing in a list": {
			body: "integrations:\n  frameworks:\n  -",
			want: []string{"c.yaml:5: integrations.frameworks[0]: want a text, got nothing"},
		},
		"merge key": {
			body: "health: &h {}\nwebhook:\n  <<: *h",
			want: []string{"c.yaml:5: webhook: merge keys (<<) are not read; write the fields out"},
		},
		"key that is a list": {
			body: "[a]: b",
			want: []string{"c.yaml:3: a key must be plain text"},
		},
		"all of them at once": {
			body: "namespaces: a\nwebhook: {port: x}\nhealth: 3",
			want: []string{
				"c.yaml:3: namespaces: unknown field; did you mean namespace?",
				`c.yaml:4: webhook.port: want a whole number of 32 bits, got "x"`,
				`c.yaml:5: health: want a mapping with fields of its own, got "3"`,
			},
		},
		"not YAML": {
			body: "namespace: [",
			want: []string{"c.yaml:3: not valid YAML: did not find expected node content"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("c.yaml", withHeader(tc.body), "")
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("want an *Error, got %v", err)
			}
			if diff := cmp.Diff(tc.want, strings.Split(e.Error(), "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLenientSpellings(t *testing.T) {
	for name, tc := range map[string]struct {
		body  string
		check func(Options) bool
	}{
		"older bools":                 {"manageJobsWithoutQueueName: yes", func(o Options) bool { return o.ManageJobsWithoutQueueName }},
		"null is not written":         {"namespace:\nwebhook: null\nfairSharing: ~", func(o Options) bool { return o.Namespace == "berth-system" && !o.FairSharing.Enabled }},
		"aliases":                     {"namespace: &ns a-b\nmultiKueue: {origin: *ns}", func(o Options) bool { return o.MultiKueue.Origin == "a-b" }},
		"nanoseconds as a number":     {"controller: {cacheSyncTimeout: 60000000000}", func(o Options) bool { return o.CacheSyncTimeout.Minutes() == 1 }},
		"nanoseconds as text":         {"controller: {cacheSyncTimeout: 90s}", func(o Options) bool { return o.CacheSyncTimeout.Seconds() == 90 }},
		"probe path without slash":    {"health: {readinessEndpointName: ready}", func(o Options) bool { return o.Health.ReadinessPath == "/ready" }},
		"no frameworks at all":        {"integrations: {frameworks: []}", func(o Options) bool { return len(o.Frameworks) == 0 }},
		"integrations left empty":     {"integrations: {}", func(o Options) bool { return len(o.Frameworks) == 1 }},
		"zero timeout is the default": {"waitForPodsReady: {timeout: 0s}", func(o Options) bool { return o.PodsReady.Timeout.Minutes() == 30 }},
		"zero recovery is off":        {"waitForPodsReady: {recoveryTimeout: 0s}", func(o Options) bool { return o.PodsReady.Recovery == 0 }},
		"recovery follows timeout":    {"waitForPodsReady: {timeout: 7m}", func(o Options) bool { return o.PodsReady.Recovery.Minutes() == 7 }},
		"no client limit":             {"clientConnection: {qps: -1}", func(o Options) bool { return o.Client.QPS == -1 && o.Client.Burst == 500 }},
		"zero client limits":          {"clientConnection: {qps: 0, burst: 0}", func(o Options) bool { return o.Client == Client{QPS: 300, Burst: 500} }},
		"listeners off":               {"metrics: {bindAddress: \"0\"}\nhealth: {healthProbeBindAddress: \"0\"}", func(o Options) bool { return o.Metrics.Address == "0" && o.Health.Address == "0" }},
		"others' certificates":        {"internalCertManagement: {enable: false}", func(o Options) bool { return o.Certs == Certs{} }},
		"selector of own namespace":   {"namespace: n1", func(o Options) bool { return strings.Contains(o.ManagedNamespaces.String(), "n1") }},
		"no election needs no times":  {"leaderElection: {leaderElect: false, retryPeriod: 1h}", func(o Options) bool { return !o.LeaderElection.Enabled }},
	} {
		t.Run(name, func(t *testing.T) {
			if o := mustParse(t, tc.body, ""); !tc.check(o) {
				t.Errorf("not what was meant: %+v", o)
			}
		})
	}
}

func TestDocuments(t *testing.T) {
	v1beta2 := header + "namespace: a\n"
	for name, tc := range map[string]struct{ file, want string }{
		"empty":           {"", "c.yaml: the file is empty; it must begin with apiVersion: config.kueue.x-k8s.io/v1beta2 and kind: Configuration"},
		"only comments":   {"# nothing\n---\n", "c.yaml: the file is empty; it must begin with apiVersion: config.kueue.x-k8s.io/v1beta2 and kind: Configuration"},
		"a list":          {"- a\n", "c.yaml:1: want a mapping that begins with apiVersion and kind, got a list"},
		"no apiVersion":   {"kind: Configuration\n", "c.yaml:1: apiVersion: is missing; write apiVersion: config.kueue.x-k8s.io/v1beta2"},
		"no kind":         {"apiVersion: config.kueue.x-k8s.io/v1beta2\n", "c.yaml:1: kind: is missing; write kind: Configuration"},
		"other kind":      {"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Config\n", `c.yaml:2: kind: "Config" is not read; write kind: Configuration`},
		"JobSet's":        {"apiVersion: config.jobset.x-k8s.io/v1alpha2\nkind: Configuration\n", "c.yaml:1: apiVersion: config.jobset.x-k8s.io/v1alpha2 is not read; write apiVersion: config.jobset.x-k8s.io/v1alpha1"},
		"somebody else's": {"apiVersion: v1\nkind: ConfigMap\n", `c.yaml:1: apiVersion: "v1" is not read; write apiVersion: config.kueue.x-k8s.io/v1beta2`},
		"two of ours":     {v1beta2 + "---\n" + v1beta2, "c.yaml:5: the file has a second Configuration of this group; keep one"},
		"broken second":   {v1beta2 + "---\n{", "c.yaml:5: not valid YAML: did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("c.yaml", []byte(tc.file), "")
			if err == nil || strings.Split(err.Error(), "\n")[0] != tc.want {
				t.Errorf("want %q\n got %v", tc.want, err)
			}
		})
	}
	t.Run("separators and comments around", func(t *testing.T) {
		if _, err := Parse("c.yaml", []byte("---\n# a comment\n"+v1beta2+"---\n"), ""); err != nil {
			t.Error(err)
		}
	})
}

func TestTooManyValues(t *testing.T) {
	row := "[" + strings.Repeat("x,", 999) + "x]"
	body := "tls: {cipherSuites: &r " + row + "}\nintegrations: {labelKeysToCopy: *r, externalFrameworks: *r}\n" +
		"metrics:\n  customLabels:\n" + strings.Repeat("  - {name: a, trackedValues: *r}\n", 200)
	_, err := Parse("c.yaml", withHeader(body), "")
	if err == nil || !strings.Contains(err.Error(), "the file comes to more than 100000 values; make it smaller") {
		t.Fatalf("want the bound named, got %.300v", err)
	}
	if n := len(problemsOf(err)); n != 1 {
		t.Errorf("want one problem, got %d", n)
	}
}
