package racks

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/demo"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/simnode"
	"github.com/berth-project/berth/internal/goldentest"
)

// on describes a world: "pretrain: b1-r1-h01 b1-r1-h02" has running pods there. A node with + has a pod that starts, with - one that
// stops, with ! another pod than before, and ? is a pod without a node. A job with ! has no quota reservation. "failed: b1-r1-h01" is a node that has failed.
func on(t *testing.T, lines ...string) world {
	t.Helper()
	levels, err := simnode.ParseTopology(Topology)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []corev1.Node
	var pods []corev1.Pod
	var workloads []kueue.Workload
	failed := map[string]bool{}
	for _, line := range lines {
		name, places, _ := strings.Cut(line, ":")
		if name == "failed" {
			failed[strings.TrimSpace(places)] = true
			continue
		}
		name, waits := strings.CutSuffix(name, "!")
		w := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Name: name, Controller: new(true)}}}}
		reserved := metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}
		if waits {
			reserved.Status, reserved.Message = metav1.ConditionFalse, "topology racks doesn't allow to fit any of 3 pods"
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Message: "Preempted"})
		}
		w.Status.Conditions = append(w.Status.Conditions, reserved)
		workloads = append(workloads, w)
		for place := range strings.FieldsSeq(places) {
			p := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			p.Labels, p.UID = map[string]string{batchv1.JobNameLabel: name}, types.UID(name+strings.TrimRight(place, "+-?"))
			p.Spec.NodeName = strings.TrimRight(place, "+-?!")
			switch place[len(place)-1] {
			case '+', '?':
				p.Status.Phase = corev1.PodPending
			case '-':
				p.DeletionTimestamp = &metav1.Time{}
			}
			pods = append(pods, p)
		}
	}
	for _, n := range levels.Nodes() {
		ready := corev1.ConditionTrue
		if failed[n.Name] {
			ready = corev1.ConditionUnknown
		}
		nodes = append(nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		})
	}
	return newWorld(nodes, pods, workloads)
}

// hosts are the names of nodes of a rack: hosts("b1-r1", 1, 3) are b1-r1-h01 and b1-r1-h03.
func hosts(rack string, numbers ...int) string {
	var out []string
	for _, n := range numbers {
		out = append(out, fmt.Sprintf("%s-h%02d", rack, n))
	}
	return strings.Join(out, " ")
}

// The racks after each step, if all goes well.
var (
	first  = []string{"pretrain: " + hosts("b1-r1", 1, 2, 3, 4)}
	second = append(first, "sweep-a: "+hosts("b1-r2", 1, 2, 3), "sweep-b: "+hosts("b2-r1", 1, 2, 3), "sweep-c: "+hosts("b2-r2", 1, 2, 3))
	third  = append(second[:3:3], "sweep-c!: ? ? ?", "urgent: "+hosts("b2-r2", 1, 2, 4))
	fourth = append(second[:3:3], "sweep-c!: ? ? ?", "failed: b2-r2-h02", "urgent: "+hosts("b2-r2", 1, 4)+" b2-r2-h02- b2-r2-h03")
	fifth  = second
)

