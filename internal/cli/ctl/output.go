package ctl

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

// output has the flags of the output format, such as -o.
type output struct {
	format    string
	formats   []string // allowed formats besides templates
	template  string   // kubectl's other place for the argument of format
	sparse    bool     // templates may name what an object lacks
	managed   bool
	noHeaders bool
}

// templates are the formats with an argument, such as jsonpath={.metadata.name}.
var templates = []string{"jsonpath", "jsonpath-as-json", "jsonpath-file", "go-template", "go-template-file"}

// otherNames are kubectl's shorter names of templates.
var otherNames = map[string]string{"template": "go-template", "templatefile": "go-template-file"}

// add adds -o with the formats of the command.
func (o *output) add(cmd *cobra.Command, formats ...string) {
	o.formats = formats
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "how to print: "+strings.Join(formats, ", ")+", or "+strings.Join(templates, ", ")+" with =…")
	cmd.Flags().BoolVar(&o.managed, "show-managed-fields", false, "with -o json or yaml: also print metadata.managedFields")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	o.addTemplates(cmd)
}

// addTemplates adds kubectl's other flags for templates.
func (o *output) addTemplates(cmd *cobra.Command) {
	const text, missing = "template", "allow-missing-template-keys"
	cmd.Flags().StringVar(&o.template, text, "", "the template, or its file, of -o")
	cmd.Flags().BoolVar(&o.sparse, missing, true, "do not fail for what an object lacks")
	for _, name := range []string{text, missing} {
		_ = cmd.Flags().MarkHidden(name) // -o NAME=… does the same
	}
}

// join puts the argument of --template where it is with -o NAME=….
func (o *output) join() {
	name, argument, _ := strings.Cut(o.format, "=")
	if name == "" && o.template != "" {
		name = "go-template"
	}
	name = cmp.Or(otherNames[name], name)
	if slices.Contains(templates, name) {
		o.format = strings.TrimSuffix(name+"="+cmp.Or(argument, o.template), "=")
	}
}

func (o *output) addTable(cmd *cobra.Command) {
	o.add(cmd, "json", "yaml", "name", "wide")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print the table without its header")
}

// check refuses unknown formats.
func (o *output) check() error {
	o.join()
	name, argument, _ := strings.Cut(o.format, "=")
	switch {
	case o.format == "" || slices.Contains(o.formats, o.format):
		return nil
	case slices.Contains(templates, name) && argument != "":
		return nil
	case slices.Contains(templates, name):
		return cluster.Usage("-o %s: say what to print, as in -o %s='{.metadata.name}'", name, name)
	}
	return cluster.Usage("-o %q: must be %s, or %s with =…", o.format, strings.Join(o.formats, ", "), strings.Join(templates, ", "))
}

func (o *output) asTable() bool { return o.format == "" || o.format == "wide" }

// print prints an object or a list in a format other than a table.
func (o *output) print(to io.Writer, object runtime.Object) error {
	if o.format == "name" {
		return eachItem(object, func(item client.Object) error {
			_, err := fmt.Fprintln(to, nameOf(item))
			return err
		})
	}
	if err := o.complete(object); err != nil {
		return err
	}
	text, err := json.MarshalIndent(object, "", "    ")
	if err != nil {
		return err
	}
	switch o.format {
	case "json":
		_, err = fmt.Fprintf(to, "%s\n", text)
		return err
	case "yaml":
		if text, err = yaml.JSONToYAML(text); err == nil {
			_, err = to.Write(text)
		}
		return err
	}
	var data any
	if err := json.Unmarshal(text, &data); err != nil {
		return err
	}
	return o.fill(to, data)
}

// complete sets the kinds, which a typed client omits, and removes the managed fields unless they are requested.
func (o *output) complete(object runtime.Object) error {
	gvk, err := apiutil.GVKForObject(object, cluster.Scheme)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return eachItem(object, func(item client.Object) error {
		if !o.managed {
			item.SetManagedFields(nil)
		}
		of, err := apiutil.GVKForObject(item, cluster.Scheme)
		item.GetObjectKind().SetGroupVersionKind(of)
		return err
	})
}

// eachItem calls do for the object, or for each item of a list; changes of an item change the list.
func eachItem(object runtime.Object, do func(client.Object) error) error {
	if !apimeta.IsListType(object) {
		if single, ok := object.(client.Object); ok {
			return do(single)
		}
		return nil
	}
	return apimeta.EachListItem(object, func(item runtime.Object) error {
		single, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("an item is a %T, which has no name", item)
		}
		return do(single)
	})
}

// fill executes a template. spec: 70 §4.9.
func (o *output) fill(to io.Writer, data any) error {
	name, text, _ := strings.Cut(o.format, "=")
	if base, ok := strings.CutSuffix(name, "-file"); ok {
		content, err := os.ReadFile(text)
		if err != nil {
			return cluster.Usage("-o %s: %w", name, err)
		}
		name, text = base, string(content)
	}
	if name == "go-template" {
		t, err := template.New("output").Funcs(template.FuncMap{"base64decode": decode}).Parse(text)
		if err != nil {
			return cluster.Usage("-o %s: %w", name, err)
		}
		if !o.sparse {
			t.Option("missingkey=error")
		}
		return t.Execute(to, data)
	}
	path := jsonpath.New("output").AllowMissingKeys(o.sparse)
	path.EnableJSONOutput(name == "jsonpath-as-json")
	if err := path.Parse(text); err != nil {
		return cluster.Usage("-o %s: %w", name, err)
	}
	return path.Execute(to, data)
}

func decode(text string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	return string(data), err
}

// nameOf is <kind>.<group>/NAME. Objects without a kind are looked up in the cluster.Scheme.
func nameOf(object client.Object) string {
	gvk, err := apiutil.GVKForObject(object, cluster.Scheme)
	if err != nil {
		gvk = object.GetObjectKind().GroupVersionKind()
	}
	return typed(gvk.Kind, gvk.Group, object.GetName())
}

func typed(kind, group, name string) string {
	kind = strings.ToLower(kind)
	if group != "" {
		kind += "." + group
	}
	return kind + "/" + name
}

// dryRun is --dry-run.
type dryRun string

const (
	dryNone   = "none"
	dryClient = "client"
	dryServer = "server"
)

func (d *dryRun) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(d), "dry-run", dryNone, "client only prints what would be sent; server has the API server check it and keep nothing; or none")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{dryNone, dryClient, dryServer}, cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) check() error {
	switch d {
	case dryNone, dryClient, dryServer:
		return nil
	}
	return cluster.Usage("--dry-run %q: must be none, client or server", string(d))
}

// note follows the line about a change.
func (d dryRun) note() string {
	if d == dryNone {
		return ""
	}
	return " (" + string(d) + " dry run)"
}

// all returns the request's dry-run options.
func (d dryRun) all() []string {
	if d == dryServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// changed prints the changed object, or a line about it.
func (s *session) changed(o *output, d dryRun, object client.Object, verb string) error {
	if o.format != "" {
		return o.print(s.Out, object)
	}
	if verb != "" {
		verb = " " + verb
	}
	_, err := fmt.Fprintf(s.Out, "%s%s%s\n", nameOf(object), verb, d.note())
	return err
}
