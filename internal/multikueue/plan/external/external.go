// Package external says what may become of jobs of external frameworks on their
// way to a worker and back (spec: 40 §4.13).
//
//	base clone ─► mutations ─► guard: what differs may differ ─► managedBy, our marks ─► the copy
//	job with the copy's status ─► mutations ─► guard ─► a patch of the status, a patch of keys
//	copy ─► mutations ─► guard ─► a patch of the copy
//
// The guards look at what came out, not at the operations that led there. Our own
// marks come after them, so that no expression can forge one.
package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// The codes of errors (spec: 40 §4.13.5).
const (
	Precondition    = "PreconditionFailed"
	Failed          = "CreationTransformFailed"
	CostExceeded    = "TransformCostExceeded"
	Forbidden       = "TransformForbiddenPath"
	UnsupportedList = "TransformUnsupportedList"
	TooLarge        = "TransformedObjectTooLarge"
	ChangedPodSets  = "TransformChangedPodSets"
	StatusFailed    = "StatusSyncFailed"
	SpecFailed      = "SpecSyncFailed"
	Controller      = "ExternalController"
)

// maxDepth is how deep a copy may be nested.
const maxDepth = 64

// Error is what keeps a job from being sent, or from being followed.
type Error struct {
	Code, Text string
	// Until, unless it is zero, is when the expressions are asked again, which were not: the error says nothing about the job.
	Until time.Time
}

// As finds such an error in another one, nil if there is none.
func As(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}

// Error is the text.
func (e *Error) Error() string { return e.Text }

// The phases, by the names that the expressions know.
const (
	creation   = "creation"
	statusSync = "statusSync"
	specSync   = "specSync"
)

// Expressions are those of a framework. The scope is what they may read; what they are given they do not change.
type Expressions interface {
	// Preconditions finds the first rule that does not hold: its name and its message.
	Preconditions(scope map[string]any) (name, message string, ok bool, err error)
	// Mutate runs the mutations of a phase on an object, each on what the one before it left, through apply.
	Mutate(phase string, object, scope map[string]any, apply func(object map[string]any, patch any) (map[string]any, error)) (map[string]any, error)
	// When says whether the status is to be copied yet.
	When(scope map[string]any) (bool, error)
	// Finished says whether a remote job is over, and how it went, and Active whether pods of it may run.
	Finished(remote map[string]any) (done, success bool, message string, err error)
	Active(remote map[string]any) (bool, error)
}

// Framework is one external framework.
type Framework struct {
	// Name is as in the configuration.
	Name string
	// Extended says that it has more than a name.
	Extended bool
	// NoJob says that a controller of its own carries the jobs.
	NoJob bool
	// Unchecked sends jobs without the mark of ManagedBy, the path of a field, which has the value Value.
	Unchecked bool
	ManagedBy []string
	Value     string
	// WorkerValue is what the field has on the worker; nil removes it.
	WorkerValue *string
	CopyFields  []string
	// Retry tries again what cannot be transformed, and does not reject it.
	Retry bool
	// Preconditions and Creates say that there are such expressions.
	Preconditions, Creates bool
	// NoStatus leaves the status alone, Mutates changes it on the way, and Main has it in the object itself.
	NoStatus, Mutates, Main bool
	// AutoStatus tries the object itself where it has no subresource for its status.
	AutoStatus bool
	// AnnotationPrefixes and LabelPrefixes are those of keys that jobs get from their copies.
	AnnotationPrefixes, LabelPrefixes []string
	// SpecPaths are those that may change on a copy. None: nothing is forwarded.
	SpecPaths [][]string
	// Alone says that nothing on the workers integrates the kind.
	Alone bool
	// MaxBytes bounds a copy, and what a mutation makes.
	MaxBytes int
	// Reserved says of the key of a label or an annotation that it is not for transforms.
	Reserved    func(key string) bool
	Expressions Expressions
}

// Scope is what expressions read.
type Scope struct {
	Local, Remote, Workload, Cluster map[string]any
	Origin                           string
}

// names are those of the scope, without what is nobody's business.
func (s *Scope) names() map[string]any {
	out := map[string]any{}
	for name, tree := range map[string]map[string]any{"localObject": s.Local, "remoteObject": s.Remote, "workload": s.Workload, "cluster": s.Cluster} { //berth:unordered fills a map
		if tree != nil {
			out[name] = plain(tree)
		}
	}
	if s.Origin != "" {
		out["origin"] = s.Origin
	}
	return out
}

// plain is a tree without metadata.managedFields.
func plain(tree map[string]any) map[string]any {
	meta, ok := tree["metadata"].(map[string]any)
	if !ok || meta["managedFields"] == nil {
		return tree
	}
	out, inner := maps.Clone(tree), maps.Clone(meta)
	delete(inner, "managedFields")
	out["metadata"] = inner
	return out
}

