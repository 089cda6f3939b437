package job_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

func gvk(kind string) schema.GroupVersionKind {
	switch kind {
	case "Job", "CronJob":
		return schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: kind}
	case "JobSet":
		return schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: kind}
	case "TrainJob":
		return schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: kind}
	case "AppWrapper":
		return schema.GroupVersionKind{Group: "workload.codeflare.dev", Version: "v1beta2", Kind: kind}
	case "PipelineRun":
		return schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: kind}
	default:
		return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
	}
}

// parseChain reads objects such as "Job(q) JobSet AppWrapper(q)", child first, each owned by the next.
func parseChain(text string) (of job.Owner, chain []job.Owner) {
	fields := strings.Fields(text)
	var below *metav1.ObjectMeta
	for i, f := range fields {
		kind, queued := strings.CutSuffix(f, "(q)")
		kind, missing := strings.CutPrefix(kind, "!")
		kind, forged := strings.CutPrefix(kind, "~")
		o := &metav1.ObjectMeta{Name: fmt.Sprintf("o%d", i), Namespace: "ns", UID: types.UID(fmt.Sprintf("uid%d", i))}
		if queued {
			o.Labels = map[string]string{kueue.QueueNameLabel: "lq"}
		}
		if below == nil {
			of = job.Owner{GVK: gvk(kind), Object: o}
		} else {
			ref := metav1.OwnerReference{APIVersion: gvk(kind).GroupVersion().String(), Kind: kind, Name: o.Name, UID: o.UID, Controller: new(true)}
			below.OwnerReferences = []metav1.OwnerReference{ref}
			if forged {
				o.UID = "somebody else"
			}
			owner := job.Owner{GVK: gvk(kind), Object: o}
			if missing {
				owner.Object = nil
			}
			chain = append(chain, owner)
		}
		below = o
	}
	return of, chain
}

// judge asks as a caller does: the owners one by one, on demand.
func judge(t *testing.T, cfg *job.Config, namespace map[string]string, of job.Owner, chain []job.Owner) (job.Verdict, int) {
	t.Helper()
	for known := 0; ; known++ {
		v := job.Judge(cfg, nil, namespace, of, chain[:known])
		if v.Need == nil {
			return v, known
		}
		if known == len(chain) {
			t.Fatalf("asks for %s %s, which the test does not have", v.Need.Kind, v.Need.Name)
		}
	}
}

