package ctl

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
)

func TestStarts(t *testing.T) {
	now := time.Date(2026, 11, 27, 14, 0, 0, 0, time.Local)
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	until := at(2 * time.Hour)
	for name, tc := range map[string]struct {
		start        *berthv1alpha1.ExpectedStart
		cell, phrase string
	}{
		"no forecasts":        {nil, "", ""},
		"all known":           {&berthv1alpha1.ExpectedStart{P10: at(5 * time.Minute), P50: at(20 * time.Minute), P90: at(70 * time.Minute), Until: until}, "~14:20", "  starts about 14:20, between 14:05 and 15:10; limited by cohort research, gpu; 3 jobs ahead\n"},
		"no upper bound":      {&berthv1alpha1.ExpectedStart{P10: at(5 * time.Minute), P50: at(20 * time.Minute), Until: until}, "~14:20", "  starts about 14:20, between 14:05 and some time after 16:00; limited by cohort research, gpu; 3 jobs ahead\n"},
		"late":                {&berthv1alpha1.ExpectedStart{P10: at(5 * time.Minute), Until: until}, "after 16:00", "  starts after 16:00, or with luck from 14:05 on; limited by cohort research, gpu; 3 jobs ahead\n"},
		"later":               {&berthv1alpha1.ExpectedStart{Until: until}, "after 16:00", "  starts after 16:00; limited by cohort research, gpu; 3 jobs ahead\n"},
		"tomorrow":            {&berthv1alpha1.ExpectedStart{P10: at(20 * time.Hour), P50: at(21 * time.Hour), P90: at(22 * time.Hour), Until: at(24 * time.Hour)}, "~Nov 28 11:00", "  starts about Nov 28 11:00, between Nov 28 10:00 and Nov 28 12:00; limited by cohort research, gpu; 3 jobs ahead\n"},
		"expected before now": {&berthv1alpha1.ExpectedStart{P10: at(-9 * time.Minute), P50: at(-time.Minute), P90: at(time.Minute), Until: until}, "~14:00", "  starts about 14:00, between 14:00 and 14:01; limited by cohort research, gpu; 3 jobs ahead\n"},
		"unknown":             {&berthv1alpha1.ExpectedStart{Unknown: "it is", Until: until}, "?", "  when it starts is unknown: it is; limited by cohort research, gpu; 3 jobs ahead\n"},
		"unknown, and reserved": {
			&berthv1alpha1.ExpectedStart{Unknown: "it is", Until: until, By: at(90 * time.Minute)}, "?",
			"  starts by 15:30; when before that is unknown: it is; limited by cohort research, gpu; 3 jobs ahead\n",
		},
		"one runs on": {
			&berthv1alpha1.ExpectedStart{Until: until, Endless: 1}, "after 16:00",
			"  starts after 16:00; limited by cohort research, gpu; 3 jobs ahead\n  assumes no end of 1 Workload in its cohort whose run time is unknown\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := starts(tc.start, now); got != tc.cell {
				t.Errorf("the cell is %q, not %q", got, tc.cell)
			}
			e := &berthv1alpha1.Explanation{Start: tc.start, PositionInClusterQueue: new(int32(3)), Shortfalls: []berthv1alpha1.Shortfall{
				{LimitedBy: "cohort research", Resource: "gpu"}, {LimitedBy: "cohort research", Resource: "gpu"}, {Reason: "NoMatchingFlavor"},
			}}
			if got := startInWords(e, now); got != tc.phrase {
				t.Errorf("%q, not\n%q", got, tc.phrase)
			}
		})
	}
}
