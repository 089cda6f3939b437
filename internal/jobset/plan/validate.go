package plan

import (
	"cmp"
	"fmt"
	"math"
	"regexp/syntax"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/job"
)

var (
	specPath    = field.NewPath("spec")
	rjsPath     = specPath.Child("replicatedJobs")
	failurePath = specPath.Child("failurePolicy")
)

// Validate checks a new JobSet, or its change from old, beyond the schema
// (spec: 60 §3.2 to §3.4). ValidateClaims checks it against existing claims.
//
// The schema allows adding an absent policy later. Such a policy is checked as in a new JobSet.
func (c Config) Validate(js, old *jobsetv1alpha2.JobSet) field.ErrorList {
	v := &rules{Config: c, js: js, name: lookName(js)}
	if old != nil {
		v.update(old)
		return v.errs
	}
	v.managedBy()
	v.replicatedJobs()
	v.network()
	v.successPolicy()
	v.failurePolicy()
	v.coordinator()
	v.claims()
	return v.errs
}

// nameSuffix stands for the suffix that the API server appends to generateName.
const nameSuffix = "xxxxx"

// lookName returns the name of a JobSet, or one with the length and letters of the name that will be generated.
func lookName(js *jobsetv1alpha2.JobSet) string {
	if js.Name == "" && js.GenerateName != "" {
		const longest = 63 - len(nameSuffix) // the API server truncates longer ones
		return js.GenerateName[:min(len(js.GenerateName), longest)] + nameSuffix
	}
	return js.Name
}

type rules struct {
	Config
	js   *jobsetv1alpha2.JobSet
	name string
	errs field.ErrorList
}

func (v *rules) invalid(path *field.Path, value any, why string) {
	v.errs = append(v.errs, field.Invalid(path, value, why))
}

func (v *rules) all(path *field.Path, value any, why []string) {
	for _, w := range why {
		v.invalid(path, value, w)
	}
}

func (v *rules) managedBy() {
	by := v.js.Spec.ManagedBy
	if by == nil {
		return
	}
	path := specPath.Child("managedBy")
	v.errs = append(v.errs, validation.IsDomainPrefixedPath(path, *by)...)
	if len(*by) > jobsetv1alpha2.MaxManagedByLength {
		v.errs = append(v.errs, field.TooLong(path, *by, jobsetv1alpha2.MaxManagedByLength))
	}
}

func (v *rules) replicatedJobs() {
	v.total()
	seen := map[string]bool{}
	for i := range v.js.Spec.ReplicatedJobs {
		rj, path := &v.js.Spec.ReplicatedJobs[i], rjsPath.Index(i)
		v.size(rj, path)
		if rj.GroupName != "" {
			v.all(path.Child("groupName"), rj.GroupName, validation.IsDNS1035Label(rj.GroupName))
		}
		if i == 0 && rj.DependsOn != nil {
			v.errs = append(v.errs, field.Forbidden(path.Child("dependsOn"), "the first replicated job has none before it to depend on"))
		} else {
			for k, d := range rj.DependsOn {
				if !seen[d.Name] {
					v.invalid(path.Child("dependsOn").Index(k).Child("name"), d.Name, "must be a replicated job that stands earlier in the list")
				}
			}
		}
		seen[rj.Name] = true
	}
}

// total checks the number of all Jobs. The error is about the first replicated job that exceeds the maximum.
func (v *rules) total() {
	sum, all, most := int64(0), int64(0), cmp.Or(v.MaxJobs, job.DefaultMaxChildren)
	for i := range v.js.Spec.ReplicatedJobs {
		all += int64(Replicas(&v.js.Spec.ReplicatedJobs[i]))
	}
	for i := range v.js.Spec.ReplicatedJobs {
		n := Replicas(&v.js.Spec.ReplicatedJobs[i])
		if sum += int64(n); sum > int64(most) {
			v.invalid(rjsPath.Index(i).Child("replicas"), n, job.TooMany(all, "Jobs", most))
			return
		}
	}
}

// size checks the number of pods and the lengths of the resulting names.
func (v *rules) size(rj *jobsetv1alpha2.ReplicatedJob, path *field.Path) {
	t := &rj.Template.Spec
	v.pods(rj, path)
	last := JobName(v.name, rj.Name, int(max(Replicas(rj)-1, 0)))
	if why := validation.IsDNS1035Label(last); len(why) > 0 {
		v.all(path.Child("name"), rj.Name, prefixed(fmt.Sprintf("the name of its last Job would be %s with %d characters: ", last, len(last)), why))
		return
	}
	if pod := lastPod(v.name, rj); isIndexed(t.CompletionMode) && pod != "" {
		why := validation.IsDNS1035Label(pod)
		v.all(path.Child("name"), rj.Name, prefixed(fmt.Sprintf("the name of its last pod would be %s with %d characters: ", pod, len(pod)), why))
	}
}

