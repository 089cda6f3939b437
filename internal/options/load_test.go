package options

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/options/training"
)

const header = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"

// withHeader returns a file with the fields of a case, from line 3.
func withHeader(body string) []byte { return []byte(header + strings.TrimPrefix(body, "\n")) }

func mustParse(t *testing.T, body, flag string) Options {
	t.Helper()
	o, err := Parse("c.yaml", withHeader(body), flag)
	if err != nil {
		t.Fatalf("unexpected error:\n%v", err)
	}
	return o
}

// spec: 70 §2.1, §7 example 1.
func TestDefault(t *testing.T) {
	got := Default()
	want := Options{
		Namespace: "berth-system", Frameworks: frameworksWithoutGates(), LabelledOnly: true, GenerateLocalQueues: "None",
		MaxChildren: 100_000, VerifyOwners: true,
		Client:  Client{QPS: 300, Burst: 500},
		Webhook: Webhook{Port: 9443, CertDir: "/tmp/k8s-webhook-server/serving-certs"},
		Certs:   Certs{Internal: true, Service: "kueue-webhook-service", Secret: "kueue-webhook-server-cert"},
		LeaderElection: LeaderElection{
			Enabled: true, Name: "c1f6bfd2.kueue.x-k8s.io", Namespace: "berth-system",
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		},
		Health:  Health{Address: ":8081", ReadinessPath: "/readyz", LivenessPath: "/healthz"},
		Metrics: Metrics{Address: ":8443", LocalQueues: labels.Everything()},
		TLS:     TLS{MinVersion: 0x0303}, VisibilityAddress: ":8082", CacheSyncTimeout: 2 * time.Minute,
		Dashboard:            Dashboard{AuthMode: "TokenReview", CacheTTL: time.Minute, NegativeCacheTTL: 5 * time.Second},
		GroupKindConcurrency: shippedConcurrency(), RecoveryDelay: time.Minute,
		PodsReady: PodsReady{
			Enabled: true, Timeout: 30 * time.Minute, Recovery: 30 * time.Minute,
			RequeueBy: "Eviction", BackoffBase: time.Minute, BackoffMax: time.Hour, BackoffLimit: NoLimit,
		},
		MultiKueue: MultiKueue{
			GCInterval: time.Minute, Origin: "multikueue", WorkerLostTimeout: 15 * time.Minute,
			Dispatcher: "kueue.x-k8s.io/multikueue-dispatcher-all-at-once", StepSize: 3,
			RoundTimeout: 5 * time.Minute, PreemptionTimeout: 5 * time.Minute,
		},
		JobSet: JobSet{Client: Client{QPS: 500, Burst: 500}, Lease: LeaderElection{
			Enabled: true, Name: "6d4f6a47.jobset.x-k8s.io", Namespace: "jobset-system",
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		}},
		Trainer: training.Options{
			ConflictPolicy: "Warn", OwnershipMode: "Reserved", SchedulingManagers: []string{"kueue.x-k8s.io/*"},
			Reserved: []configv1beta2.ReservedManager{{
				Manager: "kueue.x-k8s.io/*", Subjects: []string{"system:serviceaccount:berth-system:kueue-controller-manager"},
			}},
			RestrictMetadata: true, StrictTargets: true, RecreateDeletedJobSet: true,
			StatusAddress: ":10443", StatusPort: 10443, StatusService: "kubeflow-trainer-controller-manager", StatusQPS: 5, StatusBurst: 10,
		},
		Gates: feature.Default(),
	}
	for name, managed := range map[string]bool{"kube-system": false, "berth-system": false, "calico-system": false, "cert-manager": false, "team-a": true} {
		if got.ManagedNamespaces.Matches(labels.Set{"kubernetes.io/metadata.name": name}) != managed {
			t.Errorf("namespace %s: want managed %t", name, managed)
		}
	}
	if got.InertGates() != nil || got.Warnings != nil {
		t.Errorf("the defaults set nothing, but: inert %v, warnings %v", got.InertGates(), got.Warnings)
	}
	got.ManagedNamespaces, got.Effective = nil, nil
	got.ManagedNamespaceSelector = want.ManagedNamespaceSelector
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Options{}, feature.Gates{}), cmp.Comparer(sameSelector)); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func sameSelector(a, b labels.Selector) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.String() == b.String()
}

// frameworksWithoutGates are the frameworks of a manager without a configuration file.
func frameworksWithoutGates() []string {
	return slices.DeleteFunc(frameworkNames(), func(name string) bool { return name == "sparkoperator.k8s.io/sparkapplication" })
}

