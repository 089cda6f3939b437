package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/options"
)

// programEnv makes this test binary behave as berth.
const programEnv = "BERTH_CLI_TEST_PROGRAM"

// testBuild is the program that is tested.
var testBuild = metrics.Build{Version: "test", Commit: "0123456789", Date: "2026-01-02T03:04:05Z"}

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(Main(testBuild, os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// berth runs a command line in this process.
func berth(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), testBuild, append([]string{"berth"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// A wrong command line or configuration ends with 2 and one line, and starts and creates nothing.
func TestBadUsage(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	content := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueuename: true\n"
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	provided := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(provided, []byte("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\ninternalCertManagement: {enable: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for name, tc := range map[string]struct {
		args string
		want string
	}{
		"unknown command":       {"launch", `error: unknown command "launch": see berth --help`},
		"misspelt command":      {"dwn", `error: unknown command "dwn": did you mean berth down? See berth --help`},
		"unknown flag":          {"up --prot 1", "error: unknown flag: --prot: see berth up --help"},
		"unknown root flag":     {"--version", "error: unknown flag: --version: see berth --help"},
		"no value":              {"up --dir", "error: flag needs an argument: --dir: see berth up --help"},
		"no number":             {"up --port x", `error: invalid argument "x" for "--port" flag: strconv.ParseInt: parsing "x": invalid syntax: see berth up --help`},
		"no namespace":          {"import --queuelabel a --queuemapping b=c", "error: --namespace: is missing: name the namespaces whose pods are imported"},
		"an empty namespace":    {"import -n a, --queuelabel a --queuemapping b=c", `error: --namespace "": is no name of a namespace: `},
		"no mapping":            {"import -n a", "error: --queuelabel or --queuemapping-file: is missing: say which pods go into which LocalQueue"},
		"a label alone":         {"import -n a --queuelabel x", "error: --queuemapping: is missing: name a LocalQueue for each value of the label x, as in value=queue"},
		"a mapping alone":       {"import -n a --queuemapping x=y", "error: --queuemapping: needs --queuelabel, the label whose values it maps"},
		"label and file":        {"import -n a --queuelabel x --queuemapping-file " + config, "error: --queuelabel and --queuemapping-file: give one of the two"},
		"mapping and file":      {"import -n a --queuemapping x=y --queuemapping-file " + config, "error: --queuemapping and --queuemapping-file: give one of the two"},
		"no list of rules":      {"import -n a --queuemapping-file " + config, "error: " + config + ":1: want a list, got a mapping"},
		"no label to add":       {"import -n a --queuelabel x --queuemapping x=y --add-labels a=b!", `error: --add-labels a=b!: "b!" is no value of a label: `},
		"no key to add":         {"import -n a --queuelabel x --queuemapping x=y --add-labels a!=b", `error: --add-labels a!=b: "a!" is no key of a label: `},
		"a label of its own":    {"import -n a --queuelabel x --queuemapping x=y --add-labels kueue.x-k8s.io/managed=true", "error: --add-labels kueue.x-k8s.io/managed=true: the import sets this label itself"},
		"everything excluded":   {"import -n a --queuelabel x --queuemapping x=y --exclude-resource-prefixes a,,b", "error: --exclude-resource-prefixes: an empty prefix would exclude every resource"},
		"no workers":            {"import -n a --queuelabel x --queuemapping x=y -c 0", "error: --concurrent-workers 0: must be at least 1"},
		"no requests":           {"import -n a --queuelabel x --queuemapping x=y --qps 0", "error: --qps 0: must be more than 0"},
		"no burst":              {"import -n a --queuelabel x --queuemapping x=y --burst 0", "error: --burst 0: must be at least 1"},
		"argument":              {"down all", `error: unexpected argument "all": berth down takes flags only, see berth down --help`},
		"port":                  {"up --port 65536", "error: --port 65536: must be from 0 to 65535"},
		"reserved port":         {"up --port-reserved", "error: --port-reserved: name the port that is reserved: --port"},
		"nodes":                 {"up --nodes -1", "error: --nodes -1: must not be negative"},
		"topology":              {"up --topology rack=2,hosts=3", "error: --topology: the last level is hosts: it must be host, the nodes themselves, as in block=2,rack=4,host=8"},
		"large topology":        {"up --detach --topology rack=100,host=51", "error: --topology: host=51: that makes more than 5000 nodes"},
		"topology and nodes":    {"up --topology host=4 --nodes 4", "error: --topology: it says how many nodes there are: leave out --nodes and --no-nodes"},
		"topology, no nodes":    {"up --topology host=4 --no-nodes", "error: --topology: it says how many nodes there are: leave out --nodes and --no-nodes"},
		"empty dir":             {"down --dir=", "error: --dir is empty: name a directory, or leave it out for ~/.berth"},
		"log level":             {"up --log-level loud", `error: --log-level "loud": must be error, info, debug, or a number from 0 to 127`},
		"no version":            {"install --print --api-versions v1", `error: --api-versions "v1": "v1" is no version of kueue.x-k8s.io; there are v1beta1 and v1beta2`},
		"version":               {"install --print --api-versions v1beta1", `error: --api-versions "v1beta1": v1beta2 must be served, for the manager uses it`},
		"versions":              {"manager --api-versions v1beta2", `error: --api-versions is about what --install installs: give both, or neither`},
		"group":                 {"up --controllers jobs", `error: --controllers: "jobs" is no group; the groups are webhooks, queues,`},
		"unknown field":         {"up --config " + config, "error: " + config + ":3: manageJobsWithoutQueuename: unknown field"},
		"unknown field detach":  {"up --detach --config " + config, "error: " + config + ":3: manageJobsWithoutQueuename: unknown field"},
		"unknown field manager": {"manager --config " + config, "error: " + config + ":3: manageJobsWithoutQueuename: unknown field"},
		"unknown field install": {"install --print --config " + config, "error: " + config + ":3: manageJobsWithoutQueuename: unknown field"},
		"no config":             {"up --config /nonexistent", "error: /nonexistent: no such configuration file"},
		"gate":                  {"manager --feature-gates Foo=true", `error: --feature-gates: Foo`},
		"address":               {"manager --metrics-bind-address here", `error: --metrics-bind-address "here": must be host:port, :port, or 0 for none`},
		"port of no use":        {"manager --visibility-bind-address :0", `error: --visibility-bind-address ":0": the API server has to know the port: name one`},
		"address's port":        {"manager --health-probe-bind-address :x", `error: --health-probe-bind-address ":x": the port must be a number from 0 to 65535`},
		"webhook port":          {"manager --webhook-port 0", "error: --webhook-port 0: must be from 1 to 65535"},
		"no JobSets":            {"manager --kube-api-qps 0", "error: --kube-api-qps 0: must be more than 0, or negative for no limit"},
		"no burst of JobSets":   {"manager --kube-api-burst 0", "error: --kube-api-burst 0: must be at least 1"},
		"webhook URL":           {"manager --webhook-url http://x", `error: --webhook-url "http://x": must be like https://host:9443`},
		"webhook URL install":   {"install --webhook-url x:9443", `error: --webhook-url "x:9443": must be like https://host:9443`},
		"no certificates":       {"install --image x --config " + provided, "error: internalCertManagement.enable is false, and nothing here puts another certificate into the pod"},
		"certificates":          {"manager --webhook-cert-dir " + empty, "error: --webhook-cert-dir: stat " + empty + "/tls.crt: no such file or directory: put tls.crt and tls.key there"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			code, stdout, stderr := berth(t, strings.Fields(tc.args)...)
			if code != 2 || stdout != "" {
				t.Errorf("exit code %d, output %q", code, stdout)
			}
			if !strings.HasPrefix(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("error %q, want one line that begins with %q", stderr, tc.want)
			}
			if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
				t.Errorf("it made %v (%v)", entries, err)
			}
		})
	}
}

func TestFails(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)

	old := t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "version"), []byte("berth-controlplane/0 x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(unreachable, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := t.TempDir()
	occupy(t, taken, local.Record{PID: 42, Server: "https://127.0.0.1:1", Kubeconfig: "K"})
	for name, tc := range map[string]struct {
		args string
		env  map[string]string
		want string
	}{
		"taken port":         {args: "up --dir DIR --port " + port, want: "port " + port + " on 127.0.0.1 is in use: choose another --port, or 0 for a free one"},
		"other version":      {args: "up --dir " + old, want: "the data in " + old + " is of berth-controlplane/0 x"},
		"no control plane":   {args: "up --dir DIR", env: map[string]string{"BERTH_CONTROLPLANE": "/nonexistent"}, want: "BERTH_CONTROLPLANE=/nonexistent is not a program"},
		"runs already":       {args: "up --dir " + taken, want: "berth already runs in " + taken + " (pid 42, https://127.0.0.1:1): use it (export KUBECONFIG=K), stop it"},
		"runs already, bg":   {args: "up --detach --dir " + taken, want: "berth already runs in " + taken + " (pid 42,"},
		"no kubeconfig":      {args: "manager --kubeconfig /nonexistent", want: "--kubeconfig: stat /nonexistent: no such file or directory: give the path of a kubeconfig file"},
		"nothing configured": {args: "manager", want: "no API server is named in "},
		"no server":          {args: "manager --kubeconfig " + unreachable, want: "the API server https://127.0.0.1:1 (from " + unreachable + ") does not answer: dial tcp 127.0.0.1:1: connect: connection refused"},
		"no server, env":     {args: "install", env: map[string]string{"KUBECONFIG": unreachable}, want: "the API server https://127.0.0.1:1 (from KUBECONFIG=" + unreachable + ") does not answer"},
		"not ours":           {args: "down --purge --dir " + t.TempDir(), want: "--purge: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv("KUBECONFIG", "")
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			code, _, stderr := berth(t, strings.Fields(strings.ReplaceAll(tc.args, "DIR", t.TempDir()))...)
			_, complaint, found := strings.Cut("\n"+stderr, "\nerror: ")
			if code != 1 || !found || !strings.HasPrefix(complaint, tc.want) || strings.Count(complaint, "\n") != 1 {
				t.Errorf("exit code %d, stderr %q, want one line with %q", code, stderr, tc.want)
			}
		})
	}
}

// A flag that only the control plane can check is also bad usage, and also in the background.
func TestBadCapacity(t *testing.T) {
	t.Setenv(programEnv, "1")
	for _, more := range []string{"--detach=false", "--detach"} {
		t.Run(more, func(t *testing.T) {
			code, _, stderr := berth(t, "up", "--dir", t.TempDir(), "--node-capacity", "cpu", more)
			if code != 2 || strings.Count(stderr, `error: --node-capacity: "cpu" is not of the form`) != 1 {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
		})
	}
}

// occupy locks a directory as an `up` does.
func occupy(t *testing.T, dir string, record local.Record) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "berth.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := json.NewEncoder(file).Encode(record); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// The help of every command has an example.
func TestHelp(t *testing.T) {
	for _, command := range newRoot(testBuild, "berth").Commands() {
		t.Run(command.Name(), func(t *testing.T) {
			code, stdout, stderr := berth(t, command.Name(), "--help")
			if code != 0 || stderr != "" || !strings.Contains(stdout, "\n  berth "+command.Name()) {
				t.Errorf("exit code %d, stderr %q, no example of berth %s in\n%s", code, stderr, command.Name(), stdout)
			}
		})
	}
	if code, stdout, _ := berth(t); code != 0 || !strings.Contains(stdout, "berth demo") {
		t.Errorf("without a command: exit code %d\n%s", code, stdout)
	}
}

// TestFlags is the contract with scripts.
func TestFlags(t *testing.T) {
	contract := map[string]string{
		"up":      "dir port config nodes topology node-capacity controllers no-manager no-nodes detach feature-gates log-level",
		"down":    "dir purge",
		"manager": "kubeconfig config controllers metrics-bind-address health-probe-bind-address visibility-bind-address webhook-port webhook-cert-dir leader-elect install feature-gates log-level zap-log-level zap-devel zap-encoder zap-stacktrace-level zap-time-encoding",
		"install": "kubeconfig webhook-url print",
		"demo":    "keep",

		"demo topology":  "keep",
		"demo autoscale": "",

		"version": "client",
		"explain": "output kubeconfig context namespace",
		"top":     "watch interval resource",
		"list":    "kubeconfig context namespace request-timeout as as-group server token cluster user",

		"list workloads":        "all-namespaces clusterqueue localqueue status for selector field-selector output no-headers",
		"list localqueues":      "all-namespaces clusterqueue selector field-selector output",
		"list clusterqueues":    "active selector field-selector output",
		"list resourceflavors":  "selector field-selector output",
		"list pods":             "for all-namespaces selector field-selector output",
		"stop workload":         "dry-run output",
		"stop localqueue":       "keep-already-running dry-run",
		"stop clusterqueue":     "keep-already-running dry-run",
		"resume clusterqueue":   "dry-run",
		"delete workload":       "yes all all-namespaces dry-run",
		"create clusterqueue":   "cohort queuing-strategy namespace-selector reclaim-within-cohort preemption-within-cluster-queue nominal-quota borrowing-limit lending-limit dry-run",
		"create localqueue":     "clusterqueue ignore-unknown-cq dry-run",
		"create resourceflavor": "node-labels node-taints tolerations dry-run",
	}
	root := newRoot(testBuild, "berth")
	for name, flags := range contract {
		command, _, err := root.Find(strings.Fields(name))
		if err != nil || !strings.HasSuffix(command.CommandPath(), " "+name) {
			t.Errorf("no command %s: %v", name, err)
			continue
		}
		for flag := range strings.FieldsSeq(flags) {
			if command.Flag(flag) == nil {
				t.Errorf("berth %s has no --%s", name, flag)
			}
		}
	}
}

// The name of a plugin appears in the help and in errors.
func TestPluginName(t *testing.T) {
	for program, name := range map[string]string{"berth": "berth", "kubectl-berth": "kubectl berth", "kubectl-kueue": "kubectl kueue", "kueuectl": "kueuectl", "elsewhere": "berth"} {
		root := newRoot(testBuild, program)
		if got := root.CommandPath(); got != name {
			t.Errorf("%s calls itself %q", program, got)
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), testBuild, []string{"/usr/bin/" + program, "list", "workloads", "--help"}, &out, &errs)
		if text := out.String(); code != 0 || !strings.Contains(text, "\n  "+name+" list workloads -n team-a\n") || !strings.Contains(text, "\n  "+name+" list workloads [flags]\n") ||
			strings.Count(text, "berth ") != strings.Count(text, name+" ")*strings.Count(name, "berth") {
			t.Errorf("%s: %d\n%s%s", program, code, text, errs.String())
		}
		run(t.Context(), testBuild, []string{program, "list", "workload", "x"}, &out, &errs)
		if !strings.HasPrefix(errs.String(), "error: "+name+" list workloads: unexpected argument") {
			t.Errorf("%s: %s", program, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), testBuild, []string{"kubectl_complete-berth", "list", "res"}, &out, &errs); code != 0 || !strings.HasPrefix(out.String(), "resourceflavors\t") {
		t.Errorf("completion: %d %s %s", code, out.String(), errs.String())
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	for _, args := range [][]string{{"version"}, {"version", "--client"}} {
		if code, stdout, stderr := berth(t, args...); code != 0 || stdout != "Client Version: test\n" || stderr != "" {
			t.Errorf("%v: %d %q %q", args, code, stdout, stderr)
		}
	}
}

func TestDownWithNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	for args, want := range map[string]string{
		"":        "nothing runs in " + dir + "\n",
		"--purge": "nothing runs in " + dir + "\nthere is no " + dir + " to remove\n",
	} {
		if code, stdout, stderr := berth(t, append([]string{"down", "--dir", dir}, strings.Fields(args)...)...); code != 0 || stdout != want || stderr != "" {
			t.Errorf("down %s: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

func TestPrint(t *testing.T) {
	code, stdout, stderr := berth(t, "install", "--print", "--webhook-url", "https://10.0.0.5:9443")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{
		"\nkind: CustomResourceDefinition\n", "\nkind: ClusterRole\n", "\nkind: MutatingWebhookConfiguration\n", "name: clusterqueues.kueue.x-k8s.io\n",
		"https://10.0.0.5:9443/", "name: berth-system\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if _, without, _ := berth(t, "install", "--print", "--controllers=-webhooks"); strings.Contains(without, "WebhookConfiguration\n") {
		t.Error("webhook configurations are printed although the webhooks are off")
	}
}

func TestExpand(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Chdir("/")
	for dir, want := range map[string]string{"~": "/home/u", "~/.berth": "/home/u/.berth", "/x/../y": "/y", "x": "/x", "~u": "/~u"} {
		if got, err := expand(dir); err != nil || got != want {
			t.Errorf("expand(%q) = %q, %v, want %q", dir, got, err, want)
		}
	}
	for dir, want := range map[string]string{"/home/u/.berth": "", "/x": " --dir /x"} {
		if got := forDir(dir); got != want {
			t.Errorf("forDir(%q) = %q, want %q", dir, got, want)
		}
	}
}

// `berth up` reads its configuration file again, as `berth manager` does.
func TestUpFollowsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for config, follows := range map[string]bool{"": false, file: true} {
		u := &up{dir: t.TempDir(), settings: settings{config: []string{config}}, logLevel: newUp(testBuild).Flag("log-level").DefValue}
		cfg, err := u.config(&bytes.Buffer{})
		if err != nil || (cfg.Reload != nil) != follows {
			t.Errorf("with --config=%q it follows a file: %t, want %t: %v", config, cfg.Reload != nil, follows, err)
		}
	}
}

// All files of a repeated --config are read: at the start, again after a change, in the background and in the cluster. spec: 70 §3.1.
func TestRepeatedConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const jobSets = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\nclientConnection: {burst: "
	own := write("kueue.yaml", "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnamespace: a")
	theirs := write("a, b.yaml", jobSets+"7}\n")
	m, cmd := &manager{}, &cobra.Command{}
	m.addFlags(cmd.Flags())
	if err := cmd.ParseFlags([]string{"--config", own, "--config", theirs}); err != nil {
		t.Fatal(err)
	}
	cmd.SetErr(&bytes.Buffer{})
	cfg, err := m.config(cmd)
	if err != nil || cfg.Options.Namespace != "a" || cfg.Options.JobSet.Client.Burst != 7 {
		t.Fatalf("%+v, %v", cfg.Options, err)
	}
	write("a, b.yaml", jobSets+"8}\n")
	if again, err := cfg.Reload(); err != nil || again.Namespace != "a" || again.JobSet.Client.Burst != 8 {
		t.Errorf("read again: %+v, %v", again.JobSet, err)
	}
	asked, err := m.settings.deploy("image", cfg.Groups)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := options.Parse("config", []byte(asked.Deploy.Config), ""); err != nil || o.Namespace != "a" || o.JobSet.Client.Burst != 8 {
		t.Errorf("in the cluster: %+v, %v", o.JobSet, err)
	}
	if diff := cmp.Diff([]string{"--config=" + own, "--config=" + theirs}, given(cmd.Flags())); diff != "" {
		t.Errorf("in the background (-want +got)\n%s", diff)
	}
}

// Flags of the manager override its configuration only if they are set.
func TestManagerFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []any
	}{
		"none":  {nil, []any{":8443", ":8081", 9443, true, options.Client{QPS: 500, Burst: 500}}},
		"given": {[]string{"--metrics-bind-address=0", "--health-probe-bind-address=:1", "--webhook-port=2", "--leader-elect=false", "--kube-api-qps=3.5", "--kube-api-burst=4"}, []any{"0", ":1", 2, false, options.Client{QPS: 3.5, Burst: 4}}},
		"one":   {[]string{"--kube-api-qps=-1"}, []any{":8443", ":8081", 9443, true, options.Client{QPS: -1, Burst: 500}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, cmd := &manager{}, &cobra.Command{}
			m.addFlags(cmd.Flags())
			if err := cmd.ParseFlags(tc.args); err != nil {
				t.Fatal(err)
			}
			cmd.SetErr(&bytes.Buffer{})
			cfg, err := m.config(cmd)
			if err != nil {
				t.Fatal(err)
			}
			o := cfg.Options
			got := []any{o.Metrics.Address, o.Health.Address, o.Webhook.Port, o.LeaderElection.Enabled, o.JobSet.Client}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// The dashboard's flags take precedence over the variables that the chart sets. spec: 70 §4.10.
func TestDashboardFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args        []string
		environment map[string]string
		host        string
		want        options.Dashboard
		err         string
	}{
		"none": {want: options.DefaultDashboard()},
		"flags": {
			args: []string{"--dashboard-bind-address=:8080", "--dashboard-auth-mode=Disabled", "--dashboard-allowed-origins=https://a.org, http://b.org:1", "--dashboard-token-audiences=c"},
			want: options.Dashboard{Address: ":8080", AuthMode: "Disabled", Origins: []string{"https://a.org", "http://b.org:1"}, Audiences: []string{"c"}, CacheTTL: time.Minute, NegativeCacheTTL: 5 * time.Second},
		},
		"variables": {
			environment: map[string]string{
				"KUEUEVIZ_PORT": "9090", "KUEUEVIZ_AUTH_MODE": "Disabled", "KUEUEVIZ_ALLOWED_ORIGINS": "https://a.org,https://b.org", "KUEUEVIZ_AUTH_TOKEN_REVIEW_AUDIENCES": "x,y",
				"KUEUEVIZ_AUTH_TOKEN_REVIEW_CACHE_TTL": "2m", "KUEUEVIZ_AUTH_TOKEN_REVIEW_NEGATIVE_CACHE_TTL": "1s",
			},
			want: options.Dashboard{Address: ":9090", AuthMode: "Disabled", Origins: []string{"https://a.org", "https://b.org"}, Audiences: []string{"x", "y"}, CacheTTL: 2 * time.Minute, NegativeCacheTTL: time.Second},
		},
		"a flag before a variable": {
			args: []string{"--dashboard-bind-address=0"}, environment: map[string]string{"KUEUEVIZ_PORT": "9090"},
			want: options.Dashboard{Address: "0", AuthMode: "TokenReview", CacheTTL: time.Minute, NegativeCacheTTL: 5 * time.Second},
		},
		"this machine": {
			args: []string{"--dashboard-bind-address=:8080"}, host: "127.0.0.1",
			want: options.Dashboard{Address: "127.0.0.1:8080", AuthMode: "TokenReview", CacheTTL: time.Minute, NegativeCacheTTL: 5 * time.Second},
		},
		"no origins":     {args: []string{"--dashboard-bind-address=:8080"}, err: "--dashboard-allowed-origins or the variables KUEUEVIZ_*): :8080 is reached from other machines"},
		"any origin":     {args: []string{"--dashboard-bind-address=:8080", "--dashboard-allowed-origins=*"}, err: `the allowed origin "*"`},
		"a path":         {args: []string{"--dashboard-bind-address=:8080", "--dashboard-allowed-origins=https://a.org/"}, err: `the allowed origin "https://a.org/"`},
		"no address":     {args: []string{"--dashboard-bind-address=8080"}, err: `--dashboard-bind-address "8080"`},
		"no port":        {args: []string{"--dashboard-bind-address=localhost:0"}, err: "name a port"},
		"another mode":   {args: []string{"--dashboard-bind-address=localhost:1", "--dashboard-auth-mode=None"}, err: `"None": must be Disabled or TokenReview`},
		"a wrong port":   {environment: map[string]string{"KUEUEVIZ_PORT": "http"}, err: `KUEUEVIZ_PORT "http"`},
		"no duration":    {environment: map[string]string{"KUEUEVIZ_AUTH_TOKEN_REVIEW_CACHE_TTL": "long"}, err: `KUEUEVIZ_AUTH_TOKEN_REVIEW_CACHE_TTL "long"`},
		"time backwards": {args: []string{"--dashboard-bind-address=localhost:1"}, environment: map[string]string{"KUEUEVIZ_AUTH_TOKEN_REVIEW_NEGATIVE_CACHE_TTL": "-1s"}, err: "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			d, flags, o := &dashboard{}, pflag.NewFlagSet("", pflag.ContinueOnError), options.Default()
			d.add(flags)
			if err := flags.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			err := d.apply(&o, tc.host, func(name string) string { return tc.environment[name] })
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %s", err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, o.Dashboard); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

func TestLastWords(t *testing.T) {
	log := filepath.Join(t.TempDir(), "berth.log")
	for name, tc := range map[string]struct {
		text, want string
	}{
		"an error":         {"starting\nerror: no\n", "no"},
		"with a log":       {"error: etcd died:\n  line\n", "etcd died:\n  line"},
		"no error":         {"starting\npanic: ouch\n", "berth up ended in the background (without an error). The end of LOG:\n  starting\n  panic: ouch"},
		"a very long log":  {strings.Repeat("progress\n", 10_000) + "error: late\n", "late"},
		"nothing was said": {"", "berth up ended in the background (without an error). The end of LOG:\n  "},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(log, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(lastWords(nil, log).Error(), log, "LOG"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestUpAndDown starts and stops a cluster in the background.
func TestUpAndDown(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Setenv(programEnv, "1")
	dir := t.TempDir()
	code, stdout, stderr := berth(t, "up", "--dir", dir, "--detach", "--topology", "rack=1,host=2")
	defer berth(t, "down", "--dir", dir)
	if code != 0 || !strings.Contains(stdout, "export KUBECONFIG="+dir+"/kubeconfig\n") || !strings.Contains(stdout, "with 2 simulated nodes (1 rack × 2 host)\n") ||
		!strings.Contains(stdout, "kubectl apply -f "+filepath.Join(dir, local.TopologyName)) {
		t.Fatalf("up: exit code %d\n%s%s", code, stdout, stderr)
	}
	record, found, err := local.Find(dir)
	if err != nil || !found || !record.Ready || record.WebhookPort == 0 {
		t.Errorf("record %+v, %v, %v", record, found, err)
	}
	if code, _, stderr := berth(t, "up", "--dir", dir); code != 1 || !strings.Contains(stderr, "already runs in "+dir+" (pid "+strconv.Itoa(record.PID)) {
		t.Errorf("second up: exit code %d, %s", code, stderr)
	}
	if code, stdout, stderr := berth(t, "install", "--kubeconfig", record.Kubeconfig, "--webhook-url", "https://127.0.0.1:"+strconv.Itoa(record.WebhookPort)); code != 0 || !strings.Contains(stdout, "custom resource definitions") {
		t.Errorf("install: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := berth(t, "down", "--dir", dir, "--purge"); code != 0 || stdout != "stopped what ran in "+dir+"\nremoved "+dir+"\n" || stderr != "" {
		t.Errorf("down: exit code %d, %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
}

// An interrupted start leaves no process behind.
func TestUpIsInterrupted(t *testing.T) {
	t.Setenv(programEnv, "1")
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, testBuild, []string{"berth", "up", "--dir", dir, "--detach"}, &out, &errs); code != 1 || !strings.HasSuffix(errs.String(), "error: interrupted\n") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	if _, found, err := local.Find(dir); found || err != nil {
		t.Errorf("it runs: %v", err)
	}
}

// A signal that arrives twice, as from make or timeout, counts once: the command stops in order.
func TestSignals(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var errs bytes.Buffer
	up := exec.Command(self, "up", "--dir", dir, "--no-manager", "--no-nodes")
	up.Env = append(os.Environ(), programEnv+"=1")
	up.Stderr = &errs
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the cluster is ready", wait.Is(func() bool {
		record, found, err := local.Find(dir)
		return err == nil && found && record.Ready
	}))
	for range 3 {
		if err := up.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := up.Wait(); err != nil || !strings.HasSuffix(errs.String(), "\nstopped\n") {
		t.Errorf("up: %v\n%s", err, errs.String())
	}
	if plane, found, err := embedded.Find(dir); found || err != nil {
		t.Errorf("a control plane still runs: %+v, %v", plane, err)
	}
}
