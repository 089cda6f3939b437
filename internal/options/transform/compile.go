package transform

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cel"
	"github.com/berth-project/berth/internal/options/declare"
)

// Bounds of a framework (spec: 40 §4.13.1).
const (
	most           = 16 // variables, preconditions, mutations
	maxSegments    = 8
	maxCostPerPass = 10_000_000
	maxBytes       = 1 << 20
)

const gateNeeded = "needs featureGates.MultiKueueExternalTransforms: true"

// Compile compiles external frameworks at path. allowed permits more than a name. Names are not checked.
func Compile(list []configv1beta2.MultiKueueExternalFramework, allowed bool, path *field.Path) ([]*Framework, field.ErrorList) {
	var out []*Framework
	var errs field.ErrorList
	for i := range list {
		c := &compiler{in: &list[i], path: path.Index(i), out: &Framework{
			ManagedBy: []string{"spec", "managedBy"}, Value: kueue.MultiKueueControllerName, CopyFields: []string{"spec"},
			StatusMode: "Replace", Subresource: "Auto", MaxBytes: maxBytes, costPerExpression: cel.MaxCost, costPerPass: maxCostPerPass,
			compiled: map[string][]*cel.Expression{}, mutations: map[string][]mutation{},
		}}
		c.out.GVK, _ = declare.ParseName(list[i].Name)
		c.compile(allowed)
		errs = append(errs, c.errs...)
		out = append(out, c.out)
	}
	return out, errs
}

type compiler struct {
	in   *configv1beta2.MultiKueueExternalFramework
	path *field.Path
	out  *Framework
	errs field.ErrorList
}

func (c *compiler) invalid(at *field.Path, value any, message string) {
	c.errs = append(c.errs, field.Invalid(at, value, message))
}

// oneOf returns the value of an enumeration, in any case; the first word is the default.
func (c *compiler) oneOf(at *field.Path, value string, words ...string) string {
	if value == "" {
		return words[0]
	}
	for _, w := range words {
		if strings.EqualFold(w, value) {
			return w
		}
	}
	c.errs = append(c.errs, field.NotSupported(at, value, words))
	return words[0]
}

// extensions returns the names of all set fields beyond the name.
func extensions(in *configv1beta2.MultiKueueExternalFramework) []string {
	var out []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"controllerType", in.ControllerType != ""},
		{"managedBy", in.ManagedBy != nil},
		{"copyFields", in.CopyFields != nil},
		{"variables", in.Variables != nil},
		{"preconditions", in.Preconditions != nil},
		{"creation", in.Creation != nil},
		{"statusSync", in.StatusSync != nil},
		{"specSync", in.SpecSync != nil},
		{"lifecycle", in.Lifecycle != nil},
		{"limits", in.Limits != nil},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

func (c *compiler) compile(allowed bool) {
	set := extensions(c.in)
	c.out.Extended = len(set) > 0
	c.out.NoJob = c.oneOf(c.path.Child("controllerType"), c.in.ControllerType, "Generic", "External") == "External"
	for _, name := range set {
		switch {
		case !allowed:
			c.errs = append(c.errs, field.Forbidden(c.path.Child(name), gateNeeded))
		case c.out.NoJob && name != "controllerType" && name != "managedBy":
			c.errs = append(c.errs, field.Forbidden(c.path.Child(name), "does not go with controllerType: External, whose controller does all that"))
		}
	}
	if !allowed || c.out.NoJob && len(c.errs) > 0 {
		return
	}
	c.managedBy()
	c.copyFields()
	c.limits()
	c.variables()
	c.rules()
	if in, at := c.in.Creation, c.path.Child("creation"); in != nil {
		c.out.RetryOnError = c.oneOf(at.Child("onError"), in.OnError, "Reject", "Retry") == "Retry"
		c.mutations(Creation, in.Mutations, at.Child("mutations"))
	}
	c.statusSync()
	c.specSync()
	c.lifecycle()
	c.unused()
}

var (
	fieldName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	ofMetadata = regexp.MustCompile(`^\.metadata\.(annotations|labels)\['([^']+)'\]$`)
)

