package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// No log is created in a directory before the directory is known to belong to this user.
func TestBackgroundForeign(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "else"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "else"), filepath.Join(dir, "logs")); err != nil {
		t.Fatal(err)
	}
	if record, err := background(t.Context(), dir, "--help"); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("it runs as %+v: %v", record, err)
	}
	if found, _ := os.ReadDir(filepath.Join(root, "else")); len(found) > 0 {
		t.Errorf("made %v through a link", found)
	}
}