// Each step is done when it has had its effect, not before, and notices another effect.
func TestStory(t *testing.T) {
	for name, tc := range map[string]struct {
		step          int // from 1
		before, after []string
		done          bool
		want          string // a part of the sentence, or of the error
	}{
		"a gang in a rack":            {1, nil, first, true, "It got rack b1-r1."},
		"a gang in two racks":         {1, nil, []string{"pretrain: " + hosts("b1-r1", 1, 2, 3) + " b1-r2-h01"}, true, "the pods of pretrain are in 2 racks"},
		"a part of a gang":            {1, nil, []string{"pretrain: " + hosts("b1-r1", 1, 2, 3) + " b1-r1-h04+"}, false, ""},
		"three racks":                 {2, first, second, true, "3 nodes are idle, no more than 1 of them in one rack."},
		"two of them run":             {2, first, second[:3], false, ""},
		"a preemption":                {3, second, third, true, "sweep-c was preempted, and urgent got rack b2-r2. The other jobs run on."},
		"it has no room":              {3, second, append(second[:4:4], "urgent!: ? ? ?"), false, ""},
		"the victims still stop":      {3, second, append(third[:5:5], "sweep-b: "+hosts("b2-r1", 4)+"-"), false, ""},
		"two victims":                 {3, second, append(second[:2:2], "sweep-b!: ?", "sweep-c!: ?", third[4]), true, "2 jobs were preempted (sweep-b, sweep-c)"},
		"a restart of pretrain":       {3, append([]string{"pretrain: " + hosts("b1-r2", 1, 2, 3, 4)}, second[1:]...), third, true, "pretrain was disturbed"},
		"a node fails":                {4, third, fourth, true, "Its pod on b2-r2-h02 runs on b2-r2-h03 now. All other pods run on."},
		"it has not failed yet":       {4, third, third, false, ""},
		"its pod has no place yet":    {4, third, append(third[:4:4], "failed: b2-r2-h02", "urgent: "+hosts("b2-r2", 1, 4)+" b2-r2-h02- ?"), false, ""},
		"its pod leaves the rack":     {4, third, append(third[:4:4], "failed: b2-r2-h02", "urgent: "+hosts("b2-r2", 1, 4)+" b1-r2-h04"), true, "in 2 racks"},
		"the whole gang moves":        {4, third, append(third[:4:4], "failed: b2-r2-h02", "urgent: b2-r2-h03 b2-r2-h01 b2-r2-h04!"), true, "2 pods of urgent were replaced, want 1"},
		"another job is moved":        {4, third, append([]string{"pretrain: " + hosts("b1-r1", 1, 2, 3) + " b1-r1-h04!"}, fourth[1:]...), true, "1 pods of pretrain were replaced, want 0"},
		"the victim returns":          {5, fourth, fifth, true, "sweep-c runs again, in rack b2-r2."},
		"the victim is not back yet":  {5, fourth, third[:4], false, ""},
		"the victim is in two racks":  {5, fourth, append(second[:3:3], "sweep-c: b2-r2-h01 b2-r2-h02 b1-r2-h04"), true, "the pods of sweep-c are in 2 racks"},
		"the Workload is not gone":    {5, fourth, append(fifth[:4:4], "urgent:"), false, ""},
		"the node still has old pods": {5, fourth, append(fifth[:4:4], "urgent: b2-r2-h04-"), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, before, after := story[tc.step-1], on(t, tc.before...), on(t, tc.after...)
			if s.done(after) != tc.done {
				t.Fatalf("done is %v: %s", !tc.done, after.String())
			}
			if !tc.done {
				return
			}
			got, err := s.check(before, after)
			if text := got + fmt.Sprint(err); !strings.Contains(text, tc.want) || (err == nil) != strings.HasSuffix(tc.want, ".") {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// The node that fails is one of urgent, and recovers in the end.
func TestActs(t *testing.T) {
	if got := story[3].acts(on(t, third...)); len(got) != 1 || !got[0].fails || got[0].node != "b2-r2-h01" {
		t.Errorf("failing: %+v", got)
	}
	want := []act{{cancel: "urgent"}, {node: "b2-r2-h02"}}
	if diff := cmp.Diff(want, story[4].acts(on(t, fourth...)), cmp.AllowUnexported(act{})); diff != "" {
		t.Errorf("the end (-want +got):\n%s", diff)
	}
	var submitted []string
	for _, s := range story[:3] {
		for _, a := range s.acts(world{}) {
			submitted = append(submitted, a.submit.name)
		}
	}
	if got := strings.Join(submitted, " "); got != "pretrain sweep-a sweep-b sweep-c urgent" {
		t.Errorf("submitted: %s", got)
	}
}

func TestPicture(t *testing.T) {
	notes := []string{"» pretrain needs 4 nodes of one rack", "  It got rack b1-r1.", "» " + story[2].says}
	busy := append(third[:3:3], "sweep-c!: b2-r2-h01- b2-r2-h02- ?", "urgent: b2-r2-h03+ b2-r2-h04+ ?")
	for name, tc := range map[string]struct {
		w             world
		notes         []string
		width, height int
		colour        paint
	}{
		"empty":   {on(t), nil, 100, 40, plain},
		"busy":    {on(t, busy...), notes, 100, 40, plain},
		"failed":  {on(t, fourth...), notes, 100, 40, plain},
		"colours": {on(t, fourth...), nil, 100, 40, ansi},
		"narrow":  {on(t, fourth...), notes, 40, 40, plain},
		"low":     {on(t, fourth...), notes, 100, 14, plain},
	} {
		t.Run(name, func(t *testing.T) {
			lines := picture(tc.w, tc.notes, 12300*time.Millisecond, tc.width, tc.height, tc.colour)
			if len(lines) > tc.height {
				t.Errorf("%d lines, at most %d fit", len(lines), tc.height)
			}
			goldentest.Check(t, "testdata/"+name+".txt", strings.Join(lines, "\n")+"\n")
		})
	}
	for height := range 20 {
		if got := len(picture(on(t, fourth...), notes, 0, 80, height, plain)); got > height {
			t.Errorf("%d lines, at most %d fit", got, height)
		}
	}
}

// Without a terminal there is a line for each sentence, and a picture after each step.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	v.says(time.Second, story[0].says)
	v.draw(on(t), 2*time.Second)
	v.draw(on(t, first...), 3*time.Second)
	v.concludes(4*time.Second, "It got rack b1-r1.")
	v.close()
	goldentest.Check(t, "testdata/lines.txt", out.String())
}

// The API server accepts all objects of the demo.
func TestObjectsAreAccepted(t *testing.T) {
	c := embeddedtest.Client(t, "../../../../config/crd", kueue.AddToScheme)
	levels, err := simnode.ParseTopology(Topology)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range queues(levels.Labels(), levels.Count()) {
		if err := c.Create(t.Context(), object); err != nil {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
	for _, g := range gangs {
		if err := c.Create(t.Context(), g.job()); err != nil {
			t.Errorf("Job %s: %v", g.name, err)
		}
	}
	// Every gang fits into a rack, all of them but urgent into the cluster, and urgent leaves no node idle.
	sum := 0
	for _, g := range gangs {
		if sum += int(g.pods); int(g.pods) > levels[2].Count {
			t.Errorf("%s needs more nodes than a rack has", g.name)
		}
	}
	if sum != levels.Count() {
		t.Errorf("the jobs need %d nodes, and there are %d", sum, levels.Count())
	}
}

// TestRun: the whole demo, on a real control plane.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	var out bytes.Buffer
	log := func(io.Writer) (logr.Logger, error) { return testr.New(t), nil }
	if err := run(t.Context(), demo.Config{Dir: t.TempDir(), Version: "test", Out: &out, Log: log}, time.Hour); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	// Which sweep it is depends on when each of them got its quota.
	preempted := regexp.MustCompile(`(sweep-[abc]) was preempted, and urgent got rack (\S+)\.`).FindStringSubmatch(out.String())
	if preempted == nil {
		t.Fatalf("no sweep was preempted in:\n%s", out.String())
	}
	for _, want := range []string{"All other pods run on.", preempted[1] + " runs again, in rack " + preempted[2] + "."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in:\n%s", want, out.String())
		}
	}
}
