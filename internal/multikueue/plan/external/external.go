// Package external decides what may change in jobs of external frameworks on the way to a worker cluster and back (spec: 40 §4.13).
//
//	base clone ─► mutations ─► guard: permitted differences ─► managedBy, our labels ─► the copy
//	job with the status of the copy ─► mutations ─► guard ─► a patch of the status, a patch of keys
//	copy ─► mutations ─► guard ─► a patch of the copy
//
// Guards check the result, not the operations. Our own labels and annotations come after them, so no expression can forge them.
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

// The codes of faults.
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

const maxDepth = 64

// Error is why a job cannot be dispatched or synchronized.
type Error struct {
	Code, Text string
	// Until, unless zero, is the end of a suspension of the expressions: the error is not about the job.
	Until time.Time
}

// As returns the Error in an error, nil if there is none.
func As(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

const (
	creation   = "creation"
	statusSync = "statusSync"
	specSync   = "specSync"
)

// Expressions are the expressions of a framework. They read the scope and do not modify their arguments.
type Expressions interface {
	// Preconditions returns the name and message of the first rule that does not hold.
	Preconditions(scope map[string]any) (name, message string, ok bool, err error)
	// Mutate runs the mutations of a phase in order on an object, through apply.
	Mutate(phase string, object, scope map[string]any, apply func(object map[string]any, patch any) (map[string]any, error)) (map[string]any, error)
	// When reports whether to copy the status.
	When(scope map[string]any) (bool, error)
	// Finished reports whether a remote job has ended, and how. Active reports whether its pods may run.
	Finished(remote map[string]any) (done, success bool, message string, err error)
	Active(remote map[string]any) (bool, error)
}

// Framework is an external framework of the configuration.
type Framework struct {
	// Name is as in the configuration.
	Name string
	// Extended is true if more than a name is configured.
	Extended bool
	// NoJob is true if an external controller creates the remote jobs.
	NoJob bool
	// Unchecked dispatches jobs without Value in the field ManagedBy, a path.
	Unchecked bool
	ManagedBy []string
	Value     string
	// WorkerValue is the value of the field on the worker cluster; nil removes it.
	WorkerValue *string
	CopyFields  []string
	// Retry retries jobs that cannot be transformed, instead of rejecting them.
	Retry bool
	// Preconditions and Creates are true if there are such expressions.
	Preconditions, Creates bool
	// NoStatus does not mirror the status, Mutates transforms it, and Main writes it in the object itself.
	NoStatus, Mutates, Main bool
	// AutoStatus writes the object itself if there is no status subresource.
	AutoStatus bool
	// AnnotationPrefixes and LabelPrefixes select the keys that are mirrored from copies to their jobs.
	AnnotationPrefixes, LabelPrefixes []string
	// SpecPaths may change on a copy. None: the spec is not forwarded.
	SpecPaths [][]string
	// Alone is true if no controller on the worker clusters integrates the kind.
	Alone bool
	// MaxBytes bounds copies and results of mutations.
	MaxBytes int
	// Reserved reports whether transforms must not touch the key of a label or annotation.
	Reserved    func(key string) bool
	Expressions Expressions
}

// Scope is the input of expressions.
type Scope struct {
	Local, Remote, Workload, Cluster map[string]any
	Origin                           string
}

// names returns the variables of the scope, without managedFields.
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

// Precondition returns why a job may not be dispatched at all, nil if it may.
func (f *Framework) Precondition(s *Scope) *Error {
	if !f.Preconditions {
		return nil
	}
	name, message, ok, err := f.Expressions.Preconditions(s.names())
	switch {
	case err != nil:
		code := Precondition
		if TooMuch(err) || !SuspendedUntil(err).IsZero() {
			code = CostExceeded
		}
		return &Error{Code: code, Text: fmt.Sprintf("%s/precondition/%s", f.Name, err), Until: SuspendedUntil(err)}
	case !ok:
		return &Error{Code: Precondition, Text: fmt.Sprintf("%s/precondition %q: %s", f.Name, name, message)}
	}
	return nil
}

func (f *Framework) fail(phase, cluster, code string, err error) *Error {
	coded := As(err)
	switch {
	case coded != nil:
		code = coded.Code
	case TooMuch(err), !SuspendedUntil(err).IsZero():
		code = CostExceeded
	}
	if phase != creation { // a running job is synchronized all the same
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
	return &Error{Code: code, Text: fmt.Sprintf("%s/%s%s: %s", f.Name, phase, where, text), Until: SuspendedUntil(err)}
}

// SuspendedUntil returns the end of a suspension of the expressions; zero for other errors.
func SuspendedUntil(err error) time.Time {
	var r interface{ Until() time.Time }
	if !errors.As(err, &r) {
		return time.Time{}
	}
	return r.Until()
}

// TooMuch reports whether expressions cost too much or took too long.
func TooMuch(err error) bool {
	var t interface{ TooMuch() bool }
	return errors.As(err, &t) && t.TooMuch()
}

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

// Create turns the base clone of a job into the copy, without our own labels and annotations.
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

// Copied reports whether a copy can fail: it can if more than a name is configured.
func (f *Framework) Copied() bool { return f.Extended && !f.NoJob }

// Finish checks a copy with our own labels and annotations. If only a name is configured the limits of the API server suffice.
func (f *Framework) Finish(copied map[string]any, cluster string) error {
	if !f.Extended {
		return nil
	}
	if err := f.bounds(copied); err != nil {
		return f.fail(creation, cluster, Failed, err)
	}
	return nil
}

// Release removes the managedBy value from a copy, or sets that of the worker cluster.
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

// Manager returns the managedBy value of a local job. An error means that it is not a string.
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

// Followed is a job after synchronization with its copy.
type Followed struct {
	Object map[string]any
	// Status and Metadata are true if they change.
	Status, Metadata bool
	// Deferred is true if it is too early.
	Deferred bool
}

// Status returns a job with the status of its copy.
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

func (f *Framework) mayFollow(path []string) bool {
	if len(path) == 3 && path[0] == "metadata" && !f.Reserved(path[2]) {
		prefixes := map[string][]string{"labels": f.LabelPrefixes, "annotations": f.AnnotationPrefixes}[path[1]]
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path[2], p) })
	}
	return len(path) > 0 && path[0] == "status"
}

// Spec returns a copy after a change of its job, nil if unchanged.
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

// removedAround returns a removed map around a changed path that must not be removed; nil for none.
func (f *Framework) removedAround(path []string, next map[string]any) []string {
	for n := 1; n < len(path); n++ {
		if _, err := get(next, path[:n]); err != nil && !slices.ContainsFunc(f.SpecPaths, func(p []string) bool { return below(path[:n], p) }) {
			return path[:n]
		}
	}
	return nil
}

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

func below(path, of []string) bool { return len(path) >= len(of) && slices.Equal(path[:len(of)], of) }

// overlap reports whether one of two paths is equal to or below the other.
func overlap(a, b []string) bool { return len(b) > 0 && (below(a, b) || below(b, a)) }

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
