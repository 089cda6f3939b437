package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/state"
)

// WriteRecord writes the result of State.Recorded as lines of JSON: the snapshot, then one line for each event.
func WriteRecord(to io.Writer, from *state.Snapshot, events []state.Event) error {
	if from == nil {
		return errors.New("nothing is recorded")
	}
	enc := json.NewEncoder(to)
	if err := enc.Encode(from); err != nil {
		return err
	}
	for i := range events {
		if err := enc.Encode(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// Replay runs a record of WriteRecord again. It calls seen, if not nil, with the decisions
// of each step, and returns an error at the first step whose decisions differ from the
// record. It returns the final state and the number of steps.
func Replay(from io.Reader, seen func(state.Step, cycle.Result)) (*state.State, int, error) {
	dec := json.NewDecoder(from)
	dec.DisallowUnknownFields()
	var start state.Snapshot
	if err := dec.Decode(&start); err != nil {
		return nil, 0, fmt.Errorf("line 1 is no snapshot: %w", err)
	}
	s, err := state.Restore(&start)
	if err != nil {
		return nil, 0, fmt.Errorf("line 1: %w", err)
	}
	steps := 0
	for line := 2; ; line++ {
		var e state.Event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return s, steps, nil
		} else if err != nil {
			return s, steps, fmt.Errorf("line %d is no event: %w", line, err)
		}
		r := s.Apply(e)
		if e.Step == nil {
			continue
		}
		steps++
		if seen != nil {
			seen(*e.Step, r)
		}
		if hash := state.Hash(r.Decisions); hash != e.Step.Hash || r.Cycles != e.Step.Cycles {
			return s, steps, fmt.Errorf("line %d: step %d decides otherwise than recorded: trace %x in %d cycles, recorded %x in %d",
				line, steps, hash, r.Cycles, e.Step.Hash, e.Step.Cycles)
		}
	}
}
