package dash

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestStandings: the order by past usage is among all LocalQueues of a ClusterQueue, and shows the readable ones.
func TestStandings(t *testing.T) {
	w := newWorld(t, asIs)
	w.queues()
	embeddedtest.Edit(t, w.c, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.red}}, func(q *kueue.ClusterQueue) {
		q.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	})
	for ns, used := range map[string]string{w.red: "3", w.blue: "1"} {
		embeddedtest.EditStatus(t, w.c, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "main"}}, func(l *kueue.LocalQueue) {
			l.Status.FairSharing = &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: &kueue.AdmissionFairSharingStatus{
				ConsumedResources: corev1.ResourceList{"cpu": quantity.MustParse(used)}, LastUpdate: metav1.Now(),
			}}
		})
	}
	viewer := w.viewer()
	w.create(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.red + "-queues"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"clusterqueues"}, Verbs: []string{"get", "list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: w.red + "-queues"}, Subjects: []rbacv1.Subject{w.subject("viewer")},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.red + "-queues"},
		})
	for token, want := range map[string]string{w.administrator(): "1 " + w.blue + " 25%, 2 " + w.red + " 75%", viewer: "2 " + w.red + " 75%"} {
		wait.Until(w.TB, want, func() error {
			var got []string
			list, _ := w.dial(token, "/ws/cluster-queue/"+w.red).document().at("standings").([]any)
			for _, each := range list {
				d := document(each.(map[string]any))
				got = append(got, fmt.Sprint(d.at("place"), " ", d.at("namespace"), " ", d.at("share")))
			}
			if text := strings.Join(got, ", "); text != want {
				return fmt.Errorf("%q", text)
			}
			return nil
		})
	}
}
