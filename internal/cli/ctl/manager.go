package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/standalone"
	"github.com/berth-project/berth/internal/options"
)

// manager answers questions: a running one, or a standalone one in this process where none answers.
type manager struct {
	settings string // file with the settings of a standalone one, "" for the defaults
	found    bool   // it is known whether one runs
	alone    *standalone.Manager
	failed   error // why there is no standalone one either
	told     bool  // the user knows that none runs
}

// addSettings adds the flag for the settings of a standalone manager.
func (t *tool) addSettings(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.settings, "config", "", "where no manager answers: `FILE` with the settings to compute with (default: the defaults)")
}

// unreadable is the reason why a standalone manager knows nothing: the user may not list queues or Workloads.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// ask reads a path of the manager's API, as [cluster.Session.Raw] does. Where no manager answers, a standalone one does.
func (s *session) ask(ctx context.Context, path string, parameters ...string) ([]byte, error) {
	alone, err := s.standalone(ctx)
	if err != nil {
		return nil, err
	}
	if alone == nil {
		data, err := s.Raw(ctx, path, parameters...)
		if !isUnanswered(err) {
			return data, err
		}
		if alone, err = s.standIn(ctx); err != nil {
			return nil, err
		}
	}
	return alone.Raw(ctx, path, parameters...)
}

// standalone returns a standalone manager, nil if another one runs. Only the discovery of Berth's own group tells: the visibility API of
// queues is also that of other managers.
func (s *session) standalone(ctx context.Context) (*standalone.Manager, error) {
	if s.found {
		return s.alone, s.failed
	}
	_, err := s.Raw(ctx, "/apis/"+berthv1alpha1.GroupVersion.String())
	switch _, answered := errors.AsType[*apierrors.StatusError](err); {
	case isUnanswered(err):
		return s.standIn(ctx)
	case err != nil && !answered:
		return nil, err // the API server does not answer
	}
	s.found = true
	return nil, nil
}

// isUnanswered reports whether an error is that no manager runs, or that it is not ready.
func isUnanswered(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsNotFound(err) && !named(err)
}

// standIn makes a standalone manager, and tells the user.
func (s *session) standIn(ctx context.Context) (*standalone.Manager, error) {
	s.found = true
	s.alone, s.failed = s.newStandalone(ctx)
	return s.alone, s.failed
}

func (s *session) newStandalone(ctx context.Context) (*standalone.Manager, error) {
	o, err := options.Load(s.settings)
	if err != nil {
		return nil, err
	}
	w, err := standalone.Read(ctx, s.Session)
	if apierrors.IsForbidden(err) {
		return nil, unreadable{err}
	}
	if err != nil {
		return nil, err
	}
	if !s.told {
		s.told = true
		fmt.Fprintln(s.Errs, "no manager answers: computed here from the objects of the API, read-only and without a manager's memory of past decisions")
		for _, why := range w.Left {
			fmt.Fprintln(s.Errs, why)
		}
	}
	return standalone.New(ctx, s.Session, w, &o)
}

// forget has the next question find out again whether a manager runs.
func (m *manager) forget() { m.found, m.alone, m.failed = false, nil, nil }

// figures fills in the statuses of queues where no manager keeps them.
func figures[T any, P interface {
	*T
	client.Object
}](ctx context.Context, s *session, items []T, fill func(*standalone.Manager, P)) error {
	alone, err := s.standalone(ctx)
	if why, is := errors.AsType[unreadable](err); is {
		s.tellStale(why)
		return nil
	}
	if err != nil || alone == nil {
		return err
	}
	for i := range items {
		fill(alone, &items[i])
	}
	return nil
}

func (s *session) tellStale(why unreadable) {
	if !s.told {
		s.told = true
		fmt.Fprintf(s.Errs, "no manager answers, and figures cannot be computed here: %v; they are what the last manager wrote\n", why)
	}
}

func (s *session) clusterQueueFigures(ctx context.Context, items []kueue.ClusterQueue) error {
	return figures(ctx, s, items, (*standalone.Manager).FillClusterQueue)
}

func (s *session) localQueueFigures(ctx context.Context, items []kueue.LocalQueue) error {
	return figures(ctx, s, items, (*standalone.Manager).FillLocalQueue)
}
