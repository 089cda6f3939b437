package options

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/feature"
)

// Bounds on device class mappings (spec: 70 §3.3).
const (
	maxDeviceMappings = 16
	maxDeviceClasses  = 8
	maxQualifiedName  = 253
	maxDomain         = 63
	maxIdentifier     = 32
)

var (
	quotaCheckStrategies     = []configv1beta2.QuotaCheckStrategy{configv1beta2.BlockUndeclared, configv1beta2.IgnoreUndeclared}
	transformationStrategies = []configv1beta2.TransformationStrategy{configv1beta2.RetainInput, configv1beta2.ReplaceInput}

	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func validateResources(r *configv1beta2.Resources, gates feature.Gates, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if gates.On(feature.QuotaCheckStrategy) {
		switch at := path.Child("quotaCheckStrategy"); {
		case !slices.Contains(quotaCheckStrategies, *r.QuotaCheckStrategy):
			errs = append(errs, field.NotSupported(at, *r.QuotaCheckStrategy, quotaCheckStrategies))
		case *r.QuotaCheckStrategy == configv1beta2.IgnoreUndeclared && len(r.ExcludeResourcePrefixes) > 0:
			errs = append(errs, field.Forbidden(path.Child("excludeResourcePrefixes"),
				"may not be set with quotaCheckStrategy IgnoreUndeclared, which ignores such resources anyway; remove one of the two"))
		}
	}
	inputs := sets.New[corev1.ResourceName]()
	for i, t := range r.Transformations {
		at := path.Child("transformations").Index(i)
		if t.Input == "" {
			errs = append(errs, field.Required(at.Child("input"), ""))
		} else if inputs.Has(t.Input) {
			errs = append(errs, field.Duplicate(at.Child("input"), t.Input))
		}
		inputs.Insert(t.Input)
		if !slices.Contains(transformationStrategies, *t.Strategy) {
			errs = append(errs, field.NotSupported(at.Child("strategy"), *t.Strategy, transformationStrategies))
		}
	}
	return append(errs, validateMappings(r.DeviceClassMappings, gates, path.Child("deviceClassMappings"))...)
}

// validateMappings checks the quota names of devices (spec: 20 §4.12).
func validateMappings(list []configv1beta2.DeviceClassMapping, gates feature.Gates, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if len(list) > maxDeviceMappings {
		errs = append(errs, field.TooMany(path, len(list), maxDeviceMappings))
	}
	names := sets.New[corev1.ResourceName]()
	users := map[corev1.ResourceName][]int{} // earlier mappings with the class
	for i, m := range list {
		at := path.Index(i)
		errs = append(errs, validateQuotaName(m.Name, at.Child("name"))...)
		if names.Has(m.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		names.Insert(m.Name)
		errs = append(errs, validateSources(m.Sources, gates, at.Child("sources"))...)
		errs = append(errs, validateClasses(list, i, users, at.Child("deviceClassNames"))...)
	}
	return errs
}

// validateClasses checks the classes of one mapping, also against earlier mappings.
func validateClasses(list []configv1beta2.DeviceClassMapping, i int, users map[corev1.ResourceName][]int, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	classes := list[i].DeviceClassNames
	if len(classes) == 0 {
		errs = append(errs, field.Required(path, "name at least one DeviceClass"))
	}
	if len(classes) > maxDeviceClasses {
		errs = append(errs, field.TooMany(path, len(classes), maxDeviceClasses))
	}
	here := sets.New[corev1.ResourceName]()
	for j, class := range classes {
		at := path.Index(j)
		errs = append(errs, validateQuotaName(class, at)...)
		if here.Has(class) {
			errs = append(errs, field.Duplicate(at, class))
			continue
		}
		here.Insert(class)
		for _, other := range users[class] {
			if !distinctCounters(list[other].Sources, list[i].Sources) {
				errs = append(errs, field.Invalid(at, class, fmt.Sprintf(
					"is in the mapping %s too; a class may be in two only if both have counter sources with different names", list[other].Name)))
			}
		}
		users[class] = append(users[class], i)
	}
	return errs
}

// distinctCounters reports whether two mappings measure a device by different counters, so that none is charged twice.
func distinctCounters(a, b []configv1beta2.DeviceClassSource) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	names := sets.New[string]()
	for _, s := range a {
		if s.Counter == nil {
			return false
		}
		names.Insert(s.Counter.Name)
	}
	for _, s := range b {
		if s.Counter == nil || names.Has(s.Counter.Name) {
			return false
		}
	}
	return true
}

func validateQuotaName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	for _, msg := range validation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	if len(name) > maxQualifiedName {
		errs = append(errs, field.TooLong(path, name, maxQualifiedName))
	}
	return errs
}

