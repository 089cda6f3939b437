package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

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
	for _, e := range events {
		if err := enc.Encode(map[string]state.Event{reflect.TypeOf(e).Name(): e}); err != nil {
			return err
		}
	}
	return nil
}

// eventTypes are the types of events by their names in a record.
var eventTypes = func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, e := range []state.Event{
		state.SetFlavor{},
		state.DeleteFlavor(""),
		state.SetCohort{},
		state.DeleteCohort(""),
		state.SetQueue{},
		state.DeleteQueue(""),
		state.SetLocalQueue{},
		state.DeleteLocalQueue{},
		state.SetUsage{},
		state.SampleUsage{},
		state.SetNamespace{},
		state.DeleteNamespace(""),
		state.SetNode{},
		state.DeleteNode(""),
		state.SetForeign{},
		state.SetWorkload{},
		state.DeleteWorkload(""),
		state.Written{},
		state.AdmissionWritten{},
		state.AdmissionFailed{},
		state.EvictionFailed(""),
		state.Step{},
	} {
		types[reflect.TypeOf(e).Name()] = reflect.TypeOf(e)
	}
	return types
}()

// readEvent reads one line of a record; io.EOF after the last one.
func readEvent(dec *json.Decoder) (state.Event, error) {
	var named map[string]json.RawMessage
	if err := dec.Decode(&named); err != nil {
		return nil, err
	}
	for name, content := range named { //berth:unordered it has one entry, or is refused
		of := eventTypes[name]
		if of == nil || len(named) != 1 {
			return nil, fmt.Errorf("there is no event %q", name)
		}
		e := reflect.New(of)
		strict := json.NewDecoder(bytes.NewReader(content))
		strict.DisallowUnknownFields()
		if err := strict.Decode(e.Interface()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return e.Elem().Interface().(state.Event), nil
	}
	return nil, errors.New("it is empty")
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
		e, err := readEvent(dec)
		if errors.Is(err, io.EOF) {
			return s, steps, nil
		} else if err != nil {
			return s, steps, fmt.Errorf("line %d is no event: %w", line, err)
		}
		r := s.Apply(e)
		step, is := e.(state.Step)
		if !is {
			continue
		}
		steps++
		if seen != nil {
			seen(step, r)
		}
		if hash := state.Hash(r.Decisions); hash != step.Hash || r.Cycles != step.Cycles {
			return s, steps, fmt.Errorf("line %d: step %d decides otherwise than recorded: trace %x in %d cycles, recorded %x in %d",
				line, steps, hash, r.Cycles, step.Hash, step.Cycles)
		}
	}
}
