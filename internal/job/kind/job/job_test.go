package job

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

const (
	minimum = kueue.JobMinParallelismAnnotation
	equal   = kueue.JobCompletionsEqualParallelismAnnotation
)

func newJob(parallelism, completions int32) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: batchv1.JobSpec{Suspend: new(true), Parallelism: &parallelism}}
	if completions >= 0 {
		j.Spec.Completions = &completions
	}
	return j
}

func indexed(parallelism, completions int32, completed, failed string) *batchv1.Job {
	j := newJob(parallelism, completions)
	j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	j.Status.CompletedIndexes, j.Status.FailedIndexes = completed, &failed
	return j
}

func TestReclaimable(t *testing.T) {
	succeeded := func(j *batchv1.Job, n int32) *batchv1.Job { j.Status.Succeeded = n; return j }
	ending := func(condition batchv1.JobConditionType, active, terminating int32) *batchv1.Job {
		j := succeeded(newJob(4, 8), 8)
		j.Status.Active, j.Status.Terminating = active, &terminating
		j.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}
		return j
	}
	tests := map[string]struct {
		job  *batchv1.Job
		want int32
	}{
		"nothing is done":              {newJob(4, 8), 0},
		"more is to do than can run":   {succeeded(newJob(4, 8), 3), 0},
		"less is to do than can run":   {succeeded(newJob(4, 8), 6), 2},
		"fewer are to do than may run": {succeeded(newJob(8, 4), 1), 1},
		"one at a time":                {succeeded(newJob(1, 8), 7), 0},
		"no completions":               {succeeded(newJob(3, -1), 1), 1},
		"all is done":                  {succeeded(newJob(4, 8), 8), 4},
		"indexes, failed and repeated": {indexed(4, 6, "0-2", "2,4"), 2},
		"indexes ignore succeeded":     {succeeded(indexed(4, 6, "", ""), 6), 0},
		"indexes after a scale-down":   {indexed(2, 2, "0-5", ""), 2},
		"malformed indexes":            {indexed(4, 6, "0,x,3-,-,5-4,1", ""), 0},
		"overlapping ranges":           {indexed(6, 6, "0-3,2-4", "1"), 5},
		"over in a moment":             {ending(batchv1.JobSuccessCriteriaMet, 0, 0), 0},
		"failed in a moment":           {ending(batchv1.JobFailureTarget, 0, 0), 0},
		"over once its pods are":       {ending(batchv1.JobSuccessCriteriaMet, 1, 0), 4},
		"over once they are gone":      {ending(batchv1.JobSuccessCriteriaMet, 0, 1), 4},
		"suspended, and not over":      {ending(batchv1.JobSuspended, 0, 0), 4},
		"failed attempts do not count": {func() *batchv1.Job { j := newJob(4, 4); j.Status.Failed = 3; return j }(), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got int32
			for _, r := range reclaimable(tc.job, nil) {
				got = r.Count
			}
			if got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestCountBelow compares with counting one by one.
func TestCountBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges []indexRange
		seen := map[int32]bool{}
		limit := rapid.Int32Range(0, 30).Draw(t, "limit")
		for range rapid.IntRange(0, 6).Draw(t, "ranges") {
			from := rapid.Int32Range(0, 30).Draw(t, "from")
			r := indexRange{from, from + rapid.Int32Range(0, 5).Draw(t, "length")}
			ranges = append(ranges, r)
			for i := r.from; i <= r.to && i < limit; i++ {
				seen[i] = true
			}
		}
		if got := countBelow(ranges, limit); got != int32(len(seen)) {
			t.Fatalf("%v below %d: got %d, want %d", ranges, limit, got, len(seen))
		}
	})
}

func FuzzParseIndexes(f *testing.F) {
	for _, s := range []string{"", "1,3-5", "x", "-", "0-2147483647", "5-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range parseIndexes(text) {
			if r.from < 0 || r.from > r.to {
				t.Errorf("%q reads as %v", text, r)
			}
		}
		if n := countBelow(parseIndexes(text), 10); n < 0 || n > 10 {
			t.Errorf("%q has %d indexes below 10", text, n)
		}
	})
}

func TestPodSets(t *testing.T) {
	tests := map[string]struct {
		job      *batchv1.Job
		min      string
		count    int32
		minCount *int32
	}{
		"parallelism":                 {newJob(3, 8), "", 3, nil},
		"fewer completions":           {newJob(8, 3), "", 3, nil},
		"no completions":              {newJob(8, -1), "", 8, nil},
		"nothing said":                {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}, "", 1, nil},
		"minimum":                     {newJob(8, -1), "2", 8, new(int32(2))},
		"a minimum that is no number": {newJob(8, -1), "two", 8, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.min != "" {
				tc.job.Annotations[minimum] = tc.min
			}
			tc.job.Spec.Template.Labels = map[string]string{"app": "x"}
			for _, key := range keptLabels {
				tc.job.Spec.Template.Labels[key] = "own"
			}
			got, err := podSets(tc.job, &plan.Setting{Config: &plan.Config{}})
			if err != nil {
				t.Fatal(err)
			}
			want := []kueue.PodSet{{Name: "main", Count: tc.count, MinCount: tc.minCount}}
			want[0].Template.Labels = map[string]string{"app": "x", batchv1.JobNameLabel: "own"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(tc.job.Spec.Template.Labels) != 5 {
				t.Errorf("the job's own labels changed: %v", tc.job.Spec.Template.Labels)
			}
		})
	}
}

