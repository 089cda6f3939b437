package visibility

import (
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/foresight"
)

// forecasts has one forecast, or none.
type forecasts struct{ last *foresight.Forecast }

func (f forecasts) Forecast() *foresight.Forecast         { return f.last }
func (f forecasts) RunTime(string) (e foresight.Estimate) { return e }

// A start that is unknown has no times, and a reason.
func TestUnknownStart(t *testing.T) {
	empty := forecasts{foresight.Empty(1)}
	for name, tc := range map[string]struct {
		starts Starts
		reason trace.Reason
		want   string
	}{
		"before the first forecast":    {forecasts{}, trace.WaitingForQuota, "no forecast has been made yet"},
		"newer than the last forecast": {empty, trace.WaitingForQuota, "it was not in line"},
		"larger than the quota":        {empty, trace.ExceedsMaxQuota, "it cannot start"},
		"its queue is stopped":         {forecasts{}, trace.Suspended, "it cannot start"},
	} {
		t.Run(name, func(t *testing.T) {
			got := startOf(tc.starts, "u", "cq", string(tc.reason))
			if got == nil || !strings.HasPrefix(got.Unknown, tc.want) || got.P10 != nil || got.P50 != nil || got.P90 != nil {
				t.Errorf("%+v, not %q", got, tc.want)
			}
		})
	}
	if got := startOf(nil, "u", "cq", ""); got != nil {
		t.Errorf("without forecasts: %+v", got)
	}
}
