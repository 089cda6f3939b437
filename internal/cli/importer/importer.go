// Package importer takes running pods into queues: each gets a Workload that is admitted unchanged, so that a manager that queues pods
// has no changes to make.
//
//	pods, page by page ─► mapping.Rules ─► plan (writes to make) ─► report
//	                                         │ all pods can be planned, and no dry run
//	                                         ▼
//	pods, once more ──────────────────────► plan ─► Workload, admission, labels of the pod
//
// It needs an API server with the queueing API, but neither a manager nor webhooks. Writes do not change existing imports, so an
// interrupted run can be repeated. spec: 70 §4.11.
package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/cli/importer/mapping"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/reconcile"
)

// Import is one run.
type Import struct {
	// Client reaches the API server, with its rate limits, and without a cache.
	Client client.Client
	// Namespaces whose pods are imported.
	Namespaces []string
	Rules      *mapping.Rules
	// AddLabels are added to the pods and their Workloads.
	AddLabels map[string]string
	// ExcludePrefixes begin the names of resources that need no quota.
	ExcludePrefixes []string
	// Workers is the number of concurrent imports.
	Workers int
	// DryRun stops after the check.
	DryRun bool
	// Verbosity 1 reports every imported pod, 2 also skipped pods and pods imported before.
	Verbosity int
	// Now is the time of the admissions.
	Now func() metav1.Time
	// Out gets the report, Errs the progress.
	Out, Errs io.Writer
}

// pageSize is the number of pods in one request. spec: 70 §4.11.
const pageSize = 100

// Run checks all pods and, if each of them can be imported, imports them. The error has the number of refused pods; the report names them.
func (i *Import) Run(ctx context.Context) error {
	if err := i.findNamespaces(ctx); err != nil {
		return err
	}
	checked, err := i.check(ctx)
	if err != nil {
		return err
	}
	checked.printCheck(i.Out, i.DryRun)
	switch n := len(checked.failures); {
	case n > 0 && i.DryRun:
		return fmt.Errorf("%s of %d cannot be imported: mend them, or skip them with a rule of --queuemapping-file", count(n), checked.pods)
	case n > 0:
		return fmt.Errorf("%s of %d cannot be imported, so nothing was changed: mend them, or skip them with a rule of --queuemapping-file", count(n), checked.pods)
	case i.DryRun:
		return nil
	}
	if i.Verbosity > 0 {
		fmt.Fprintln(i.Out)
	}
	done, err := i.importAll(ctx, checked.planned)
	if err != nil {
		return err
	}
	done.printImport(i.Out)
	if n := len(done.failures); n > 0 {
		return fmt.Errorf("%s of %d could not be imported: mend what is said above and run the same again, which leaves the others alone", count(n), done.planned+n)
	}
	return nil
}

// findNamespaces refuses namespaces that do not exist: without pods the import would seem to succeed.
func (i *Import) findNamespaces(ctx context.Context) error {
	for _, name := range i.Namespaces {
		err := i.Client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("--namespace: there is no namespace %q", name)
		}
		if err != nil && !apierrors.IsForbidden(err) { // users without this permission may still read the pods
			return fmt.Errorf("reading namespace %s: %w", name, err)
		}
	}
	return nil
}

// check plans every pod, and writes nothing to the cluster.
func (i *Import) check(ctx context.Context) (*report, error) {
	w, err := read(ctx, i.Client, i.Namespaces)
	if err != nil {
		return nil, err
	}
	r := newReport(i.Namespaces)
	err = i.pages(ctx, func(pods []corev1.Pod, more bool) {
		for at := range pods {
			p, err := i.plan(w, &pods[at])
			r.note(&pods[at], p, err)
			if err == nil && !i.silent(p.skip) && i.DryRun {
				fmt.Fprintln(i.Out, p.line(&pods[at], "would be imported"))
			}
		}
		if more {
			fmt.Fprintf(i.Errs, "checked %d pods so far\n", r.pods)
		}
	})
	return r, err
}

// importAll plans the pods again, since the cluster may have changed, and executes the plans. planned is the number of plans of the
// check.
func (i *Import) importAll(ctx context.Context, planned int) (*report, error) {
	w, err := read(ctx, i.Client, i.Namespaces)
	if err != nil {
		return nil, err
	}
	to := &writer{client: i.Client, status: reconcile.NewWorkloadStatus(i.Client), importer: i, world: w}
	r := newReport(i.Namespaces)
	err = i.pages(ctx, func(pods []corev1.Pod, more bool) {
		results := make([]result, len(pods))
		workqueue.ParallelizeUntil(ctx, i.Workers, len(pods), func(at int) { results[at] = to.importPod(ctx, &pods[at]) })
		if ctx.Err() != nil {
			return
		}
		for at := range pods {
			got := &results[at]
			r.noteResult(&pods[at], got)
			if got.err == nil && !got.gone && !i.silent(got.plan.skip || !got.changed) {
				fmt.Fprintln(i.Out, got.plan.line(&pods[at], got.said()))
			}
		}
		if more {
			fmt.Fprintf(i.Errs, "imported %d of %d pods so far\n", r.planned, planned)
		}
	})
	return r, err
}

// silent reports whether a pod is not reported; ordinary means that the import does not change it.
func (i *Import) silent(ordinary bool) bool {
	return i.Verbosity == 0 || (ordinary && i.Verbosity < 2)
}

// pages reads the running pods, and calls f for each page; more means that further pages follow. Every pod comes once, also if the list
// expires and is read again.
func (i *Import) pages(ctx context.Context, f func(pods []corev1.Pod, more bool)) error {
	running := fields.ParseSelectorOrDie("status.phase!=Succeeded,status.phase!=Failed")
	for at, namespace := range i.Namespaces {
		seen := map[types.UID]bool{}
		for next := ""; ; {
			var page corev1.PodList
			err := patiently(ctx, func() error {
				return i.Client.List(ctx, &page, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: running}, client.Limit(pageSize), client.Continue(next))
			})
			if apierrors.IsResourceExpired(err) && next != "" {
				next = ""
				continue
			}
			if err != nil {
				return fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
			}
			pods := slices.DeleteFunc(page.Items, func(p corev1.Pod) bool { return seen[p.UID] })
			for k := range pods {
				seen[pods[k].UID] = true
			}
			next = page.Continue
			f(pods, next != "" || at+1 < len(i.Namespaces))
			if err := ctx.Err(); err != nil {
				return errors.New("interrupted: run the same again to go on")
			}
			if next == "" {
				break
			}
		}
	}
	return nil
}

func count(n int) string { return trace.Plural(n, "pod") }

// oneLine puts foreign text on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
