package options

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/options/feature"
)

const jobSetHeader = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"

// 70 §3.1, example 16: JobSet's own document, beside the manager's in any order or alone, keeps its meaning.
func TestJobSetDocument(t *testing.T) {
	const own = jobSetHeader + `
leaderElection: {leaderElect: true, resourceNamespace: training}
clientConnection: {qps: 100, burst: 200}
internalCertManagement: {enable: true}
featureGates: {InPlaceRestart: true}
`
	for name, file := range map[string]string{
		"alone":              own,
		"behind the manager": header + "namespace: a\n---\n" + own,
		"before the manager": own + "---\n" + header + "featureGates: {InPlaceRestart: true}\n",
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Parse("c.yaml", []byte(file), "")
			if err != nil {
				t.Fatal(err)
			}
			want := JobSet{Client: Client{QPS: 100, Burst: 200}, Lease: LeaderElection{
				Enabled: true, Name: "6d4f6a47.jobset.x-k8s.io", Namespace: "training",
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			}}
			if o.JobSet != want || !o.Gates.On(feature.InPlaceRestart) || o.Gates.On(feature.RestartJob) || len(o.Warnings) > 0 {
				t.Errorf("%+v, warnings %q", o.JobSet, o.Warnings)
			}
			text, err := o.YAML()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("again.yaml", []byte(text), "")
			if err != nil || again.JobSet != want || !again.Gates.On(feature.InPlaceRestart) {
				t.Errorf("the effective configuration does not say the same: %v, %+v", err, again.JobSet)
			}
		})
	}
	t.Run("defaults", func(t *testing.T) {
		o := Default()
		if o.JobSet.Client != (Client{QPS: 500, Burst: 500}) || o.JobSet.Lease.Namespace != "jobset-system" || !o.JobSet.Lease.Enabled {
			t.Errorf("%+v", o.JobSet)
		}
	})
	t.Run("all alpha gates", func(t *testing.T) {
		o, err := Parse("c.yaml", []byte(jobSetHeader+"featureGates: {AllAlpha: true, RestartJob: false, AllBeta: true, TLSOptions: true}\n"), "")
		if err != nil || !o.Gates.On(feature.InPlaceRestart) || !o.Gates.On(feature.ElasticJobSet) || o.Gates.On(feature.RestartJob) || o.Gates.On(feature.ConcurrentAdmission) {
			t.Errorf("error %v", err)
		}
	})
}

