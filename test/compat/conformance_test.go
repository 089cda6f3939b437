package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConformance: every test that docs/conformance.md names exists, every acceptance example has a line, and one without a test is listed as
// missing.
func TestConformance(t *testing.T) {
	root := filepath.Join("..", "..")
	raw, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	tables, missing, found := strings.Cut(page, "\n## Missing\n")
	if !found {
		t.Fatal("the page has no section Missing")
	}
	named := regexp.MustCompile("`([^`: ]+/[^`: ]+): ([^`]+)`").FindAllStringSubmatch(tables, -1)
	for _, test := range named {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(test[1])))
		if err != nil || !strings.Contains(string(text), test[2]) {
			t.Errorf("%s has no %q (%v)", test[1], test[2], err)
		}
	}
	if len(named) < 200 {
		t.Errorf("only %d tests are named", len(named))
	}
	listed := numbers(missing)
	for part, examples := range map[string]int{"10": 76, "20": 66, "70": 69} {
		for n := 1; n <= examples; n++ {
			name := fmt.Sprintf("%s #%d", part, n)
			_, line, has := strings.Cut(tables, "\n| "+name+" | ")
			if !has {
				t.Errorf("example %s has no line", name)
				continue
			}
			if strings.Contains(line, "\n| "+name+" | ") {
				t.Errorf("example %s has several lines", name)
			}
			line, _, _ = strings.Cut(line, "\n")
			if !strings.Contains(line, "`") && !strings.Contains(line, "see below") {
				t.Errorf("example %s: %q is neither a test nor \"see below\"", name, line)
			}
			if strings.Contains(line, "see below") && !listed[name] {
				t.Errorf("example %s has neither a test nor a line among what is missing", name)
			}
		}
	}
}

// numbers returns the examples that lines such as "| 20 §4.4, #13, #15 to #18 |" name, as "20 #13".
func numbers(lines string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(lines) {
		part := regexp.MustCompile(`^\| (10|20|70) ([^|]*)`).FindStringSubmatch(line)
		if part == nil {
			continue
		}
		for _, r := range regexp.MustCompile(`#(\d+)(?: to #(\d+))?`).FindAllStringSubmatch(part[2], -1) {
			var first, last int
			_, _ = fmt.Sscan(r[1], &first)
			if last = first; r[2] != "" {
				_, _ = fmt.Sscan(r[2], &last)
			}
			for n := first; n <= last; n++ {
				out[fmt.Sprintf("%s #%d", part[1], n)] = true
			}
		}
	}
	return out
}
