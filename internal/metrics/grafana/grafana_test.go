package grafana

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/goldentest"
	"github.com/berth-project/berth/internal/metrics"
)

const folder = "../../../docs/grafana"

// TestReference compares docs/grafana with what the table of metrics makes.
func TestReference(t *testing.T) {
	files := Files()
	for name, text := range files { //berth:unordered each is a file
		goldentest.Check(t, filepath.Join(folder, name), string(text))
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()] == nil {
			t.Errorf("docs/grafana/%s is made by nothing: delete it", e.Name())
		}
	}
}

// expressions returns all expressions of the files, each with where it is.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, text := range Files() { //berth:unordered a set
		var file struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
			Groups []struct {
				Rules []struct{ Record, Expr string }
			}
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range file.Panels {
			for _, target := range p.Targets {
				out[target.Expr] = name + ": " + p.Title
			}
		}
		for _, g := range file.Groups {
			for _, r := range g.Rules {
				out[r.Expr] = name + ": " + r.Record
			}
		}
	}
	return out
}

var (
	familyName = regexp.MustCompile(`\b(?:kueue|berth|multikueue)_[a-z_]+`)
	variable   = regexp.MustCompile(`=~"\$[a-z_]+"`)
	labelLists = regexp.MustCompile(`by \(([^)]*)\)|\{([^}]*)\}`)
)

// TestExpressions: every family has a panel, and no expression names a family or a label that there is not.
func TestExpressions(t *testing.T) {
	families := map[string]metrics.Family{}
	for _, f := range metrics.Families() {
		families[f.Name] = f
	}
	drawn := map[string]bool{}
	for expr, where := range expressions(t) { //berth:unordered each is checked alone
		var labels []string
		for _, name := range familyName.FindAllString(labelLists.ReplaceAllString(expr, ""), -1) {
			f, found := families[strings.TrimSuffix(name, "_bucket")]
			if !found {
				t.Errorf("%s: there is no family %s", where, name)
			}
			drawn[f.Name] = true
			labels = append(f.Labels, "le")
		}
		for _, list := range labelLists.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(list[1]+list[2], ", ") {
				label, _, _ = strings.Cut(label, "=")
				if label = strings.TrimSuffix(label, "!"); label != "" && !slices.Contains(labels, label) {
					t.Errorf("%s: %s has no label %s", where, expr, label)
				}
			}
		}
	}
	for name := range families { //berth:unordered each is checked alone
		if !drawn[name] {
			t.Errorf("%s has no panel", name)
		}
	}
}

// TestPanelsFit: the panels of a dashboard do not overlap, have ids of their own, and select no label without a variable.
func TestPanelsFit(t *testing.T) {
	for _, b := range boards() {
		var file struct {
			Templating struct{ List []struct{ Name string } }
			Panels     []struct {
				ID      int
				GridPos struct{ X, Y, W, H int }
			}
		}
		if err := json.Unmarshal(b.file(), &file); err != nil {
			t.Fatal(err)
		}
		taken, ids := map[string]bool{}, map[int]bool{}
		for _, p := range file.Panels {
			place := fmt.Sprint(p.GridPos.X, p.GridPos.Y)
			if taken[place] || ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %d at %s", b.name, p.ID, place)
			}
			taken[place], ids[p.ID] = true, true
		}
		known := []string{"$datasource", "$__rate_interval"}
		for _, v := range file.Templating.List {
			known = append(known, "$"+v.Name)
		}
		for _, v := range regexp.MustCompile(`\$[a-z_]+`).FindAllString(string(b.file()), -1) {
			if !slices.Contains(known, v) {
				t.Errorf("%s: no variable %s", b.name, v)
			}
		}
		if len(b.panels) == 0 {
			t.Errorf("%s is empty", b.name)
		}
	}
}
