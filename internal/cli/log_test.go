package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/options"
)

// The log flags of upstream's manager work. spec: 70 §5.5.
func TestLogFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args    string
		want    string // of the output
		without string
	}{
		"by default":        {"", `^\d{4}-\d\d-\d\dT[0-9:]+\.\d+\S*\tINFO\tinfo one\n.*\tERROR\tbroken\t`, "debug one|TestLogFlags"},
		"more":              {"--zap-log-level=2", "debug one", "TestLogFlags"},
		"less":              {"--log-level=error", "broken", "info one"},
		"in JSON":           {"--zap-encoder=json", `^{"level":"info","ts":"\d{4}-[^"]*\.\d+[^"]*","msg":"info one"}`, "\t"},
		"another time":      {"--zap-encoder=json --zap-time-encoding=epoch", `"ts":\d+\.\d+`, "debug one"},
		"stacks":            {"--zap-stacktrace-level=error", `broken\t.*\n\S+TestLogFlags\S*\n`, ""}, // from where it was logged,
		"for development":   {"--zap-devel", "debug one", ""},
		"that, but quieter": {"--zap-devel --log-level=error", "broken", "info one"},
	} {
		t.Run(name, func(t *testing.T) {
			var l logging
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.SetNormalizeFunc(spelling)
			l.add(flags)
			if err := flags.Parse(strings.Fields(tc.args)); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			log, err := l.open(&out)
			if err != nil {
				t.Fatal(err)
			}
			log.Info("info one")
			log.V(1).Info("debug one")
			log.Error(errors.New("why"), "broken")
			got := out.String()
			if !regexp.MustCompile(tc.want).MatchString(got) || tc.without != "" && regexp.MustCompile(tc.without).MatchString(got) {
				t.Errorf("want %s, without %q, got\n%s", tc.want, tc.without, got)
			}
		})
	}
}

// The effective configuration is in the log, once, as a file that gives the same configuration. spec: 70 §3.1.
func TestConfigurationIsTold(t *testing.T) {
	var out bytes.Buffer
	l := logging{level: levelInfo}
	log, err := l.open(&out)
	if err != nil {
		t.Fatal(err)
	}
	o := options.Default()
	if err := tellConfiguration(log, &o); err != nil {
		t.Fatal(err)
	}
	_, values, _ := strings.Cut(out.String(), "defaults\t")
	var said struct{ YAML string }
	if err := json.Unmarshal([]byte(values), &said); err != nil {
		t.Fatal(err)
	}
	again, err := options.Parse("again", []byte(said.YAML), "")
	if err != nil {
		t.Fatal(err)
	}
	if changed := options.Changes(&o, &again); len(changed) > 0 || !strings.Contains(said.YAML, "apiVersion: config.kueue.x-k8s.io/v1beta2") {
		t.Errorf("what is told differs in %v:\n%s", changed, said.YAML)
	}
}