// Problems have the line and the field of their document.
func TestJobSetDocumentRefused(t *testing.T) {
	const listeners = "but JobSets are served with everything else, where it is "
	const instead = "; remove it, or set it in the document of config.kueue.x-k8s.io/v1beta2"
	for name, tc := range map[string]struct{ file, want string }{
		"unknown field":   {jobSetHeader + "webhooks: {}\n", "c.yaml:3: webhooks: unknown field; did you mean webhook?"},
		"written twice":   {jobSetHeader + "health: {}\nhealth: {}\n", "c.yaml:4: health: written twice, first on line 3; remove one"},
		"wrong type":      {jobSetHeader + "webhook:\n  port: many\n", `c.yaml:4: webhook.port: want a whole number of 32 bits, got "many"`},
		"second document": {jobSetHeader + "---\n" + jobSetHeader, "c.yaml:4: the file has a second Configuration of this group; keep one"},
		"other kind":      {"apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: JobSet\n", `c.yaml:2: kind: "JobSet" is not read; write kind: Configuration`},
		"in the second":   {header + "namespace: a\n---\n" + jobSetHeader + "tls:\n  minVersoin: x\n", "c.yaml:8: tls.minVersoin: unknown field; did you mean minVersion?"},
		"gate of Kueue":   {jobSetHeader + "featureGates:\n  TopologyAwareScheduling: false\n", "c.yaml:4: featureGates[TopologyAwareScheduling]: is no feature gate of JobSet; known here: ElasticJobSet, InPlaceRestart, RestartJob, TLSOptions"},
		"misspelt gate":   {jobSetHeader + "featureGates:\n  RestartJobs: true\n", "c.yaml:4: featureGates[RestartJobs]: is no feature gate of JobSet; did you mean RestartJob?"},
		"locked gate":     {jobSetHeader + "featureGates:\n  TLSOptions: false\n", "c.yaml:4: featureGates[TLSOptions]: is part of the product and always true; remove it"},
		"gates disagree":  {header + "featureGates: {RestartJob: false}\n---\n" + jobSetHeader + "featureGates:\n  RestartJob: true\n", "c.yaml:8: featureGates[RestartJob]: is true here and false in config.kueue.x-k8s.io/v1beta2; keep one of them"},
		"limits twice":    {header + "jobSet: {clientConnection: {qps: 1}}\n---\n" + jobSetHeader + "clientConnection: {qps: 1}\n", "c.yaml:7: clientConnection: is here and in jobSet of config.kueue.x-k8s.io/v1beta2; keep one of them"},
		"lease twice":     {header + "jobSet: {leaderElection: {leaderElect: false}}\n---\n" + jobSetHeader + "leaderElection: {}\n", "c.yaml:7: leaderElection: is here and in jobSet of config.kueue.x-k8s.io/v1beta2; keep one of them"},
		"lease":           {jobSetHeader + "leaderElection:\n  leaseDuration: 1s\n", `c.yaml:4: leaderElection.leaseDuration: Invalid value: "1s": must be longer than renewDeadline (10s)`},
		"lease of ours":   {header + "jobSet:\n  leaderElection:\n    resourceName: _\n", "c.yaml:5: jobSet.leaderElection.resourceName: Invalid value"},
		"burst":           {jobSetHeader + "clientConnection:\n  burst: -1\n", "c.yaml:4: clientConnection.burst: Invalid value: -1: must be at least 0 while qps is a limit; make qps negative for no limit"},
		"port":            {jobSetHeader + "webhook:\n  port: 9553\n", `c.yaml:4: webhook.port: is "9553", ` + listeners + `"9443"` + instead},
		"metrics":         {jobSetHeader + "metrics:\n  bindAddress: :9090\n", `c.yaml:4: metrics.bindAddress: is ":9090", ` + listeners + `":8443"` + instead},
		"probes":          {jobSetHeader + "health:\n  readinessEndpointName: up\n", `c.yaml:4: health.readinessEndpointName: is "/up", ` + listeners + `"/readyz"` + instead},
		"no certificates": {jobSetHeader + "internalCertManagement:\n  enable: false\n", `c.yaml:4: internalCertManagement.enable: is "false", ` + listeners + `"true"` + instead},
		"service":         {jobSetHeader + "internalCertManagement:\n  webhookServiceName: own\n", `c.yaml:4: internalCertManagement.webhookServiceName: is "own", ` + listeners + `"kueue-webhook-service"` + instead},
		"TLS":             {jobSetHeader + "tls:\n  minVersion: VersionTLS13\n", `c.yaml:4: tls.minVersion: is "VersionTLS13", ` + listeners + `"VersionTLS12"` + instead},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("c.yaml", []byte(tc.file), "")
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("want %q\n got %v", tc.want, err)
			}
		})
	}
}

// 70 §3.1: the manager's settings of listeners apply: silently if the document has the same, with a warning if it has JobSet's defaults.
func TestJobSetListeners(t *testing.T) {
	const spelt = jobSetHeader + `
webhook: {port: 9443, certDir: /tmp/k8s-webhook-server/serving-certs}
metrics: {bindAddress: ":8443"}
health: {healthProbeBindAddress: ":8081", readinessEndpointName: readyz}
internalCertManagement: {enable: true, webhookServiceName: jobset-webhook-service}
`
	for name, tc := range map[string]struct {
		file    string
		ignored []string // fields that the one warning names
	}{
		"JobSet's defaults":         {spelt, []string{"internalCertManagement.webhookServiceName"}},
		"the manager has its own":   {header + "webhook: {port: 10443}\nhealth: {healthProbeBindAddress: \":9081\"}\n---\n" + spelt, []string{"webhook.port", "health.healthProbeBindAddress", "internalCertManagement.webhookServiceName"}},
		"they say the same":         {header + "webhook: {port: 9553}\n---\n" + jobSetHeader + "webhook: {port: 9553}\n", nil},
		"the same certificates":     {header + "internalCertManagement: {enable: false}\n---\n" + jobSetHeader + "internalCertManagement: {enable: false}\n", nil},
		"the same versions of TLS":  {header + "tls: {minVersion: VersionTLS13}\n---\n" + jobSetHeader + "tls: {minVersion: VersionTLS13}\n", nil},
		"the default, in few words": {jobSetHeader + "webhook: {port: 0}\ntls: {minVersion: VersionTLS12}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Parse("c.yaml", []byte(tc.file), "")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range o.Warnings {
				if _, fields, ok := strings.Cut(w, "as JobSets are served with everything else: "); ok {
					got = append(got, strings.Split(fields, ", ")...)
				}
			}
			if !slices.Equal(got, tc.ignored) {
				t.Errorf("set ignored: %q, want %q; warnings %q", got, tc.ignored, o.Warnings)
			}
		})
	}
}
