package feature

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/goldentest"
)

const referenceHead = `# Feature gates

Made by ` + "`make generate`" + ` from the table of gates. Set a gate in the configuration, or with ` + "`--feature-gates=TASBalancedPlacement=true`" + `:

` + "```yaml" + `
featureGates:
  TASBalancedPlacement: true
` + "```" + `

- A change takes effect with a restart, and some also need an [installation](install.md).
- ` + "`AllAlpha` and `AllBeta`" + ` set every gate of a stage that is not set by its own name.
- A gate of the stage GA cannot be turned off.
- *needs*: these have to be on. If one of them is off the gate is off, too; a gate that was turned on by its own name is then refused.
- Gates with *changes nothing* are Kueue's, accepted, and named in the log if they are set, as are gates of the API server.
- An unknown gate ends the manager with exit code 2.
`

// TestReference keeps docs/gates.md up to date: run with -rewrite after a change of the gates (`make generate` does).
func TestReference(t *testing.T) {
	goldentest.Check(t, "../../../docs/gates.md", reference(t))
}

var stages = map[Stage]string{Alpha: "alpha", Beta: "beta", GA: "GA", Deprecated: "deprecated"}

// reference lists the gates in the order of table.go, which has a comment for each and a heading for each area.
func reference(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(referenceHead)
	listed := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok || call.Fun.(*ast.Ident).Name != "gate" {
			return true
		}
		if heading := strings.TrimSuffix(strings.TrimSpace(spec.Doc.Text()), "."); heading != "" {
			fmt.Fprintf(&b, "\n## %s\n\n| gate | stage | default | needs | if it is on |\n|---|---|---|---|---|\n", heading)
		}
		r := table[byName()[spec.Names[0].Name]]
		effect := strings.TrimSpace(spec.Comment.Text())
		if r.name != spec.Names[0].Name || effect == "" {
			t.Errorf("%s has another name in the table, or no comment", spec.Names[0].Name)
		}
		if !r.acted {
			effect += ". *Changes nothing* in Berth"
		}
		state := "off"
		if r.on {
			state = "on"
		}
		var needs []string
		for _, g := range r.needs {
			needs = append(needs, "`"+g.String()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.name, stages[r.stage], state, strings.Join(needs, ", "), effect)
		listed++
		return true
	})
	if listed != len(table) {
		t.Errorf("%d of %d gates are listed", listed, len(table))
	}
	b.WriteString("\n## Gates that are gone\n\nAccepted with a warning; their feature is always on, or was dropped. `MultiKueueAllowInsecureKubeconfigs: true` is refused.\n\n")
	for _, name := range slices.Sorted(maps.Keys(retired)) {
		fmt.Fprintf(&b, "- `%s`\n", name)
	}
	return b.String()
}
