package visibility

import (
	"context"
	"math"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// parameters reads query parameters.
var parameters = func() runtime.ParameterCodec {
	scheme := runtime.NewScheme()
	utilruntime.Must(visibilityv1beta2.AddToScheme(scheme))
	return runtime.NewParameterCodec(scheme)
}()

// pageOf reads the requested page. spec: 70 §3.4.
func pageOf(query url.Values) (offset, limit int64, err error) {
	var o visibilityv1beta2.PendingWorkloadOptions
	if err := parameters.DecodeParameters(query, visibilityv1beta2.GroupVersion, &o); err != nil {
		return 0, 0, apierrors.NewBadRequest(err.Error())
	}
	offset, limit = o.Page()
	return offset, limit, nil
}

func ofClusterQueue(_ context.Context, s *Server, a *ask) (runtime.Object, error) {
	offset, limit, err := pageOf(a.query)
	if err != nil {
		return nil, err
	}
	line, found := s.Model().Waiting(a.name)
	if !found {
		return nil, missing("clusterqueues", a.name)
	}
	return s.summary(a.name, line.Page(nil, offset, limit)), nil
}

// ofLocalQueue returns an empty list for a LocalQueue whose ClusterQueue does not exist.
func ofLocalQueue(_ context.Context, s *Server, a *ask) (runtime.Object, error) {
	offset, limit, err := pageOf(a.query)
	if err != nil {
		return nil, err
	}
	model := s.Model()
	queue, found := model.PointsTo(a.namespace, a.name)
	if !found {
		return nil, missing("localqueues", a.name)
	}
	line, found := model.Waiting(queue)
	if !found {
		return s.summary(queue, nil), nil
	}
	return s.summary(queue, line.Page(&state.Name{Namespace: a.namespace, Name: a.name}, offset, limit)), nil
}

func missing(resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: visibilityv1beta2.GroupVersion.Group, Resource: resource}, name)
}

// summary is the answer in both versions, which have the same fields.
func (s *Server) summary(queue string, page []state.Placed) *visibilityv1beta2.PendingWorkloadsSummary {
	out := &visibilityv1beta2.PendingWorkloadsSummary{Items: make([]visibilityv1beta2.PendingWorkload, 0, len(page))}
	for _, p := range page {
		item := s.item(p)
		item.ExpectedStart = startOf(s.Starts, p.UID(), queue, item.Reason)
		out.Items = append(out.Items, item)
	}
	return out
}

func (s *Server) item(p state.Placed) visibilityv1beta2.PendingWorkload {
	namespace, name := p.Name()
	out := visibilityv1beta2.PendingWorkload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, int64(p.Created()))),
		},
		Priority:       int32(min(max(p.Priority(), math.MinInt32), math.MaxInt32)),
		LocalQueueName: p.LocalQueue(), PositionInClusterQueue: p.InClusterQueue, PositionInLocalQueue: p.InLocalQueue,
	}
	w := s.Workload(namespace, name)
	if w == nil || string(w.UID) != p.UID() {
		return out // deleted meanwhile; the engine learns it later
	}
	for _, o := range w.OwnerReferences {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID})
	}
	if c := lifecycle.Unreserved(w); c != nil {
		out.Reason, out.Message = c.Reason, c.Message
	}
	out.Requests = s.requests(w)
	return out
}

// requests returns the quota that all pods of a Workload request together.
func (s *Server) requests(w *kueue.Workload) corev1.ResourceList {
	var out corev1.ResourceList
	for _, ps := range convert.Workload(w, s.Requests).PodSets {
		for _, r := range ps.Requests {
			if out == nil {
				out = corev1.ResourceList{}
			}
			name := corev1.ResourceName(r.Resource)
			sum := out[name]
			sum.Add(convert.Quantity(name, r.Amount))
			out[name] = sum
		}
	}
	return out
}