func (v *rules) pods(rj *jobsetv1alpha2.ReplicatedJob, path *field.Path) {
	if pods := int64(Replicas(rj)) * int64(ptr.Deref(rj.Template.Spec.Parallelism, 1)); pods > math.MaxInt32 {
		v.invalid(path, pods, fmt.Sprintf("replicas × parallelism must not exceed %d", math.MaxInt32))
	}
}

// lastPod returns the longest name of a numbered pod of a replicated job. Pods are numbered by default. It is empty if there are
// none.
func lastPod(name string, rj *jobsetv1alpha2.ReplicatedJob) string {
	t := &rj.Template.Spec
	if (t.CompletionMode != nil && !isIndexed(t.CompletionMode)) || t.Completions == nil {
		return ""
	}
	return fmt.Sprintf("%s-%d-%s", JobName(name, rj.Name, int(max(Replicas(rj)-1, 0))), max(*t.Completions-1, 0), nameSuffix)
}

// LongestName returns the longest name that a Job or a numbered pod of a JobSet would have. A JobSet in which it exceeds
// 63 characters is refused, because those names are host names.
func LongestName(js *jobsetv1alpha2.JobSet) (longest string) {
	name := lookName(js)
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		last := lastPod(name, rj)
		if last == "" {
			last = JobName(name, rj.Name, int(max(Replicas(rj)-1, 0)))
		}
		if len(last) > len(longest) {
			longest = last
		}
	}
	return longest
}

func prefixed(prefix string, list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, prefix+s)
	}
	return out
}

func (v *rules) network() {
	if n := v.js.Spec.Network; n != nil && n.Subdomain != "" {
		path := specPath.Child("network", "subdomain")
		v.all(path, n.Subdomain, validation.IsDNS1123Subdomain(n.Subdomain))
		v.all(path, n.Subdomain, validation.IsDNS1035Label(n.Subdomain))
	}
}

func (v *rules) successPolicy() {
	if p := v.js.Spec.SuccessPolicy; p != nil {
		v.targets(specPath.Child("successPolicy", "targetReplicatedJobs"), p.TargetReplicatedJobs)
	}
}

func (v *rules) targets(path *field.Path, names []string) {
	for i, name := range names {
		if v.replicatedJob(name) == nil {
			v.invalid(path.Index(i), name, "must be the name of a replicated job")
		}
	}
}

func (v *rules) replicatedJob(name string) *jobsetv1alpha2.ReplicatedJob {
	for i := range v.js.Spec.ReplicatedJobs {
		if rj := &v.js.Spec.ReplicatedJobs[i]; rj.Name == name {
			return rj
		}
	}
	return nil
}

func (v *rules) failurePolicy() {
	p := v.js.Spec.FailurePolicy
	if p == nil {
		return
	}
	if p.MaxRestarts < 0 {
		v.invalid(failurePath.Child("maxRestarts"), p.MaxRestarts, "must not be negative")
	}
	if p.RestartStrategy == jobsetv1alpha2.RestartInPlace {
		v.inPlace()
	}
	names, all := map[string]bool{}, patterns{}
	for i := range p.Rules {
		rule, path := &p.Rules[i], failurePath.Child("rules").Index(i)
		v.ruleName(path.Child("name"), rule.Name, names)
		v.targets(path.Child("targetReplicatedJobs"), rule.TargetReplicatedJobs)
		v.matchers(path, rule, &all)
		v.action(path.Child("action"), rule.Action)
	}
}

func (v *rules) ruleName(path *field.Path, name string, names map[string]bool) {
	switch {
	case name == "":
		v.errs = append(v.errs, field.Required(path, "every rule needs a name"))
	case len(name) > jobsetv1alpha2.MaxRuleNameLength:
		v.errs = append(v.errs, field.TooLong(path, name, jobsetv1alpha2.MaxRuleNameLength))
	case !reasonText.MatchString(name):
		v.invalid(path, name, "must match "+reasonText.String())
	case names[name]:
		v.errs = append(v.errs, field.Duplicate(path, name))
	}
	names[name] = true
}

var failureReasons = []string{
	batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonDeadlineExceeded, batchv1.JobReasonFailedIndexes,
	batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonPodFailurePolicy,
}

// Bounds of the patterns of a failure policy, which are compiled and searched whenever Jobs have failed. Instructions are counted over all
// patterns: a character has about one, and a counted repetition as many as there are repetitions.
const (
	maxPatterns            = 100
	maxPatternLength       = 1000
	maxPatternInstructions = 20_000
)

// patterns counts the patterns of a failure policy.
type patterns struct{ number, instructions int }

// exceed reports whether a bound of all patterns is exceeded.
func (p *patterns) exceed() bool {
	return p.number > maxPatterns || p.instructions > maxPatternInstructions
}

