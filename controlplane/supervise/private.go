package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Entries are the names in a control plane's directory that Berth and its control plane read and write.
var Entries = []string{
	"berth.json", "lock", "version", "version.new", "pki", "pki.new", "etcd", "logs", "kubeconfig", "kubeconfig.new", "job.yaml", "topology.yaml",
}

// depth is how many levels below the directory are always examined: certificates and logs, but not the data of etcd.
const depth = 2

// Private makes a directory for a control plane if it does not exist, and refuses one that another user could have prepared: keys and
// data in it would be that user's. An error names the path, its owner and its mode. The directory, and what Berth uses in it, must
// belong to this user, be no symbolic link, and not be writable by others; its parents must belong to this user or to root.
func Private(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	i := inspection{dir: dir, uid: os.Geteuid()}
	if err := i.parents(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := i.parents(); err != nil { // missing before
		return err
	}
	return i.content()
}

// OpenOwned opens a file of a control plane's directory. It follows no link at the end of the path, and refuses a file that is not this
// user's. A file that is created gets mode 0600.
func OpenOwned(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link: remove it, or choose another --dir", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		i := inspection{dir: filepath.Dir(path), uid: os.Geteuid()}
		if err = i.own(path, info); err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file: remove it, or choose another --dir", path)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// inspection examines a directory for a user.
type inspection struct {
	dir string
	uid int
}

// parents examines the directories above, as the path names them and as links lead. Missing ones are made later.
func (i *inspection) parents() error {
	parent := filepath.Dir(i.dir)
	if err := i.above(parent); err != nil {
		return err
	}
	resolved, err := filepath.EvalSymlinks(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return i.above(resolved)
}

func (i *inspection) above(path string) error {
	for {
		info, err := os.Lstat(path)
		switch owner := ownerOf(info); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case owner == 0: // root can do everything anyway
		case owner != i.uid:
			return i.refuse(path, info, "its owner can replace what is below it")
		case info.IsDir() && info.Mode()&0o002 != 0 && info.Mode()&os.ModeSticky == 0:
			return i.refuse(path, info, "every user can replace what is below it")
		}
		next := filepath.Dir(path)
		if next == path {
			return nil
		}
		path = next
	}
}

// content examines the directory and the entries in use. An empty directory that others can write to is closed to them.
func (i *inspection) content() error {
	info, err := os.Lstat(i.dir)
	if err != nil {
		return err
	}
	if err := i.own(i.dir, info); err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory: choose another --dir", i.dir)
	}
	found, err := os.ReadDir(i.dir)
	if err != nil {
		return err
	}
	if len(found) == 0 && info.Mode()&0o022 != 0 {
		if err := os.Chmod(i.dir, 0o700); err != nil { //nolint:gosec // a directory
			return err
		}
		if info, err = os.Lstat(i.dir); err != nil {
			return err
		}
		if found, err = os.ReadDir(i.dir); err != nil { // created meanwhile
			return err
		}
	}
	if info.Mode()&0o022 != 0 {
		return i.refuse(i.dir, info, "others can write to it")
	}
	closed := isClosed(info)
	for _, entry := range found {
		if !slices.Contains(Entries, entry.Name()) {
			continue
		}
		if err := i.below(filepath.Join(i.dir, entry.Name()), 1, closed); err != nil {
			return err
		}
	}
	return nil
}

// below examines a file or directory and, down to depth, its content. closed means that others cannot reach it.
func (i *inspection) below(path string, level int, closed bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := i.own(path, info); err != nil {
		return err
	}
	if !closed && info.Mode()&0o022 != 0 {
		return i.refuse(path, info, "others can write to it")
	}
	if !info.IsDir() || (level >= depth && (closed || isClosed(info))) {
		return nil
	}
	found, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range found {
		if err := i.below(filepath.Join(path, entry.Name()), level+1, closed || isClosed(info)); err != nil {
			return err
		}
	}
	return nil
}

// own refuses links and files of other users.
func (i *inspection) own(path string, info fs.FileInfo) error {
	if info.Mode()&os.ModeSymlink != 0 {
		return i.refuse(path, info, "it is a symbolic link, and links are not followed")
	}
	if ownerOf(info) != i.uid {
		return i.refuse(path, info, "another user has made it")
	}
	return nil
}

func (i *inspection) refuse(path string, info fs.FileInfo, why string) error {
	return fmt.Errorf("%s cannot be trusted: %s belongs to user %d (you are user %d) and has mode %s: %s; choose another --dir, or remove it",
		i.dir, path, ownerOf(info), i.uid, info.Mode(), why)
}

// isClosed reports whether only the owner can reach the content of a directory.
func isClosed(info fs.FileInfo) bool { return info.IsDir() && info.Mode()&0o011 == 0 }

// ownerOf returns the user ID of a file's owner; -1 if unknown.
func ownerOf(info fs.FileInfo) int {
	if info == nil {
		return -1
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(stat.Uid)
}