// Precondition finds out whether a job may be sent at all; nil if it may.
func (f *Framework) Precondition(s *Scope) *Error {
	if !f.Preconditions {
		return nil
	}
	name, message, ok, err := f.Expressions.Preconditions(s.names())
	switch {
	case err != nil:
		code := Precondition
		if TooMuch(err) || !RestsUntil(err).IsZero() {
			code = CostExceeded
		}
		return &Error{Code: code, Text: fmt.Sprintf("%s/precondition/%s", f.Name, err), Until: RestsUntil(err)}
	case !ok:
		return &Error{Code: Precondition, Text: fmt.Sprintf("%s/precondition %q: %s", f.Name, name, message)}
	}
	return nil
}

// fail is an error of a phase. cluster may be empty.
func (f *Framework) fail(phase, cluster, code string, err error) *Error {
	coded := As(err)
	switch {
	case coded != nil:
		code = coded.Code
	case TooMuch(err), !RestsUntil(err).IsZero():
		code = CostExceeded
	}
	if phase != creation { // a job that runs is followed all the same
		code = map[string]string{statusSync: StatusFailed, specSync: SpecFailed}[phase]
	}
	where, text := "", err.Error()
	var located interface {
		Where() string
		Unwrap() error
	}
	if errors.As(err, &located) {
		where, text = "/"+located.Where(), located.Unwrap().Error()
	}
	if cluster != "" {
		where += fmt.Sprintf(" on %q", cluster)
	}
	return &Error{Code: code, Text: fmt.Sprintf("%s/%s%s: %s", f.Name, phase, where, text), Until: RestsUntil(err)}
}

// RestsUntil is when expressions are asked again that were not; zero of any other error.
func RestsUntil(err error) time.Time {
	var r interface{ Until() time.Time }
	if !errors.As(err, &r) {
		return time.Time{}
	}
	return r.Until()
}

// TooMuch says whether an error is that of expressions that cost too much or take too long.
func TooMuch(err error) bool {
	var t interface{ TooMuch() bool }
	return errors.As(err, &t) && t.TooMuch()
}

// mutate runs the mutations of a phase.
func (f *Framework) mutate(phase string, object map[string]any, s *Scope) (map[string]any, error) {
	apply := func(object map[string]any, patch any) (map[string]any, error) {
		var out map[string]any
		var err error
		switch p := patch.(type) {
		case []any:
			if out, err = applyJSON(object, p, f.MaxBytes); errors.Is(err, errTest) {
				return object, nil
			}
		case map[string]any:
			out, err = merge(runtime.DeepCopyJSON(object), p, nil)
		default:
			return nil, errors.New("gives no patch")
		}
		if err == nil {
			err = f.bounds(out)
		}
		return out, err
	}
	return f.Expressions.Mutate(phase, object, s.names(), apply)
}