// add returns why a pattern is refused, or nil.
func (p *patterns) add(path *field.Path, pattern string) *field.Error {
	switch p.number++; {
	case p.exceed():
		return field.Forbidden(path, fmt.Sprintf("the rules must not have more than %d patterns", maxPatterns))
	case len(pattern) > maxPatternLength:
		return field.TooLong(path, pattern, maxPatternLength)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return field.Invalid(path, pattern, err.Error())
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return field.Invalid(path, pattern, err.Error())
	}
	if p.instructions += len(program.Inst); p.exceed() {
		return field.Invalid(path, pattern, fmt.Sprintf("the patterns of all rules are too complex: they compile to more than %d instructions", maxPatternInstructions))
	}
	return nil
}

func (v *rules) matchers(path *field.Path, rule *jobsetv1alpha2.FailurePolicyRule, all *patterns) {
	for i, reason := range rule.OnJobFailureReasons {
		// Kubernetes plans to append the name of the rule that failed the Job.
		if !slices.Contains(failureReasons, reason) && !strings.HasPrefix(reason, batchv1.JobReasonPodFailurePolicy+"_") {
			v.errs = append(v.errs, field.NotSupported(path.Child("onJobFailureReasons").Index(i), reason, failureReasons))
		}
	}
	for i, pattern := range rule.OnJobFailureMessagePatterns {
		if all.exceed() {
			return
		}
		if err := all.add(path.Child("onJobFailureMessagePatterns").Index(i), pattern); err != nil {
			v.errs = append(v.errs, err)
		}
	}
}

func (v *rules) action(path *field.Path, action jobsetv1alpha2.FailurePolicyAction) {
	if action != jobsetv1alpha2.ActionRestartJob && action != jobsetv1alpha2.ActionRestartJobAndIgnoreMaxRestarts {
		return
	}
	if !v.RestartJob {
		v.invalid(path, action, "needs the feature gate RestartJob, which is off")
		return
	}
	for i := range v.js.Spec.ReplicatedJobs {
		if n := Replicas(&v.js.Spec.ReplicatedJobs[i]); n > jobsetv1alpha2.MaxIndividualRestartReplicas {
			v.invalid(rjsPath.Index(i).Child("replicas"), n, fmt.Sprintf(
				"must not exceed %d with a rule of action %s", jobsetv1alpha2.MaxIndividualRestartReplicas, action))
		}
	}
}

// inPlace checks that the end of any pod is a restart, and never a failure of its Job.
func (v *rules) inPlace() {
	if !v.InPlaceRestart {
		v.invalid(failurePath.Child("restartStrategy"), jobsetv1alpha2.RestartInPlace, "needs the feature gate InPlaceRestart, which is off")
		return
	}
	for i := range v.js.Spec.ReplicatedJobs {
		t, path := &v.js.Spec.ReplicatedJobs[i].Template.Spec, rjsPath.Index(i).Child("template", "spec")
		if t.BackoffLimit == nil || *t.BackoffLimit != math.MaxInt32 {
			v.invalid(path.Child("backoffLimit"), value(t.BackoffLimit), fmt.Sprintf("must be %d with restartStrategy InPlaceRestart", math.MaxInt32))
		}
		if t.PodReplacementPolicy == nil || *t.PodReplacementPolicy != batchv1.Failed {
			v.invalid(path.Child("podReplacementPolicy"), value(t.PodReplacementPolicy), "must be Failed with restartStrategy InPlaceRestart")
		}
		if t.Completions == nil || t.Parallelism == nil || *t.Completions != *t.Parallelism {
			v.invalid(path.Child("completions"), value(t.Completions), "must be set and equal to parallelism with restartStrategy InPlaceRestart")
		}
	}
}

// value returns the content of a field.
func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func (v *rules) coordinator() {
	c := v.js.Spec.Coordinator
	if c == nil {
		return
	}
	path := specPath.Child("coordinator")
	rj := v.replicatedJob(c.ReplicatedJob)
	if rj == nil {
		v.invalid(path.Child("replicatedJob"), c.ReplicatedJob, "must be the name of a replicated job")
		return
	}
	if c.JobIndex < 0 || c.JobIndex >= int(Replicas(rj)) {
		v.invalid(path.Child("jobIndex"), c.JobIndex, fmt.Sprintf("must be at least 0 and less than the %d replicas", Replicas(rj)))
	}
	t := &rj.Template.Spec
	switch {
	case !isIndexed(t.CompletionMode) || t.Completions == nil:
		v.invalid(path.Child("replicatedJob"), c.ReplicatedJob, "must have completionMode Indexed and completions set")
	case c.PodIndex < 0 || c.PodIndex >= int(*t.Completions):
		v.invalid(path.Child("podIndex"), c.PodIndex, fmt.Sprintf("must be at least 0 and less than the %d completions", *t.Completions))
	}
	named := *v.js
	named.Name = v.name
	address := CoordinatorAddress(&named)
	v.all(path, address, prefixed("its address must be a label value: ", validation.IsValidLabelValue(address)))
}
