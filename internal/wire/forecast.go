package wire

import (
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/engine/feed"
	"github.com/berth-project/berth/internal/foresight/forecaster"
)

// addForecaster adds the forecast of when pending Workloads start, on every replica: each answers questions about them.
func addForecaster(mgr ctrl.Manager, e *engine.Engine, follow *feed.Feed, cfg *Config) error {
	cfg.forecast = forecaster.New(forecaster.Forecaster{
		Cache: mgr.GetCache(), Checkpoint: e.Checkpoint, Ready: func() error { return follow.Check(nil) }, Requests: follow.Requests,
		Now: time.Now, Log: cfg.Log.WithName("forecast"),
	})
	return mgr.Add(cfg.forecast)
}