// Without a file all kinds are enabled; otherwise the file decides.
func TestNoFileEnablesAllFrameworks(t *testing.T) {
	withoutFile := func(flag string) Options {
		o, err := LoadWithGates(nil, flag)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for name, tc := range map[string]struct {
		o        Options
		want     []string
		labelled bool
	}{
		"no file":                 {withoutFile(""), frameworksWithoutGates(), true},
		"no file, Spark's gate":   {withoutFile("SparkApplicationIntegration=true"), frameworkNames(), true},
		"a file without a list":   {mustParse(t, "", ""), []string{"batch/job"}, false},
		"a file with another one": {mustParse(t, "integrations: {frameworks: [pod]}", ""), []string{"pod"}, false},
		"a file with none":        {mustParse(t, "integrations: {frameworks: []}", ""), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.Equal(tc.o.Frameworks, tc.want) || tc.o.LabelledOnly != tc.labelled {
				t.Errorf("frameworks %v, labelled only %v; want %v, %v", tc.o.Frameworks, tc.o.LabelledOnly, tc.want, tc.labelled)
			}
		})
	}
}

func TestNoFileIsDefaultAndBareFileIsButForFrameworks(t *testing.T) {
	fromNothing, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	bare := mustParse(t, "", "")
	bare.Effective.Integrations.Frameworks = frameworksWithoutGates()
	for name, o := range map[string]Options{"no file": fromNothing, "bare file": bare} {
		if diff := cmp.Diff(Default().Effective, o.Effective); diff != "" {
			t.Errorf("%s (-default +got):\n%s", name, diff)
		}
	}
}

func TestExampleFile(t *testing.T) {
	o, err := Load(filepath.Join("testdata", "example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if o.Client.QPS != 50 || o.Client.Burst != 100 || o.Concurrency("Job.batch") != 5 || o.Concurrency("Cohort.kueue.x-k8s.io") != 1 {
		t.Errorf("values of the file did not arrive: %+v", o)
	}
	if diff := cmp.Diff([]string{"VectorizedResourceRequests"}, o.InertGates()); diff != "" {
		t.Errorf("InertGates (-want +got):\n%s", diff)
	}
	team := labels.Set{"kubernetes.io/metadata.name": "a", "berth.dev/team": "x"}
	if !o.ManagedNamespaces.Matches(team) || o.ManagedNamespaces.Matches(labels.Set{"kubernetes.io/metadata.name": "a"}) {
		t.Errorf("the selector of the file is not honoured: %s", o.ManagedNamespaces)
	}
}

func TestFullFile(t *testing.T) {
	path := filepath.Join("testdata", "full.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Parse(path, data, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("sets every field", func(t *testing.T) {
		d := newDecoder("")
		var c configv1beta2.Configuration
		found, _ := documentsOf([]File{{path, data}})
		d.Decode(found.manager.root, &c)
		index := regexp.MustCompile(`\[[^\]]*\]`)
		set := map[string]bool{}
		for _, p := range d.Order {
			set[index.ReplaceAllString(p, "")] = true
		}
		all := allPaths(reflect.TypeFor[configv1beta2.Configuration](), "")
		if len(all) < 100 {
			t.Fatalf("found only %d fields in the type", len(all))
		}
		for _, p := range all {
			// The old spelling excludes the new one.
			if !set[p] && !strings.HasPrefix(p, "multiKueue.clusterProfile.credentialsProviders") {
				t.Errorf("testdata/full.yaml does not set %s", p)
			}
		}
	})
	t.Run("round trip", func(t *testing.T) {
		text, err := o.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again.yaml", []byte(text), "")
		if err != nil {
			t.Fatalf("the effective configuration is refused:\n%v\n%s", err, text)
		}
		if diff := cmp.Diff(o.Effective, again.Effective); diff != "" {
			t.Errorf("effective configuration (-first +second):\n%s", diff)
		}
	})
	t.Run("resolved", func(t *testing.T) {
		checks := map[string]bool{
			"health paths": o.Health == Health{Address: ":9081", ReadinessPath: "/ready", LivenessPath: "/live"},
			"lease":        o.LeaderElection.Namespace == "leases" && o.LeaderElection.Name == "berth.example.com",
			"concurrency":  o.Concurrency("Job.batch") == 7 && o.Concurrency("Workload.kueue.x-k8s.io") == 10 && o.Concurrency("X.y") == 1,
			"cache sync":   o.CacheSyncTimeout == 3*time.Minute,
			"tls":          len(o.TLS.CipherSuites) == 1 && len(o.TLS.Curves) == 2 && o.TLS.Curves[0] == 29,
			"pods ready":   o.PodsReady.BackoffLimit == 5 && o.PodsReady.BackoffBase == 30*time.Second && o.PodsReady.BlockAdmission,
			"external":     len(o.ExternalFrameworks) == 1 && o.ExternalFrameworks[0].Kind == "PipelineRun",
			"retention":    *o.Retention.Finished == 24*time.Hour && *o.Retention.Deactivated == time.Hour,
			"recovery":     o.RecoveryDelay == 90*time.Second,
			"fair sharing": o.FairSharing.Enabled && len(o.FairSharing.Strategies) == 2,
			"usage":        o.AdmissionFairSharing.HalfLife == 24*time.Hour && o.AdmissionFairSharing.Weights["cpu"] == 0.5,
			"workers": o.MultiKueue.StepSize == 2 && len(o.MultiKueue.AccessProviders) == 1 && len(o.MultiKueue.ExternalFrameworks) == 1 &&
				o.MultiKueue.RoundTimeout == 2*time.Minute && o.MultiKueue.Retention == time.Minute && o.MultiKueue.PreemptionTimeout == 3*time.Minute && o.MultiKueue.AllowHTTP,
			"visibility":        o.VisibilityAddress == "127.0.0.1:9082",
			"jobSet":            o.JobSet.LazyChildren && o.JobSet.FailEarly && o.JobSet.Client == Client{QPS: 250, Burst: 300} && o.JobSet.Lease.Namespace == "jobsets",
			"patches":           o.Trainer.ConflictPolicy == "Reject" && o.Trainer.SchedulingManagers[0] == "acme.io/scheduler" && !o.Trainer.RestrictMetadata && !o.Trainer.StrictTargets,
			"patch owners":      o.Trainer.OwnershipMode == "Strict" && len(o.Trainer.Reserved) == 1 && o.Trainer.Reserved[0].Subjects[0] == "group:ml-ops",
			"training":          !o.Trainer.RecreateDeletedJobSet && o.Trainer.GPUResources[0] == "habana.ai/gaudi" && o.Trainer.CountMergedResources,
			"status server":     o.Trainer.StatusAddress == ":9443" && o.Trainer.StatusQPS == 7 && o.Trainer.StatusBurst == 8,
			"local queues":      o.Metrics.LocalQueues.Matches(labels.Set{"tier": "gold", "team": "red"}) && !o.Metrics.LocalQueues.Matches(labels.Set{"tier": "gold"}),
			"custom labels":     len(o.Metrics.CustomLabels) == 2,
			"resources":         !o.Resources.IgnoreUndeclared && len(o.Resources.Transformations) == 1 && len(o.Resources.DeviceClassMappings) == 2,
			"manage everything": o.ManageJobsWithoutQueueName,
		}
		for name, ok := range checks {
			if !ok {
				t.Errorf("%s: not what the file says", name)
			}
		}
	})
}

