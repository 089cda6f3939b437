package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/berth-project/berth/internal/options"
)

// Each change of the file is told once: as taken, as waiting for a restart, or as wrong.
func TestReload(t *testing.T) {
	const start = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nobjectRetentionPolicies: {workloads: {afterFinished: 1h}}\n"
	text := start
	load := func() (options.Options, error) { return options.Parse("c.yaml", []byte(text), "") }
	o, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	r := newReloader(&Config{Options: o, Reload: load, Log: funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})})
	for _, step := range []struct {
		what, text, want string
		kept             time.Duration // 0: no new rules
	}{
		{what: "nothing", text: start},
		{what: "another retention", text: strings.ReplaceAll(start, "1h", "2m"), want: "takes effect now", kept: 2 * time.Minute},
		{what: "the same again", text: strings.ReplaceAll(start, "1h", "2m")},
		{what: "a port", text: start + "webhook: {port: 1}\n", want: "fields\"=\"webhook.port\"", kept: time.Hour},
		{what: "the same port", text: start + "webhook: {port: 1}\n"},
		{what: "a typo", text: start + "webhok: {port: 1}\n", want: "did you mean webhook?"},
		{what: "the same typo", text: start + "webhok: {port: 1}\n"},
		{what: "back", text: start, want: "waits for a restart any more"},
	} {
		said, text = nil, step.text
		r.look()
		all := strings.Join(said, "\n")
		if (step.want == "") != (all == "") || !strings.Contains(all, step.want) {
			t.Errorf("%s: want %q said, got %q", step.what, step.want, all)
		}
		select {
		case rules := <-r.rules:
			if rules.KeepFinished == nil || *rules.KeepFinished != step.kept {
				t.Errorf("%s: finished Workloads are kept %v, want %s", step.what, rules.KeepFinished, step.kept)
			}
		default:
			if step.kept != 0 {
				t.Errorf("%s: no new rules", step.what)
			}
		}
	}
	r.load = func() (options.Options, error) { return options.Options{}, errors.New("gone") }
	said = nil
	if r.look(); len(said) != 1 {
		t.Errorf("a file that is gone: said %q", said)
	}
}
