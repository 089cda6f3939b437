// Package jobset is the integration of JobSet: one descriptor. It reads JobSets
// through a narrow view, so that it also supports later versions.
package jobset

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// ownManager is the value of spec.managedBy for the JobSet controller.
const ownManager = "jobset.sigs.k8s.io/jobset-controller"

// Descriptor describes JobSet (spec: 30 §4.9).
func Descriptor() *plan.Descriptor {
	d := view.Kind{
		Framework:   "jobset.x-k8s.io/jobset",
		GVK:         jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet),
		Resource:    jobsetv1alpha2.ResourceJobSets,
		Suspend:     []string{"spec", "suspend"},
		ManagedBy:   []string{"spec", "managedBy"},
		OwnManager:  ownManager,
		TTL:         []string{"spec", "ttlSecondsAfterFinished"},
		Roles:       roles,
		Finished:    view.FinishedBy("Completed", "Failed"),
		IsActive:    isActive,
		PodsReady:   podsReady,
		Reclaimable: reclaimable,
		Groups:      true,
	}.Descriptor()
	d.Owns = []plan.Child{{GVK: batchv1.SchemeGroupVersion.WithKind("Job"), Made: madeJob}}
	d.PodLabels = plan.PodsByName(jobsetv1alpha2.JobSetNameKey)
	return d
}

// roles are the replicated jobs.
func roles(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	var out []view.Role
	for i, rj := range view.Maps(o.Object, "spec", "replicatedJobs") {
		template := view.Map(rj, "template", "spec", "template")
		if template == nil {
			template = map[string]any{}
		}
		replicas := view.Int(rj, 1, "replicas")
		out = append(out, view.Role{
			Name: view.String(rj, "name"), Count: plan.Times(replicas, pods(rj)), Template: template,
			Path: field.NewPath("spec", "replicatedJobs").Index(i).Child("template", "spec", "template"),
			Jobs: &replicas, CountPath: field.NewPath("spec", "replicatedJobs").Index(i).Child("replicas"),
			Ranks: plan.Ranks{PodIndex: batchv1.JobCompletionIndexAnnotation, SubGroup: jobsetv1alpha2.JobIndexKey, SubGroups: replicas},
		})
	}
	return out, nil
}

// pods is the number of concurrent pods of each Job of a replicated job.
func pods(rj map[string]any) int32 {
	n := view.Int(rj, 1, "template", "spec", "parallelism")
	return min(n, view.Int(rj, n, "template", "spec", "completions"))
}

// statuses are the counts of Jobs in the status, by replicated job.
func statuses(o view.Object) []map[string]any {
	return view.Maps(o.Object, "status", "replicatedJobsStatus")
}

func isActive(o view.Object) bool {
	return slices.ContainsFunc(statuses(o), func(s map[string]any) bool { return view.Int(s, 0, "active") > 0 })
}

func podsReady(o view.Object, _ []view.Role) bool {
	var ready, wanted int64
	for _, rj := range view.Maps(o.Object, "spec", "replicatedJobs") {
		wanted += int64(view.Int(rj, 1, "replicas"))
	}
	for _, s := range statuses(o) {
		ready += int64(view.Int(s, 0, "ready")) + int64(view.Int(s, 0, "succeeded"))
	}
	return ready == wanted
}

// reclaimable counts the pods of Jobs that succeeded.
func reclaimable(o view.Object, roles []view.Role) []kueue.ReclaimablePod {
	var out []kueue.ReclaimablePod
	for _, r := range roles {
		for _, s := range statuses(o) {
			n := view.Int(s, 0, "succeeded")
			if view.String(s, "name") == r.Name && n > 0 && n <= r.Ranks.SubGroups {
				out = append(out, kueue.ReclaimablePod{Name: kueue.PodSetReference(r.Name), Count: plan.Times(n, r.Count/r.Ranks.SubGroups)})
			}
		}
	}
	return out
}
