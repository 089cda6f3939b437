package conversion

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLargeReviews: a review is read up to its limit only, and the memory of a large one is not pooled.
func TestLargeReviews(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"too large": {strings.Repeat(" ", maxBody+1), http.StatusRequestEntityTooLarge},
		"large":     {strings.Repeat(" ", maxBody), http.StatusBadRequest},
		"no review": {"{}", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(tc.body)))
			if w.Code != tc.want {
				t.Errorf("answered %d, want %d: %s", w.Code, tc.want, w.Body)
			}
		})
	}
	for range 100 { // all that are kept
		kept := texts.Get().(*review)
		if size := max(kept.question.Cap(), kept.answer.Cap()); size > maxPooled {
			t.Errorf("a buffer of %d bytes is kept", size)
		}
	}
}
