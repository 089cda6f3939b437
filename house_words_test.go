package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// retiredParts are words that no identifier contains, and the standard word for each. A name is split at its capital letters.
var retiredParts = map[string]string{
	"ticket": "wake condition", "shelf": "wake index", "pen": "inadmissible classes", "aside": "inadmissible", "kin": "equivalence key",
	"lane": "line of a LocalQueue", "rouse": "activate", "waiter": "pending workload", "crowd": "counts", "census": "statistics", "taker": "collector",
	"heir": "replacedBy, or preemptor", "forerunner": "replaces", "sight": "observation", "rehearse": "dry run", "fuse": "circuit breaker",
}

// retiredNames are whole names that are not used, in either case, and the standard word for each.
var retiredNames = map[string]string{
	"spot": "heap index", "slab": "arena", "stick": "prioritize", "stand": "head reservation", "roll": "pending list", "mend": "repair", "led": "child gating",
	"careful": "guard", "parked": "inadmissible",
}

// bareVerbs are no names of functions: a verb needs its object.
var bareVerbs = []string{"settle", "gather", "turn", "give", "keep", "take"}

// retiredPhrases are turns of phrase that no comment has, and the way out.
var retiredPhrases = []struct {
	re  *regexp.Regexp
	say string
}{
	{regexp.MustCompile(`(?i)\bnobody\b`), "say what is: no workload, no other controller"},
	{regexp.MustCompile(`(?i)\bwho(m|ever)\b`), "name the workload, the user or the controller"},
	{regexp.MustCompile(`(?i)\bsays (whether|what|how|who|if)\b`), "reports whether, returns, describes"},
	{regexp.MustCompile(`(?i)\bthose (that|who|of)\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\bwhat (it|one|they|was) `), "name the thing"},
	{regexp.MustCompile(`(?i)\btold to\b|\blets? (it |them )?go\b|\bhas (it|them) \w+ed\b`), "use the verb of the field: evict, delete, requeue, ungate"},
	{regexp.MustCompile(`(?i)\blook(s|ed)? at (it |them )?(again|yet|anew)\b`), "evaluate, retry, requeue"},
	{regexp.MustCompile(`(?i)\bhas quota\b`), "has a quota reservation"},
}

// marker is a line for a generator: its messages are the API's.
var marker = regexp.MustCompile(`(?m)^\+.*$`)

// dialect counts the retired words that a room still has. The counts only fall, and a room without any is not listed.
var dialect = map[string]int{
	".":                                 6,
	"charts":                            6,
	"config":                            3,
	"controlplane/node":                 2,
	"controlplane/supervise":            13,
	"internal/admission":                41,
	"internal/cel":                      9,
	"internal/cli":                      2,
	"internal/embedded":                 3,
	"internal/inflight":                 4,
	"internal/inspect":                  5,
	"internal/install":                  25,
	"internal/job":                      130,
	"internal/job/controller":           34,
	"internal/job/jobtest":              42,
	"internal/job/kind/all":             13,
	"internal/job/kind/appwrapper":      5,
	"internal/job/kind/declared":        3,
	"internal/job/kind/deployment":      1,
	"internal/job/kind/job":             2,
	"internal/job/kind/jobset":          1,
	"internal/job/kind/kubeflow":        1,
	"internal/job/kind/leaderworkerset": 1,
	"internal/job/kind/pod":             3,
	"internal/job/kind/ray":             23,
	"internal/job/kind/ray/plan":        29,
	"internal/job/kind/spark":           4,
	"internal/job/kind/trainjob":        3,
	"internal/job/lookup":               4,
	"internal/job/warn":                 3,
	"internal/job/webhook":              8,
	"internal/jobset/controller":        25,
	"internal/jobset/lease":             4,
	"internal/jobset/plan":              18,
	"internal/jobset/restartagent":      2,
	"internal/jobset/webhook":           5,
	"internal/listen":                   5,
	"internal/metrics":                  49,
	"internal/multikueue":               16,
	"internal/multikueue/plan":          33,
	"internal/options":                  36,
	"internal/options/strict":           7,
	"internal/placement/plan":           1,
	"internal/placement/ungate":         6,
	"internal/queue/controller":         8,
	"internal/queue/plan":               6,
	"internal/queue/populate":           2,
	"internal/queue/webhook":            3,
	"internal/reconcile":                17,
	"internal/review":                   8,
	"internal/sim":                      5,
	"internal/training/controller":      14,
	"internal/training/plan":            23,
	"internal/training/progress":        4,
	"internal/training/runtimes":        1,
	"internal/visibility":               20,
	"internal/wire":                     33,
	"internal/workload/admit":           11,
	"internal/workload/evict":           4,
	"internal/workload/follow":          11,
	"internal/workload/plan":            51,
	"internal/workload/webhook":         4,
	"test":                              82,
}

