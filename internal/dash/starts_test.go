package dash

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// forecast is when the Workloads soon, late and never start.
func forecast(s *Server) {
	at := func(hour, minute int) *metav1.Time {
		return new(metav1.NewTime(time.Date(2126, 3, 4, hour, minute, 0, 0, time.Local))) // pages show local times
	}
	s.Starts = func(w *kueue.Workload) *berthv1alpha1.ExpectedStart {
		switch w.Name {
		case "soon":
			return &berthv1alpha1.ExpectedStart{P10: at(14, 5), P50: at(14, 20), P90: at(15, 10), Until: at(20, 0)}
		case "late":
			return &berthv1alpha1.ExpectedStart{P10: at(19, 30), Until: at(20, 0)}
		case "never":
			return &berthv1alpha1.ExpectedStart{Unknown: "run times are unknown"}
		}
		return nil
	}
}

// TestStarts: each view of Workloads has when the pending ones are expected to start.
func TestStarts(t *testing.T) {
	w := newWorld(t, forecast)
	w.queues()
	w.workload(w.red, "soon", "")
	w.workload(w.red, "other", "")
	token := w.administrator()
	for path, keys := range map[string][]string{
		"/ws/workloads?delta=true&namespace=" + w.red:           {"items"},
		"/ws/workloads/dashboard?delta=true&namespace=" + w.red: {"workloads", "items"},
		"/ws/local-queue/" + w.red + "/main/workloads?delta=1":  {"items"},
	} {
		wait.Until(t, path, func() error {
			items, _ := w.dial(token, path).document().at(keys...).(map[string]any)
			soon, _ := items[w.red+"/soon"].(map[string]any)
			other, _ := items[w.red+"/other"].(map[string]any)
			if soon == nil || other == nil {
				return errors.New("they are not listed yet")
			}
			if document(soon).at("expectedStart", "p50") == nil || other["expectedStart"] != nil {
				return fmt.Errorf("%v\n%v", soon["expectedStart"], other["expectedStart"])
			}
			return nil
		})
	}
	if one := w.dial(token, "/ws/workload/"+w.red+"/soon").document(); one.at("expectedStart", "p90") == nil {
		t.Errorf("%v", one)
	}
}

// As a user: pages that list pending workloads say when each starts, the median and the window.
func TestStartsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *Server) {
		forecast(s)
		s.options.Origins = nil
	})
	w.queues()
	for _, name := range []string{"soon", "late", "never", "other"} {
		w.workload(w.red, name, "")
	}
	b := newBrowser(t)
	page := "http://" + w.url
	b.do(chromedp.Navigate(page + "/workloads?namespace=" + w.red))
	b.shows("Log in")
	b.do(chromedp.SetValue("#token", w.administrator()), chromedp.Click("form button"))
	texts := []string{"Starts", "~Mar 4, 14:20", "Mar 4, 14:05 to Mar 4, 15:10", "after Mar 4, 20:00", "Mar 4, 19:30 to some time after Mar 4, 20:00", "unknown"}
	b.shows(texts...)
	b.do(chromedp.Navigate(page + "/local-queue/" + w.red + "/main"))
	b.shows(texts...)
	b.do(chromedp.Navigate(page + "/"))
	b.shows(texts[:3]...) // what starts next; the rest may be behind the Workloads of other tests
	b.picture("starts")
	b.do(chromedp.Navigate(page + "/workload/" + w.red + "/never"))
	b.shows("When it starts is unknown: run times are unknown")
	b.do(chromedp.Navigate(page + "/workload/" + w.red + "/soon"))
	b.shows("~Mar 4, 14:20")
	b.picture("workload")
}
