package reload

import (
	"cmp"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/inflight"
	_ "github.com/berth-project/berth/internal/job/kind/all" // the frameworks that a configuration may name
	"github.com/berth-project/berth/internal/options"
)

// Each change of the file is logged once: as applied, as waiting for a restart, or as invalid.
func TestReload(t *testing.T) {
	const start = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nobjectRetentionPolicies: {workloads: {afterFinished: 1h}}\n"
	text := start
	load := func() (options.Options, error) { return options.Parse("c.yaml", []byte(text), "") }
	o, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	limit := inflight.NewThrottle(o.Client.QPS, o.Client.Burst)
	r := New(&o, load, limit, funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
	mapped := 0
	r.Mappings = func(list []configv1beta2.DeviceClassMapping) { mapped = len(list) }
	for _, step := range []struct {
		what, text, want string
		kept             time.Duration // 0: no new rules
		jobs             string        // retention of deactivated jobs; "": unchanged
		qps              float32       // 0: unchanged
		mapped           int
	}{
		{what: "nothing", text: start},
		{what: "another retention", text: strings.ReplaceAll(start, "1h", "2m"), want: "takes effect now", kept: 2 * time.Minute},
		{what: "the same again", text: strings.ReplaceAll(start, "1h", "2m")},
		{what: "deactivated jobs go", text: strings.ReplaceAll(start, "1h", "2m, afterDeactivatedByKueue: 3m"), want: "\"after\"=\"3m0s\"", jobs: "3m0s"},
		{what: "the same for jobs", text: strings.ReplaceAll(start, "1h", "2m, afterDeactivatedByKueue: 3m")},
		{what: "deactivated jobs stay", text: strings.ReplaceAll(start, "1h", "2m"), want: "afterDeactivatedByKueue", jobs: "for ever"},
		{what: "a port", text: start + "webhook: {port: 1}\n", want: "fields\"=\"webhook.port\"", kept: time.Hour},
		{what: "the same port", text: start + "webhook: {port: 1}\n"},
		{what: "a kind", text: start + "integrations: {frameworks: [pod]}\n", want: "install again with it"},
		{what: "a typo", text: start + "webhok: {port: 1}\n", want: "did you mean webhook?"},
		{what: "the same typo", text: start + "webhok: {port: 1}\n"},
		{what: "another limit", text: start + "clientConnection: {qps: 7, burst: 3}\n", want: "waits for a restart any more", qps: 7},
		{what: "no limit", text: start + "clientConnection: {qps: -1}\n", want: "clientConnection", qps: float32(math.Inf(1))},
		{
			what: "a mapping of a DeviceClass", text: start + "resources: {deviceClassMappings: [{name: gpus, deviceClassNames: [gpu]}]}\n",
			want: "resources.deviceClassMappings", mapped: 1,
		},
		{what: "a port again", text: start + "webhook: {port: 1}\n", want: "webhook.port"},
		{what: "back", text: start, want: "waits for a restart any more"},
	} {
		said, text = nil, step.text
		r.reload()
		all := strings.Join(said, "\n")
		if (step.want == "") != (all == "") || !strings.Contains(all, step.want) {
			t.Errorf("%s: want %q said, got %q", step.what, step.want, all)
		}
		if mapped != step.mapped {
			t.Errorf("%s: %d mappings, want %d", step.what, mapped, step.mapped)
		}
		if want := cmp.Or(step.qps, 300); limit.QPS() != want {
			t.Errorf("%s: %v requests a second, want %v", step.what, limit.QPS(), want)
		}
		select {
		case rules := <-r.Rules:
			if rules.KeepFinished == nil || *rules.KeepFinished != step.kept {
				t.Errorf("%s: finished Workloads are kept %v, want %s", step.what, rules.KeepFinished, step.kept)
			}
		default:
			if step.kept != 0 {
				t.Errorf("%s: no new rules", step.what)
			}
		}
		jobs := ""
		select {
		case kept := <-r.Deactivated:
			if jobs = "for ever"; kept != nil {
				jobs = kept.String()
			}
		default:
		}
		if jobs != step.jobs {
			t.Errorf("%s: deactivated jobs are kept %q, want %q", step.what, jobs, step.jobs)
		}
	}
	r.load = func() (options.Options, error) { return options.Options{}, errors.New("gone") }
	said = nil
	if r.reload(); len(said) != 1 {
		t.Errorf("a file that is gone: said %q", said)
	}
}