func (c *compiler) managedBy() {
	in, at := c.in.ManagedBy, c.path.Child("managedBy")
	if in == nil {
		return
	}
	c.out.Unchecked = c.oneOf(at.Child("mode"), in.Mode, "Field", "None") == "None"
	if c.out.Unchecked {
		for name, value := range map[string]string{"path": in.Path, "value": in.Value, "onWorker": in.OnWorker, "workerValue": in.WorkerValue} { //berth:unordered errors are sorted
			if value != "" {
				c.errs = append(c.errs, field.Forbidden(at.Child(name), "does not go with mode: None"))
			}
		}
		c.out.ManagedBy = nil
		return
	}
	if in.Path != "" {
		c.out.ManagedBy = c.managedByPath(in.Path, at.Child("path"))
	}
	if in.Value != "" {
		c.out.Value = in.Value
	}
	set := c.oneOf(at.Child("onWorker"), in.OnWorker, "Remove", "Set") == "Set"
	switch {
	case set && in.WorkerValue == "":
		c.errs = append(c.errs, field.Required(at.Child("workerValue"), "what the field has on the worker"))
	case !set && in.WorkerValue != "":
		c.errs = append(c.errs, field.Forbidden(at.Child("workerValue"), "needs onWorker: Set"))
	case set && in.WorkerValue == c.out.Value:
		c.invalid(at.Child("workerValue"), in.WorkerValue, "must not be the value that keeps controllers away")
	case set:
		c.out.WorkerValue = &in.WorkerValue
	}
}

func (c *compiler) managedByPath(text string, at *field.Path) []string {
	if m := ofMetadata.FindStringSubmatch(text); m != nil {
		if Reserved(m[2]) {
			c.invalid(at, text, "the key belongs to Kubernetes or to the queue")
		}
		return []string{"metadata", m[1], m[2]}
	}
	path := strings.Split(strings.TrimPrefix(text, "."), ".")
	if !strings.HasPrefix(text, ".") || len(path) < 2 || len(path) > maxSegments || path[0] != "spec" ||
		slices.ContainsFunc(path, func(p string) bool { return !fieldName.MatchString(p) }) {
		c.invalid(at, text, "must be a field such as .spec.managedBy, at most 8 names with dots before them, or .metadata.annotations['key'] or .metadata.labels['key']")
		return c.out.ManagedBy
	}
	return path
}

func (c *compiler) copyFields() {
	if c.in.CopyFields == nil {
		return
	}
	at := c.path.Child("copyFields")
	if len(c.in.CopyFields) == 0 {
		c.errs = append(c.errs, field.Required(at, "at least one field"))
	}
	for i, name := range c.in.CopyFields {
		switch {
		case slices.Contains([]string{"metadata", "status", "apiVersion", "kind"}, name):
			c.invalid(at.Index(i), name, "is never copied as a whole")
		case !fieldName.MatchString(name):
			c.invalid(at.Index(i), name, "must be the name of a top-level field")
		case slices.Contains(c.in.CopyFields[:i], name):
			c.errs = append(c.errs, field.Duplicate(at.Index(i), name))
		}
	}
	c.out.CopyFields = c.in.CopyFields
}

func (c *compiler) limits() {
	in, at := c.in.Limits, c.path.Child("limits")
	if in == nil {
		return
	}
	lower := func(name string, value *int64, limit int64) uint64 {
		if value == nil {
			return uint64(limit)
		}
		if *value < 1 || *value > limit {
			c.invalid(at.Child(name), *value, fmt.Sprintf("must be from 1 to %d", limit))
			return uint64(limit)
		}
		return uint64(*value)
	}
	c.out.costPerExpression = lower("costPerExpression", in.CostPerExpression, cel.MaxCost)
	c.out.costPerPass = lower("costPerPass", in.CostPerPass, maxCostPerPass)
	c.out.MaxBytes = int(lower("maxObjectBytes", in.MaxObjectBytes, maxBytes))
}

func (c *compiler) scope(names []string) cel.Scope {
	return cel.Scope{Names: append(slices.Clone(names), variablesName), Patches: true, Cost: c.out.costPerExpression}
}

// everything are the variables of all phases.
var everything = []string{"object", "localObject", "remoteObject", "workload", "cluster", "origin"}

func (c *compiler) variables() {
	at := c.path.Child("variables")
	if len(c.in.Variables) > most {
		c.errs = append(c.errs, field.TooMany(at, len(c.in.Variables), most))
	}
	for i, v := range c.in.Variables {
		switch {
		case !identifier.MatchString(v.Name):
			c.invalid(at.Index(i).Child("name"), v.Name, "must be a name such as resultKeys")
		case slices.Contains(c.out.variables, v.Name):
			c.errs = append(c.errs, field.Duplicate(at.Index(i).Child("name"), v.Name))
		}
		c.out.variables = append(c.out.variables, v.Name)
	}
}

// expression compiles an expression in the scope of a phase, with the variables that it reads.
func (c *compiler) expression(phase, name, text string, at *field.Path, gives cel.Result) *cel.Expression {
	if strings.TrimSpace(text) == "" {
		c.errs = append(c.errs, field.Required(at, "an expression in CEL"))
		return nil
	}
	e, err := cel.Compile(c.in.Name+" "+phase+" "+name, text, c.scope(scopes[phase]), gives)
	if err == nil {
		err = c.reads(phase, e, len(c.out.variables))
	}
	if err != nil {
		c.invalid(at, cel.Short(text), err.Error())
		return nil
	}
	return e
}

