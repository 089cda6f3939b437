package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestErrors: mistakes of scripts, and their places.
func TestErrors(t *testing.T) {
	const queue = "queue A f/cpu=4\n"
	tests := map[string]struct{ src, want string }{
		"unknown command":          {"# x\n\nsumbit w", `line 3: unknown command "sumbit"; did you mean "submit"?`},
		"nothing near":             {"xyzzy", `line 1: unknown command "xyzzy"; what there is: available cohort cordon delete`},
		"output counts as a line":  {"show\n| a\n| b\nxyzzy", `line 4: unknown`},
		"nothing after +":          {"show\n+", `line 2: a command is missing after "+"`},
		"+ first":                  {"+ show", `line 1: "+" before "show"`},
		"+ wait":                   {"show\n+ wait 2", `line 2: "+" before "wait"`},
		"+ twice":                  {"show\n+ + show", `line 2: unknown command "+"`},
		"missing name":             {"queue", `line 1: queue: NAME is missing; usage: queue NAME [cohort=`},
		"misspelt key":             {"queue A chort=c", `line 1: queue: "chort=c" means nothing here; did you mean "cohort="?`},
		"misspelt flag":            {"queue A strickt", `did you mean "strict"?`},
		"word from elsewhere":      {"finish w prio=3", `finish: there is no workload "w"`},
		"too many words":           {"submit w cpu=1\nfinish w now", `line 2: finish: "now" means nothing here; usage: finish NAME`},
		"twice":                    {"queue A cohort=c cohort=d", `"cohort" is there twice`},
		"flag twice":               {"queue A strict strict", `"strict" is there twice`},
		"flag with value":          {"queue A strict=yes", `"strict" takes no value`},
		"key without value":        {"queue A cohort", `"cohort=" needs a value; usage:`},
		"key with empty value":     {"queue A cohort=", `"cohort=" needs a value; usage:`},
		"bad name":                 {"queue A,B", `"A,B" is no name: write letters`},
		"long name":                {"queue " + strings.Repeat("a", 254), `a name has at most 253 bytes, not 254`},
		"bad rule":                 {"queue A within=lowest", `within="lowest": did you mean "lower"?`},
		"bad namespaces":           {"queue A namespaces=prod", `namespaces="prod": write namespaces=KEY:VALUE`},
		"bad borrow-within":        {"queue A borrow-within=any", `borrow-within="any": write borrow-within=lower`},
		"bad threshold":            {"queue A borrow-within=lower:x", `the threshold of borrow-within: "x" is no whole number`},
		"bad amount":               {"queue A f/cpu=4x", `"4x" is no amount of "cpu": write a whole number`},
		"negative amount":          {"queue A f/cpu=-4", `"-4" is no amount of "cpu"`},
		"thousandths of a size":    {"queue A f/memory=4m", `"4m" is no amount of "memory"`},
		"Gi of cpu":                {"queue A f/cpu=4Gi", `"4Gi" is no amount of "cpu"`},
		"two units":                {"queue A f/memory=4KiMi", `"4KiMi" is no amount`},
		"amount too large":         {"queue A f/cpu=9223372036854775807", `is no amount of "cpu"`},
		"no amount":                {"queue A f/cpu", `"f/cpu" has no amount: write FLAVOR/RESOURCE=AMOUNT`},
		"no flavor":                {"queue A /cpu=1", `"" is no name`},
		"unknown limit":            {"queue A f/cpu=1,lent=1", `"lent=1": after an amount come at most one borrow=LIMIT`},
		"limit twice":              {"queue A f/cpu=1,lend=1,lend=1", `"lend=1": after an amount`},
		"quota twice":              {"queue A f/cpu=1 f/cpu=2", `"f/cpu" is there twice`},
		"flavor lacks a resource":  {"queue A f/cpu=1 f/gpu=1 g/cpu=1", `flavor g has not just cpu and gpu`},
		"groups overlap":           {"queue A f/cpu=1 g/gpu=1 g/cpu=1", `flavor g has cpu, which is in a group of other resources`},
		"bad weight":               {"queue A weight=1.2345678901", `weight: "1.2345678901" is no number with at most nine decimals`},
		"own parent":               {"cohort c parent=c", `a cohort cannot be its own parent`},
		"localqueue of nothing":    {"localqueue l", `queue= is missing; usage: localqueue NAME queue=QUEUE`},
		"late options":             {"show\noptions fair", `line 2: options: options come before everything else`},
		"bad strategy":             {"options fair=LessThanFinalShare", `fair="LessThanFinalShare": did you mean "LessThanInitialShare"?`},
		"not without fair":         {"options no-within-nominal", `no-within-nominal means nothing without fair`},
		"bad seconds":              {"options edit-window=1.5", `edit-window: "1.5" is no whole number from 0 to 1000000000`},
		"delete what":              {"delete job w", `delete="job": what there is: cohort flavor localqueue namespace node queue workload`},
		"delete what is not":       {"delete queue A", `there is no queue A`},
		"delete unknown workload":  {"submit wonder cpu=1\ndelete workload wander", `there is no workload "wander"; did you mean "wonder"?`},
		"unknown workload":         {"edit w", `there is no workload "w"`},
		"workload twice":           {"submit w cpu=1\nsubmit w cpu=2", `line 2: submit: there is a workload w already; edit changes it`},
		"asks for nothing":         {"submit w queue=A", `w asks for nothing`},
		"resource twice":           {"submit w cpu=1 cpu=2", `"cpu" is there twice`},
		"queue= after the /":       {"submit w / main cpu=1 queue=A", `queue= belongs before the pod sets`},
		"pod set without a name":   {"submit w cpu=1 /", `the name of a pod set is missing`},
		"pod sets alike":           {"submit w / a cpu=1 / a cpu=1", `there are two pod sets named "a"`},
		"no copies":                {"submit w x0 cpu=1", `x: "0" is no whole number from 1 to 100000`},
		"too many copies":          {"submit w x100001 cpu=1", `x: "100001" is no whole number from 1 to 100000`},
		"too many in all":          {"submit w x100000 cpu=1\nsubmit v cpu=1", `line 2: submit: there may be 100000 workloads in a script`},
		"more pods than there are": {"submit w / main x3 min=4 cpu=1", `min: "4" is no whole number from 1 to 3`},
		"negative second":          {"submit w at=-1 cpu=1", `at: "-1" is no whole number`},
		"reserve nothing":          {"reserve w queue=A", `w holds nothing; write FLAVOR/RESOURCE=AMOUNT`},
		"reserve with limits":      {"reserve w queue=A f/cpu=1,lend=1", `"lend=1": limits are for quotas only`},
		"reserve two flavors":      {"reserve w queue=A f/cpu=1 g/cpu=1", `cpu is of two flavors`},
		"reserve nowhere":          {"reserve w f/cpu=1", `queue= is missing; usage: reserve`},
		"finished already":         {"submit w cpu=1\nfinish w\nfinish w", `line 3: finish: w is finished already`},
		"evict one that waits":     {"submit w cpu=1\nevict w", `w holds nothing`},
		"not told to go, no node for it": {"options no-fail-fast\nflavor f topology=rack,host\n+ node n1 label.rack=r cpu=1\nqueue A f/cpu=9\n+ submit w queue=A / main x1 required=rack cpu=1\n+ step\n" +
			"fail n1\n+ unhealthy w n1\n+ step\nwait 2\n+ step\nevicted w", `line 12: evicted: w was not told to go`},
		"not told to go":          {queue + "reserve w queue=A f/cpu=1\nevicted w", `line 3: evicted: w was not told to go`},
		"bad gate":                {"submit w cpu=1\nedit w gate=ajar", `gate="ajar": what there is: closed open`},
		"nothing is written":      {queue + "submit w queue=A cpu=1\nstep\nwritten w", `line 4: written: nothing about "w" is being written`},
		"nothing to fail":         {queue + "submit w queue=A cpu=1\nstep\nwrite-fails w", `no admission of "w" is being written`},
		"nobody told":             {"evict-fails w", `no eviction of "w" is being written`},
		"written too late":        {queue + "submit w queue=A cpu=1\nstep unwritten\nfinish w\nwritten w", `"w" is no longer what was admitted`},
		"budget too small":        {"step budget=0", `budget: "0" is no whole number from 1 to 1000000`},
		"budget too large":        {"step budget=1000001", `budget: "1000001" is no whole number`},
		"wait for nothing":        {"wait 0", `SECONDS: "0" is no whole number from 1`},
		"wait for ever":           {"wait 999999999\nwait 1", `line 2: wait: the clock ends at second 1000000000`},
		"too long a line":         {"show" + strings.Repeat(" a", 2000), `the line has 2001 words, and may have 2000`},
		"too long a script":       {strings.Repeat("#\n", 1<<19+1), `line 524289: the script is longer than 1048576 bytes`},
		"too much work":           {"submit w x100000 cpu=1\n" + strings.Repeat("status A\n", 300), `the script is too much work`},
		"a level for a flavor":    {"flavor f topology=,host", `"" is no name: write letters`},
		"no levels":               {"flavor f topology=", `"topology=" needs a value; usage: flavor`},
		"a level of pods":         {"submit w required=a,b cpu=1", `"a,b" is no name`},
		"required twice":          {"submit w required=a required=b cpu=1", `"required" is there twice`},
		"required and preferred":  {"submit w required=a preferred=b cpu=1", `write at most one of required=LEVEL, preferred=LEVEL and unconstrained`},
		"required anywhere":       {"submit w / a required=a unconstrained cpu=1", `write at most one of`},
		"preferred anywhere":      {"submit w unconstrained preferred=a cpu=1", `write at most one of`},
		"a slice without a size":  {"submit w slice=rack cpu=1", `slice="rack": write slice=KEY:VALUE`},
		"a slice of no level":     {"submit w slice=:2 cpu=1", `slice=":2": write slice=KEY:VALUE`},
		"a slice of nothing":      {"submit w slice=rack:0 cpu=1", `the size of a slice: "0" is no whole number from 1`},
		"unconstrained by what":   {"submit w unconstrained=rack cpu=1", `"unconstrained" takes no value`},
		"a node without a name":   {"node", `node: NAME is missing; usage: node NAME`},
		"a node with no amount":   {"node n cpu=many", `"many" is no amount of "cpu"`},
		"a node with two amounts": {"node n cpu=1 cpu=2", `"cpu" is there twice`},
		"a node with two labels":  {"node n label.a=1 label.a=2", `"a" is there twice`},
		"a node that is ready":    {"node n ready", `"ready" means nothing here`},
		"cordon what":             {"cordon n", `line 1: cordon: there is no node "n"`},
		"uncordon what":           {"uncordon n", `uncordon: there is no node "n"`},
		"fail what":               {"node n10\nfail n11", `line 2: fail: there is no node "n11"; did you mean "n10"?`},
		"recover what":            {"recover", `recover: NODE is missing; usage: recover NODE`},
		"cordon two":              {"node n\nnode m\ncordon n m", `line 3: cordon: "m" means nothing here`},
		"foreign where":           {"foreign", `foreign: NODE is missing`},
		"foreign with no amount":  {"foreign n cpu", `"cpu" means nothing here`},
		"delete unknown node":     {"delete node n", `there is no node "n"`},
		"not UTF-8":               {"queue \xff\xfe", `"\xff\xfe" is no name`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := Run(tc.src)
			if err == nil {
				t.Fatalf("no error; output:\n%s", out)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is\n\t%v\nwant in it\n\t%s", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

// TestErrorChangesNothing: a command with a mistake leaves the world as it was.
func TestErrorChangesNothing(t *testing.T) {
	p := newPlayer(usual)
	play := func(line string) string {
		said, _ := p.line(line)
		return said
	}
	play("queue A f/cpu=4")
	play("submit w queue=A cpu=1")
	before, w := play("show"), *p.workloads["w"]
	for _, line := range []string{
		"queue A f/cpu=5 nonsense", "queue B f/cpu=1 nonsense", "submit v queue=A cpu=1 / a cpu=x", "submit v x3 queue=A cpu=1 nonsense",
		"edit w cpu=2 nonsense", "edit w prio=5 / main cpu=2 nonsense", "delete queue A now", "finish w now", "reserve r queue=A f/cpu=1 nonsense",
	} {
		if _, err := p.line(line); err == nil {
			t.Errorf("%s: no error", line)
		}
		if after := play("show"); after != before {
			t.Errorf("%s: the world is now\n%s", line, after)
		}
		if diff := cmp.Diff(w, *p.workloads["w"]); diff != "" {
			t.Errorf("%s: w was changed (-before +after):\n%s", line, diff)
		}
	}
}