// bounds checks how large an object is.
func (f *Framework) bounds(object map[string]any) error {
	if depth(object, maxDepth+1) > maxDepth {
		return &Error{Code: TooLarge, Text: fmt.Sprintf("the object is nested more than %d deep", maxDepth)}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if len(text) > f.MaxBytes {
		return &Error{Code: TooLarge, Text: fmt.Sprintf("the object has %d bytes, and %d is the limit", len(text), f.MaxBytes)}
	}
	return nil
}

// Create makes of the base clone of a job what is to be created, but for our own marks.
func (f *Framework) Create(base map[string]any, s *Scope) (map[string]any, error) {
	if !f.Creates {
		return base, nil
	}
	cluster, _ := s.Cluster["name"].(string)
	out, err := f.mutate(creation, runtime.DeepCopyJSON(base), s)
	if err == nil {
		err = f.guardCreation(base, out)
	}
	if err != nil {
		return nil, f.fail(creation, cluster, Failed, err)
	}
	return out, nil
}

// Copied says that copies are made by more than a name, so that it may turn out that they cannot be made.
func (f *Framework) Copied() bool { return f.Extended && !f.NoJob }

// Finish checks a copy with our own marks. Where no more than a name is said of the framework, the API servers' own limits are all there are.
func (f *Framework) Finish(copied map[string]any, cluster string) error {
	if !f.Extended {
		return nil
	}
	if err := f.bounds(copied); err != nil {
		return f.fail(creation, cluster, Failed, err)
	}
	return nil
}

// Release takes the mark that keeps controllers away off a copy, or gives it its value there.
func (f *Framework) Release(copied map[string]any) {
	if len(f.ManagedBy) == 0 {
		return
	}
	at := copied
	for _, key := range f.ManagedBy[:len(f.ManagedBy)-1] {
		next, ok := at[key].(map[string]any)
		if !ok {
			if f.WorkerValue == nil {
				return
			}
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	last := f.ManagedBy[len(f.ManagedBy)-1]
	if f.WorkerValue != nil {
		at[last] = *f.WorkerValue
	} else {
		delete(at, last)
	}
}

// Manager is the value of the mark on a local job. An error means that it is no text.
func (f *Framework) Manager(job map[string]any) (string, error) {
	value, err := get(job, f.ManagedBy)
	if f.Unchecked {
		return "", nil
	}
	if err != nil {
		return "", nil //nolint:nilerr // it is not there
	}
	text, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("%s is no text", join(f.ManagedBy))
	}
	return text, nil
}

// Followed is a job as it is to be after a look at its copy.
type Followed struct {
	Object map[string]any
	// Status and Metadata say what of it changes.
	Status, Metadata bool
	// Deferred says that it is too early.
	Deferred bool
}

// Status is what becomes of a job with the status of its copy.
func (f *Framework) Status(s *Scope) (Followed, error) {
	cluster, _ := s.Cluster["name"].(string)
	wrap := func(err error) (Followed, error) { return Followed{}, f.fail(statusSync, cluster, StatusFailed, err) }
	local := plain(s.Local)
	next := runtime.DeepCopyJSON(local)
	if remote, ok := s.Remote["status"].(map[string]any); ok && !f.NoStatus {
		next["status"] = runtime.DeepCopyJSON(remote)
	}
	if f.Extended {
		names := s.names()
		names["object"] = next
		now, err := f.Expressions.When(names)
		if err != nil {
			return wrap(err)
		}
		if !now {
			return Followed{Deferred: true}, nil
		}
	}
	if f.Mutates {
		var err error
		if next, err = f.mutate(statusSync, next, s); err != nil {
			return wrap(err)
		}
	}
	has := f.mirrorKeys(next, s.Remote)
	before := runtime.DeepCopyJSON(local)
	prune(before)
	prune(next)
	out := Followed{Object: next}
	for _, path := range changes(before, next) {
		if !f.mayFollow(path) {
			return wrap(forbidden(path))
		}
		out.Status = out.Status || path[0] == "status"
		out.Metadata = out.Metadata || path[0] == "metadata"
	}
	out.Metadata = note(next, has) || out.Metadata
	return out, nil
}

// mayFollow says whether a path of a job may change after its copy.
func (f *Framework) mayFollow(path []string) bool {
	if len(path) == 3 && path[0] == "metadata" && !f.Reserved(path[2]) {
		prefixes := map[string][]string{"labels": f.LabelPrefixes, "annotations": f.AnnotationPrefixes}[path[1]]
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path[2], p) })
	}
	return len(path) > 0 && path[0] == "status"
}

// Spec is what becomes of a copy after a change of its job, nil if nothing does.
func (f *Framework) Spec(s *Scope) (map[string]any, error) {
	if len(f.SpecPaths) == 0 {
		return nil, nil
	}
	cluster, _ := s.Cluster["name"].(string)
	before := runtime.DeepCopyJSON(plain(s.Remote))
	next, err := f.mutate(specSync, runtime.DeepCopyJSON(before), s)
	if err != nil {
		return nil, f.fail(specSync, cluster, SpecFailed, err)
	}
	prune(before)
	prune(next)
	changed := changes(before, next)
	for _, path := range changed {
		if !slices.ContainsFunc(f.SpecPaths, func(p []string) bool { return below(path, p) }) || overlap(path, f.ManagedBy) {
			return nil, f.fail(specSync, cluster, SpecFailed, forbidden(path))
		}
		if around := f.removedAround(path, next); around != nil {
			return nil, f.fail(specSync, cluster, SpecFailed, forbidden(around))
		}
	}
	if len(changed) == 0 {
		return nil, nil
	}
	return next, nil
}

// removedAround is the map around a path that changed, if it is gone and may not go; nil if that is not so.
func (f *Framework) removedAround(path []string, next map[string]any) []string {
	for n := 1; n < len(path); n++ {
		if _, err := get(next, path[:n]); err != nil && !slices.ContainsFunc(f.SpecPaths, func(p []string) bool { return below(path[:n], p) }) {
			return path[:n]
		}
	}
	return nil
}

// guardCreation checks what differs between the base clone and what became of it.
func (f *Framework) guardCreation(base, out map[string]any) error {
	for _, path := range changes(base, out) {
		ok := len(path) > 0 && slices.Contains(f.CopyFields, path[0])
		if len(path) == 3 && path[0] == "metadata" && (path[1] == "labels" || path[1] == "annotations") && !f.Reserved(path[2]) {
			value, err := get(out, path)
			_, isText := value.(string)
			ok = err != nil || isText
		}
		if !ok || overlap(path, f.ManagedBy) {
			return forbidden(path)
		}
	}
	return nil
}

func forbidden(path []string) error {
	where := join(path)
	if where == "" {
		where = "the object as a whole"
	}
	return &Error{Code: Forbidden, Text: where + " may not be changed"}
}

// below says whether a path is another one, or below it.
func below(path, of []string) bool { return len(path) >= len(of) && slices.Equal(path[:len(of)], of) }

// overlap says whether one of two paths is at or below the other.
func overlap(a, b []string) bool { return len(b) > 0 && (below(a, b) || below(b, a)) }

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