func TestJudge(t *testing.T) {
	long := "Job" + strings.Repeat(" JobSet(q)", 11)
	tests := map[string]struct {
		chain     string
		unmanaged bool
		all       bool // manageJobsWithoutQueueName
		want      string
		lookups   int
	}{
		// The decision table.
		"unmanaged":                               {chain: "Job", unmanaged: true, want: "unmanaged"},
		"unmanaged with a queue":                  {chain: "Job(q)", unmanaged: true, want: "unmanaged"},
		"unmanaged, all jobs":                     {chain: "Job", unmanaged: true, all: true, want: "unmanaged"},
		"unmanaged child is not looked up":        {chain: "Job JobSet(q)", unmanaged: true, all: true, want: "unmanaged"},
		"unmanaged, broken chain":                 {chain: "Job !JobSet", unmanaged: true, all: true, want: "unmanaged"},
		"top with a queue":                        {chain: "Job(q)", want: "managed"},
		"top without a queue":                     {chain: "Job", want: "ignored"},
		"child of a queued one":                   {chain: "Job JobSet(q)", want: "follows JobSet", lookups: 1},
		"child with a queue too":                  {chain: "Job(q) JobSet(q)", want: "follows JobSet", lookups: 1},
		"owner without a queue, child with":       {chain: "Job(q) AppWrapper", want: "managed", lookups: 1},
		"a JobSet without a queue, child with":    {chain: "Job(q) JobSet", want: "ignored", lookups: 1},
		"a JobSet without a queue, in an object":  {chain: "Job(q) JobSet AppWrapper", want: "ignored", lookups: 2},
		"of a JobSet that is another object":      {chain: "Job(q) ~JobSet", want: "managed", lookups: 1},
		"owner without a queue":                   {chain: "Job JobSet", want: "ignored", lookups: 1},
		"a JobSet of a TrainJob":                  {chain: "JobSet(q) TrainJob", want: "ignored", lookups: 1},
		"a JobSet of a queued TrainJob":           {chain: "JobSet(q) TrainJob(q)", want: "follows TrainJob", lookups: 1},
		"a JobSet of another TrainJob":            {chain: "JobSet(q) ~TrainJob", want: "managed", lookups: 1},
		"a Job below a TrainJob":                  {chain: "Job(q) JobSet(q) TrainJob", want: "ignored", lookups: 2},
		"a Job below a queued TrainJob":           {chain: "Job(q) JobSet(q) TrainJob(q)", want: "follows TrainJob", lookups: 2},
		"a pod of a Job of a JobSet":              {chain: "Pod Job(q) JobSet", want: "ignored", lookups: 2},
		"a pod of a Job of a JobSet, with":        {chain: "Pod(q) Job(q) JobSet", want: "managed", lookups: 2},
		"a pod below a TrainJob":                  {chain: "Pod(q) Job(q) JobSet(q) TrainJob", want: "managed", lookups: 3},
		"a pod below a TrainJob in an object":     {chain: "Pod Job JobSet(q) TrainJob AppWrapper(q)", want: "follows AppWrapper", lookups: 4},
		"another kind below a TrainJob":           {chain: "Job(q) TrainJob", want: "managed", lookups: 1},
		"a JobSet of a TrainJob, all jobs":        {chain: "JobSet TrainJob", all: true, want: "ignored", lookups: 1},
		"all jobs":                                {chain: "Job", all: true, want: "managed"},
		"all jobs, child":                         {chain: "Job JobSet", all: true, want: "follows JobSet", lookups: 1},
		"all jobs, child with a queue":            {chain: "Job(q) JobSet", all: true, want: "follows JobSet", lookups: 1},
		"all jobs, queued top":                    {chain: "Job(q)", all: true, want: "managed"},
		"all jobs, unmanaged and with everything": {chain: "Job(q) JobSet(q)", unmanaged: true, all: true, want: "unmanaged"},
		// The table of chains.
		"two owners without labels":            {chain: "Job JobSet AppWrapper", want: "ignored", lookups: 2},
		"two owners without labels, all":       {chain: "Job JobSet AppWrapper", all: true, want: "follows AppWrapper", lookups: 2},
		"queued in the middle":                 {chain: "Job(q) JobSet(q) AppWrapper", want: "follows JobSet", lookups: 2},
		"queued in the middle, all":            {chain: "Job(q) JobSet(q) AppWrapper", all: true, want: "follows AppWrapper", lookups: 2},
		"queued on top":                        {chain: "Job(q) JobSet AppWrapper(q)", want: "follows AppWrapper", lookups: 2},
		"through a disabled kind":              {chain: "Job StatefulSet AppWrapper(q)", want: "follows AppWrapper", lookups: 2},
		"a disabled kind is no ancestor":       {chain: "Job StatefulSet(q)", want: "ignored", lookups: 1},
		"an unknown kind ends the walk":        {chain: "Job CronJob", want: "ignored"},
		"an unknown kind ends the walk, all":   {chain: "Job CronJob(q) AppWrapper(q)", all: true, want: "managed"},
		"through a ReplicaSet":                 {chain: "Pod ReplicaSet Deployment(q)", want: "follows Deployment", lookups: 2},
		"an external kind":                     {chain: "Job PipelineRun(q)", want: "follows PipelineRun", lookups: 1},
		"a forged owner ends the walk":         {chain: "Job ~JobSet(q)", want: "ignored", lookups: 1},
		"a forged owner above a real one":      {chain: "Job JobSet(q) ~AppWrapper(q)", want: "follows JobSet", lookups: 2},
		"a missing owner":                      {chain: "Job(q) !JobSet", want: "error: owner JobSet ns/o1 of o0 does not exist: delete the object or remove the owner reference", lookups: 1},
		"eleven owners":                        {chain: long, want: "too deep", lookups: 10},
		"ten owners":                           {chain: strings.TrimSuffix(long, " JobSet(q)"), want: "follows JobSet", lookups: 10},
		"unmanaged is not too deep":            {chain: long, unmanaged: true, want: "unmanaged"},
		"an owner without a controller is top": {chain: "JobSet(q)", want: "managed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := &job.Config{
				ManagedNamespaces: labels.SelectorFromSet(labels.Set{"managed": "yes"}), ManageAll: tc.all,
				Kinds: job.Kinds{
					gvk("Job"): true, gvk("JobSet"): true, gvk("AppWrapper"): true, gvk("Deployment"): true, gvk("PipelineRun"): true,
					gvk("StatefulSet"): false, gvk("ReplicaSet"): false, gvk("TrainJob"): strings.Contains(tc.chain, "TrainJob(q)"),
				},
			}
			namespace := map[string]string{"managed": "yes"}
			if tc.unmanaged {
				namespace = nil
			}
			of, chain := parseChain(tc.chain)
			v, lookups := judge(t, cfg, namespace, of, chain)
			if got := describe(v); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if lookups != tc.lookups {
				t.Errorf("%d owners were looked up, want %d", lookups, tc.lookups)
			}
		})
	}
}