// reads compiles the variables that an expression of a phase reads. It may read the first known ones.
func (c *compiler) reads(phase string, e *cel.Expression, known int) error {
	names, plain := e.Fields(variablesName)
	if !plain {
		return fmt.Errorf("variables may be read as variables.name only")
	}
	if c.out.compiled[phase] == nil {
		c.out.compiled[phase] = make([]*cel.Expression, len(c.out.variables))
	}
	for _, name := range names {
		i := slices.Index(c.out.variables, name)
		switch {
		case i < 0:
			return fmt.Errorf("there is no variable %s", name)
		case i >= known:
			return fmt.Errorf("the variable %s is not defined before this one", name)
		case c.out.compiled[phase][i] != nil:
			continue
		}
		v := c.in.Variables[i]
		compiled, err := cel.Compile(c.in.Name+" variable "+name, v.Expression, c.scope(scopes[phase]), cel.Any)
		if err == nil {
			err = c.reads(phase, compiled, i)
		}
		if err != nil {
			return fmt.Errorf("the variable %s cannot be used here: %w", name, err)
		}
		c.out.compiled[phase][i] = compiled
	}
	return nil
}

// unused checks the variables that no phase reads, with the names of all phases.
func (c *compiler) unused() {
	for i, v := range c.in.Variables {
		used := false
		for _, compiled := range c.out.compiled { //berth:unordered any of them
			used = used || (compiled != nil && compiled[i] != nil)
		}
		if used {
			continue
		}
		at := c.path.Child("variables").Index(i).Child("expression")
		e, err := cel.Compile(c.in.Name+" variable "+v.Name, v.Expression, c.scope(everything), cel.Any)
		if err == nil {
			var names []string
			names, _ = e.Fields(variablesName)
			for _, name := range names {
				if at := slices.Index(c.out.variables, name); at < 0 || at >= i {
					err = fmt.Errorf("the variable %s is not defined before this one", name)
				}
			}
		}
		if err != nil {
			c.invalid(at, cel.Short(v.Expression), err.Error())
		}
	}
}

func (c *compiler) rules() {
	at := c.path.Child("preconditions")
	if len(c.in.Preconditions) > most {
		c.errs = append(c.errs, field.TooMany(at, len(c.in.Preconditions), most))
	}
	var names []string
	for i, p := range c.in.Preconditions {
		names = c.name(names, p.Name, at.Index(i).Child("name"))
		holds := c.expression(Precondition, p.Name, p.Expression, at.Index(i).Child("expression"), cel.Bool)
		message := p.Message
		if message == "" {
			message = fmt.Sprintf("the precondition %q does not hold", p.Name)
		}
		c.out.preconditions = append(c.out.preconditions, precondition{p.Name, message, holds})
	}
}

func (c *compiler) name(names []string, name string, at *field.Path) []string {
	switch {
	case name == "":
		c.errs = append(c.errs, field.Required(at, "a name for messages"))
	case slices.Contains(names, name):
		c.errs = append(c.errs, field.Duplicate(at, name))
	}
	return append(names, name)
}

func (c *compiler) mutations(phase string, list []configv1beta2.ExternalMutation, at *field.Path) {
	if len(list) > most {
		c.errs = append(c.errs, field.TooMany(at, len(list), most))
	}
	var names []string
	for i := range list {
		m, at := &list[i], at.Index(i) //nolint:govet // of the list, and then of one
		names = c.name(names, m.Name, at.Child("name"))
		if m.PatchType == "" {
			c.errs = append(c.errs, field.Required(at.Child("patchType"), "JSONPatch or ApplyConfiguration"))
			continue
		}
		kind := c.oneOf(at.Child("patchType"), m.PatchType, "JSONPatch", "ApplyConfiguration")
		used, other, field1, field2, gives := m.JSONPatch, m.ApplyConfiguration, "jsonPatch", "applyConfiguration", cel.List
		if kind == "ApplyConfiguration" {
			used, other, field1, field2, gives = other, used, field2, field1, cel.Map
		}
		if other != nil {
			c.errs = append(c.errs, field.Forbidden(at.Child(field2), "does not go with patchType: "+kind))
		}
		if used == nil {
			c.errs = append(c.errs, field.Required(at.Child(field1), "goes with patchType: "+kind))
			continue
		}
		patch := c.expression(phase, m.Name, used.Expression, at.Child(field1).Child("expression"), gives)
		c.out.mutations[phase] = append(c.out.mutations[phase], mutation{m.Name, patch})
	}
}

