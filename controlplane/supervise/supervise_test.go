package supervise

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		args    string
		problem string // part of the error; "" for a valid command line
	}{
		"least":             {"--dir d", ""},
		"all":               {"--dir d --port 6443 --nodes 2 --node-capacity cpu=1 --no-nodes --bare --exit-with-stdin --start-timeout 5s", ""},
		"reserved port":     {"--dir d --port 6443 --port-reserved", ""},
		"reserved, no port": {"--dir d --port-reserved", "--port-reserved: name the port"},
		"no dir":            {"", "--dir is missing"},
		"unknown flag":      {"--dir d --what", "unknown flag --what: see berth-controlplane up --help"},
		"missing value":     {"--dir", "missing value of flag --dir"},
		"bad number":        {"--dir d --nodes many", `invalid value "many" for flag --nodes: see`},
		"extra argument":    {"--dir d now", `unexpected argument "now"`},
		"bad port":          {"--dir d --port 70000", "--port 70000: must be from 0 to 65535"},
		"bad nodes":         {"--dir d --nodes -1", "--nodes -1: must be from 0 to 5000"},
		"topology":          {"--dir d --topology block=2,rack=4,host=8", ""},
		"bad topology":      {"--dir d --topology block=2,rack=4", "--topology: the last level is rack: it must be host"},
		"large topology":    {"--dir d --topology rack=100,host=100", "--topology: host=100: that makes more than 5000 nodes"},
		"topology, nodes":   {"--dir d --topology host=4 --nodes 4", "--topology: it says how many nodes there are: leave out --nodes and --no-nodes"},
		"topology, none":    {"--dir d --topology host=4 --no-nodes", "--topology: it says how many nodes there are: leave out --nodes and --no-nodes"},
		"bad node capacity": {"--dir d --node-capacity cpu", "--node-capacity: "},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			_, err := parse(strings.Fields(tc.args), &stdout)
			if tc.problem == "" {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.problem) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tc.problem)
			}
			if code := Main(strings.Fields(tc.args), nil, &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
		})
	}
}

func TestNoNodesBeatsNodes(t *testing.T) {
	opts, err := parse([]string{"--dir", "d", "--nodes", "3", "--no-nodes"}, nil)
	if err != nil || len(opts.nodes) != 0 || !filepath.IsAbs(opts.dir) {
		t.Errorf("%+v (error %v)", opts, err)
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := Main([]string{"--help"}, nil, &stdout, &stderr); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	for _, want := range []string{"berth.dev/run-seconds", "-node-capacity", "kubectl --kubeconfig"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the help does not mention %s", want)
		}
	}
}

func TestVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		version string // content of DIR/version; "" for no file
		data    bool   // DIR/etcd exists
		problem string
	}{
		"new":                   {},
		"ours":                  {version: Version() + "\n", data: true},
		"other kubernetes":      {version: "berth-controlplane/1 kubernetes v1.99.0", data: true, problem: "berth-controlplane/1 kubernetes v1.99.0"},
		"data without a file":   {data: true, problem: "unknown version"},
		"empty file, some data": {version: " ", data: true, problem: "the data in"},
	} {
		t.Run(name, func(t *testing.T) {
			d := dir(t.TempDir())
			if tc.version != "" {
				write(t, d.path("version"), tc.version)
			}
			if tc.data {
				if err := os.Mkdir(d.path("etcd"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			err := d.checkVersion()
			if tc.problem == "" {
				if data, _ := os.ReadFile(d.path("version")); err != nil || strings.TrimSpace(string(data)) != Version() {
					t.Errorf("error %v, version file %q", err, data)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.problem) || !strings.Contains(err.Error(), Version()) || !strings.Contains(err.Error(), "--purge") {
				t.Errorf("error %v, want both versions and what to do", err)
			}
		})
	}
}

// If the version is another, no program is started and the old data is unchanged.
func TestOtherVersionStartsNothing(t *testing.T) {
	d := t.TempDir()
	write(t, filepath.Join(d, "version"), "berth-controlplane/0 kubernetes v1.0.0")
	var stdout, stderr bytes.Buffer
	code := Main([]string{"--dir", d}, nil, &stdout, &stderr)
	if code != 1 || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit code %d, output %q, errors %q; want 1, nothing and one line", code, stdout.String(), stderr.String())
	}
	entries, err := os.ReadDir(d)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v (error %v), want lock and version only", entries, err)
	}
}

// TestOccupiedPort: no control plane starts on a port that another program listens on, has reserved, or shares with its owner.
func TestOccupiedPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	reserved, err := Reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	defer reserved.Release()
	shared, err := Reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	sharing := Sharing()
	owner, err := sharing.Listen(t.Context(), "tcp", shared.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close() }()
	shared.Release()
	for name, port := range map[string]int{"listened on": listener.Addr().(*net.TCPAddr).Port, "reserved": reserved.Port, "shared": shared.Port} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Main([]string{"--dir", t.TempDir(), "--port", fmt.Sprint(port)}, nil, &stdout, &stderr)
			want := fmt.Sprintf("error: port %d on 127.0.0.1 is in use: choose another --port, or 0 for a free one\n", port)
			if code != 1 || stderr.String() != want {
				t.Errorf("exit code %d, errors %q; want 1 and %q", code, stderr.String(), want)
			}
		})
	}
}

