// Package rewrite has objects that were stored in an older version of their CRD stored in the present one, so that a later
// release can do without the older version. spec: 70 §6 #7.
//
//	CRD with more than one stored version ─► each object: a patch that changes nothing ─► CRD with one
//
// The API server encodes what it writes in the version that is stored now, also if nothing else is different. The list of the
// CRD is shortened only when all that was there was written: a crash, a second manager or an object that cannot be written
// costs time and nothing else.
package rewrite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// settle is how long after the start nothing is done: a CRD may have been changed just before, and every API server has to
	// have heard of it, lest one stores the older version still.
	settle = 30 * time.Second
	// firstAgain and lastAgain are the pauses after a pass in which something failed; each is twice the one before.
	firstAgain = time.Minute
	lastAgain  = 6 * time.Hour
	// perSecond is how many objects are written a second: nobody waits for it.
	perSecond = 20
	// pageSize is how many objects are listed at once, by their metadata only.
	pageSize = 500
	// tellEvery is how many objects are between two lines in the log.
	tellEvery = 1000
	// maxNamed is how many objects of a kind are named in the log that cannot be written.
	maxNamed = 5
)

// Rewriter is a runnable of the leader.
type Rewriter struct {
	// Client writes, Reader reads from the API server.
	Client client.Writer
	Status client.StatusClient
	Reader client.Reader
	// CRDs are the names of those whose objects are looked after. One that does not exist is left out.
	CRDs []string
	Log  logr.Logger

	limit *rate.Limiter
	page  int64
}

// New makes one that writes slowly, through one client.
func New(c client.Client, reader client.Reader, crds []string, log logr.Logger) *Rewriter {
	return &Rewriter{Client: c, Status: c, Reader: reader, CRDs: crds, Log: log, limit: rate.NewLimiter(perSecond, 1), page: pageSize}
}

// NeedLeaderElection is true: one is enough, although two would not harm.
func (*Rewriter) NeedLeaderElection() bool { return true }

// Start works until nothing is left to do, or ctx ends.
func (r *Rewriter) Start(ctx context.Context) error {
	for wait, again := settle, firstAgain; ; wait, again = again, min(2*again, lastAgain) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		err := r.Pass(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			r.Log.Error(err, "Not all objects are stored in the present version of their kind; trying again", "after", again.String())
		}
	}
}

// Pass looks at every CRD once. The error says what is left.
func (r *Rewriter) Pass(ctx context.Context) error {
	var failed []error
	for _, name := range r.CRDs {
		if err := r.crd(ctx, name); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;clusterqueues;cohorts;localqueues;multikueueclusters;multikueueconfigs;provisioningrequestconfigs;resourceflavors;topologies;workloadpriorityclasses;workloads,verbs=list;patch,roleName=kueue-manager-storage-role
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=list;patch,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=clustertrainingruntimes;trainingruntimes;trainjobs,verbs=list;patch,roleName=kueue-manager-training-role

func (r *Rewriter) crd(ctx context.Context, name string) error {
	var before apiextensionsv1.CustomResourceDefinition
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &before); err != nil {
		return client.IgnoreNotFound(err)
	}
	version := storedNow(&before)
	older := slices.DeleteFunc(slices.Clone(before.Status.StoredVersions), func(v string) bool { return v == version })
	if version == "" || len(older) == 0 {
		return nil
	}
	log := r.Log.WithValues("crd", name, "version", version)
	log.Info("Objects may be stored in an older version: writing each of them anew", "older", strings.Join(older, ", "))
	n, err := r.objects(ctx, &before, version, log)
	if err != nil {
		return err
	}
	var now apiextensionsv1.CustomResourceDefinition
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if now.UID != before.UID || storedNow(&now) != version || !slices.Equal(now.Status.StoredVersions, before.Status.StoredVersions) {
		return errors.New("what it stores was changed meanwhile")
	}
	now.Status.StoredVersions = []string{version}
	if err := r.Status.Status().Update(ctx, &now); err != nil { // of the resource version that was just read
		return fmt.Errorf("shortening status.storedVersions: %w", err)
	}
	log.Info("All objects are stored in this version", "objects", n)
	return nil
}

// storedNow is the version in which objects are stored that are written now.
func storedNow(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// objects writes all objects of a kind, and returns how many.
func (r *Rewriter) objects(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, version string, log logr.Logger) (n int, err error) {
	kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind}
	failed := 0
	for token, more := "", true; more; {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(crd.Spec.Names.ListKind))
		err := r.Reader.List(ctx, &list, client.Limit(r.page), client.Continue(token))
		if next := resume(err); next != "" {
			token = next
			continue
		}
		if err != nil {
			return n, fmt.Errorf("listing: %w", err)
		}
		for i := range list.Items {
			switch err := r.object(ctx, kind, &list.Items[i]); {
			case err == nil:
				if n++; n%tellEvery == 0 {
					log.Info("Still writing objects anew", "objects", n)
				}
			case ctx.Err() != nil:
				return n, err
			default:
				if failed++; failed <= maxNamed {
					log.Error(err, "An object cannot be stored in the present version", "object", client.ObjectKeyFromObject(&list.Items[i]).String())
				}
			}
		}
		token = list.Continue
		more = token != ""
	}
	if failed > 0 {
		return n, fmt.Errorf("%d objects cannot be written, %d were", failed, n)
	}
	return n, nil
}

// resume is where to go on with a list that took longer than the API server remembers; empty for any other error. What was
// made or changed since then is stored in the present version already, so a list of two moments is good enough.
func resume(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().ListMeta.Continue
	}
	return ""
}

// object writes one, as it is. One that is gone is done.
func (r *Rewriter) object(ctx context.Context, kind schema.GroupVersionKind, listed *metav1.PartialObjectMetadata) error {
	if err := r.limit.Wait(ctx); err != nil {
		return err
	}
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: listed.Namespace, Name: listed.Name}}
	o.SetGroupVersionKind(kind)
	return client.IgnoreNotFound(r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte("{}"))))
}
