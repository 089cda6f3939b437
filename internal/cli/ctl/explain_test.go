package ctl

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

// TestReason: the answer of a manager that does not know an object is told from that of a server that does not know the API, even to a
// command that reads a path. spec: 70 §4.9.
func TestReason(t *testing.T) {
	status := func(err *apierrors.StatusError) string {
		answer := err.ErrStatus
		answer.APIVersion, answer.Kind = "v1", "Status"
		text, _ := json.Marshal(answer)
		return string(text)
	}
	topologies := schema.GroupResource{Group: berthv1alpha1.GroupVersion.Group, Resource: "topologies"}
	for name, tc := range map[string]struct {
		code       int
		body, want string
	}{
		"an object that is not known":    {404, status(apierrors.NewNotFound(topologies, "dc")), "it has not seen this Topology yet"},
		"a path that is not served":      {404, status(apierrors.NewGenericServerResponse(404, "get", topologies, "dc", "", 0, true)), "its API visibility.berth.dev is not installed: berth install"},
		"a group that is not installed":  {404, "404 page not found", "its API visibility.berth.dev is not installed: berth install"},
		"a manager that does not answer": {503, "service unavailable", "it does not answer: is it running? kubectl get apiservice v1alpha1.visibility.berth.dev says where it should be"},
		"too little time":                {429, status(apierrors.NewTooManyRequestsError("busy")), "it has too many questions to answer: ask again later"},
		"no right":                       {403, status(apierrors.NewForbidden(topologies, "dc", nil)), "you may not: it takes the right to get topologies/usage of visibility.berth.dev"},
		"another mistake":                {400, status(apierrors.NewBadRequest("hosts: must be true or false")), "hosts: must be true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if strings.HasPrefix(tc.body, "{") {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(tc.code)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer server.Close()
			s := &cluster.Session{Config: &rest.Config{Host: server.URL}}
			_, err := s.Raw(t.Context(), "/apis/visibility.berth.dev/v1alpha1/topologies/dc/usage")
			if got := reason(err, cluster.Topology, berthv1alpha1.GroupVersion, "get topologies/usage"); got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
	const want = "you may not: it takes the right to get clusterqueues/pendingworkloads of visibility.kueue.x-k8s.io"
	got := reason(apierrors.NewForbidden(topologies, "q", nil), cluster.ClusterQueue, visibilityv1beta2.GroupVersion, "get clusterqueues/pendingworkloads")
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
