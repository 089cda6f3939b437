package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options"
)

// Short names of the sources of custom labels.
const (
	fromQueue      = configv1beta2.MetricSourceClusterQueue
	fromLocalQueue = configv1beta2.MetricSourceLocalQueue
	fromCohort     = configv1beta2.MetricSourceCohort
	fromWorkload   = configv1beta2.MetricSourceWorkload
)

// untracked replaces every value that is not tracked.
const untracked = "kueue.x-k8s.io/_UNTRACKED_VALUE_"

// customLabels are the labels of the configuration, by the kind of object that they are read from. spec: 70 §2.1.2.
type customLabels map[configv1beta2.MetricSourceKind][]configv1beta2.CustomMetricLabel

func newCustomLabels(list []configv1beta2.CustomMetricLabel) customLabels {
	out := customLabels{}
	for _, l := range list {
		out[l.SourceKind] = append(out[l.SourceKind], l)
	}
	return out
}

// names returns the label names of kinds: by kind name, then as configured.
func (c customLabels) names(kinds ...configv1beta2.MetricSourceKind) []string {
	slices.Sort(kinds)
	var out []string
	for _, kind := range kinds {
		for _, l := range c[kind] {
			out = append(out, "custom_"+l.Name)
		}
	}
	return out
}

// values returns an object's values for the labels of its kind; blank ones without an object.
func (c customLabels) values(kind configv1beta2.MetricSourceKind, object metav1.Object) []string {
	list := c[kind]
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	if object == nil {
		return out
	}
	for i := range list {
		out[i] = valueOf(&list[i], object)
	}
	return out
}

// earlier returns the labels with an object's values before a change of them, nil if no value changed.
func (c customLabels) earlier(kind configv1beta2.MetricSourceKind, before, after []string) prometheus.Labels {
	if slices.Equal(before, after) {
		return nil
	}
	out := prometheus.Labels{}
	for i, name := range c.names(kind) {
		out[name] = before[i]
	}
	return out
}

func valueOf(l *configv1beta2.CustomMetricLabel, object metav1.Object) string {
	key, annotation := options.SourceKey(l)
	from := object.GetLabels()
	if annotation {
		from = object.GetAnnotations()
	}
	value, there := from[key]
	if there && len(l.TrackedValues) > 0 && !slices.Contains(l.TrackedValues, value) {
		return untracked
	}
	return value
}
