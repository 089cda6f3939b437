package progress

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
)

// Lifetimes of cached answers.
const (
	believed   = 10 * time.Second
	disbelief  = 10 * time.Second
	placesKept = time.Minute
	patience   = 5 * time.Second
	maxPods    = 10_000 // whose pace is kept
	retryAfter = 5      // seconds
)

// The rate limit of a pod. Clients report at most every five seconds.
const (
	pace      = rate.Limit(1) // a second
	paceBurst = 10
)

// Tokens verifies tokens of pods.
type Tokens struct {
	review authenticator.Token
	pods   client.Reader
	jobs   client.Reader
	// places are the TrainJobs of pods by UID, and paces their rate limits.
	places, paces *cache.LRUExpireCache
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=kueue-manager-training-role

// NewTokens reviews tokens with the API server of a configuration. pods reads without a cache, and jobs reads
// TrainJobs from one.
func NewTokens(cfg *rest.Config, httpClient *http.Client, pods, jobs client.Reader) (*Tokens, error) {
	c, err := kubernetes.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("asking the API server about tokens: %w", err)
	}
	review, err := webhook.NewFromInterface(c.AuthenticationV1(), nil, wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3}, patience,
		webhook.AuthenticatorMetrics{
			RecordRequestTotal:   func(context.Context, string) {},
			RecordRequestLatency: func(context.Context, string, float64) {},
		})
	if err != nil {
		return nil, fmt.Errorf("asking the API server about tokens: %w", err)
	}
	return &Tokens{
		review: tokencache.New(review, false, believed, disbelief), pods: pods, jobs: jobs,
		places: cache.NewLRUExpireCache(maxPods), paces: cache.NewLRUExpireCache(maxPods),
	}, nil
}

// Verify implements Verifier. The token is for this TrainJob, of a service account of its namespace, and bound to one of its pods. Otherwise
// every user who may create pods in the namespace could report for any TrainJob.
func (t *Tokens) Verify(ctx context.Context, token, namespace, name string) (string, error) {
	wanted := authenticator.Audiences{plan.StatusAudience(namespace, name)}
	response, ok, err := t.review.AuthenticateToken(authenticator.WithAudiences(ctx, wanted), token)
	if err != nil { // a token that is no good comes back without an error
		return "", fmt.Errorf("asking the API server about a token: %w", err)
	}
	if !ok || len(response.Audiences.Intersect(wanted)) == 0 {
		return "", errForbidden
	}
	home, _, err := serviceaccount.SplitUsername(response.User.GetName())
	if err != nil || home != namespace {
		return "", errForbidden
	}
	pod, uid := extra(response.User, serviceaccount.PodNameKey), extra(response.User, serviceaccount.PodUIDKey)
	if pod == "" || uid == "" {
		return "", errForbidden
	}
	job, err := t.jobOf(ctx, namespace, pod, uid)
	if err != nil {
		return "", err
	}
	if job.name != name {
		return "", errForbidden
	}
	return uid, nil
}

func extra(u user.Info, key string) string {
	if values := u.GetExtra()[key]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// above are the kinds of owners of a pod of a TrainJob, the nearest first.
var above = []schema.GroupVersionKind{
	batchv1.SchemeGroupVersion.WithKind("Job"),
	jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet),
	trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob),
}

// place is the TrainJob that a pod belongs to; the zero value is none.
type place struct {
	name string
	uid  types.UID
}

// isReplaced reports whether another TrainJob has the name by now. The UID cannot be a precondition of the write: the API server ignores the
// metadata of a status.
func (t *Tokens) isReplaced(ctx context.Context, namespace string, job place) bool {
	var now trainerv1alpha1.TrainJob
	err := t.jobs.Get(ctx, client.ObjectKey{Namespace: namespace, Name: job.name}, &now, client.UnsafeDisableDeepCopy)
	return err == nil && now.UID != job.uid
}

// jobOf returns the TrainJob whose Job owns a pod, or none. The label of the JobSet does not count: every user who may create pods may set it.
func (t *Tokens) jobOf(ctx context.Context, namespace, name, uid string) (place, error) {
	if job, ok := t.places.Get(uid); ok && !t.isReplaced(ctx, namespace, job.(place)) {
		return job.(place), nil
	}
	pod := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	if err := t.pods.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return place{}, errForbidden
		}
		return place{}, fmt.Errorf("reading pod %s/%s, which a token is bound to: %w", namespace, name, err)
	}
	if string(pod.UID) != uid {
		return place{}, errForbidden
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && pod.Labels[batchv1.ControllerUidLabel] != string(owner.UID) {
		owner = nil // the Job controller labels its pods
	}
	job, err := t.ownerOf(ctx, namespace, owner)
	if err != nil {
		return place{}, err
	}
	t.places.Add(uid, job, placesKept)
	return job, nil
}

// ownerOf follows the owners from the controller of a pod to its TrainJob. It returns nothing if an owner is missing.
func (t *Tokens) ownerOf(ctx context.Context, namespace string, ref *metav1.OwnerReference) (place, error) {
	var found place
	for _, gvk := range above {
		if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind) != gvk {
			return place{}, nil
		}
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(gvk)
		if err := t.pods.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, o); err != nil {
			switch {
			case apierrors.IsNotFound(err) && gvk == above[len(above)-1]:
				return place{ref.Name, ref.UID}, nil // the caller compares the name
			case apierrors.IsNotFound(err):
				return place{}, nil
			}
			return place{}, fmt.Errorf("reading %s %s/%s, which a pod that reports belongs to: %w", gvk.Kind, namespace, ref.Name, err)
		}
		if o.UID != ref.UID {
			return place{}, nil
		}
		found, ref = place{o.Name, o.UID}, metav1.GetControllerOf(o)
	}
	return found, nil
}

// Allow implements Verifier.
func (t *Tokens) Allow(reporter string) bool {
	limit, ok := t.paces.Get(reporter)
	if !ok {
		limit = rate.NewLimiter(pace, paceBurst)
		t.paces.Add(reporter, limit, time.Hour)
	}
	return limit.(*rate.Limiter).Allow()
}