// allPaths lists the fields of a type, without the indexes of lists and maps.
func allPaths(t reflect.Type, path string) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return allPaths(t.Elem(), path)
	case reflect.Struct:
		if strings.HasPrefix(strict.Wanted(t), "a mapping") {
			var paths []string
			for name, f := range strict.Fields(t) {
				at := strict.JoinField(path, name)
				paths = append(append(paths, at), allPaths(f.Type, at)...)
			}
			return paths
		}
	}
	return nil
}

func TestLoadRefusesUnreadablePaths(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct{ path, want string }{
		"absent":    {filepath.Join(dir, "no.yaml"), "no such configuration file"},
		"directory": {dir, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(tc.path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.path) {
				t.Errorf("want %q and the path, got %v", tc.want, err)
			}
			if e, ok := err.(interface{ ExitCode() int }); !ok || e.ExitCode() != 2 {
				t.Errorf("want an error with exit code 2, got %T", err)
			}
		})
	}
}

// Files are read as documents of one. Errors name the file. spec: 70 §3.1.
func TestSeveralFiles(t *testing.T) {
	o, err := ParseFiles([]File{
		{"trainer.yaml", []byte(trainerHead + "statusServer: {port: 1445}\n")},
		{"kueue.yaml", withHeader("namespace: a\n")},
		{"jobset.yaml", []byte(jobSetHeader + "leaderElection: {leaderElect: true, resourceName: mine}\n")},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	if o.Namespace != "a" || o.Trainer.StatusPort != 1445 || o.JobSet.Lease.Name != "mine" || !o.LeaderElection.Enabled || o.LabelledOnly {
		t.Errorf("%+v", o)
	}
	_, err = ParseFiles([]File{
		{"kueue.yaml", withHeader("webhook: {port: -1}\n")},
		{"jobset.yaml", []byte(jobSetHeader + "leaderElection:\n  leaseDuration: 1s\n")},
		{"trainer.yaml", []byte(trainerHead + "statusServer: {port: 0}\n")},
	}, "")
	for _, want := range []string{"kueue.yaml:3: webhook.port: ", "jobset.yaml:4: leaderElection.leaseDuration: ", "trainer.yaml:3: statusServer.port: "} {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	_, err = ParseFiles([]File{{"a.yaml", withHeader("")}, {"b.yaml", withHeader("")}, {"c.yaml", nil}}, "")
	want := "b.yaml:1: a.yaml has a Configuration of this group, too; keep one\nc.yaml: the file is empty; "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("want %q, got %v", want, err)
	}
	dir := t.TempDir()
	_, err = LoadWithGates([]string{filepath.Join(dir, "a"), "", filepath.Join(dir, "b")}, "")
	if len(problemsOf(err)) != 2 {
		t.Errorf("want both files that are absent, got %v", err)
	}
}

// problemsOf returns the problems of an error of Load.
func problemsOf(err error) []Problem {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Problems
	}
	return nil
}

func FuzzLoad(f *testing.F) {
	for _, name := range []string{"full.yaml", "example.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "PartialAdmission=false")
	}
	f.Add(withHeader("a: &a [*a]\nnamespace: *a"), "=,")
	f.Add(withHeader("webhook: {port: 0x10}\nclientConnection: {qps: .inf}"), "AllAlpha=true")
	f.Add(withHeader("<<: {namespace: a}\n? [x]\n: y"), "AllBeta=false")
	f.Add([]byte("---\n---\n{}"), "")
	f.Add(withHeader("\"a\\nb\": 1"), "a\rb=x")
	f.Fuzz(func(t *testing.T, data []byte, flag string) {
		o, err := Parse("c.yaml", data, flag)
		if err != nil {
			problems := problemsOf(err)
			if len(problems) == 0 {
				t.Fatalf("an error without a problem: %v", err)
			}
			for _, p := range problems {
				if p.Detail == "" || strings.ContainsAny(p.String(), "\r\n") {
					t.Errorf("not one clear line: %q", p)
				}
			}
			return
		}
		text, err := o.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again.yaml", []byte(text), flag)
		if err != nil {
			t.Fatalf("accepted, but its effective form is refused: %v\n%s", err, text)
		}
		if diff := cmp.Diff(o.Effective, again.Effective); diff != "" {
			t.Errorf("effective configuration (-first +second):\n%s", diff)
		}
	})
}

// TestUsageHalfLife: without one, upstream counts no usage and says nothing (spec 20 §7 example 18); Berth has a default. Both that and 0s
// are said once.
func TestUsageHalfLife(t *testing.T) {
	for body, want := range map[string]struct {
		halfLife time.Duration
		warnings []string
	}{
		"{}":                       {time.Hour, []string{"admissionFairSharing has no usageHalfLifeTime; past usage counts half after 1h0m0s"}},
		"{usageHalfLifeTime: 0s}":  {0, []string{"admissionFairSharing.usageHalfLifeTime is 0s: usage never counts, and Workloads go by priority and age"}},
		"{usageHalfLifeTime: 10m}": {10 * time.Minute, nil},
	} {
		o := mustParse(t, "admissionFairSharing: "+body, "")
		if diff := cmp.Diff(want.warnings, o.Warnings); diff != "" || o.AdmissionFairSharing.HalfLife != want.halfLife || !o.AdmissionFairSharing.Enabled {
			t.Errorf("%s: %+v (-want +got):\n%s", body, o.AdmissionFairSharing, diff)
		}
	}
}

// TestKueueSelector: a selector that excludes Kueue's namespace, as its documentation has it, excludes that of the manager, with a warning.
func TestKueueSelector(t *testing.T) {
	const selector = "managedJobsNamespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system%s]}]}\n"
	for name, test := range map[string]struct {
		body   string
		own    string
		warned bool
	}{
		"as documented":        {fmt.Sprintf(selector, ""), "berth-system", true},
		"in another namespace": {"namespace: mine\n" + fmt.Sprintf(selector, ""), "mine", true},
		"in that of Kueue":     {"namespace: kueue-system\n" + fmt.Sprintf(selector, ""), "kueue-system", false},
		"complete":             {fmt.Sprintf(selector, ", berth-system"), "berth-system", false},
	} {
		o := mustParse(t, test.body, "")
		if o.ManagedNamespaces.Matches(labels.Set{namespaceNameLabel: test.own}) || !o.ManagedNamespaces.Matches(labels.Set{namespaceNameLabel: "team"}) {
			t.Errorf("%s: managed are %s", name, o.ManagedNamespaces)
		}
		if warned := len(o.Warnings) == 1 && strings.Contains(o.Warnings[0], "and so "+test.own+" as well"); warned != test.warned {
			t.Errorf("%s: warnings %q", name, o.Warnings)
		}
	}
}
