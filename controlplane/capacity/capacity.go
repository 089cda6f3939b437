// Package capacity reads the size of a simulated node from its command-line form, such as cpu=32,memory=128Gi,nvidia.com/gpu=8.
package capacity

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Default is the size of a node when none is given.
const Default = "cpu=32,memory=128Gi,nvidia.com/gpu=8"

// defaultPods is the number of pods of a node by default, as of the kubelet.
const defaultPods = "110"

// Parse reads name=quantity pairs separated by commas. Quantities are Kubernetes quantities and not negative; a name is a resource name.
// Unnamed resources do not exist on the node, except pods, of which there are 110. The empty text means Default.
func Parse(text string) (corev1.ResourceList, error) {
	if strings.TrimSpace(text) == "" {
		text = Default
	}
	list := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found {
			return nil, fmt.Errorf("%q is not of the form resource=quantity, as in %s", pair, Default)
		}
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return nil, fmt.Errorf("%q is not a resource name: %s", name, strings.Join(problems, "; "))
		}
		if _, twice := list[corev1.ResourceName(name)]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %q is not a quantity such as 8, 500m or 64Gi", name, value, value)
		}
		if quantity.Sign() < 0 {
			return nil, fmt.Errorf("%s=%s: must not be negative", name, value)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	if _, given := list[corev1.ResourcePods]; !given {
		list[corev1.ResourcePods] = resource.MustParse(defaultPods)
	}
	return list, nil
}
