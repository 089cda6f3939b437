// Package frameworks turns the configuration of external frameworks into job kinds that can be dispatched, and rules for their copies.
package frameworks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/multikueue/guard"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/options/transform"
)

// Served lists the kinds of a group and version, as a discovery client does.
type Served interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// External describes kinds that an external controller integrates, for the generic adapter (spec: 40 §4.12, §4.13): a controller in the
// manager cluster creates their Workloads, and one in each worker cluster starts and finishes the copies.
//
// A name that differs from a served kind only in its case means that kind. A kind that is not served yet gets the usual plural, and its
// jobs are dispatched once it is. Warnings reports both.
func External(list []*transform.Framework, known []*job.Descriptor, served Served, now func() time.Time, log logr.Logger) ([]*job.Descriptor, map[schema.GroupVersionKind]*external.Framework, error) {
	var out []*job.Descriptor
	frameworks := map[schema.GroupVersionKind]*external.Framework{}
	for _, f := range list {
		gvk := f.GVK
		resources, _ := served.ServerResourcesForGroupVersion(gvk.GroupVersion().String()) // an error only delays the kinds of this group
		kind, resource := find(resources, gvk.Kind)
		switch {
		case resource == "":
			guess, _ := apimeta.UnsafeGuessKindToResource(gvk)
			resource = guess.Resource
		case kind != gvk.Kind:
			gvk.Kind = kind
			if frameworks[gvk] != nil || hasAdapter(known, gvk) {
				return nil, nil, fmt.Errorf("multiKueue.externalFrameworks: %s.%s.%s is the kind %s, which is sent to workers already: remove it",
					f.GVK.Kind, gvk.Version, gvk.Group, kind)
			}
		}
		frameworks[gvk] = framework(f, now, log)
		frameworks[gvk].AutoStatus = f.Extended && f.Subresource == "Auto"
		out = append(out, described(gvk, resource, frameworks[gvk]))
	}
	return out, frameworks, nil
}

func hasAdapter(known []*job.Descriptor, gvk schema.GroupVersionKind) bool {
	return slices.ContainsFunc(known, func(d *job.Descriptor) bool { return d.Remote != nil && d.GVK == gvk })
}

// find returns the kind of that name, or the only one that differs just in its case.
func find(list *metav1.APIResourceList, kind string) (served, resource string) {
	if list == nil {
		return "", ""
	}
	similar := 0
	for _, r := range list.APIResources {
		switch {
		case strings.Contains(r.Name, "/"): // a subresource
		case r.Kind == kind:
			return r.Kind, r.Name
		case strings.EqualFold(r.Kind, kind):
			served, resource = r.Kind, r.Name
			similar++
		}
	}
	if similar != 1 {
		return "", ""
	}
	return served, resource
}

func described(gvk schema.GroupVersionKind, resource string, f *external.Framework) *job.Descriptor {
	return &job.Descriptor{
		Framework: f.Name, GVK: gvk, Resource: resource, Prebuilt: true,
		New:       func() job.Object { return view.New(gvk) },
		NewList:   func() runtime.Object { return view.NewList(gvk) },
		IsActive:  func(job.Object) bool { return false },
		ManagedBy: func(o job.Object) string { return view.String(view.Of(o).Object, f.ManagedBy...) },
		Remote:    &job.Remote{ManagedBy: f.ManagedBy},
	}
}

func framework(f *transform.Framework, now func() time.Time, log logr.Logger) *external.Framework {
	name := nameOf(f.GVK)
	opened := func(phase, namespace string, until time.Time) {
		log.Info("Expressions cost too much again and again, and are suspended", "framework", name, "phase", phase, "namespace", namespace, "until", until)
		if f.Suspended != nil {
			f.Suspended(phase)
		}
	}
	return &external.Framework{
		Name:     name,
		Extended: f.Extended, NoJob: f.NoJob, Unchecked: f.Unchecked, ManagedBy: f.ManagedBy, Value: f.Value, WorkerValue: f.WorkerValue,
		CopyFields: f.CopyFields, Retry: f.RetryOnError, Preconditions: f.HasPreconditions(), Creates: f.HasMutations(transform.Creation),
		NoStatus: f.StatusMode == "Disabled", Mutates: f.StatusMode == "Mutate" && f.HasMutations(transform.StatusSync), Main: f.Subresource == "Main",
		AnnotationPrefixes: f.AnnotationPrefixes, LabelPrefixes: f.LabelPrefixes, SpecPaths: f.SpecPaths, Alone: f.Alone, MaxBytes: f.MaxBytes,
		Reserved: transform.Reserved, Expressions: guard.New(f, now, opened),
	}
}