func TestReadyAndFinished(t *testing.T) {
	j := newJob(3, 3)
	j.Status = batchv1.JobStatus{
		Ready: new(int32(1)), Succeeded: 1, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Succeeded: []apitypes.UID{"a"}},
	}
	if !podsReady(j, nil) {
		t.Error("3 of 3 are not ready")
	}
	j.Status.Succeeded = 0
	if podsReady(j, nil) {
		t.Error("2 of 3 are ready")
	}
	if _, _, done := finished(j); done {
		t.Error("finished without a condition")
	}
	j.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue},
		{Type: batchv1.JobComplete, Status: corev1.ConditionFalse},
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: "why"},
	}
	if message, success, done := finished(j); message != "why" || success || !done {
		t.Errorf("got %q, %v, %v", message, success, done)
	}
}

func TestStartAndRestoreKeepTheSize(t *testing.T) {
	tests := map[string]struct {
		annotations              map[string]string
		parallelism, completions int32 // while it runs
	}{
		"without annotations":         {nil, 6, 6},
		"minimum":                     {map[string]string{minimum: "2"}, 4, 6},
		"minimum, completions follow": {map[string]string{minimum: "2", equal: "true"}, 4, 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			j := newJob(6, 6)
			j.Annotations = tc.annotations
			sets, err := podSets(j, &plan.Setting{Config: &plan.Config{}})
			if err != nil {
				t.Fatal(err)
			}
			before := j.DeepCopy()
			if err := start(j, []plan.PodSetInfo{{Name: "main", Count: 4, Labels: map[string]string{"a": "b"}}}, nil); err != nil {
				t.Fatal(err)
			}
			if *j.Spec.Parallelism != tc.parallelism || *j.Spec.Completions != tc.completions || *j.Spec.Suspend {
				t.Errorf("it runs with parallelism %d, completions %d, suspend %v", *j.Spec.Parallelism, *j.Spec.Completions, *j.Spec.Suspend)
			}
			if !restore(j, sets) {
				t.Error("nothing was restored")
			}
			before.Spec.Suspend = new(false)
			if diff := cmp.Diff(before, j); diff != "" {
				t.Errorf("-before +restored:\n%s", diff)
			}
		})
	}
	err := start(newJob(1, 1), nil, nil)
	if !errors.Is(err, podset.ErrPermanent) {
		t.Errorf("no pod sets: %v", err)
	}
}

// TestStopFromAnywhere stops a Job in every state in which it may be found, with the Job controller's help.
func TestStopFromAnywhere(t *testing.T) {
	sets := []kueue.PodSet{{Name: "main", Count: 2}}
	for _, suspend := range []bool{true, false} {
		for _, marked := range []bool{true, false} {
			for _, injected := range []bool{true, false} {
				for _, begun := range []bool{true, false} {
					j := newJob(2, 2)
					j.Spec.Suspend = &suspend
					if marked {
						mark(j)
					}
					if injected {
						j.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "x"}
					}
					if begun {
						j.Status.StartTime, j.Status.Active = &metav1.Time{}, 2
					}
					n := stopAll(t, j, sets)
					if n > 3 {
						t.Errorf("suspend %v, marked %v, injected %v, begun %v: %d writes", suspend, marked, injected, begun, n)
					}
				}
			}
		}
	}
}

// stopAll makes the writes of a stop, and returns how many there were.
func stopAll(t *testing.T, j *batchv1.Job, sets []kueue.PodSet) int {
	t.Helper()
	var writes int
	for range 10 {
		step, next := stop(j, sets, plan.WorkloadEvicted)
		status := step == plan.ChangeStatus
		switch step { //nolint:exhaustive // the others are writes
		case plan.Stopped:
			if !isSuspended(j) || len(j.Annotations) > 0 || j.Spec.Template.Spec.NodeSelector != nil {
				t.Errorf("over with %+v", j)
			}
			return writes
		case plan.Wait:
			if j.Status.Active == 0 {
				t.Fatalf("waits for nothing: %+v", j)
			}
			j.Status.Active = 0 // the Job controller is done
			continue
		}
		writes++
		changed := next.(*batchv1.Job)
		if restored := !cmp.Equal(changed.Spec.Template, j.Spec.Template); restored && (!suspended(j) || j.Status.Active != 0 || j.Status.StartTime != nil) {
			t.Fatalf("the API would refuse to change the template of %+v", j)
		}
		if status != !cmp.Equal(changed.Status, j.Status) {
			t.Fatalf("the write says status %v and changes %s", status, cmp.Diff(j, changed))
		}
		j = changed
	}
	t.Fatal("the stop never ends")
	return 0
}

