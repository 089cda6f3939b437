package ctl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

// TestTemplateFlags: kubectl's flags for templates do what -o NAME=… does. spec: 70 §4.9.
func TestTemplateFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "template")
	if err := os.WriteFile(file, []byte("{{.metadata.name}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-o go-template={{.metadata.name}}":                               "a",
		"-o template={{.metadata.name}}":                                  "a",
		"-o go-template --template {{.metadata.name}}":                    "a",
		"-o template --template {{.metadata.name}}":                       "a",
		"--template {{.metadata.name}}":                                   "a",
		"-o jsonpath --template {.metadata.name}":                         "a",
		"-o templatefile --template " + file:                              "a",
		"-o templatefile=" + file:                                         "a",
		"-o name --template {{.metadata.name}}":                           "clusterqueue.kueue.x-k8s.io/a\n",
		"-o jsonpath={.nothing}":                                          "",
		"-o go-template={{.nothing}}":                                     "<no value>",
		"-o jsonpath={.nothing} --allow-missing-template-keys=false":      "error: nothing is not found",
		"-o go-template={{.nothing}} --allow-missing-template-keys=false": `error: template: output:1:2: executing "output" at <.nothing>: map has no entry for key "nothing"`,
		"-o template":                           "error: -o go-template: say what to print, as in -o go-template='{.metadata.name}'",
		"-o json --cache-dir /tmp/x --template": "error: flag needs an argument: --template",
	} {
		var o output
		var connection cluster.Connection
		var out bytes.Buffer
		cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.print(&out, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		}}
		connection.Add(cmd)
		o.add(cmd, "json", "name")
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err != nil {
			out.WriteString("error: " + err.Error())
		}
		if got := out.String(); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
