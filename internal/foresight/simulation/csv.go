package simulation

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// columns are the columns of a CSV trace that name no resource.
var columns = []string{"submit", "run", "name", "queue", "class", "priority", "pods", "owner", "limit", "required", "preferred", "slice", "slice-size"}

// most is the largest time in seconds, a century.
const most = 100 * 365 * 24 * 3600

// ReadCSV reads a trace with a header: submit and run in seconds, or submit as RFC 3339; optional are name, queue (name or namespace/name),
// class, priority, pods, owner, limit, the time limit in seconds that stops a job, required or preferred, a level of a topology, and
// slice and slice-size, the level in one domain of which each so many pods have to be; every other column is a resource, with the request of one
// pod as Kubernetes writes it. An error names the line and the column.
func ReadCSV(source string, from io.Reader) ([]Job, error) {
	in := csv.NewReader(from)
	in.ReuseRecord, in.TrimLeadingSpace = true, true
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: it is empty; the first line names the columns, such as submit,run,pods,cpu", source)
	}
	if err != nil {
		return nil, faultOf(source, err)
	}
	r := &csvReader{source: source, header: slices.Clone(header)}
	if err := r.check(); err != nil {
		return nil, err
	}
	var jobs []Job
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, faultOf(source, err)
		}
		r.line, _ = in.FieldPos(0)
		j, err := r.job(row)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	r.sinceFirst(jobs)
	InOrder(jobs)
	return jobs, nil
}

func faultOf(source string, err error) error {
	if fault, is := errors.AsType[*csv.ParseError](err); is {
		return fmt.Errorf("%s:%d: %w", source, fault.Line, fault.Err)
	}
	return fmt.Errorf("%s: %w", source, err)
}

type csvReader struct {
	source string
	header []string
	line   int
	dates  bool // submit is a date
}

func (r *csvReader) check() error {
	for i, name := range r.header {
		if slices.Contains(r.header[:i], name) {
			return fmt.Errorf("%s:1: column %s is there twice", r.source, name)
		}
		if near := strict.Nearest(name, columns); near != "" && !slices.Contains(columns, name) && !slices.Contains(r.header, near) && !strings.Contains(name, "/") && name != "cpu" && name != "memory" {
			return fmt.Errorf("%s:1: column %s: did you mean %s?", r.source, name, near)
		}
	}
	for _, name := range []string{"submit", "run"} {
		if !slices.Contains(r.header, name) {
			return fmt.Errorf("%s:1: there is no column %s; the columns are %s and resources such as cpu or nvidia.com/gpu", r.source, name, strings.Join(columns, ", "))
		}
	}
	return nil
}

func (r *csvReader) fault(column, value, want string) error {
	return fmt.Errorf("%s:%d: %s: %q is no %s", r.source, r.line, column, value, want)
}

func (r *csvReader) job(row []string) (j Job, err error) {
	j.Pods, j.Namespace, j.Line = 1, "default", r.line
	for i, column := range r.header {
		value := strings.TrimSpace(row[i])
		if value == "" && column != "submit" && column != "run" {
			continue
		}
		if err := r.set(&j, column, value); err != nil {
			return j, err
		}
	}
	if err := r.checkPlaces(&j); err != nil {
		return j, err
	}
	if j.Limit > 0 {
		j.Run = min(j.Run, j.Limit)
	}
	if len(j.PerPod) == 0 {
		return j, fmt.Errorf("%s:%d: the job requests nothing: add a column such as cpu or nvidia.com/gpu", r.source, r.line)
	}
	return j, nil
}

func (r *csvReader) checkPlaces(j *Job) error {
	switch {
	case j.Required != "" && j.Preferred != "":
		return fmt.Errorf("%s:%d: preferred: %q: a job that has a required level has no preferred one", r.source, r.line, j.Preferred)
	case j.Slice != "" && j.SliceSize == 0:
		return fmt.Errorf("%s:%d: slice: %q: it needs a slice-size, how many pods a slice has", r.source, r.line, j.Slice)
	case j.SliceSize > 0 && j.Slice == "":
		return fmt.Errorf("%s:%d: slice-size: %d: it needs a slice, the level in one domain of which its pods have to be", r.source, r.line, j.SliceSize)
	case j.SliceSize > j.Pods:
		return fmt.Errorf("%s:%d: slice-size: %d: the job has only %d pods", r.source, r.line, j.SliceSize, j.Pods)
	}
	return nil
}

// set sets what a column is about.
func (r *csvReader) set(j *Job, column, value string) (err error) {
	switch column {
	case "submit":
		j.Submit, err = r.submit(value)
	case "run":
		j.Run, err = r.time(column, value)
	case "limit":
		j.Limit, err = r.time(column, value)
	case "name":
		j.Name = value
	case "class":
		j.Class = value
	case "required":
		j.Required = value
	case "preferred":
		j.Preferred = value
	case "slice":
		j.Slice = value
	case "slice-size":
		j.SliceSize, err = r.pods(column, value)
	case "queue":
		j.setQueue(value)
	case "priority":
		j.Priority, err = r.number(column, value, math.MinInt32, math.MaxInt32)
	case "pods":
		j.Pods, err = r.pods(column, value)
	case "owner":
		j.Owner, err = r.number(column, value, 0, math.MaxInt64)
	default:
		err = r.request(j, column, value)
	}
	return err
}

// setQueue takes a name, or namespace/name.
func (j *Job) setQueue(value string) {
	if ns, name, both := strings.Cut(value, "/"); both {
		j.Namespace, j.LocalQueue = ns, name
	} else {
		j.LocalQueue = value
	}
}

// request adds what each pod requests of a resource.
func (r *csvReader) request(j *Job, column, value string) error {
	q, err := apiresource.ParseQuantity(value)
	if err != nil || q.Sign() < 0 {
		return r.fault(column, value, "amount, such as 2 or 16Gi")
	}
	if a := convert.Amount(corev1.ResourceName(column), q); a > 0 {
		j.PerPod = append(j.PerPod, state.Request{Resource: column, Amount: a})
	}
	return nil
}

// submit is a time in seconds, or a date.
func (r *csvReader) submit(value string) (workload.Instant, error) {
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		r.dates = true
		return workload.Instant(at.UnixNano()), nil
	}
	if r.dates {
		return 0, r.fault("submit", value, "date such as 2026-01-31T12:00:00Z, as in the lines before")
	}
	return r.time("submit", value)
}

// sinceFirst makes dates times since the first one.
func (r *csvReader) sinceFirst(jobs []Job) {
	if !r.dates || len(jobs) == 0 {
		return
	}
	first := slices.MinFunc(jobs, func(a, b Job) int { return int(max(-1, min(1, a.Submit-b.Submit))) }).Submit
	for i := range jobs {
		jobs[i].Submit -= first
	}
}

func (r *csvReader) time(column, value string) (workload.Instant, error) {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n >= 0 && n <= most) {
		return 0, r.fault(column, value, "number of seconds")
	}
	return workload.Instant(n * float64(Second)), nil
}

func (r *csvReader) pods(column, value string) (int32, error) {
	n, err := r.number(column, value, 1, 1_000_000)
	return int32(n), err
}

func (r *csvReader) number(column, value string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most {
		return 0, r.fault(column, value, fmt.Sprintf("whole number from %d to %d", least, most))
	}
	return n, nil
}