func validateSources(list []configv1beta2.DeviceClassSource, gates feature.Gates, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	for i, s := range list {
		at := path.Index(i)
		switch {
		case s.Counter == nil && s.Capacity == nil:
			errs = append(errs, field.Required(at, "one of counter and capacity"))
		case s.Counter != nil && s.Capacity != nil:
			errs = append(errs, field.Forbidden(at, "counter and capacity may not stand in one entry; make two mappings"))
		case (list[0].Counter == nil) != (s.Counter == nil):
			errs = append(errs, field.Forbidden(at, "counter and capacity may not be mixed in one mapping; make two mappings"))
		case s.Counter != nil:
			errs = append(errs, needGate(feature.KueueDRAIntegrationPartitionableDevices, gates, at.Child("counter"))...)
			for _, msg := range validation.IsDNS1123Label(s.Counter.Name) {
				errs = append(errs, field.Invalid(at.Child("counter", "name"), s.Counter.Name, msg))
			}
			errs = append(errs, validateMeasure(s.Counter, at.Child("counter"))...)
		default:
			errs = append(errs, needGate(feature.KueueDRAIntegrationConsumableCapacity, gates, at.Child("capacity"))...)
			errs = append(errs, validateCapacityName(s.Capacity.Name, at.Child("capacity", "name"))...)
			errs = append(errs, validateMeasure(s.Capacity, at.Child("capacity"))...)
		}
	}
	return errs
}

func needGate(gate feature.Gate, gates feature.Gates, path *field.Path) field.ErrorList {
	if gates.On(gate) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, fmt.Sprintf("needs featureGates.%s: true", gate))}
}

// validateCapacityName checks an identifier with an optional domain.
func validateCapacityName(name string, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	domain, id, prefixed := strings.Cut(name, "/")
	if !prefixed {
		id = name
	} else if msgs := validation.IsDNS1123Subdomain(strings.ToLower(domain)); len(msgs) > 0 || len(domain) > maxDomain {
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf("the part before / must be a DNS subdomain of at most %d characters", maxDomain)))
	}
	if !identifier.MatchString(id) || len(id) > maxIdentifier {
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf(
			"the name must be a letter or underscore followed by letters, digits and underscores, at most %d characters", maxIdentifier)))
	}
	return errs
}

func validateMeasure(m *configv1beta2.DeviceMeasure, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	switch at := path.Child("driver"); {
	case m.Driver == "":
		errs = append(errs, field.Required(at, "name the driver of the devices"))
	case len(m.Driver) > maxDomain:
		errs = append(errs, field.TooLong(at, m.Driver, maxDomain))
	default:
		for _, msg := range validation.IsDNS1123Subdomain(m.Driver) {
			errs = append(errs, field.Invalid(at, m.Driver, msg))
		}
	}
	at := path.Child("deviceSelector", "cel", "expression")
	if m.DeviceSelector.CEL == nil || m.DeviceSelector.CEL.Expression == "" {
		return append(errs, field.Required(at, "give a CEL expression over device; true selects all of the driver's"))
	}
	expression := m.DeviceSelector.CEL.Expression
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	if result := compiler.CompileCELExpression(expression, dracel.Options{DisableCostEstimation: true}); result.Error != nil {
		errs = append(errs, field.Invalid(at, expression, result.Error.Error()))
	}
	return errs
}
