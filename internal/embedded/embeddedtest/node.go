package embeddedtest

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/embedded/simnode"
)

// FailNode makes a simulated node fail, and waits until it is NotReady: from then on its pods do not change.
func FailNode(t testing.TB, c client.Client, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Edit(t, c, node, func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, simnode.FailureAnnotation, "true") })
	waitForNode(t, c, node, "has failed", func(ready corev1.ConditionStatus) bool { return ready != corev1.ConditionTrue })
}

// RecoverNode makes a node recover that was made to fail, and waits until it is Ready and can be used.
func RecoverNode(t testing.TB, c client.Client, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Edit(t, c, node, func(n *corev1.Node) { delete(n.Annotations, simnode.FailureAnnotation) })
	waitForNode(t, c, node, "has recovered", func(ready corev1.ConditionStatus) bool {
		return ready == corev1.ConditionTrue && len(node.Spec.Taints) == 0
	})
}

func waitForNode(t testing.TB, c client.Client, node *corev1.Node, what string, is func(ready corev1.ConditionStatus) bool) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("node %s %s", node.Name, what), func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		ready := corev1.ConditionUnknown
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				ready = condition.Status
			}
		}
		if !is(ready) {
			return fmt.Errorf("condition Ready is %s, taints %v", ready, node.Spec.Taints)
		}
		return nil
	})
}
