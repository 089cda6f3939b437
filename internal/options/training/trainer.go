// Package training is the configuration of TrainJobs: its defaults, rules, and the resulting options (spec: 50 §4.11, §4.13.7).
package training

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// Options result from the configuration. Policies and modes have their names of the file.
type Options struct {
	ConflictPolicy, OwnershipMode   string
	Reserved                        []configv1beta2.ReservedManager
	SchedulingManagers              []string
	RestrictMetadata, StrictTargets bool
	// RecreateDeletedJobSet creates deleted JobSets again.
	RecreateDeletedJobSet bool
	// GPUResources count as GPUs besides resources whose name contains "gpu".
	GPUResources []string
	// CountMergedResources counts the processes of a node by the resources of runtime and TrainJob together.
	CountMergedResources bool
	// StatusAddress is the host:port of the progress server, and StatusPort its port.
	StatusAddress string
	StatusPort    int
	// StatusService is the Service by which pods reach it. StatusURL is its base URL otherwise.
	StatusService, StatusURL string
	// StatusQPS and StatusBurst limit the requests of the progress server to the API server. QPS 0 is no limit.
	StatusQPS   float32
	StatusBurst int
}

const (
	queueManagers  = "kueue.x-k8s.io/*"
	managerAccount = "kueue-controller-manager"

	userPrefix, groupPrefix, accountPrefix = "user:", "group:", "system:serviceaccount:"

	statusService = "kubeflow-trainer-controller-manager"

	statusPort  = 10443
	statusQPS   = 5
	statusBurst = 10
)

var (
	conflictPolicies = []string{"Warn", "Reject", "Ignore"}
	ownershipModes   = []string{"Reserved", "Strict", "Off"}
)

// SetDefaults sets omitted fields. The managers of the queue belong to the service account of Berth in its own namespace: in another
// namespace, users who may create service accounts could create one of the same name.
func SetDefaults(t *configv1beta2.Trainer, namespace string) {
	setIfNil(&t.RuntimePatches, configv1beta2.RuntimePatches{})
	p := t.RuntimePatches
	if p.ConflictPolicy == "" {
		p.ConflictPolicy = conflictPolicies[0]
	}
	setIfNil(&p.Ownership, configv1beta2.RuntimePatchOwnership{})
	if p.Ownership.Mode == "" {
		p.Ownership.Mode = ownershipModes[0]
	}
	if p.Ownership.Reserved == nil { // an empty list is intended
		p.Ownership.Reserved = []configv1beta2.ReservedManager{{Manager: queueManagers, Subjects: []string{accountPrefix + namespace + ":" + managerAccount}}}
	}
	if p.SchedulingManagers == nil {
		p.SchedulingManagers = []string{queueManagers}
	}
	setIfNil(&p.RestrictMetadata, true)
	setIfNil(&p.StrictTargets, true)
	setIfNil(&t.RecreateDeletedJobSet, true)
	setIfNil(&t.CountMergedResources, false)
	setIfNil(&t.StatusServer, configv1beta2.TrainerStatusServer{})
	setIfNil(&t.StatusServer.Port, statusPort)
	setIfNil(&t.StatusServer.QPS, statusQPS)
	setIfNil(&t.StatusServer.Burst, statusBurst)
}

func setIfNil[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// Validate applies the rules to a configuration with defaults.
func Validate(t *configv1beta2.Trainer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("runtimePatches")
	if p := t.RuntimePatches.ConflictPolicy; !slices.Contains(conflictPolicies, p) {
		errs = append(errs, field.NotSupported(at.Child("conflictPolicy"), p, conflictPolicies))
	}
	owned := t.RuntimePatches.Ownership
	if !slices.Contains(ownershipModes, owned.Mode) {
		errs = append(errs, field.NotSupported(at.Child("ownership", "mode"), owned.Mode, ownershipModes))
	}
	for i, r := range owned.Reserved {
		entry := at.Child("ownership", "reserved").Index(i)
		errs = append(errs, validateManagers(r.Manager, entry.Child("manager"))...)
		for j, subject := range r.Subjects {
			if user, group := Subject(subject); user == "" && group == "" {
				errs = append(errs, field.Invalid(entry.Child("subjects").Index(j), subject,
					"may be a user or a group: write user:NAME, group:NAME, or system:serviceaccount:NAMESPACE:NAME"))
			}
		}
	}
	for i, m := range t.RuntimePatches.SchedulingManagers {
		errs = append(errs, validateManagers(m, at.Child("schedulingManagers").Index(i))...)
	}
	for i, name := range t.GPUResources {
		if msgs := validation.IsQualifiedName(name); len(msgs) > 0 {
			errs = append(errs, field.Invalid(path.Child("gpuResources").Index(i), name, strings.Join(msgs, "; ")))
		}
	}
	server, at := t.StatusServer, path.Child("statusServer")
	if msgs := validation.IsValidPortNum(int(*server.Port)); len(msgs) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), *server.Port, strings.Join(msgs, "; ")))
	}
	if *server.QPS < 0 {
		errs = append(errs, field.Invalid(at.Child("qps"), *server.QPS, "must not be negative"))
	}
	if *server.Burst < 0 {
		errs = append(errs, field.Invalid(at.Child("burst"), *server.Burst, "must not be negative"))
	}
	return errs
}

// Subject parses an owner of reserved managers: user:NAME or a service account is a user, group:NAME a group. Both are empty for any other
// text, which would be ambiguous.
func Subject(subject string) (user, group string) {
	if name, ok := strings.CutPrefix(subject, userPrefix); ok {
		return name, ""
	}
	if name, ok := strings.CutPrefix(subject, groupPrefix); ok {
		return "", name
	}
	if account, ok := strings.CutPrefix(subject, accountPrefix); ok {
		if namespace, name, _ := strings.Cut(account, ":"); namespace != "" && name != "" && !strings.Contains(name, ":") {
			return subject, ""
		}
	}
	return "", ""
}

// validateManagers checks the name of a manager, or a domain followed by /*.
func validateManagers(pattern string, path *field.Path) field.ErrorList {
	if domain, ok := strings.CutSuffix(pattern, "/*"); ok {
		if msgs := validation.IsDNS1123Subdomain(domain); len(msgs) > 0 {
			return field.ErrorList{field.Invalid(path, pattern, strings.Join(msgs, "; "))}
		}
		return nil
	}
	return validation.IsDomainPrefixedPath(path, pattern)
}

// Resolve returns the options of a valid configuration.
func Resolve(t *configv1beta2.Trainer) Options {
	p := t.RuntimePatches
	return Options{
		ConflictPolicy: p.ConflictPolicy, OwnershipMode: p.Ownership.Mode, Reserved: p.Ownership.Reserved, SchedulingManagers: p.SchedulingManagers,
		RestrictMetadata: *p.RestrictMetadata, StrictTargets: *p.StrictTargets,
		RecreateDeletedJobSet: *t.RecreateDeletedJobSet, GPUResources: t.GPUResources, CountMergedResources: *t.CountMergedResources,
		StatusAddress: net.JoinHostPort("", strconv.Itoa(int(*t.StatusServer.Port))), StatusPort: int(*t.StatusServer.Port), StatusService: statusService,
		StatusQPS: *t.StatusServer.QPS, StatusBurst: int(*t.StatusServer.Burst),
	}
}
