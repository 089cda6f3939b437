package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/options"
)

var errInterrupted = errors.New("interrupted")

// advise puts what to do next behind an error of the API server.
func (s *session) advise(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	if apimeta.IsNoMatchError(err) {
		return fmt.Errorf("this cluster does not know the kinds of %s: run berth install, then berth manager: %w", kueue.GroupVersion, err)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return s.unreachable(failed)
	}
	switch {
	case apierrors.IsNotFound(err):
		return s.notFound(ctx, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server %s does not accept the credentials of %s: log in again, or give another --context: %w", s.cfg.Host, s.source, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: ask an administrator for a role that allows it, or give another --context", err)
	case strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Errorf("the manager has to check this change and does not answer: is it running? %w", err)
	}
	return err
}

func (s *session) unreachable(failed *url.Error) error {
	if dial, ok := errors.AsType[*net.OpError](failed); ok && dial.Op == "dial" {
		return fmt.Errorf("the API server %s (from %s) does not answer: %w: start it, or give another --kubeconfig or --context", s.cfg.Host, s.source, dial)
	}
	if failed.Timeout() {
		return fmt.Errorf("the API server %s (from %s) did not answer within --request-timeout: give it longer, or ask again", s.cfg.Host, s.source)
	}
	return fmt.Errorf("asking the API server %s (from %s): %w", s.cfg.Host, s.source, failed.Err)
}

// notFound looks for the name that was probably meant.
func (s *session) notFound(ctx context.Context, err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return err
	}
	details := status.ErrStatus.Details
	if details.Kind == "namespaces" && details.Group == "" {
		return fmt.Errorf("there is no namespace %q: %s", details.Name, s.otherNamespace(ctx, details.Name))
	}
	k := kindOf(details.Kind)
	if k == nil || details.Group != kueue.GroupVersion.Group {
		return err
	}
	if k.namespaced {
		if gone := s.noNamespace(ctx); gone != "" {
			return errors.New(gone)
		}
	}
	names, listed := s.names(ctx, k)
	if near := options.Nearest(details.Name, names); near != "" {
		return fmt.Errorf("%w: did you mean %q?", err, near)
	}
	if !listed {
		return err
	}
	where := ""
	if k.namespaced {
		where = " -n " + s.namespace
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: there are none%s", err, strings.Replace(where, " -n ", " in the namespace ", 1))
	}
	return fmt.Errorf("%w: %s list %s%s shows what there is", err, s.program, k.name, where)
}

// noNamespace says that the namespace does not exist, if it is known not to.
func (s *session) noNamespace(ctx context.Context) string {
	err := s.Get(ctx, client.ObjectKey{Name: s.namespace}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("there is no namespace %q: %s", s.namespace, s.otherNamespace(ctx, s.namespace))
}

func (s *session) otherNamespace(ctx context.Context, name string) string {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	var names []string
	if err := s.List(ctx, &list, client.Limit(enough)); err == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	if near := options.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "give another -n, or create it: kubectl create namespace " + name
}

// enough is how many names are read to find the one that was meant.
const enough = 500

// names are those of a kind's objects, in the namespace if they live in one.
func (s *session) names(ctx context.Context, k *kind, more ...client.ListOption) (names []string, ok bool) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kueue.GroupVersion.WithKind(k.kind + "List"))
	more = append(slices.Clone(more), client.Limit(enough))
	if k.namespaced {
		more = append(more, client.InNamespace(s.namespace))
	}
	if err := s.List(ctx, &list, more...); err != nil {
		return nil, false
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, true
}
