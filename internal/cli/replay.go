package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
)

const replayHelp = `Decides again what a manager has decided, from its flight record, and tells whether it comes to the same. The record is what the
manager's metrics address serves under /debug/flight-record, to whom the API server lets read that path: the world as it was at some
moment, and everything that has happened since.

  curl -sk -H "Authorization: Bearer $TOKEN" https://127.0.0.1:8443/debug/flight-record > flight.jsonl
  berth replay flight.jsonl
  berth replay --trace --workload team-a/train flight.jsonl   every attempt to admit one workload, with its result`

func newReplay() *cobra.Command {
	var r replay
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "decide again what a manager has decided, from its flight record",
		Long:  replayHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cluster.Usage("replay takes one file, or - for the standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.out = cmd.OutOrStdout()
			if args[0] == "-" {
				return r.run(cmd.InOrStdin())
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			return r.run(file)
		},
	}
	cmd.Flags().BoolVar(&r.trace, "trace", false, "print the trace of every decision")
	cmd.Flags().StringVar(&r.workload, "workload", "", "print only decisions about this `namespace/name`; implies --trace")
	return cmd
}

// replay is one run of the command.
type replay struct {
	out       io.Writer
	trace     bool
	workload  string
	decisions int
	hash      trace.Hash
}

func (r *replay) run(record io.Reader) error {
	_, steps, err := sim.Replay(record, r.seen)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%d steps, %d decisions: decided as recorded, trace hash %016x\n", steps, r.decisions, r.hash.Sum())
	return nil
}

func (r *replay) seen(_ state.Step, result cycle.Result) {
	for i := range result.Decisions {
		attempt := result.Decisions[i].Attempt
		r.decisions++
		attempt.Hash(&r.hash)
		if r.workload == attempt.Workload || (r.workload == "" && r.trace) {
			fmt.Fprint(r.out, attempt)
		}
	}
}