func describe(v job.Verdict) string {
	switch {
	case v.TooDeep:
		return "too deep"
	case v.Err != nil:
		return "error: " + v.Err.Error()
	}
	switch v.Mode {
	case job.Unmanaged:
		return "unmanaged"
	case job.Ignored:
		return "ignored"
	case job.Managed:
		return "managed"
	case job.Follows:
		return "follows " + v.Ancestor.GVK.Kind
	default:
		return "undecided"
	}
}

func TestJudgeCycle(t *testing.T) {
	ref := func(name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID(uid), Controller: new(true)}}
	}
	a := &metav1.ObjectMeta{Name: "a", UID: "a", OwnerReferences: ref("b", "b")}
	b := &metav1.ObjectMeta{Name: "b", UID: "b", OwnerReferences: ref("a", "a")}
	cfg := &job.Config{Kinds: job.Kinds{gvk("Job"): true}}
	v := job.Judge(cfg, nil, nil, job.Owner{Object: a}, []job.Owner{{GVK: gvk("Job"), Object: b}})
	if v.Err == nil || v.TooDeep || !strings.Contains(v.Err.Error(), "owns itself") {
		t.Errorf("got %+v", v)
	}
}

func TestPrebuiltName(t *testing.T) {
	long := strings.Repeat("x", 64)
	tests := map[string]struct {
		label, annotation string
		annotations       bool
		want              string
	}{
		"none":                         {},
		"label":                        {label: "l", want: "l"},
		"annotation first":             {label: "l", annotation: "a", annotations: true, want: "a"},
		"gate off: label":              {label: "l", annotation: "a", want: "l"},
		"gate off: annotation alone":   {annotation: "a", want: "a"},
		"gate off: only a long name":   {annotation: long, want: long},
		"gate off: long name wins too": {label: "l", annotation: long, want: long},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := &metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}
			if tc.label != "" {
				o.Labels[kueue.PrebuiltWorkloadLabel] = tc.label
			}
			if tc.annotation != "" {
				o.Annotations[kueue.PrebuiltWorkloadLabel] = tc.annotation
			}
			cfg := &job.Config{AnnotationIdentifiers: tc.annotations}
			if got := cfg.PrebuiltName(o); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWorkloadName(t *testing.T) {
	// Computed with: printf 'Job\nbatch\ntrain\nuid-1' | sha1sum
	tests := map[string]struct {
		name  string
		short bool
		want  string
	}{
		"plain": {"train", false, "job-train-a6870"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := &job.Config{ShortNames: tc.short}
			if got := cfg.WorkloadName(gvk("Job"), tc.name, "uid-1"); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	for _, limit := range []int{253, 63} {
		cfg := &job.Config{ShortNames: limit == 63}
		got := cfg.WorkloadName(gvk("Job"), strings.Repeat("n", 300), "uid-1")
		if len(got) != limit || !strings.HasPrefix(got, "job-nnn") || got[limit-6] != '-' {
			t.Errorf("%d characters, want %d: %s", len(got), limit, got)
		}
	}
	if a, b := new(job.Config).WorkloadName(gvk("Job"), "train", "1"), new(job.Config).WorkloadName(gvk("Job"), "train", "2"); a == b {
		t.Errorf("two jobs of one name share the workload name %s", a)
	}
}

// The mark of an object says that it was judged when it was made; its namespace still comes first.
func TestJudgeMarked(t *testing.T) {
	cfg := &job.Config{ManagedNamespaces: labels.SelectorFromSet(labels.Set{"managed": "yes"})}
	for name, tc := range map[string]struct {
		namespace string
		marked    bool
		want      job.Mode
	}{
		"marked": {"yes", true, job.Managed}, "not marked": {"yes", false, job.Ignored},
		"marked, but not ours any more": {"no", true, job.Unmanaged}, "nothing of ours": {"no", false, job.Unmanaged},
	} {
		if got := job.JudgeMarked(cfg, map[string]string{"managed": tc.namespace}, tc.marked).Mode; got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if got := job.JudgeMarked(&job.Config{}, nil, true).Mode; got != job.Managed {
		t.Errorf("without a selector: %d", got)
	}
}

func TestHasManagedOwner(t *testing.T) {
	cfg := &job.Config{Kinds: job.Kinds{gvk("Job"): true, gvk("JobSet"): false}}
	for kind, want := range map[string]bool{"Job": true, "JobSet": false, "CronJob": false, "": false} {
		object := &metav1.ObjectMeta{}
		if kind != "" {
			object.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "o", UID: "u"}, gvk(kind))}
		}
		if got := cfg.HasManagedOwner(object); got != want {
			t.Errorf("owned by %q: %v", kind, got)
		}
	}
}

func TestAreOff(t *testing.T) {
	kinds := job.Kinds{gvk("On"): true, gvk("Off"): false, gvk("OffToo"): false}
	for name, tc := range map[string]struct {
		owners []string
		want   bool
	}{
		"of a kind that is off":   {[]string{"Off"}, true},
		"of two kinds that are":   {[]string{"Off", "OffToo"}, true},
		"of one that is on":       {[]string{"On"}, false},
		"of both":                 {[]string{"Off", "On"}, false},
		"of a kind of others":     {[]string{"Else"}, false},
		"of a kind of others too": {[]string{"Off", "Else"}, false},
		"without owners":          {nil, false},
	} {
		var owners []metav1.OwnerReference
		for _, kind := range tc.owners {
			owners = append(owners, metav1.OwnerReference{APIVersion: gvk(kind).GroupVersion().String(), Kind: kind})
		}
		if got := kinds.AreOff(owners); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Names are written as they are read. spec: 30 §3.2.
func TestIdentifiers(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, tc := range map[string]struct {
		annotations       bool // the feature gate
		label, annotation string
		prebuilt, group   string
	}{
		"a label":                   {false, "l", "", "l", "l"},
		"an annotation too":         {false, "l", "a", "l", "l"},
		"an annotation too long":    {false, "l", long, long, "l"},
		"the annotation goes first": {true, "l", "a", "a", "a"},
		"an annotation alone":       {true, "", "a", "a", "a"},
		"alone without the gate":    {false, "", "a", "a", "a"},
	} {
		object := &metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}
		for _, key := range []string{kueue.PrebuiltWorkloadLabel, kueue.PodGroupNameLabel} {
			object.Labels[key], object.Annotations[key] = tc.label, tc.annotation
		}
		cfg := &job.Config{AnnotationIdentifiers: tc.annotations}
		if p, g := cfg.PrebuiltName(object), cfg.GroupName(object); p != tc.prebuilt || g != tc.group {
			t.Errorf("%s: prebuilt %q and group %q, want %q and %q", name, p, g, tc.prebuilt, tc.group)
		}
		for _, written := range []string{"short", long} {
			fresh := &metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}
			cfg.WriteIdentifier(fresh, kueue.PrebuiltWorkloadLabel, written)
			if got := cfg.PrebuiltName(fresh); got != written || len(fresh.Labels)+len(fresh.Annotations) != 1 || len(fresh.Labels[kueue.PrebuiltWorkloadLabel]) > 63 {
				t.Errorf("%s: written %q, read %q", name, written, got)
			}
		}
	}
}