func checkRetired(tr *tree) []string { return checkRetiredWith(tr, dialect) }

func checkRetiredWith(tr *tree, dialect map[string]int) (out []string) {
	found := map[string][]string{}
	for _, f := range tr.files {
		if f.generated {
			continue
		}
		room, _, ok := roomOf(f.dir)
		if !ok {
			room = f.dir
		}
		found[room] = append(found[room], tr.retiredIn(f)...)
	}
	for room := range dialect {
		found[room] = append(found[room], []string(nil)...)
	}
	for room, list := range found {
		allowed := dialect[room]
		switch {
		case len(list) > allowed && allowed == 0:
			out = append(out, list...)
		case len(list) > allowed:
			out = append(out, fmt.Sprintf("%s: %d retired words, %d are left to convert: no new ones. It has\n\t%s", room, len(list), allowed, strings.Join(list, "\n\t")))
		case len(list) < allowed:
			out = append(out, fmt.Sprintf("%s: %d retired words: lower its count in `dialect` from %d", room, len(list), allowed))
		}
	}
	slices.Sort(out)
	return out
}

// retiredIn lists the retired words of a file: in the names that it declares, and in its comments.
func (tr *tree) retiredIn(f *file) (out []string) {
	declared := func(id *ast.Ident) {
		if id == nil {
			return
		}
		if say, ok := retiredNames[strings.ToLower(id.Name)]; ok {
			out = append(out, fmt.Sprintf("%s: the name %s: %s", tr.at(id), id.Name, say))
			return
		}
		for _, part := range nameParts(id.Name) {
			if say, ok := retiredParts[strings.TrimSuffix(part, "s")]; ok {
				out = append(out, fmt.Sprintf("%s: the name %s: %s", tr.at(id), id.Name, say))
				return
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if slices.Contains(bareVerbs, strings.ToLower(n.Name.Name)) {
				out = append(out, fmt.Sprintf("%s: the function %s: a verb needs its object", tr.at(n.Name), n.Name.Name))
			}
			declared(n.Name)
		case *ast.TypeSpec:
			declared(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				declared(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				declared(id)
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					declared(id)
				}
			}
		}
		return true
	})
	for _, group := range f.ast.Comments {
		text := strings.Join(strings.Fields(marker.ReplaceAllString(group.Text(), "")), " ")
		for _, p := range retiredPhrases {
			for _, m := range p.re.FindAllString(text, -1) {
				out = append(out, fmt.Sprintf("%s: a comment says %q: %s", tr.at(group), strings.TrimSpace(m), p.say))
			}
		}
	}
	return out
}

// nameParts splits a name at its capitals and underscores, in lower case.
func nameParts(name string) (out []string) {
	begin := 0
	for i, r := range name {
		if i > begin && (unicode.IsUpper(r) || r == '_') {
			out = append(out, strings.ToLower(strings.Trim(name[begin:i], "_")))
			begin = i
		}
	}
	return append(out, strings.ToLower(strings.Trim(name[begin:], "_")))
}

// TestDialect shows that the count of a room can only fall.
func TestDialect(t *testing.T) {
	tr := repo(t, map[string]string{"internal/core/a/a.go": "// Package a waits for nobody, and nobody waits for it.\npackage a\n"})
	for count, want := range map[int]string{0: `a comment says "nobody"`, 1: "2 retired words, 1 are left", 2: "", 3: "lower its count in `dialect` from 3"} {
		got := strings.Join(checkRetiredWith(tr, map[string]int{"internal/core": count}), "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("with %d: got %q, want %q", count, got, want)
		}
	}
}
