package mapping

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/strict"
)

// Read reads the file of --queuemapping-file: a list of rules. The error, an *options.Error, has all mistakes.
func Read(path string) (*Rules, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		if pathErr, ok := errors.AsType[*os.PathError](err); ok {
			err = pathErr.Err
		}
		return nil, &options.Error{Problems: []options.Problem{{Source: path, Detail: fmt.Sprintf("cannot read the file of --queuemapping-file: %v", err)}}}
	}
	return Parse(path, data)
}

// Parse is Read for the content of a file; source names it in errors.
func Parse(source string, data []byte) (*Rules, error) {
	f := &file{strict.Decoder{Source: source}}
	r := &Rules{}
	if root := f.document(data); root != nil {
		f.Decode(root, &r.rules)
	}
	if len(f.Problems) == 0 {
		f.check(r.rules)
	}
	if len(f.Problems) > 0 {
		return nil, &options.Error{Problems: f.Problems}
	}
	return r, nil
}

type file struct{ strict.Decoder }

func (f *file) wrong(path, detail string, args ...any) {
	f.Problems = append(f.Problems, strict.Problem{Source: f.Source, Line: f.Line(path), Field: path, Detail: fmt.Sprintf(detail, args...)})
}

// document returns the single document of the file, nil if there are mistakes.
func (f *file) document(data []byte) (root *yaml.Node) {
	for doc := range f.Documents(data) {
		if root != nil {
			f.Fault(doc, "", "the file has a second document; put all rules into one list")
			break
		}
		root = doc
	}
	switch {
	case len(f.Problems) > 0:
		return nil
	case root == nil:
		f.wrong("", "has no rules: write a list of them, each with match and toLocalQueue or skip")
	}
	return root
}

// check validates parsed rules.
func (f *file) check(rules []Rule) {
	if len(rules) == 0 {
		f.wrong("", "has no rules: write a list of them, each with match and toLocalQueue or skip")
	}
	for i := range rules {
		rule, at := &rules[i], "["+strconv.Itoa(i)+"]"
		switch wrong := queueProblem(rule.ToLocalQueue); {
		case rule.Skip && rule.ToLocalQueue != "":
			f.wrong(at, "has both toLocalQueue and skip; keep one")
		case rule.Skip:
		case rule.ToLocalQueue == "":
			f.wrong(at, "has neither toLocalQueue nor skip: true")
		case wrong != "":
			f.wrong(at+".toLocalQueue", "%s", wrong)
		}
		if name := rule.Match.PriorityClassName; name != "" {
			if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
				f.wrong(at+".match.priorityClassName", "%q is no name of a PriorityClass: %s", name, wrong[0])
			}
		}
		for _, path := range f.Order { // in the order of the file
			key, found := strings.CutPrefix(path, at+".match.labels[")
			if !found {
				continue
			}
			key = strings.TrimSuffix(key, "]")
			if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
				f.wrong(path, "%q is no key of a label: %s", key, wrong[0])
			} else if wrong := validation.IsValidLabelValue(rule.Match.Labels[key]); len(wrong) > 0 {
				f.wrong(path, "%q is no value of a label: %s", rule.Match.Labels[key], wrong[0])
			}
		}
	}
}
