package training

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// asPod is the environment of training code in a pod, and the files of its volume.
type asPod struct {
	*cluster
	url, token string
	http       *http.Client
}

// inside replaces a training container. Nodes are simulated, so the volume that a kubelet would mount is fetched here.
func (k *cluster) inside(pod *corev1.Pod) *asPod {
	k.t.Helper()
	env := map[string]string{}
	for _, e := range pod.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	if env["KUBEFLOW_TRAINER_SERVER_CA_CERT"] != "/var/run/secrets/kubeflow/trainer/ca.crt" || env["KUBEFLOW_TRAINER_SERVER_TOKEN"] != "/var/run/secrets/kubeflow/trainer/token" {
		k.t.Fatalf("environment %v", env)
	}
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "kubeflow-trainer-token" })
	if i < 0 {
		k.t.Fatalf("volumes %v", pod.Spec.Volumes)
	}
	sources := pod.Spec.Volumes[i].Projected.Sources
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{sources[0].ServiceAccountToken.Audience}, ExpirationSeconds: sources[0].ServiceAccountToken.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "default"}}
	k.must(k.c.SubResource("token").Create(k.ctx, account, request))
	var ca corev1.ConfigMap
	k.must(k.c.Get(k.ctx, client.ObjectKey{Namespace: "lab", Name: sources[1].ConfigMap.Name}, &ca))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca.Data["ca.crt"])) {
		k.t.Fatalf("ConfigMap %v", ca.Data)
	}
	return &asPod{k, env["KUBEFLOW_TRAINER_SERVER_URL"], request.Status.Token, &http.Client{
		Timeout: wait.Patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}}
}

// report reports the progress, and returns the status code.
func (p *asPod) report(percent int) int {
	p.t.Helper()
	body, err := json.Marshal(object{"trainerStatus": object{"progressPercentage": percent, "lastUpdatedTime": time.Now().Format(time.RFC3339Nano)}})
	p.must(err)
	r, err := http.NewRequestWithContext(p.ctx, http.MethodPost, p.url, bytes.NewReader(body))
	p.must(err)
	r.Header.Set("Authorization", "Bearer "+p.token)
	response, err := p.http.Do(r)
	p.must(err)
	p.must(response.Body.Close())
	return response.StatusCode
}

// TestProgress: the training code of a TrainJob reports its progress from within its pods, and no other client can. The progress is
// cleared when the TrainJob is resumed (spec: 50 §4.8, §7.65).
func TestProgress(t *testing.T) {
	k := startAlone(t, func(o *options.Options) { o.Gates = o.Gates.With(feature.TrainJobStatus, true) })
	for _, name := range []string{"lark", "wren"} {
		k.create(newJob(name, "", "{runtimeRef: {name: torch-distributed}, trainer: {numNodes: 1}, runtimePatches: ["+seconds(map[string]string{"node": "600"})+"]}"))
	}
	k.running("lark", 1)
	k.running("wren", 1)
	lark, wren := k.inside(&k.pods("lark")[0]), k.inside(&k.pods("wren")[0])
	if u, err := url.Parse(lark.url); err != nil || !strings.HasSuffix(u.Path, "/namespaces/lab/trainjobs/lark/status") {
		t.Errorf("URL %s", lark.url)
	}
	if code := lark.report(40); code != http.StatusOK {
		t.Fatalf("a report: %d", code)
	}
	if s := k.trainJob("lark").Status.TrainerStatus; s == nil || *s.ProgressPercentage != 40 {
		t.Errorf("status %+v", s)
	}
	wren.url = lark.url
	if code := wren.report(90); code != http.StatusForbidden {
		t.Errorf("a report for somebody else's TrainJob: %d", code)
	}
	k.suspend("lark", true)
	k.running("lark", 0)
	if k.trainJob("lark").Status.TrainerStatus == nil {
		t.Error("the progress of a TrainJob that stopped is gone")
	}
	k.suspend("lark", false)
	wait.Until(k.t, "the progress of the last run goes", func() error {
		if s := k.trainJob("lark").Status.TrainerStatus; s != nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	wait.Until(k.t, "it is resumed", func() error {
		if c := k.trainJob("lark").Status.Conditions; len(c) != 1 || c[0].Reason != "Resumed" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// TestNoProgress is 50 §7, 66: without the gate pods get no address of the server, and no server listens.
func TestNoProgress(t *testing.T) {
	k := start(t)
	k.create(newJob("lark", "", "{runtimeRef: {name: torch-distributed}, runtimePatches: ["+seconds(map[string]string{"node": "600"})+"]}"))
	k.running("lark", 1)
	pod := k.pods("lark")[0]
	for _, e := range pod.Spec.Containers[0].Env {
		if strings.HasPrefix(e.Name, "KUBEFLOW_TRAINER_") {
			t.Errorf("variable %s", e.Name)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.Name == "kubeflow-trainer-token" {
			t.Errorf("volume %s", v.Name)
		}
	}
	var config corev1.ConfigMap
	if err := k.c.Get(k.ctx, client.ObjectKey{Namespace: "lab", Name: "lark-tls-config"}, &config); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("ConfigMap: %v", err)
	}
	conn, err := net.DialTimeout("tcp", shared.options.Trainer.StatusAddress, time.Second)
	if err == nil {
		t.Error("somebody listens")
		k.must(errors.Join(conn.Close()))
	}
}
