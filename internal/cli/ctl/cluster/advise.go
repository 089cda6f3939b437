package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/options/strict"
)

// UsageError is a mistake on the command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

func (e UsageError) Unwrap() error { return e.Err }

// ExitCode is the exit code for wrong usage.
func (UsageError) ExitCode() int { return 2 }

// Usage makes a UsageError.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrInterrupted is the error of a command that a signal stopped before its end.
var ErrInterrupted = errors.New("interrupted")

// Advised is an error that already contains advice.
type Advised struct{ Err error }

func (a Advised) Error() string { return a.Err.Error() }

func (a Advised) Unwrap() error { return a.Err }

// Advise appends advice to an error of the API server.
func (s *Session) Advise(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if _, done := errors.AsType[Advised](err); done {
		return err
	}
	if apimeta.IsNoMatchError(err) {
		return fmt.Errorf("the API server %s (from %s) does not serve %s: run %s install, then %s manager", s.Config.Host, s.Source, kueue.GroupVersion, s.Program, s.Program)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return s.unreachable(failed)
	}
	switch {
	case apierrors.IsNotFound(err):
		return s.NotFound(ctx, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server %s does not accept the credentials of %s: log in again, or give another --context: %w", s.Config.Host, s.Source, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: ask an administrator for a role that allows it, or give another --context", err)
	case strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Errorf("the manager has to check this change and does not answer: is it running? %w", err)
	}
	return err
}

func (s *Session) unreachable(failed *url.Error) error {
	if dial, ok := errors.AsType[*net.OpError](failed); ok && dial.Op == "dial" {
		return fmt.Errorf("the API server %s (from %s) does not answer: %w: start it, or give another --kubeconfig or --context", s.Config.Host, s.Source, dial)
	}
	if failed.Timeout() {
		return fmt.Errorf("the API server %s (from %s) did not answer within --request-timeout: give it longer, or ask again", s.Config.Host, s.Source)
	}
	return fmt.Errorf("asking the API server %s (from %s): %w", s.Config.Host, s.Source, failed.Err)
}

// NotFound suggests the name that was probably meant.
func (s *Session) NotFound(ctx context.Context, err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return err
	}
	details := status.ErrStatus.Details
	if details.Kind == "namespaces" && details.Group == "" {
		return fmt.Errorf("there is no namespace %q: %s", details.Name, s.otherNamespace(ctx, details.Name))
	}
	k := KindOf(details.Kind)
	if k == nil || details.Group != kueue.GroupVersion.Group {
		return err
	}
	if k.Namespaced {
		if gone := s.NoNamespace(ctx); gone != "" {
			return errors.New(gone)
		}
	}
	known, listed := s.names(ctx, k)
	if near := strict.Nearest(details.Name, known); near != "" {
		return fmt.Errorf("%w: did you mean %q?", err, near)
	}
	if !listed {
		return err
	}
	where := ""
	if k.Namespaced {
		where = " -n " + s.Namespace
	}
	if len(known) == 0 {
		return fmt.Errorf("%w: there are none%s", err, strings.Replace(where, " -n ", " in the namespace ", 1))
	}
	return fmt.Errorf("%w: %s list %s%s shows what there is", err, s.Program, k.Plural(), where)
}

// NoNamespace returns a message if the namespace is known not to exist, else "".
func (s *Session) NoNamespace(ctx context.Context) string {
	err := s.Get(ctx, client.ObjectKey{Name: s.Namespace}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("there is no namespace %q: %s", s.Namespace, s.otherNamespace(ctx, s.Namespace))
}

func (s *Session) otherNamespace(ctx context.Context, name string) string {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	var names []string
	if err := s.List(ctx, &list, client.Limit(enough)); err == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	if near := strict.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "give another -n, or create it: kubectl create namespace " + name
}

// enough bounds the names that are read to find the one that was meant.
const enough = 500

// names lists the names of a kind's objects; of a namespaced kind, in the session's namespace.
func (s *Session) names(ctx context.Context, k *Kind) (names []string, ok bool) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kueue.GroupVersion.WithKind(k.Kind + "List"))
	more := []client.ListOption{client.Limit(enough)}
	if k.Namespaced {
		more = append(more, client.InNamespace(s.Namespace))
	}
	if err := s.List(ctx, &list, more...); err != nil {
		return nil, false
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, true
}