func TestValidate(t *testing.T) {
	const (
		minField   = "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]"
		equalField = "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]"
		sizeField  = "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"
	)
	with := func(j *batchv1.Job, keyValues ...string) *batchv1.Job {
		for i := 0; i < len(keyValues); i += 2 {
			j.Annotations[keyValues[i]] = keyValues[i+1]
		}
		return j
	}
	runs := func(j *batchv1.Job) *batchv1.Job { j.Spec.Suspend = new(false); return j }
	slicesOf4 := func(j *batchv1.Job) *batchv1.Job {
		j.Spec.Template.Annotations = map[string]string{kueue.PodSetSliceRequiredTopologyAnnotation: "rack", kueue.PodSetSliceSizeAnnotation: "4"}
		return j
	}
	index := func(j *batchv1.Job) *batchv1.Job { j.Spec.CompletionMode = new(batchv1.IndexedCompletion); return j }
	tests := map[string]struct {
		job, old *batchv1.Job
		want     []string
	}{
		"plain":                           {newJob(8, 8), nil, nil},
		"minimum":                         {with(newJob(8, 8), minimum, "3"), nil, nil},
		"minimum is all":                  {with(newJob(8, 8), minimum, "8"), nil, []string{minField}},
		"minimum is nothing":              {with(newJob(8, 8), minimum, "0"), nil, []string{minField}},
		"minimum is no number":            {with(newJob(8, 8), minimum, "x"), nil, []string{minField}},
		"minimum and elastic":             {with(newJob(8, 8), minimum, "3", kueue.ElasticJobAnnotation, "true"), nil, []string{minField}},
		"completions follow":              {with(index(newJob(8, 8)), equal, "true"), nil, nil},
		"completions follow, not indexed": {with(newJob(8, 8), equal, "true"), nil, []string{equalField}},
		"completions follow, differ":      {with(index(newJob(8, 6)), equal, "true"), nil, []string{"spec.completions"}},
		"no bool":                         {with(newJob(8, 8), equal, "maybe"), nil, []string{equalField}},
		"our own start":                   {runs(with(newJob(3, 8), minimum, "3")), with(newJob(8, 8), minimum, "3"), nil},
		"our own start, below a slice":    {slicesOf4(runs(with(newJob(3, 8), minimum, "3"))), slicesOf4(with(newJob(8, 8), minimum, "3")), nil},
		"a start below a slice":           {slicesOf4(runs(newJob(3, 8))), slicesOf4(newJob(8, 8)), []string{sizeField}},
		"resized below a slice":           {slicesOf4(with(newJob(3, 8), minimum, "2")), slicesOf4(with(newJob(8, 8), minimum, "2")), []string{sizeField}},
		"size fixed while it runs":        {runs(with(newJob(4, 8), minimum, "3")), runs(with(newJob(3, 8), minimum, "3")), []string{"spec.parallelism"}},
		"our own restore":                 {with(newJob(8, 8), minimum, "3"), with(newJob(3, 8), minimum, "3", kueue.JobStoppingAnnotation, "true"), nil},
		"size without minimum":            {runs(newJob(4, 8)), runs(newJob(3, 8)), nil},
		"follow turned on while it runs":  {runs(with(index(newJob(8, 8)), equal, "true")), runs(index(newJob(8, 8))), []string{equalField}},
		"minimum changed while it runs":   {runs(with(newJob(8, 8), minimum, "4")), runs(with(newJob(8, 8), minimum, "3")), []string{minField}},
		"minimum added while it runs":     {runs(with(newJob(8, 8), minimum, "4")), runs(newJob(8, 8)), []string{minField}},
		"minimum removed while it runs":   {runs(newJob(8, 8)), runs(with(newJob(8, 8), minimum, "3")), []string{minField}},
		"minimum removed during a stop":   {with(newJob(3, 8), kueue.JobStoppingAnnotation, "true"), runs(with(newJob(3, 8), minimum, "3")), []string{minField}},
		"minimum changed at a start":      {runs(with(newJob(8, 8), minimum, "4")), with(newJob(8, 8), minimum, "3"), nil},
		"minimum removed at a stop":       {newJob(8, 8), runs(with(newJob(8, 8), minimum, "3")), nil},
		"minimum changed":                 {with(newJob(8, 8), minimum, "9"), with(newJob(8, 8), minimum, "3"), []string{minField}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var old plan.Object
			if tc.old != nil {
				old = tc.old
			}
			var got []string
			for _, err := range validate(tc.job, old, &plan.Setting{Config: &plan.Config{Topology: true}}) {
				got = append(got, err.Field)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
