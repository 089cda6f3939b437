package dash

import (
	"context"
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// readableKind is a kind whose objects can be read one by one.
type readableKind struct {
	resource   resource
	namespaced bool
	live       bool // read from the API server: no cache has all fields
	make       func() client.Object
}

// readableKinds is the table of spec 70 §4.10.
var readableKinds = map[string]readableKind{
	"workload":       {workloadsResource, true, false, func() client.Object { return &kueue.Workload{} }},
	"localqueue":     {localQueuesResource, true, false, func() client.Object { return &kueue.LocalQueue{} }},
	"clusterqueue":   {clusterQueuesResource, false, false, func() client.Object { return &kueue.ClusterQueue{} }},
	"cohort":         {cohortsResource, false, false, func() client.Object { return &kueue.Cohort{} }},
	"topology":       {topologiesResource, false, false, func() client.Object { return &kueue.Topology{} }},
	"resourceflavor": {flavorsResource, false, false, func() client.Object { return &kueue.ResourceFlavor{} }},
	"pod":            {podsResource, true, true, func() client.Object { return &corev1.Pod{} }},
	"event":          {eventsResource, true, true, func() client.Object { return &corev1.Event{} }},
	"node":           {nodesResource, false, true, func() client.Object { return &corev1.Node{} }},
}

// object answers with one object, as JSON or YAML.
func (s *Server) object(w http.ResponseWriter, r *http.Request) {
	who, ok := s.identify(w, r)
	if !ok {
		return
	}
	kind, ok := readableKinds[r.PathValue("kind")]
	if !ok {
		refuse(w, http.StatusNotFound, "there is no kind "+r.PathValue("kind"))
		return
	}
	key := client.ObjectKey{Namespace: r.FormValue("namespace"), Name: r.PathValue("name")}
	output := r.FormValue("output")
	switch {
	case kind.namespaced && key.Namespace == "":
		refuse(w, http.StatusBadRequest, "namespace: name the one that the object is in")
		return
	case output != "" && output != "json" && output != "yaml":
		refuse(w, http.StatusBadRequest, "output: must be json or yaml")
		return
	case !kind.namespaced:
		key.Namespace = ""
	}
	done, err := s.turns.Acquire(r.Context(), s.callerKey(who, r), 1)
	if err != nil {
		busy(w, "too many requests")
		return
	}
	defer done()
	o, err := s.find(r.Context(), who, &kind, key)
	no, forbidden := errors.AsType[*refused](err)
	switch {
	case forbidden:
		refuse(w, http.StatusForbidden, no.text)
	case apierrors.IsNotFound(err):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		s.log.Error(err, "An object could not be read for the dashboard", "user", who.name(), "object", key)
		refuse(w, http.StatusServiceUnavailable, "it could not be read")
	default:
		put(w, o, output)
	}
}

// find reads an object that the caller may read.
func (s *Server) find(ctx context.Context, who caller, kind *readableKind, key client.ObjectKey) (client.Object, error) {
	if err := s.access.must(ctx, who, kind.resource, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	o, reader := kind.make(), client.Reader(s.cache)
	if kind.live {
		reader = s.live
	}
	if err := reader.Get(ctx, key, o); err != nil {
		return nil, err
	}
	o.SetManagedFields(nil)
	o.GetObjectKind().SetGroupVersionKind(kind.resource.gvk())
	return o, nil
}

// put writes an object as JSON or YAML.
func put(w http.ResponseWriter, o client.Object, output string) {
	if output != "yaml" {
		write(w, http.StatusOK, o)
		return
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "this cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(text)
}
