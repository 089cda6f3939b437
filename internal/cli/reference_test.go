package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/goldentest"
)

// commands returns all commands except cobra's own help.
func commands(of *cobra.Command) (out []*cobra.Command) {
	for _, c := range of.Commands() {
		if c.Name() != "help" && !c.Hidden {
			out = append(append(out, c), commands(c)...)
		}
	}
	return out
}

// example is a command line in a help text.
var example = regexp.MustCompile(`(?m)^  (berth .*)$`)

// words splits a line like a shell, up to a comment that is set off, a pipe or a redirection.
func words(line string) (out []string) {
	line, _, _ = strings.Cut(line, "   ")
	word, quoted, begun := "", rune(0), false
	for _, r := range line + " " {
		switch {
		case quoted != 0 && r == quoted:
			quoted = 0
		case quoted == 0 && (r == '\'' || r == '"'):
			quoted, begun = r, true
		case quoted == 0 && r == ' ':
			if word == ">" || word == "|" {
				return out
			}
			if begun || word != "" {
				out = append(out, word)
			}
			word, begun = "", false
		default:
			word += string(r)
		}
	}
	return out
}

// TestExamples: every command shows examples, and they are valid.
func TestExamples(t *testing.T) {
	for _, c := range append(commands(newRoot(testBuild, "berth")), newRoot(testBuild, "berth")) {
		own := c.HasSubCommands() && c.HasParent() && c.Name() != "top"
		for _, line := range example.FindAllStringSubmatch(c.Long, -1) {
			args := words(line[1])[1:]
			target, rest, err := newRoot(testBuild, "berth").Find(args) // flags keep their values: a new tree each time
			if err != nil || !target.Runnable() || !target.HasParent() {
				t.Errorf("%s: %q is of no command: %v", c.CommandPath(), line[1], err)
				continue
			}
			own = own || target.CommandPath() == c.CommandPath()
			if target.DisableFlagParsing {
				continue
			}
			if err := target.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), line[1], err)
				continue
			}
			if err := target.ValidateArgs(target.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), line[1], err)
			}
			if target.HasSubCommands() && len(target.Flags().Args()) > 0 {
				t.Errorf("%s: %q: there is no %s %s", c.CommandPath(), line[1], target.CommandPath(), target.Flags().Arg(0))
			}
		}
		if !own && c.HasParent() {
			t.Errorf("%s has no example of itself", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: nothing is said about --%s", c.CommandPath(), f.Name)
			}
		})
	}
}

// TestReference keeps docs/cli.md up to date: run with -rewrite after a change of the commands (`make generate` does).
func TestReference(t *testing.T) {
	goldentest.Check(t, "../../docs/cli.md", reference(newRoot(testBuild, "berth")))
}

const referenceHead = `# Commands

Made by ` + "`make generate`" + ` from the commands themselves; ` + "`berth COMMAND --help`" + ` prints the same.

A file of the name ` + "`kubectl-berth`" + ` on the PATH, a link to berth, is kubectl's plugin: ` + "`kubectl berth list workloads`" + `. The names
` + "`kueuectl` and `kubectl-kueue`" + ` work as well.

Exit codes: 0 done, 1 failed, 2 bad usage or configuration; ` + "`preflight` and `whatif`" + ` end with 3 when they find what they look for. Errors are one line on stderr that says what to do next.
`

func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	list, _, _ := root.Find([]string{"list"})
	b.WriteString("\n## Reaching the API server\n\nThe commands about queues and Workloads have kubectl's flags for this:\n\n```\n")
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	list.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		shown := *f
		shown.Hidden = false
		all.AddFlag(&shown)
	})
	b.WriteString(all.FlagUsages() + "```\n")
	for _, c := range commands(root) {
		if c.DisableFlagParsing {
			continue // kubectl's
		}
		fmt.Fprintf(&b, "\n## %s\n\n", strings.TrimSuffix(c.UseLine(), " [flags]"))
		if len(c.Aliases) > 0 {
			fmt.Fprintf(&b, "Also `%s`.\n\n", strings.Join(c.Aliases, "`, `"))
		}
		b.WriteString(fenced(c.Long))
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.SortFlags = false
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if shared := all.Lookup(f.Name); f.Name != "help" && (shared == nil || shared.Usage != f.Usage) {
				flags.AddFlag(f)
			}
		})
		if flags.HasAvailableFlags() {
			b.WriteString("\n```\n" + flags.FlagUsages() + "```\n")
		}
	}
	return b.String()
}

// fenced puts indented paragraphs into code blocks, and escapes nothing: the texts have no markup.
func fenced(text string) string {
	var b strings.Builder
	const fence = "```\n"
	code := false
	for i, paragraph := range strings.Split(strings.TrimRight(text, "\n"), "\n\n") {
		if i > 0 && code && !strings.HasPrefix(paragraph, "  ") {
			b.WriteString(fence)
		}
		if i > 0 {
			b.WriteString("\n")
		}
		for j, line := range strings.Split(paragraph, "\n") {
			inside := strings.HasPrefix(line, "  ")
			if j > 0 && code && !inside {
				b.WriteString(fence)
			}
			if inside && (!code || (j == 0 && i == 0)) {
				b.WriteString(fence)
			}
			code = inside
			b.WriteString(strings.TrimPrefix(line, "  ") + "\n")
		}
	}
	if code {
		b.WriteString(fence)
	}
	return b.String()
}
