package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// explained returns the explanation of a Workload in namespace red once it is right.
func (s *seen) explained(name string, right func(*berthv1alpha1.Explanation) bool) (out berthv1alpha1.Explanation) {
	s.Helper()
	wait.Until(s.T, "the explanation of "+name, func() error {
		out = berthv1alpha1.Explanation{}
		code, body := s.as("", http.MethodGet, ours+"namespaces/red/workloads/"+name+"/explanation", "")
		if code != http.StatusOK || json.Unmarshal([]byte(body), &out) != nil || !right(&out) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	return out
}

// finishAfter ends a Workload of namespace red once it runs, as if it had run for so long.
func (s *seen) finishAfter(name string, after time.Duration) {
	s.Helper()
	wait.Until(s.T, name+" runs", func() error {
		var w kueue.Workload
		if err := s.c.Get(s.Context(), client.ObjectKey{Namespace: "red", Name: name}, &w); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		if c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("conditions %+v", w.Status.Conditions)
		}
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.ReasonSucceeded, LastTransitionTime: metav1.NewTime(c.LastTransitionTime.Add(after)),
		})
		return s.c.Status().Update(s.Context(), &w)
	})
}

// TestForecast: a Workload waits for another one. When it starts is unknown, until three like them have finished.
func TestForecast(t *testing.T) {
	admin, c := ownServer(t)
	s := &seen{t, admin, c}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red"}})
	s.manage("", true)
	s.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}, clusterQueue("cq", "3"), localQueue("red", "q", "cq"))
	for i := range 5 {
		s.create(waiting("red", "q", fmt.Sprint("w", i), int32(100-i)))
	}
	e := s.explained("w1", func(e *berthv1alpha1.Explanation) bool {
		return e.Start != nil && strings.HasPrefix(e.Start.Unknown, "the run times of 1 running Workload in its cohort are unknown; set berth.dev/expected-run-seconds")
	})
	if e.Start.P10 != nil || e.Start.P50 != nil || e.RunTime != "" {
		t.Errorf("the start is %+v, the run time %q", e.Start, e.RunTime)
	}
	for i := range 3 {
		s.finishAfter(fmt.Sprint("w", i), 10*time.Minute)
	}
	e = s.explained("w4", func(e *berthv1alpha1.Explanation) bool { return e.Start != nil && e.Start.P50 != nil })
	if !strings.Contains(e.RunTime, "learned from 3 finished Workloads of LocalQueue red/q with the same pod sets, kind Solver") {
		t.Errorf("its run time: %s", e.RunTime)
	}
	if until := time.Until(e.Start.P50.Time); until < time.Minute || until > time.Hour {
		t.Errorf("it starts in %s, after a run of 10 minutes or so", until)
	}
	if e.Start.P10 == nil || e.Start.P10.After(e.Start.P50.Time) || (e.Start.P90 != nil && e.Start.P90.Before(e.Start.P50)) {
		t.Errorf("the window is %+v", e.Start)
	}
	code, body := s.as("", http.MethodGet, v1beta2+"namespaces/red/localqueues/q/pendingworkloads", "")
	var page visibilityv1beta2.PendingWorkloadsSummary
	if err := json.Unmarshal([]byte(body), &page); err != nil || code != http.StatusOK || len(page.Items) != 1 || page.Items[0].ExpectedStart == nil || page.Items[0].ExpectedStart.P50 == nil {
		t.Errorf("%d %s (%v)", code, body, err)
	}
}
