package options

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// Bounds on custom metric labels: each combination of values is a series (spec: 70 §3.3).
const (
	maxCustomLabels         = 20
	maxCustomLabelsKind     = 6
	maxCustomLabelsWorkload = 2
	maxTrackedValues        = 16
	maxTrackedWorkload      = 12
)

var customLabelName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)

var metricSourceKinds = []configv1beta2.MetricSourceKind{
	configv1beta2.MetricSourceClusterQueue, configv1beta2.MetricSourceLocalQueue,
	configv1beta2.MetricSourceCohort, configv1beta2.MetricSourceWorkload,
}

func validateMetrics(m *configv1beta2.Metrics, path *field.Path) field.ErrorList {
	errs := validateAddress(m.BindAddress, path.Child("bindAddress"))
	if s := m.LocalQueueMetrics.LocalQueueSelector; s != nil {
		_, selectorErrs := parseSelector(s, path.Child("localQueueMetrics", "localQueueSelector"))
		errs = append(errs, selectorErrs...)
	}
	return append(errs, validateCustomLabels(m.CustomLabels, path.Child("customLabels"))...)
}

func validateCustomLabels(list []configv1beta2.CustomMetricLabel, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if len(list) > maxCustomLabels {
		errs = append(errs, field.TooMany(path, len(list), maxCustomLabels))
	}
	names := sets.New[string]()
	perKind := map[configv1beta2.MetricSourceKind]int{}
	for i, label := range list {
		at := path.Index(i)
		if !customLabelName.MatchString(label.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), label.Name, "must be a letter followed by letters, digits and underscores"))
		}
		if names.Has(label.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), label.Name))
		}
		names.Insert(label.Name)
		perKind[label.SourceKind]++
		errs = append(errs, validateLabelSource(label, at)...)
		errs = append(errs, validateTrackedValues(label, at.Child("trackedValues"))...)
	}
	for _, kind := range metricSourceKinds {
		limit := maxCustomLabelsKind
		if kind == configv1beta2.MetricSourceWorkload {
			limit = maxCustomLabelsWorkload
		}
		if n := perKind[kind]; n > limit {
			errs = append(errs, field.Invalid(path, n, fmt.Sprintf("has %d labels of sourceKind %s; at most %d are allowed", n, kind, limit)))
		}
	}
	return errs
}

func validateLabelSource(label configv1beta2.CustomMetricLabel, at *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if !slices.Contains(metricSourceKinds, label.SourceKind) {
		errs = append(errs, field.NotSupported(at.Child("sourceKind"), label.SourceKind, metricSourceKinds))
	}
	key, keyAt := label.Name, at.Child("name")
	switch {
	case label.SourceLabelKey != "" && label.SourceAnnotationKey != "":
		return append(errs, field.Forbidden(at.Child("sourceAnnotationKey"), "may not be set together with sourceLabelKey"))
	case label.SourceLabelKey != "":
		key, keyAt = label.SourceLabelKey, at.Child("sourceLabelKey")
	case label.SourceAnnotationKey != "":
		key, keyAt = label.SourceAnnotationKey, at.Child("sourceAnnotationKey")
	}
	for _, msg := range validation.IsQualifiedName(key) {
		errs = append(errs, field.Invalid(keyAt, key, "is used as a key of a label or annotation: "+msg))
	}
	return errs
}

func validateTrackedValues(label configv1beta2.CustomMetricLabel, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	limit := maxTrackedValues
	if label.SourceKind == configv1beta2.MetricSourceWorkload {
		limit = maxTrackedWorkload
		if len(label.TrackedValues) == 0 {
			errs = append(errs, field.Required(path, "labels of sourceKind Workload need a closed set of values"))
		}
	}
	if n := len(label.TrackedValues); n > limit {
		errs = append(errs, field.TooMany(path, n, limit))
	}
	for i, value := range label.TrackedValues {
		if slices.Contains(label.TrackedValues[:i], value) {
			errs = append(errs, field.Duplicate(path.Index(i), value))
		}
	}
	return errs
}

// TLS is what the listeners may negotiate. Nil lists of cipher suites and curves are the library's defaults.
type TLS struct {
	MinVersion   uint16
	CipherSuites []uint16
	Curves       []tls.CurveID
	// NextProtos are the offered application protocols; nil is HTTP/2 and HTTP/1.1.
	NextProtos []string
}

var (
	tlsVersions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

	knownCurves = []tls.CurveID{
		tls.CurveP256, tls.CurveP384, tls.CurveP521, tls.X25519,
		tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024,
	}
)

// resolveTLS parses names of versions, cipher suites and curves, with an error for each unknown one.
func resolveTLS(c *configv1beta2.TLS, path *field.Path) (TLS, field.ErrorList) {
	out, errs := TLS{MinVersion: tls.VersionTLS12}, field.ErrorList{}
	if c == nil {
		return out, errs
	}
	if c.MinVersion != "" {
		version, known := tlsVersions[c.MinVersion]
		if !known {
			errs = append(errs, field.NotSupported(path.Child("minVersion"), c.MinVersion, sets.List(sets.KeySet(tlsVersions))))
		} else {
			out.MinVersion = version
		}
	}
	if out.MinVersion == tls.VersionTLS13 && len(c.CipherSuites) > 0 {
		errs = append(errs, field.Forbidden(path.Child("cipherSuites"), "may not be set with VersionTLS13, whose suites are fixed; remove it"))
	}
	suites := map[string]uint16{}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		suites[s.Name] = s.ID
	}
	for i, name := range c.CipherSuites {
		id, known := suites[name]
		if !known {
			errs = append(errs, notSupported(path.Child("cipherSuites").Index(i), name, sets.List(sets.KeySet(suites))))
		}
		out.CipherSuites = append(out.CipherSuites, id)
	}
	for i, number := range c.CurvePreferences {
		id := tls.CurveID(number)
		if int32(id) != number || !slices.Contains(knownCurves, id) {
			errs = append(errs, field.NotSupported(path.Child("curvePreferences").Index(i), number, curveNumbers()))
		}
		out.Curves = append(out.Curves, id)
	}
	return out, errs
}

func curveNumbers() []string {
	numbers := make([]string, len(knownCurves))
	for i, id := range knownCurves {
		numbers[i] = fmt.Sprintf("%d (%s)", uint16(id), id)
	}
	return numbers
}
