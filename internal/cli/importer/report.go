package importer

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// report counts the outcomes of pods.
type report struct {
	namespaces []string
	pods       int // all pods
	planned    int // pods that can be imported, or were
	unchanged  int // planned pods that needed no write
	skipped    int
	gone       int
	queues     map[queue]int
	failures   []failure
}

type queue struct {
	namespace, name string
	clusterQueue    kueue.ClusterQueueReference
}

// failure is a pod that cannot be imported.
type failure struct{ namespace, pod, reason string }

func newReport(namespaces []string) *report {
	return &report{namespaces: namespaces, queues: map[queue]int{}}
}

// note counts a planned pod.
func (r *report) note(pod *corev1.Pod, p *plan, err error) {
	r.pods++
	switch {
	case err != nil:
		r.failures = append(r.failures, failure{pod.Namespace, pod.Name, oneLine(err.Error())})
	case p.skip:
		r.skipped++
	default:
		r.planned++
		r.queues[queue{pod.Namespace, p.queue, p.clusterQueue}]++
	}
}

// noteResult counts a pod after its import.
func (r *report) noteResult(pod *corev1.Pod, got *result) {
	if got.gone && got.err == nil {
		r.pods++
		r.gone++
		return
	}
	r.note(pod, got.plan, got.err)
	if got.err == nil && !got.plan.skip && !got.changed {
		r.unchanged++
	}
}

// printCheck prints the result of the check.
func (r *report) printCheck(out io.Writer, dry bool) {
	fmt.Fprintf(out, "Checked %s of %s: %d can be imported, %d skipped, %d cannot be imported.\n",
		count(r.pods), strings.Join(r.namespaces, ", "), r.planned, r.skipped, len(r.failures))
	if len(r.queues) > 0 {
		rows := [][]string{{"NAMESPACE", "LOCALQUEUE", "CLUSTERQUEUE", "PODS"}}
		names := slices.SortedFunc(maps.Keys(r.queues), func(a, b queue) int {
			return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.clusterQueue, b.clusterQueue))
		})
		for _, q := range names {
			rows = append(rows, []string{q.namespace, q.name, string(q.clusterQueue), strconv.Itoa(r.queues[q])})
		}
		table(out, rows)
	}
	r.printFailures(out)
	if dry && len(r.failures) == 0 {
		fmt.Fprintln(out, "\nThis was a dry run: nothing was changed. With --dry-run=false they are imported.")
	}
}

// printImport prints the result of the import.
func (r *report) printImport(out io.Writer) {
	fmt.Fprintf(out, "\nImported %s: %d now, %d before.", count(r.planned), r.planned-r.unchanged, r.unchanged)
	if r.gone > 0 {
		fmt.Fprintf(out, " %s ended meanwhile.", count(r.gone))
	}
	if n := len(r.failures); n > 0 {
		fmt.Fprintf(out, " %s could not be imported.", count(n))
	}
	fmt.Fprintln(out)
	r.printFailures(out)
}

// printFailures prints the number of pods for each reason, and then each pod that cannot be imported.
func (r *report) printFailures(out io.Writer) {
	if len(r.failures) == 0 {
		return
	}
	pods := map[string]int{}
	rows := [][]string{{"NAMESPACE", "POD", "REASON"}}
	for _, f := range r.failures {
		pods[f.reason]++
		rows = append(rows, []string{f.namespace, f.pod, f.reason})
	}
	reasons := slices.SortedFunc(maps.Keys(pods), func(a, b string) int { return cmp.Or(cmp.Compare(pods[b], pods[a]), cmp.Compare(a, b)) })
	counts := [][]string{{"PODS", "REASON"}}
	for _, reason := range reasons {
		counts = append(counts, []string{strconv.Itoa(pods[reason]), reason})
	}
	table(out, counts)
	table(out, rows)
}

// table writes rows in columns below an empty line, laid out like kubectl's.
func table(out io.Writer, rows [][]string) {
	fmt.Fprintln(out)
	lines := tabwriter.NewWriter(out, 6, 1, 3, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(lines, strings.Join(cells, "\t"))
	}
	_ = lines.Flush() // errors are ignored, as for other lines of the report
}
