// Package rewrite stores objects of an older CRD version again in the present one, so that a later release can drop the older version.
// spec: 70 §6 #7.
//
//	CRD with more than one stored version ─► each object: a patch that changes nothing ─► CRD with one
//
// The API server encodes every write in the present storage version, also if the object does not change. The CRD's list of stored
// versions is shortened only after every listed object was written: a crash, a second manager or an object that cannot be written costs
// only time.
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
	// settle is the pause after the start: a CRD may have changed just before, and an API server that has not seen the change would still
	// store the older version.
	settle = 30 * time.Second
	// firstAgain and lastAgain bound the pause after a failed pass; each pause is twice the one before.
	firstAgain = time.Minute
	lastAgain  = 6 * time.Hour
	// perSecond limits writes: the rewrite is not urgent.
	perSecond = 20
	// pageSize is how many objects are listed at once, by their metadata only.
	pageSize = 500
	// tellEvery is the number of objects between two lines in the log.
	tellEvery = 1000
	// maxNamed is how many objects that cannot be written are named in the log, for each kind.
	maxNamed = 5
)

// Rewriter is a runnable of the leader.
type Rewriter struct {
	// Client writes, Reader reads from the API server.
	Client client.Writer
	Status client.StatusClient
	Reader client.Reader
	// CRDs names the CRDs to process. A missing one is skipped.
	CRDs []string
	Log  logr.Logger

	limit *rate.Limiter
	page  int64
}

// New returns a Rewriter that writes slowly, through one client.
func New(c client.Client, reader client.Reader, crds []string, log logr.Logger) *Rewriter {
	return &Rewriter{Client: c, Status: c, Reader: reader, CRDs: crds, Log: log, limit: rate.NewLimiter(perSecond, 1), page: pageSize}
}

// NeedLeaderElection is true: one is enough, although two would not harm.
func (*Rewriter) NeedLeaderElection() bool { return true }

// Start works until all objects are rewritten, or ctx ends.
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

// Pass processes every CRD once. The error names the CRDs that are left.
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

// storedNow returns the present storage version.
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

// resume returns the continue token after a list outlived the API server's history; empty for any other error. Objects that were made or
// changed since are stored in the present version already, so an inconsistent list is good enough.
func resume(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().ListMeta.Continue
	}
	return ""
}

// object writes an object unchanged. A deleted one counts as written.
func (r *Rewriter) object(ctx context.Context, kind schema.GroupVersionKind, listed *metav1.PartialObjectMetadata) error {
	if err := r.limit.Wait(ctx); err != nil {
		return err
	}
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: listed.Namespace, Name: listed.Name}}
	o.SetGroupVersionKind(kind)
	return client.IgnoreNotFound(r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte("{}"))))
}
