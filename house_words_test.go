package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// retiredParts are words that no identifier contains, and the standard word for each. A name is split at its capital letters.
var retiredParts = map[string]string{
	"ticket": "wake condition", "shelf": "wake index", "pen": "inadmissible classes", "aside": "inadmissible", "kin": "equivalence key",
	"lane": "line of a LocalQueue", "rouse": "activate", "waiter": "pending workload", "crowd": "counts", "census": "statistics", "taker": "collector",
	"heir": "replacedBy, or preemptor", "forerunner": "replaces", "predecessor": "replaces", "successor": "replacedBy", "sight": "observation", "rehearse": "dry run", "fuse": "circuit breaker",
}

// namesOnly are retired in names, but have their usual meaning in sentences.
var namesOnly = []string{"heir", "sight"}

// retiredWords finds the words of retiredParts in a comment.
var retiredWords = func() *regexp.Regexp {
	var words []string
	for word := range retiredParts {
		if !slices.Contains(namesOnly, word) {
			words = append(words, word)
		}
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)s?\b`)
}()

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

func checkRetired(tr *tree) (out []string) {
	for _, f := range tr.files {
		if !f.generated {
			out = append(out, tr.retiredIn(f)...)
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
			say, ok := retiredParts[part]
			if !ok {
				say, ok = retiredParts[strings.TrimSuffix(part, "s")]
			}
			if ok {
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
		for _, m := range retiredWords.FindAllStringSubmatch(text, -1) {
			out = append(out, fmt.Sprintf("%s: a comment says %q: %s", tr.at(group), m[0], retiredParts[strings.ToLower(m[1])]))
		}
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
