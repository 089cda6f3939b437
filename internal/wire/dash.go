package wire

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/dash"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/engine/feed"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/visibility"
)

// addDashboard adds the dashboard, on every replica. It listens once its caches are filled. spec: 70 §4.10.
func addDashboard(ctx context.Context, mgr ctrl.Manager, e *engine.Engine, follow *feed.Feed, cfg *Config) error {
	o, log := cfg.Options.Dashboard, cfg.Log.WithName("dashboard")
	if !o.Served() {
		return nil
	}
	from := dash.Sources{
		Places: cfg.places, Rates: StateOptions(&cfg.Options).Sharing, Model: e.Model,
		Position: func(w *kueue.Workload) (queue string, before int, known bool) {
			return visibility.PositionOf(e.Model(), w, follow.Requests)
		},
	}
	from.WhatIf = dash.WhatIf{Checkpoint: e.Checkpoint, Ready: func() error { return follow.Check(nil) }, Settings: ChangeSettings(&cfg.Options)}
	explains := visibility.Server{Model: e.Model, Requests: follow.Requests}
	if forecast := cfg.forecast; forecast != nil {
		explains.Starts = forecast
		from.Starts = func(w *kueue.Workload) *berthv1alpha1.ExpectedStart {
			return visibility.StartOf(forecast, e.Model(), w, follow.Requests)
		}
		from.End = func(w *kueue.Workload) time.Time { return visibility.EndOf(forecast, w, time.Now()) }
	}
	from.Explain = explains.Explain
	server, err := dash.Setup(ctx, mgr, o, from, log)
	if err != nil {
		return err
	}
	if err := mgr.Add(everywhere(server.Run)); err != nil {
		return err
	}
	at := &listen.Listener{What: "the dashboard", Setting: "--dashboard-bind-address", Address: o.Address, Server: server.HTTP(), Log: log}
	return mgr.Add(everywhere(func(ctx context.Context) error {
		if !server.Wait(ctx) {
			return nil // ctx ended
		}
		log.Info("The dashboard is served", "address", o.Address, "authMode", o.AuthMode)
		return at.Start(ctx)
	}))
}
