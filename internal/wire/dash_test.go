package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/options"
)

// TestDashboard: the manager serves it with only the installed access rules, and shows why a Workload waits.
// spec: 70 §4.10.
func TestDashboard(t *testing.T) {
	admin, c := ownServer(t)
	s := &seen{t, admin, c}
	o := options.Default()
	o.Dashboard.Address = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	s.manageWith(o, "", true)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red"}}, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}},
		clusterQueue("small", "1"), localQueue("red", "main", "small"), waiting("red", "main", "large", 0))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "reader"}}
	s.create(account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "red", Name: "reader"}},
	})
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Authorization": {"Bearer " + request.Status.Token}}
	first := func(path string, into any) error {
		conn, response, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+o.Dashboard.Address+path, header)
		if response != nil {
			defer response.Body.Close()
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(wait.Patience))
		_, data, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		return json.Unmarshal(data, into)
	}
	wait.Until(t, "it shows why the workload waits", func() error {
		var w kueue.Workload
		if err := first("/ws/workload/red/large", &w); err != nil {
			return err
		}
		for _, condition := range w.Status.Conditions {
			if condition.Type == kueue.WorkloadQuotaReserved && condition.Message != "" {
				return nil
			}
		}
		return fmt.Errorf("it shows %+v", w.Status)
	})
	wait.Until(t, "it shows events", func() error {
		var found corev1.EventList
		if err := first("/ws/workload/red/large/events", &found); err != nil {
			return err
		}
		if len(found.Items) == 0 || found.Items[0].InvolvedObject.Name != "large" {
			return fmt.Errorf("%d events", len(found.Items))
		}
		return nil
	})
	wait.Until(t, "it answers what-ifs", func() error {
		conn, response, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+o.Dashboard.Address+"/ws/what-if/answer", header)
		if response != nil {
			defer response.Body.Close()
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(wait.Patience))
		question := `{"quotas": [{"queue": "small", "resource": "cpu", "amount": "+2"}], "submit": {"namespace": "red", "queue": "main", "pods": "1", "requests": "cpu=1"}}`
		if err := conn.WriteMessage(websocket.TextMessage, []byte(question)); err != nil {
			return err
		}
		var text []byte
		var reply struct{ Answer struct{ Summary string } }
		for progress := true; progress; progress = strings.HasPrefix(string(text), `{"done"`) || strings.HasPrefix(string(text), `{"waiting"`) {
			if _, text, err = conn.ReadMessage(); err != nil {
				return err
			}
		}
		if err := json.Unmarshal(text, &reply); err != nil {
			return err
		}
		if want := "Within 2h00m, of the workloads: 1 is new, 1 starts that would not. Starts: 1 (0 without the change); waiting at the end: 1 (1)."; reply.Answer.Summary != want {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	var form struct{ ClusterQueues []struct{ Name string } }
	if err := first("/ws/what-if", &form); err != nil || len(form.ClusterQueues) != 1 || form.ClusterQueues[0].Name != "small" {
		t.Errorf("the form of what-ifs: %v %v", form, err)
	}
}
