package wire

import (
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// LeadLogs leads the logs of the libraries to log. What they tell of their own start
// and stop is seen one level of verbosity later than what Berth tells; their errors
// always are. Only the first call in a process counts.
func LeadLogs(log logr.Logger) {
	ctrl.SetLogger(chatter(log))
	klog.SetLogger(chatter(log))
}

func chatter(log logr.Logger) logr.Logger {
	if log.GetSink() == nil { // it discards everything
		return log
	}
	return logr.New(later{LogSink: log.GetSink()})
}

// later makes every level of a sink one higher. A logger's own V is lost on
// controller-runtime, which takes only the sink. Values wait until something is logged:
// controller-runtime makes a logger with some for every reconciliation and every call of
// a webhook, and mostly nothing comes of it.
type later struct {
	logr.LogSink
	values []any
}

func (l later) Enabled(level int) bool { return l.LogSink.Enabled(level + 1) }

func (l later) Info(level int, msg string, values ...any) {
	l.LogSink.Info(level+1, msg, slices.Concat(l.values, values)...)
}

func (l later) Error(err error, msg string, values ...any) {
	l.LogSink.Error(err, msg, slices.Concat(l.values, values)...)
}

func (l later) WithValues(values ...any) logr.LogSink {
	return later{l.LogSink, slices.Concat(l.values, values)}
}

func (l later) WithName(name string) logr.LogSink { return later{l.LogSink.WithName(name), l.values} }