func (c *compiler) statusSync() {
	in, at := c.in.StatusSync, c.path.Child("statusSync")
	if in == nil {
		return
	}
	c.out.StatusMode = c.oneOf(at.Child("mode"), in.Mode, "Replace", "Mutate", "Disabled")
	c.out.Subresource = c.oneOf(at.Child("subresource"), in.Subresource, "Auto", "Status", "Main")
	if len(in.Mutations) > 0 && c.out.StatusMode != "Mutate" {
		c.errs = append(c.errs, field.Forbidden(at.Child("mutations"), "needs mode: Mutate"))
	}
	c.mutations(StatusSync, in.Mutations, at.Child("mutations"))
	if in.When != "" {
		c.out.when = c.expression(StatusSync, "when", in.When, at.Child("when"), cel.Bool)
	}
	if m := in.Metadata; m != nil {
		at = at.Child("metadata")
		c.out.AnnotationPrefixes, c.out.LabelPrefixes = m.AnnotationPrefixes, m.LabelPrefixes
		for name, list := range map[string][]string{"annotationPrefixes": m.AnnotationPrefixes, "labelPrefixes": m.LabelPrefixes} { //berth:unordered errors are sorted
			for i, prefix := range list {
				switch {
				case prefix == "":
					c.errs = append(c.errs, field.Required(at.Child(name).Index(i), "the beginning of keys"))
				case Reserved(strings.TrimSuffix(prefix, "/") + "/x"):
					c.invalid(at.Child(name).Index(i), prefix, "such keys belong to Kubernetes or to the queue")
				}
			}
		}
	}
}

func (c *compiler) specSync() {
	in, at := c.in.SpecSync, c.path.Child("specSync")
	if in == nil {
		return
	}
	if len(in.AllowedPaths) == 0 {
		c.errs = append(c.errs, field.Required(at.Child("allowedPaths"), "what may change, such as /spec/status"))
	}
	for i, text := range in.AllowedPaths {
		at := at.Child("allowedPaths").Index(i) //nolint:govet // of the list, and then of one
		path, err := pointer(text)
		switch {
		case err != nil:
			c.invalid(at, text, err.Error())
		case len(path) < 2 || path[0] != "spec":
			c.invalid(at, text, "must be below /spec")
		case overlap(path, c.out.ManagedBy):
			c.invalid(at, text, "must not reach the field of managedBy")
		default:
			c.out.SpecPaths = append(c.out.SpecPaths, path)
		}
	}
	if len(in.Mutations) == 0 {
		c.errs = append(c.errs, field.Required(at.Child("mutations"), "what to change"))
	}
	c.mutations(SpecSync, in.Mutations, at.Child("mutations"))
}

var index = regexp.MustCompile(`^([0-9]+|-)$`)

// pointer splits a JSON pointer without indices.
func pointer(text string) ([]string, error) {
	rest, ok := strings.CutPrefix(text, "/")
	if !ok {
		return nil, fmt.Errorf("must begin with a slash")
	}
	path := strings.Split(rest, "/")
	for i, segment := range path {
		if segment == "" || index.MatchString(segment) {
			return nil, fmt.Errorf("must be names with slashes before them, without indices")
		}
		path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)
	}
	return path, nil
}

// overlap reports whether one of two paths is at or below the other.
func overlap(a, b []string) bool {
	n := min(len(a), len(b))
	return n > 0 && slices.Equal(a[:n], b[:n])
}

func (c *compiler) lifecycle() {
	in, at := c.in.Lifecycle, c.path.Child("lifecycle")
	if in == nil {
		return
	}
	c.out.Alone = c.oneOf(at.Child("workerIntegration"), in.WorkerIntegration, "Kueue", "None") == "None"
	for _, e := range []struct {
		name, text string
		into       **cel.Expression
		gives      cel.Result
	}{{"finished", in.Finished, &c.out.finished, cel.Any}, {"active", in.Active, &c.out.active, cel.Bool}} {
		switch {
		case c.out.Alone:
			*e.into = c.expression(Lifecycle, e.name, e.text, at.Child(e.name), e.gives)
		case e.text != "":
			c.errs = append(c.errs, field.Forbidden(at.Child(e.name), "needs workerIntegration: None"))
		}
	}
}

// reserved are the domains of keys that belong to Kubernetes and to the queue.
var reserved = []string{"kueue.x-k8s.io", "kubernetes.io", "k8s.io", "berth.dev"}

// Reserved reports whether transforms must not touch the key of a label or annotation: its domain is reserved, or below a reserved one.
func Reserved(key string) bool {
	domain, _, ok := strings.Cut(strings.ToLower(key), "/")
	if !ok || domain == "app.kubernetes.io" {
		return false
	}
	return slices.ContainsFunc(reserved, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}
