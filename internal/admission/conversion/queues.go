package conversion

import "maps"

// The kinds around the Workload: queues, cohorts and worker clusters.

func clusterQueueUp(o, kept object) error {
	spec := at(o, "spec")
	rename(spec, "cohort", "cohortName")
	checksUp(spec)
	if f := at(spec, "flavorFungibility"); f != nil { // two old words, which are not read back (spec: 70 §4.8)
		for field, old := range map[string]string{"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"} {
			if f[field] == old {
				f[field] = "MayStopSearch"
			}
		}
	}
	restore(spec, at(kept, "spec"), "concurrentAdmissionPolicy")
	delete(at(o, "status"), "pendingWorkloadsStatus")
	return cohortUp(o, nil)
}

// checksUp makes one strategy of the two ways to list admission checks: the plain list wins over a strategy given at the same time (spec:
// 10 §2.7). Duplicate checks and a strategy without checks are dropped, as v1beta2 allows neither.
func checksUp(spec object) {
	list, isList := spec["admissionChecks"].([]any)
	if isList {
		delete(spec, "admissionChecks")
	}
	if len(list) > 0 {
		seen := map[any]bool{}
		var rules []any
		for _, name := range list {
			if text, _ := name.(string); !seen[text] {
				seen[text] = true
				rules = append(rules, object{"name": name})
			}
		}
		spec["admissionChecksStrategy"] = object{"admissionChecks": rules}
	}
	if strategy := at(spec, "admissionChecksStrategy"); strategy != nil {
		if rules, _ := strategy["admissionChecks"].([]any); len(rules) == 0 {
			delete(spec, "admissionChecksStrategy")
		}
	}
}

func clusterQueueDown(o object) (object, error) {
	spec := at(o, "spec")
	rename(spec, "cohortName", "cohort")
	return keepField(nil, spec, "concurrentAdmissionPolicy", "spec"), nil
}

// cohortUp drops a field that is meaningful for LocalQueues only.
func cohortUp(o, _ object) error {
	delete(at(o, "status", "fairSharing"), "admissionFairSharingStatus")
	return nil
}

func localQueueUp(o, _ object) error {
	status := at(o, "status")
	rename(status, "flavorUsage", "flavorsUsage")
	delete(status, "flavors")
	return nil
}

func localQueueDown(o object) (object, error) {
	rename(at(o, "status"), "flavorsUsage", "flavorUsage")
	return nil, nil
}

// workerClusterUp moves the credentials into clusterSource. v1beta1 requires kubeConfig, so an empty location means that there is none
// (spec: 40 §2.1).
func workerClusterUp(o, _ object) error {
	spec := at(o, "spec")
	if spec == nil {
		return nil
	}
	source := object{}
	if config := at(spec, "kubeConfig"); config["location"] != nil && config["location"] != "" {
		source["kubeConfig"] = config
	}
	if profile, ok := spec["clusterProfileRef"]; ok {
		source["clusterProfileRef"] = profile
	}
	delete(spec, "kubeConfig")
	delete(spec, "clusterProfileRef")
	spec["clusterSource"] = source
	return nil
}

func workerClusterDown(o object) (object, error) {
	spec := at(o, "spec")
	source := at(spec, "clusterSource")
	if source == nil {
		return nil, nil
	}
	delete(spec, "clusterSource")
	spec["kubeConfig"] = object{"location": "", "locationType": "Secret"}
	maps.Copy(spec, source)
	return nil, nil
}

func workerConfigUp(o, kept object) error {
	restore(at(o, "spec"), at(kept, "spec"), "quotaManagement")
	return nil
}

func workerConfigDown(o object) (object, error) {
	return keepField(nil, at(o, "spec"), "quotaManagement", "spec"), nil
}
