package simulation

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// The fields of the Standard Workload Format that are read, from 0. The format has 18, separated by spaces; -1 is unknown, and lines that
// begin with a semicolon are comments.
const (
	swfNumber    = 0
	swfSubmit    = 1
	swfRun       = 3
	swfAllocated = 4
	swfRequested = 7
	swfTime      = 8
	swfUser      = 11
	swfQueue     = 14
	swfFields    = 18
)

// Processor is what a processor of a trace in the Standard Workload Format is here.
type Processor struct {
	Resource string
	Amount   resource.Amount
}

// ReadSWF reads a trace in the Standard Workload Format. A job gets a pod for each processor that it requested, or else was allocated. Its
// owner is its user, or else its queue, and its limit the time that it requested, unless it ran for longer. Jobs that never ran, which have no run time or no
// processors, are left out, and counted.
func ReadSWF(source string, from io.Reader, processor Processor) (jobs []Job, left int, err error) {
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for line := 1; in.Scan(); line++ {
		text := strings.TrimSpace(in.Text())
		if text == "" || text[0] == ';' {
			continue
		}
		j, ran, err := swfJob(text)
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("%s:%d: %w", source, line, err)
		case !ran:
			left++
		default:
			j.Line, j.PerPod = line, []state.Request{{Resource: processor.Resource, Amount: processor.Amount}}
			jobs = append(jobs, j)
		}
	}
	if err := in.Err(); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", source, err)
	}
	InOrder(jobs)
	return jobs, left, nil
}

// swfJob reads a line. ran is false for a job that never ran.
func swfJob(text string) (j Job, ran bool, err error) {
	fields := strings.Fields(text)
	if len(fields) != swfFields {
		return j, false, fmt.Errorf("%d fields; a line of the Standard Workload Format has %d", len(fields), swfFields)
	}
	var n [swfFields]float64
	for i, f := range fields {
		if n[i], err = strconv.ParseFloat(f, 64); err != nil || !(n[i] >= -1e15 && n[i] <= 1e15) {
			return j, false, fmt.Errorf("field %d: %q is no number", i+1, f)
		}
	}
	processors, owner := n[swfRequested], n[swfUser]
	if processors <= 0 {
		processors = n[swfAllocated]
	}
	if owner < 0 {
		owner = max(0, n[swfQueue])
	}
	if n[swfRun] < 0 || processors <= 0 || n[swfSubmit] < 0 {
		return j, false, nil
	}
	if processors > 1_000_000 || n[swfRun] > most || n[swfSubmit] > most {
		return j, false, errors.New("more than a million processors, or a time of more than a century")
	}
	run := swfInstant(n[swfRun])
	return Job{
		Name: fields[swfNumber], Namespace: "default", Owner: int64(owner), Pods: int32(processors),
		Submit: swfInstant(n[swfSubmit]), Run: run, Limit: swfLimit(n[swfTime], run),
	}, true, nil
}

func swfInstant(seconds float64) workload.Instant { return workload.Instant(seconds * float64(Second)) }

// swfLimit is the time limit of a job that requested some seconds, 0 for none. Some systems let a job run on for a while.
func swfLimit(requested float64, run workload.Instant) workload.Instant {
	if requested <= 0 || requested > most {
		return 0
	}
	return max(run, swfInstant(requested))
}
