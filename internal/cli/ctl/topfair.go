package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// fairTop is `berth top --fair`.
type fairTop struct {
	*output // of top
	on      bool
	weights []string
}

// add adds the flags of --fair to a command.
func (o *fairTop) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.on, "fair", false, "show the past usage by which LocalQueues share a ClusterQueue (admission fair sharing)")
	cmd.Flags().StringSliceVar(&o.weights, "weight", nil, "with --fair: the weight of a resource, as in resourceWeights of the manager's configuration: memory=0")
}

func (o *fairTop) rates() (*sharing.Rates, error) {
	rates := &sharing.Rates{Weights: map[string]float64{}}
	for _, each := range o.weights {
		name, text, _ := strings.Cut(each, "=")
		weight, err := strconv.ParseFloat(text, 64)
		if err != nil || !(weight >= 0) || math.IsInf(weight, 0) || name == "" {
			return nil, cluster.Usage("--weight %q: write RESOURCE=WEIGHT, as in memory=0", each)
		}
		rates.Weights[name] = weight
	}
	return rates, nil
}

// fairQueue is a LocalQueue that shares a ClusterQueue.
type fairQueue struct {
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

// look reads all LocalQueues, and renders each that shares a ClusterQueue by past usage.
func (o *fairTop) look(ctx context.Context, s *session) ([]byte, error) {
	rates, err := o.rates()
	if err != nil {
		return nil, err
	}
	var queues kueue.ClusterQueueList
	if err := s.Pages(ctx, &queues, &client.ListOptions{}); err != nil {
		return nil, err
	}
	var locals kueue.LocalQueueList
	if err := s.Pages(ctx, &locals, &client.ListOptions{}); err != nil {
		return nil, err
	}
	rows := shareQueues(queues.Items, locals.Items, rates)
	if o.format != "" {
		text, err := json.MarshalIndent(map[string]any{"items": rows}, "", "    ")
		if text = append(text, '\n'); err == nil && o.format == "yaml" {
			text, err = yaml.JSONToYAML(text)
		}
		return text, err
	}
	if len(rows) == 0 {
		fmt.Fprintln(s.Errs, "No ClusterQueue is shared by past usage (spec.admissionScope)")
		return nil, nil
	}
	out := &table{columns: columns("CLUSTERQUEUE", "PLACE", "NAMESPACE", "LOCALQUEUE", "USAGE", "SHARE", "WEIGHT", "PENDING", "CONSUMED")}
	last := ""
	for i := range rows {
		r := &rows[i]
		name := r.ClusterQueue
		if name == last {
			name = ""
		}
		last = r.ClusterQueue
		var consumed []string
		for _, resource := range slices.Sorted(maps.Keys(r.Consumed)) {
			consumed = append(consumed, resource+"="+number(r.Consumed[resource]))
		}
		out.add(name, strconv.Itoa(r.Place), r.Namespace, r.LocalQueue, r.Usage, r.Share, r.Weight, strconv.Itoa(int(r.Pending)), strings.Join(consumed, ","))
	}
	var text bytes.Buffer
	err = out.write(&text, false, !o.noHeaders)
	return text.Bytes(), err
}

// shareQueues returns the LocalQueues of all ClusterQueues that are shared by past usage, each in its order.
func shareQueues(queues []kueue.ClusterQueue, locals []kueue.LocalQueue, rates *sharing.Rates) []fairQueue {
	rows := []fairQueue{}
	slices.SortFunc(queues, func(a, b kueue.ClusterQueue) int { return strings.Compare(a.Name, b.Name) })
	for i := range queues {
		scope := queues[i].Spec.AdmissionScope
		if scope == nil || scope.AdmissionMode != kueue.UsageBasedAdmissionFairSharing {
			continue
		}
		var own []fairQueue
		for k := range locals {
			if string(locals[k].Spec.ClusterQueue) == queues[i].Name {
				own = append(own, fairQueueOf(&locals[k], rates))
			}
		}
		rows = append(rows, place(own)...)
	}
	return rows
}

func fairQueueOf(lq *kueue.LocalQueue, rates *sharing.Rates) fairQueue {
	used, _ := convert.PastUsage(lq)
	def := convert.LocalQueue(lq)
	account := sharing.Account{Consumed: used.Consumed}
	row := fairQueue{
		ClusterQueue: string(lq.Spec.ClusterQueue), Namespace: lq.Namespace, LocalQueue: lq.Name, Weight: "1", Consumed: map[string]float64{},
		Pending: lq.Status.PendingWorkloads, value: account.Value(rates, def.UsageWeight()),
	}
	if f := lq.Spec.FairSharing; f != nil && f.Weight != nil {
		row.Weight = f.Weight.String()
	}
	for _, u := range used.Consumed {
		row.Consumed[u.Resource] = u.Amount
	}
	row.Usage = number(row.value)
	return row
}

// place orders the LocalQueues of a ClusterQueue, and sets their places and shares.
func place(rows []fairQueue) []fairQueue {
	slices.SortFunc(rows, func(a, b fairQueue) int {
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

// number prints an amount with four digits.
func number(amount float64) string {
	if math.IsInf(amount, 0) {
		return "infinite"
	}
	if amount >= 1000 {
		return strconv.FormatFloat(amount, 'f', 0, 64)
	}
	return strconv.FormatFloat(amount, 'g', 4, 64)
}