func TestLock(t *testing.T) {
	d := dir(filepath.Join(t.TempDir(), "new", "deep"))
	first, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.lock(); err == nil || !strings.Contains(err.Error(), "is starting in "+string(d)) {
		t.Errorf("second lock: %v", err)
	}
	if err := publish(first, holder{PID: 42, Server: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.lock(); err == nil || !strings.Contains(err.Error(), "pid 42, https://127.0.0.1:1") {
		t.Errorf("second lock: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := d.lock()
	if err != nil {
		t.Fatalf("lock after the first was given back: %v", err)
	}
	defer func() { _ = again.Close() }()
	if _, err := d.lock(); err == nil || strings.Contains(err.Error(), "pid 42") {
		t.Errorf("the lock names an earlier holder: %v", err)
	}
}

// TestForeignDirectory: a directory whose keys another user could have made is refused before its content is used.
func TestForeignDirectory(t *testing.T) {
	root := t.TempDir()
	for name, prepare := range map[string]func(d dir) error{
		"open to all": func(d dir) error { return os.Chmod(string(d), 0o777) },
		"linked keys": func(d dir) error { return errors.Join(os.Remove(d.path("pki")), os.Symlink(root, d.path("pki"))) },
		"linked lock": func(d dir) error { return os.Symlink(filepath.Join(root, "else"), d.path("lock")) },
		"linked log": func(d dir) error {
			return errors.Join(os.Mkdir(d.path("logs"), 0o700), os.Symlink("/etc/passwd", d.log("etcd")))
		},
		"of another user": func(d dir) error { return os.Lchown(d.path("pki"), 4711, 4711) },
	} {
		t.Run(name, func(t *testing.T) {
			d := dir(filepath.Join(root, name))
			if err := os.MkdirAll(d.path("pki"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := prepare(d); errors.Is(err, fs.ErrPermission) {
				t.Skip("only root can give files away")
			} else if err != nil {
				t.Fatal(err)
			}
			if file, err := d.lock(); err == nil || !strings.Contains(err.Error(), "cannot be trusted") || !strings.Contains(err.Error(), "has mode") {
				t.Errorf("taken as %v: %v", file, err)
			}
			if _, err := os.Lstat(filepath.Join(root, "else")); err == nil {
				t.Error("a file was made through a link")
			}
		})
	}
}

func TestPKI(t *testing.T) {
	d := dir(t.TempDir())
	now := time.Now()
	p, err := d.ensurePKI(now)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		authority string
		usage     x509.ExtKeyUsage
		host      string
	}{
		"apiserver":   {"ca", x509.ExtKeyUsageServerAuth, "127.0.0.1"},
		"etcd":        {"etcd-ca", x509.ExtKeyUsageServerAuth, "127.0.0.1"},
		"etcd-client": {"etcd-ca", x509.ExtKeyUsageClientAuth, ""},
		"front-proxy": {"front-proxy-ca", x509.ExtKeyUsageClientAuth, ""},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := readCertificate(t, p.file(name+".crt"))
			for _, authority := range []string{"ca", "etcd-ca", "front-proxy-ca"} {
				roots := x509.NewCertPool()
				roots.AddCert(readCertificate(t, p.file(authority+".crt")))
				_, err := leaf.Verify(x509.VerifyOptions{
					Roots: roots, DNSName: tc.host, CurrentTime: now.AddDate(9, 0, 0), KeyUsages: []x509.ExtKeyUsage{tc.usage},
				})
				if good := authority == tc.authority; (err == nil) != good {
					t.Errorf("verified by %s: %v, want good: %v", authority, err, good)
				}
			}
		})
	}
	err = filepath.WalkDir(string(p), func(path string, _ os.DirEntry, _ error) error {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others (%v)", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	before, _ := os.ReadFile(p.file("tokens.csv"))
	if _, err := d.ensurePKI(now); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(p.file("tokens.csv")); !bytes.Equal(before, after) {
		t.Error("a second start made new tokens")
	}
	other, err := dir(t.TempDir()).ensurePKI(now)
	if err != nil {
		t.Fatal(err)
	}
	if theirs, _ := os.ReadFile(other.file("tokens.csv")); bytes.Equal(before, theirs) {
		t.Error("two control planes have the same tokens")
	}
}

func TestKubeconfig(t *testing.T) {
	p, err := dir(t.TempDir()).ensurePKI(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.kubeconfig("https://127.0.0.1:1234", "admin")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Clusters []struct {
			Name    string
			Cluster struct {
				Server    string
				Authority string `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			Name string
			User struct{ Token string }
		}
		Contexts []struct {
			Name    string
			Context struct{ Cluster, User string }
		}
		Current string `json:"current-context"`
	}
	if err := yaml.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	authority, _ := os.ReadFile(p.file("ca.crt"))
	token, _ := p.token("admin")
	if len(got.Clusters) != 1 || len(got.Users) != 1 || len(got.Contexts) != 1 {
		t.Fatalf("not one of each: %+v", got)
	}
	wired := got.Current == got.Contexts[0].Name && got.Contexts[0].Context.Cluster == got.Clusters[0].Name && got.Contexts[0].Context.User == got.Users[0].Name
	if !wired || got.Clusters[0].Cluster.Server != "https://127.0.0.1:1234" ||
		got.Clusters[0].Cluster.Authority != base64.StdEncoding.EncodeToString(authority) || got.Users[0].User.Token != token || len(token) < 32 {
		t.Errorf("wrong kubeconfig:\n%s", data)
	}
}

func TestTail(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, tc := range map[string]struct {
		content string
		want    []string
	}{
		"fewer lines": {"a\nb\n", []string{"a", "b"}},
		"more lines":  {"a\nb\nc\nd\n", []string{"b", "c", "d"}},
		"no newline":  {"a\nb\nc\nd", []string{"b", "c", "d"}},
		"empty":       {"", []string{"(the log is empty)"}},
		"large":       {strings.Repeat(long+"\n", 1000) + "a\nb\n", []string{long, "a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			write(t, path, tc.content)
			if diff := cmp.Diff(tc.want, tail(path, 3)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readCertificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
