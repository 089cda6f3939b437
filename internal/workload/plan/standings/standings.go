// Package standings orders the LocalQueues of ClusterQueues that are shared by past usage, as of their statuses. spec: 20 §4.4.
package standings

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Standing is a LocalQueue that shares a ClusterQueue.
type Standing struct {
	ClusterQueue string             `json:"clusterQueue"`
	Place        int                `json:"place"` // from 1; equal usage has equal places
	Namespace    string             `json:"namespace"`
	LocalQueue   string             `json:"localQueue"`
	Weight       string             `json:"weight"`
	Usage        string             `json:"usage"` // the weighted sum, divided by the weight
	Share        string             `json:"share"` // of the usage of all LocalQueues of the ClusterQueue
	Consumed     map[string]float64 `json:"consumed"`
	Pending      int32              `json:"pending"`

	value float64
}

// Of returns the LocalQueues of all ClusterQueues that are shared by past usage, each in its order.
func Of(queues []kueue.ClusterQueue, locals []kueue.LocalQueue, rates *sharing.Rates) []Standing {
	rows := []Standing{}
	slices.SortFunc(queues, func(a, b kueue.ClusterQueue) int { return strings.Compare(a.Name, b.Name) })
	for i := range queues {
		scope := queues[i].Spec.AdmissionScope
		if scope == nil || scope.AdmissionMode != kueue.UsageBasedAdmissionFairSharing {
			continue
		}
		var own []Standing
		for k := range locals {
			if string(locals[k].Spec.ClusterQueue) == queues[i].Name {
				own = append(own, of(&locals[k], rates))
			}
		}
		rows = append(rows, place(own)...)
	}
	return rows
}

func of(lq *kueue.LocalQueue, rates *sharing.Rates) Standing {
	used, _ := convert.PastUsage(lq)
	def := convert.LocalQueue(lq)
	account := sharing.Account{Consumed: used.Consumed}
	row := Standing{
		ClusterQueue: string(lq.Spec.ClusterQueue), Namespace: lq.Namespace, LocalQueue: lq.Name, Weight: "1", Consumed: map[string]float64{},
		Pending: lq.Status.PendingWorkloads, value: account.Value(rates, def.UsageWeight()),
	}
	if f := lq.Spec.FairSharing; f != nil && f.Weight != nil {
		row.Weight = f.Weight.String()
	}
	for _, u := range used.Consumed {
		row.Consumed[u.Resource] = u.Amount
	}
	row.Usage = Text(row.value)
	return row
}

// place orders the LocalQueues of a ClusterQueue, and sets their places and shares.
func place(rows []Standing) []Standing {
	slices.SortFunc(rows, func(a, b Standing) int {
		return cmp.Or(cmp.Compare(a.value, b.value), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.LocalQueue, b.LocalQueue))
	})
	sum := 0.0
	for i := range rows {
		if !math.IsInf(rows[i].value, 0) {
			sum += rows[i].value
		}
		if rows[i].Place = i + 1; i > 0 && rows[i].value == rows[i-1].value {
			rows[i].Place = rows[i-1].Place
		}
	}
	for i := range rows {
		if rows[i].Share = "-"; sum > 0 && !math.IsInf(rows[i].value, 0) {
			rows[i].Share = fmt.Sprintf("%.0f%%", rows[i].value/sum*100)
		}
	}
	return rows
}

// Text is an amount with four digits.
func Text(amount float64) string {
	if math.IsInf(amount, 0) {
		return "infinite"
	}
	if amount >= 1000 {
		return strconv.FormatFloat(amount, 'f', 0, 64)
	}
	return strconv.FormatFloat(amount, 'g', 4, 64)
}
