package flags

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

var effects = []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}

// Taints reads KEY[=VALUE]:EFFECT. spec: 70 §4.9.
func Taints(texts []string) ([]corev1.Taint, error) {
	var out []corev1.Taint
	for _, text := range texts {
		key, value, effect, err := parseTaint("node-taints", text)
		switch {
		case err != nil:
			return nil, err
		case key == "":
			return nil, fmt.Errorf("--node-taints %q: the key is missing: must be KEY[=VALUE]:EFFECT", text)
		case effect == "":
			return nil, fmt.Errorf("--node-taints %q: the effect is missing: must be KEY[=VALUE]:EFFECT with %s", text, strings.Join(effects, ", "))
		}
		taint := corev1.Taint{Key: key, Value: value, Effect: effect}
		if slices.ContainsFunc(out, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect }) {
			return nil, fmt.Errorf("--node-taints %q: there is another taint with this key and effect", text)
		}
		out = append(out, taint)
	}
	return out, nil
}

// Tolerations reads KEY[=VALUE][:EFFECT] and :EFFECT. spec: 70 §4.9.
func Tolerations(texts []string) ([]corev1.Toleration, error) {
	var out []corev1.Toleration
	for _, text := range texts {
		key, value, effect, err := parseTaint("tolerations", text)
		switch {
		case err != nil:
			return nil, err
		case key == "" && value != "":
			return nil, fmt.Errorf("--tolerations %q: a value needs a key: must be KEY[=VALUE][:EFFECT] or :EFFECT", text)
		case key == "" && effect == "":
			return nil, fmt.Errorf("--tolerations %q: is empty: must be KEY[=VALUE][:EFFECT] or :EFFECT", text)
		}
		toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: value, Effect: effect}
		if key == "" || value == "" {
			toleration.Operator = corev1.TolerationOpExists
		}
		out = append(out, toleration)
	}
	return out, nil
}

func parseTaint(flag, text string) (key, value string, effect corev1.TaintEffect, err error) {
	rest, word, _ := strings.Cut(text, ":")
	key, value, _ = strings.Cut(rest, "=")
	if word != "" && !slices.Contains(effects, word) {
		return "", "", "", fmt.Errorf("--%s %q: the effect %q must be %s", flag, text, word, strings.Join(effects, ", "))
	}
	if key != "" {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return "", "", "", fmt.Errorf("--%s %q: the key %q: %s", flag, text, key, wrong[0])
		}
	}
	if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
		return "", "", "", fmt.Errorf("--%s %q: the value %q: %s", flag, text, value, wrong[0])
	}
	return key, value, corev1.TaintEffect(word), nil
}
