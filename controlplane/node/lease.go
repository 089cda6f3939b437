package node

import (
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-project/berth/controlplane/simnode"
)

const (
	// LeaseDuration is how long a node counts as alive after a heartbeat. It is long, so that idle nodes cost almost no requests.
	LeaseDuration = 4 * time.Minute
	heartbeat     = LeaseDuration / 4
)

// heartbeats renews the leases of all nodes but failed ones until ctx ends. KWOK can do so itself, but then it handles the pods of a node only after it
// has acquired the node's lease, and waits for minutes for the lease of an earlier run.
func heartbeats(ctx context.Context, client kubernetes.Interface) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		if err := renewAll(ctx, client, time.Now()); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "heartbeat: %v\n", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func renewAll(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		if simnode.HasFailed(&nodes.Items[i]) {
			continue
		}
		if err := renew(ctx, client, &nodes.Items[i], now); err != nil {
			return fmt.Errorf("lease of node %s: %w", nodes.Items[i].Name, err)
		}
	}
	return nil
}

func renew(ctx context.Context, client kubernetes.Interface, node *corev1.Node, now time.Time) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	stamp := metav1.NewMicroTime(now)
	lease, err := leases.Get(ctx, node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(LeaseDuration / time.Second)
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name:            node.Name,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &stamp},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &stamp
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
