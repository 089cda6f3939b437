package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// targeted reports whether a list of replicated jobs has a name. An empty list is all.
func targeted(targets []string, name string) bool {
	return len(targets) == 0 || slices.Contains(targets, name)
}

// succeeded reports whether the success policy is met. It needs at least one succeeded Job (spec: 60 §4.5).
func (p *pass) succeeded() bool {
	policy := p.js.Spec.SuccessPolicy
	if policy == nil {
		policy = &jobsetv1alpha2.SuccessPolicy{Operator: jobsetv1alpha2.OperatorAll}
	}
	some, have, need := false, int64(0), int64(0)
	for i := range p.replicated {
		r := &p.replicated[i]
		some = some || p.counts[i].Succeeded > 0
		if targeted(policy.TargetReplicatedJobs, r.Name) {
			have += int64(p.counts[i].Succeeded)
			need += int64(r.replicas)
		}
	}
	if policy.Operator == jobsetv1alpha2.OperatorAny {
		need = 1
	}
	return some && have >= need
}

// applyFailurePolicy counts the failures of this attempt. Jobs that restart on their own are all counted in one pass, with
// the same result as in separate passes; any other action ends the pass (spec: 60 §4.6).
func (p *pass) applyFailurePolicy() {
	policy := p.js.Spec.FailurePolicy
	for len(p.failed) > 0 {
		if policy == nil {
			first := earliest(p.failed)
			p.fail(jobsetv1alpha2.ReasonFailedJobs, blame("one or more jobs failed", first))
			return
		}
		rule, first := p.match(policy)
		if !p.act(policy, rule, first) {
			return
		}
		p.failed = slices.DeleteFunc(slices.Clone(p.failed), func(c *child) bool { return c == first })
	}
}

// blame ends a message in the format that tools parse.
func blame(message string, first *child) string {
	return message + " (first failed job: " + first.Object.Name + ")"
}

// match returns the first rule that a failed Job meets, and the earliest of these Jobs. Without a rule it is -1.
func (p *pass) match(policy *jobsetv1alpha2.FailurePolicy) (rule int, first *child) {
	var hit []*child
	rule = len(policy.Rules)
	for _, c := range p.failed {
		if r := p.ruleOf(policy, c); r < rule {
			rule, hit = r, []*child{c}
		} else if r == rule {
			hit = append(hit, c)
		}
	}
	if rule == len(policy.Rules) {
		rule = -1
	}
	return rule, earliest(hit)
}

// ruleOf returns the first rule that a failed Job meets, or the number of rules. Patterns are searched once per Job and pass.
func (p *pass) ruleOf(policy *jobsetv1alpha2.FailurePolicy, c *child) int {
	if rule, ok := p.ruleOfJob[c]; ok {
		return rule
	}
	rule := slices.IndexFunc(policy.Rules, func(r jobsetv1alpha2.FailurePolicyRule) bool { return p.meets(&r, c) })
	if rule < 0 {
		rule = len(policy.Rules)
	}
	if p.ruleOfJob == nil {
		p.ruleOfJob = map[*child]int{}
	}
	p.ruleOfJob[c] = rule
	return rule
}

// earliest returns the Job that failed first; of several, the first in the list.
func earliest(jobs []*child) *child {
	return slices.MinFunc(jobs, func(a, b *child) int {
		return failure(a.Object).LastTransitionTime.Compare(failure(b.Object).LastTransitionTime.Time)
	})
}

func failure(j *batchv1.Job) (how batchv1.JobCondition) {
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobFailed:
			return c
		case c.Type == batchv1.JobFailureTarget:
			how = c
		}
	}
	return how
}

// meets reports whether a rule applies to a failed Job. Expressions that do not compile match nothing.
func (p *pass) meets(rule *jobsetv1alpha2.FailurePolicyRule, c *child) bool {
	f := failure(c.Object)
	if !targeted(rule.TargetReplicatedJobs, c.replicatedJob) ||
		len(rule.OnJobFailureReasons) > 0 && !slices.Contains(rule.OnJobFailureReasons, f.Reason) {
		return false
	}
	if len(rule.OnJobFailureMessagePatterns) == 0 {
		return true
	}
	return slices.ContainsFunc(rule.OnJobFailureMessagePatterns, func(pattern string) bool {
		expression := p.compiled(rule, pattern)
		return expression != nil && expression.MatchString(f.Message)
	})
}

// compiled returns an expression, compiled once per pass, or nil.
func (p *pass) compiled(rule *jobsetv1alpha2.FailurePolicyRule, pattern string) *regexp.Regexp {
	expression, ok := p.patterns[pattern]
	if ok {
		return expression
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("failure policy rule %q: pattern %q is skipped: %v", rule.Name, pattern, err))
	}
	if p.patterns == nil {
		p.patterns = map[string]*regexp.Regexp{}
	}
	p.patterns[pattern] = expression
	return expression
}

