package ctl

import (
	"bytes"
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
	"github.com/berth-project/berth/internal/workload/plan/standings"
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
	rows := standings.Of(queues.Items, locals.Items, rates)
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
			consumed = append(consumed, resource+"="+standings.Text(r.Consumed[resource]))
		}
		out.add(name, strconv.Itoa(r.Place), r.Namespace, r.LocalQueue, r.Usage, r.Share, r.Weight, strconv.Itoa(int(r.Pending)), strings.Join(consumed, ","))
	}
	var text bytes.Buffer
	err = out.write(&text, false, !o.noHeaders)
	return text.Bytes(), err
}
