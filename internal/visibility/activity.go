package visibility

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// recent is the last answer about what happened lately. Every Workload is read for one.
type recent struct {
	mu    sync.Mutex
	at    time.Time
	items []berthv1alpha1.QueueActivity
}

// recentFor is how long an answer is given again, to any caller.
const recentFor = 5 * time.Second

// queueActivities is what happened lately in every ClusterQueue.
func queueActivities(_ context.Context, s *Server, _ *ask) (runtime.Object, error) {
	s.recent.mu.Lock()
	defer s.recent.mu.Unlock()
	if now := time.Now(); s.recent.items == nil || now.Sub(s.recent.at) >= recentFor {
		s.recent.at, s.recent.items = now, s.activities(now)
	}
	return &berthv1alpha1.QueueActivityList{Items: s.recent.items}, nil
}

func (s *Server) activities(now time.Time) []berthv1alpha1.QueueActivity {
	counts := map[string]*berthv1alpha1.Activity{}
	model := s.Model()
	s.Visit(func(w *kueue.Workload) {
		var own berthv1alpha1.Activity
		if lifecycle.CountLastHour(&own, w, now); own == (berthv1alpha1.Activity{}) {
			return
		}
		queue := ""
		if w.Status.Admission != nil {
			queue = string(w.Status.Admission.ClusterQueue)
		} else {
			queue, _ = model.PointsTo(w.Namespace, string(w.Spec.QueueName))
		}
		if queue == "" {
			return
		}
		if counts[queue] == nil {
			counts[queue] = &berthv1alpha1.Activity{}
		}
		lifecycle.CountLastHour(counts[queue], w, now)
	})
	out := make([]berthv1alpha1.QueueActivity, 0, len(counts))
	for queue, count := range counts {
		out = append(out, berthv1alpha1.QueueActivity{ObjectMeta: metav1.ObjectMeta{Name: queue}, LastHour: *count})
	}
	slices.SortFunc(out, func(a, b berthv1alpha1.QueueActivity) int { return strings.Compare(a.Name, b.Name) })
	return out
}