// act applies a rule, or the default for -1, and reports whether to continue with the other failed Jobs.
func (p *pass) act(policy *jobsetv1alpha2.FailurePolicy, rule int, first *child) bool {
	action, reason := jobsetv1alpha2.ActionRestartJobSet, jobsetv1alpha2.ReasonDefaultFailurePolicy
	if rule >= 0 {
		action = policy.Rules[rule].Action
		reason = asReason(jobsetv1alpha2.ReasonFailurePolicyPrefix + ruleName(policy, rule))
	}
	alone := action == jobsetv1alpha2.ActionRestartJob || action == jobsetv1alpha2.ActionRestartJobAndIgnoreMaxRestarts
	if alone && !p.RestartJob {
		p.plan.Err = fmt.Errorf("spec.failurePolicy.rules[%d].action: %s needs the feature gate RestartJob, which is off", rule, action)
		return false
	}
	counted := action == jobsetv1alpha2.ActionRestartJobSet || action == jobsetv1alpha2.ActionRestartJob
	if counted && p.countedRestarts() >= max(policy.MaxRestarts, 0) {
		p.fail(jobsetv1alpha2.ReasonReachedMaxRestarts, blame(fmt.Sprintf("the limit of %d restarts is reached", max(policy.MaxRestarts, 0)), first))
		return false
	}
	switch {
	case action == jobsetv1alpha2.ActionFailJobSet:
		p.fail(jobsetv1alpha2.ReasonFailJobSetAction, blame("the action FailJobSet is applied", first))
		return false
	case alone:
		return p.restartJob(action, counted, first)
	default:
		p.restartAll(action, counted, reason, first)
		return false
	}
}

func ruleName(policy *jobsetv1alpha2.FailurePolicy, rule int) string {
	return cmp.Or(policy.Rules[rule].Name, "failurePolicyRule"+strconv.Itoa(rule))
}

// countedRestarts returns the restarts that count towards the limit.
func (p *pass) countedRestarts() int32 {
	total := p.status.RestartsCountTowardsMax
	if p.RestartJob {
		for i := range p.status.ReplicatedJobsStatus {
			for _, n := range p.status.ReplicatedJobsStatus[i].JobRestartsCountTowardsMax {
				total += n
			}
		}
	}
	return total
}

// restartAll begins a new attempt of all Jobs. It only counts; the Jobs are deleted once the count is written.
func (p *pass) restartAll(action jobsetv1alpha2.FailurePolicyAction, counted bool, reason string, first *child) {
	p.status.Restarts++
	event := jobsetv1alpha2.EventRestartJobSetAndIgnoreMaxRestartsAction
	if counted {
		p.status.RestartsCountTowardsMax++
		event = jobsetv1alpha2.EventRestartJobSetAction
	}
	p.plan.Restarted++
	message := blame(fmt.Sprintf("applying the action %s", action), first)
	p.set(jobsetv1alpha2.ConditionRestarting, metav1.ConditionTrue, reason, message)
	p.tell(true, event, message)
}

// restartJob begins a new attempt of one Job, and reports whether that was possible.
func (p *pass) restartJob(action jobsetv1alpha2.FailurePolicyAction, counted bool, c *child) bool {
	if c.rj < 0 || c.index < 0 || c.index >= p.replicated[c.rj].replicas {
		p.plan.Err = fmt.Errorf("restarting Job %s: its labels name no replica of the spec", c.Object.Name)
		return false
	}
	s, n := countersOf(&p.status, p.replicated[c.rj].Name), int(p.replicated[c.rj].replicas)
	if n > jobsetv1alpha2.MaxIndividualRestartReplicas { // stored past the webhook; the status cannot hold the counts
		p.plan.Err = fmt.Errorf("spec.failurePolicy: %s needs at most %d replicas, and %s has %d",
			action, jobsetv1alpha2.MaxIndividualRestartReplicas, p.replicated[c.rj].Name, n)
		return false
	}
	bump(&s.JobRestarts, n, int(c.index))
	event := jobsetv1alpha2.EventRestartJobAndIgnoreMaxRestartsAction
	if counted {
		bump(&s.JobRestartsCountTowardsMax, n, int(c.index))
		event = jobsetv1alpha2.EventRestartJobAction
	}
	p.plan.Restarted++
	p.tell(true, event, blame(fmt.Sprintf("applying the action %s", action), c))
	return true
}

// bump increments an element of an array, which it extends to the length first.
func bump(array *[]int32, length, index int) {
	if len(*array) < length {
		*array = append(*array, make([]int32, length-len(*array))...)
	}
	(*array)[index]++
}
