package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func mkdir(t *testing.T, mode fs.FileMode, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func file(t *testing.T, mode fs.FileMode, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to string, elements ...string) {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(elements...)); err != nil {
		t.Fatal(err)
	}
}

// TestPrivate: a directory that another user could have prepared is refused, with the path, the owner and the mode.
func TestPrivate(t *testing.T) {
	me := fmt.Sprintf("belongs to user %d", os.Geteuid())
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, root string) // the directory is root/dir
		want    []string                        // none if it is accepted
	}{
		"it does not exist":   {func(*testing.T, string) {}, nil},
		"it is missing twice": {func(t *testing.T, root string) { mkdir(t, 0o755, root) }, nil},
		"an earlier run's": {func(t *testing.T, root string) {
			mkdir(t, 0o700, root, "dir", "pki")
			file(t, 0o600, root, "dir", "kubeconfig")
		}, nil},
		"readable by others":       {func(t *testing.T, root string) { mkdir(t, 0o755, root, "dir"); file(t, 0o644, root, "dir", "version") }, nil},
		"loose files in a closed":  {func(t *testing.T, root string) { mkdir(t, 0o700, root, "dir"); file(t, 0o666, root, "dir", "lock") }, nil},
		"another's files beside":   {func(t *testing.T, root string) { mkdir(t, 0o755, root, "dir"); link(t, "/etc", root, "dir", "notes") }, nil},
		"empty and open to others": {func(t *testing.T, root string) { mkdir(t, 0o777, root, "dir") }, nil},
		"open to all": {
			func(t *testing.T, root string) { mkdir(t, 0o777, root, "dir", "pki"); mkdir(t, 0o777, root, "dir") },
			[]string{"/dir belongs to", me, "mode drwxrwxrwx", "others can write to it"},
		},
		"open to a group": {
			func(t *testing.T, root string) { mkdir(t, 0o700, root, "dir", "pki"); mkdir(t, 0o770, root, "dir") },
			[]string{me, "mode drwxrwx---"},
		},
		"open certificates": {
			func(t *testing.T, root string) { mkdir(t, 0o777, root, "dir", "pki"); mkdir(t, 0o755, root, "dir") },
			[]string{"dir/pki belongs to", "drwxrwxrwx"},
		},
		"an open key": {
			func(t *testing.T, root string) {
				mkdir(t, 0o755, root, "dir", "pki")
				mkdir(t, 0o755, root, "dir")
				file(t, 0o666, root, "dir", "pki", "ca.key")
			},
			[]string{"dir/pki/ca.key", "-rw-rw-rw-"},
		},
		"a link": {
			func(t *testing.T, root string) { link(t, mkdir(t, 0o700, root, "other"), root, "dir") },
			[]string{"/dir belongs to", "symbolic link"},
		},
		"linked certificates": {
			func(t *testing.T, root string) {
				mkdir(t, 0o700, root, "dir")
				link(t, mkdir(t, 0o700, root, "other"), root, "dir", "pki")
			},
			[]string{"dir/pki", "symbolic link"},
		},
		"a linked log": {
			func(t *testing.T, root string) {
				mkdir(t, 0o700, root, "dir", "logs")
				link(t, "/etc/passwd", root, "dir", "logs", "berth.log")
			},
			[]string{"dir/logs/berth.log", "symbolic link"},
		},
		"a parent open to all": {
			func(t *testing.T, root string) { mkdir(t, 0o700, root, "dir"); mkdir(t, 0o777, root) },
			nil, // replaced below unless root runs this test
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			mkdir(t, 0o755, root)
			tc.prepare(t, root)
			if name == "a parent open to all" && os.Geteuid() != 0 { // directories of root are trusted
				tc.want = []string{"/root belongs to", "every user can replace"}
			}
			err := Private(filepath.Join(root, "dir"))
			if len(tc.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if err == nil {
				if info, err := os.Lstat(filepath.Join(root, "dir")); err != nil || info.Mode()&0o022 != 0 {
					t.Errorf("afterwards: %v, %v", info.Mode(), err)
				}
			}
		})
	}
}

// TestPrivateOfAnotherUser: files of another user are refused, also deep in one's own directory.
func TestPrivateOfAnotherUser(t *testing.T) {
	dir := mkdir(t, 0o700, t.TempDir(), "dir")
	mkdir(t, 0o700, dir, "pki")
	key := file(t, 0o600, dir, "pki", "ca.key")
	somebody := inspection{dir: dir, uid: os.Geteuid() + 1}
	if err := somebody.content(); err == nil || !strings.Contains(err.Error(), "another user has made it") {
		t.Errorf("for user %d: %v", somebody.uid, err)
	}
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	if err := os.Lchown(key, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if err := Private(dir); err == nil || !strings.Contains(err.Error(), "dir/pki/ca.key belongs to user 4711 (you are user 0) and has mode -rw-------") {
		t.Errorf("a key of another user: %v", err)
	}
	if err := os.Lchown(dir, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if err := Private(filepath.Join(dir, "below")); err == nil || !strings.Contains(err.Error(), "its owner can replace what is below it") {
		t.Errorf("a parent of another user: %v", err)
	}
}

// TestPrivateIsCheap: the data of etcd is not walked.
func TestPrivateIsCheap(t *testing.T) {
	dir := mkdir(t, 0o700, t.TempDir(), "dir")
	member := mkdir(t, 0o700, dir, "etcd", "member")
	link(t, "/etc/passwd", member, "deep")
	if err := Private(dir); err != nil {
		t.Errorf("it looked below etcd/member: %v", err)
	}
}

func TestOpenOwned(t *testing.T) {
	dir := t.TempDir()
	target := file(t, 0o600, dir, "target")
	link(t, target, dir, "link")
	link(t, filepath.Join(dir, "nowhere"), dir, "dangling")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"target": "", "new": "", "link": "symbolic link", "dangling": "symbolic link", "pipe": "no regular file"} {
		opened, err := OpenOwned(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if err == nil {
			_ = opened.Close()
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made through a link: %v", err)
	}
	if _, err := OpenOwned(filepath.Join(dir, "missing"), os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
