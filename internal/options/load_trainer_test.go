package options

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/options/feature"
)

const trainerHead = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"

// wrongIn parses an invalid file.
func wrongIn(t *testing.T, text string) []string {
	t.Helper()
	_, err := Parse("c.yaml", []byte(text), "")
	wrong, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	var out []string
	for _, p := range wrong.Problems {
		out = append(out, p.String())
	}
	return out
}

// TestTrainerFile resolves a file of the Trainer with every field.
func TestTrainerFile(t *testing.T) {
	o, err := Parse("c.yaml", []byte(trainerHead+`
webhook: {port: 1443, host: 127.0.0.1}
metrics: {bindAddress: ":1444", secureServing: false, auth: {enabled: true}}
health: {healthProbeBindAddress: ":1081", readinessEndpointName: ready, livenessEndpointName: live}
leaderElection: {leaderElect: true, resourceName: mine, leaseDuration: 20s, renewDeadline: 15s, retryPeriod: 3s, resourceNamespace: there}
controller: {groupKindConcurrency: {TrainJob.trainer.kubeflow.org: 9, TrainingRuntime.trainer.kubeflow.org: 2}}
certManagement: {enable: true, webhookServiceName: svc, webhookSecretName: secret}
clientConnection: {qps: 70, burst: 80}
statusServer: {port: 1445, qps: 6, burst: 7}
tls: {minVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA, nonsense], nextProtos: [h2, http/1.1]}
featureGates: {TrainJobStatus: true}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	want := Options{}
	want.Webhook.Port, want.Webhook.Host, want.Webhook.CertDir = 1443, "127.0.0.1", o.Webhook.CertDir
	if !cmp.Equal(o.Webhook, want.Webhook) {
		t.Errorf("webhook %+v", o.Webhook)
	}
	if m := o.Metrics; m.Address != ":1444" || !m.Plain || m.Open {
		t.Errorf("metrics %+v", m)
	}
	if h := (Health{":1081", "/ready", "/live"}); o.Health != h {
		t.Errorf("health %+v", o.Health)
	}
	if l := o.LeaderElection; !l.Enabled || l.Name != "mine" || l.Namespace != "there" || l.LeaseDuration.Seconds() != 20 || l.RenewDeadline.Seconds() != 15 || l.RetryPeriod.Seconds() != 3 {
		t.Errorf("leader election %+v", l)
	}
	if o.Concurrency("TrainJob.trainer.kubeflow.org") != 9 || o.Concurrency("TrainingRuntime.trainer.kubeflow.org") != 2 || o.Concurrency("Job.batch") != 5 {
		t.Errorf("concurrency %v", o.GroupKindConcurrency)
	}
	if c := (Certs{Internal: true, Service: "svc", Secret: "secret"}); o.Certs != c || o.Trainer.StatusService != "svc" {
		t.Errorf("certificates %+v, Service %s", o.Certs, o.Trainer.StatusService)
	}
	if c := (Client{QPS: 70, Burst: 80}); o.Client != c {
		t.Errorf("client %+v", o.Client)
	}
	if s := o.Trainer; s.StatusAddress != ":1445" || s.StatusPort != 1445 || s.StatusQPS != 6 || s.StatusBurst != 7 {
		t.Errorf("status server %+v", s)
	}
	wantTLS := TLS{MinVersion: tls.VersionTLS13, CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_128_CBC_SHA}, NextProtos: []string{"h2", "http/1.1"}}
	if diff := cmp.Diff(wantTLS, o.TLS); diff != "" {
		t.Errorf("TLS (-want +got):\n%s", diff)
	}
	if !o.Gates.On(feature.TrainJobStatus) || len(o.InertGates()) > 0 {
		t.Errorf("gates: inert %q", o.InertGates())
	}
	if diff := cmp.Diff([]string{
		"tls.cipherSuites[1]: TLS_RSA_WITH_AES_128_CBC_SHA is not safe", `tls.cipherSuites[2]: "nonsense" is not known, and left out`,
	}, o.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestTrainerRoundTrip: the options of a file of the Trainer are written as such a file, and changes have the names of its fields.
func TestTrainerRoundTrip(t *testing.T) {
	for name, text := range map[string]string{
		"defaults": "",
		"what the manager's own file has no words for": "metrics: {secureServing: false, auth: {enabled: true}}\ncertManagement: {enable: false}\n" +
			"tls: {minVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256], nextProtos: [h2]}\nfeatureGates: {TrainJobStatus: true}\n",
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Parse("c.yaml", []byte(trainerHead+text), "")
			if err != nil {
				t.Fatal(err)
			}
			written, err := o.YAML()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("again.yaml", []byte(written), "")
			if err != nil {
				t.Fatalf("the effective configuration is refused:\n%v\n%s", err, written)
			}
			if diff := cmp.Diff(o.Effective, again.Effective); diff != "" || len(Changes(&o, &again)) > 0 {
				t.Errorf("%q, effective configuration (-first +second):\n%s", Changes(&o, &again), diff)
			}
			if diff := cmp.Diff(o.TLS, again.TLS); diff != "" || o.Metrics.Plain != again.Metrics.Plain || o.Metrics.Open != again.Metrics.Open || o.Trainer.StatusService != again.Trainer.StatusService {
				t.Errorf("metrics %+v and %+v, TLS (-first +second):\n%s", o.Metrics, again.Metrics, diff)
			}
			other, err := Parse("c.yaml", []byte(trainerHead+strings.Replace(text, "secureServing: false, ", "", 1)), "")
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"metrics.secureServing"}
			if text == "" {
				want = nil
			}
			if diff := cmp.Diff(want, Changes(&o, &other)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTrainerDefaults: the defaults are the Trainer's where they differ from the manager's.
func TestTrainerDefaults(t *testing.T) {
	o, err := Parse("c.yaml", []byte(trainerHead), "TrainJobStatus=true")
	if err != nil {
		t.Fatal(err)
	}
	if o.LeaderElection.Enabled || o.LeaderElection.Name != "trainer.kubeflow.org" || o.Client != (Client{QPS: 50, Burst: 100}) || o.Metrics.Plain || !o.Metrics.Open ||
		o.Metrics.Address != ":8443" || o.Health != (Health{":8081", "/readyz", "/healthz"}) || o.Webhook.Port != 9443 ||
		o.Certs != (Certs{Internal: true, Service: "kubeflow-trainer-controller-manager", Secret: "kubeflow-trainer-webhook-cert"}) ||
		o.Trainer.StatusPort != 10443 || o.TLS.MinVersion != tls.VersionTLS12 || !o.Gates.On(feature.TrainJobStatus) {
		t.Errorf("%+v", o)
	}
	o, err = Parse("c.yaml", []byte(trainerHead+"certManagement: {enable: false}\nfeatureGates: {TrainJobStatus: true}\ntls: {minVersion: VersionTLS10, cipherSuites: [none]}\n"), "TrainJobStatus=false")
	if err != nil {
		t.Fatal(err)
	}
	if o.Certs.Internal || o.Gates.On(feature.TrainJobStatus) || o.Trainer.StatusService != "kubeflow-trainer-controller-manager" || o.TLS.MinVersion != tls.VersionTLS12 || o.TLS.CipherSuites != nil {
		t.Errorf("%+v", o)
	}
	if !slices.ContainsFunc(o.Warnings, func(w string) bool { return strings.Contains(w, "VersionTLS10 is not safe") }) {
		t.Errorf("warnings %q", o.Warnings)
	}
}

// TestTrainerFileErrors: the error has all problems, with lines and fields of the file.
func TestTrainerFileErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"unknown fields": {trainerHead + "webhok: {}\nwebhook: {certDir: x}\n", []string{
			`c.yaml:3: webhok: unknown field; did you mean webhook?`, `c.yaml:4: webhook.certDir: unknown field; known here: host, port`,
		}},
		"another kind":    {"apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Config\n", []string{`c.yaml:2: kind: "Config" is not read; write kind: Configuration`}},
		"another version": {"apiVersion: config.trainer.kubeflow.org/v1\nkind: Configuration\n", []string{`c.yaml:1: apiVersion: config.trainer.kubeflow.org/v1 is not read; write apiVersion: config.trainer.kubeflow.org/v1alpha1`}},
		"values": {trainerHead + "webhook: {port: 70000}\nstatusServer:\n  port: 0\n  qps: -1\ncertManagement:\n  webhookServiceName: 9x\ncontroller:\n  groupKindConcurrency: {TrainJob.trainer.kubeflow.org: 0}\n", []string{
			"c.yaml:3: webhook.port: ", "c.yaml:10: controller.groupKindConcurrency[TrainJob.trainer.kubeflow.org]: ", "c.yaml:8: certManagement.webhookServiceName: ", "c.yaml:5: statusServer.port: ", "c.yaml:6: statusServer.qps: ",
		}},
		"limits below zero": {trainerHead + "clientConnection:\n  qps: -1\n", []string{"c.yaml:4: clientConnection.qps: must not be negative"}},
		"two of them":       {trainerHead + "---\n" + trainerHead, []string{"c.yaml:4: the file has a second Configuration of this group; keep one"}},
		"unknown gate":      {trainerHead + "featureGates: {TrainJobStatsu: true}\n", []string{"c.yaml:3: featureGates[TrainJobStatsu]: "}},
		"beside another": {"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnope: 1\n---\n" + trainerHead + "nor: 1\nstatusServer: {port: 0}\n", []string{
			"c.yaml:3: nope: unknown field", "c.yaml:7: nor: unknown field",
		}},
		"beside another, values": {"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwebhook: {port: -1}\n---\n" + trainerHead + "statusServer: {port: 0}\n", []string{
			"c.yaml:3: webhook.port: ", "c.yaml:7: statusServer.port: ",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := wrongIn(t, tt.text)
			if len(got) != len(tt.want) {
				t.Fatalf("%q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tt.want[i]) {
					t.Errorf("%q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
}

// TestTrainerBesideOwn: beside a document of the manager, the Trainer's only configures TrainJobs.
func TestTrainerBesideOwn(t *testing.T) {
	o, err := Parse("c.yaml", []byte(`apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
controller: {groupKindConcurrency: {Job.batch: 3, TrainJob.trainer.kubeflow.org: 4}}
featureGates: {RuntimePatchSelectors: true}
---
`+trainerHead+`webhook: {port: 1443}
statusServer: {port: 1445}
controller: {groupKindConcurrency: {TrainJob.trainer.kubeflow.org: 9, TrainingRuntime.trainer.kubeflow.org: 2}}
featureGates: {RuntimePatchSelectors: false, TrainJobStatus: true}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	if o.Webhook.Port != 9443 || o.Trainer.StatusPort != 1445 || o.Client.QPS != 300 || o.Metrics.Open || !o.LeaderElection.Enabled {
		t.Errorf("%+v", o)
	}
	if o.Concurrency("Job.batch") != 3 || o.Concurrency("TrainJob.trainer.kubeflow.org") != 4 || o.Concurrency("TrainingRuntime.trainer.kubeflow.org") != 2 {
		t.Errorf("concurrency %v", o.GroupKindConcurrency)
	}
	if !o.Gates.On(feature.TrainJobStatus) || !o.Gates.On(feature.RuntimePatchSelectors) {
		t.Error("gates")
	}
	if len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0], "webhook is about the whole process") {
		t.Errorf("warnings %q", o.Warnings)
	}
}
