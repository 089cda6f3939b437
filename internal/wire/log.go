package wire

import (
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// LeadLogs sets the logger of the libraries, which is one for the process. Their messages are logged one level of verbosity above ours;
// errors always. Call it once, from the command and before clients start: klog takes the logger of every call, without a lock;
// controller-runtime takes the first.
func LeadLogs(log logr.Logger) {
	ctrl.SetLogger(libraryLogger(log))
	klog.SetLogger(libraryLogger(log))
}

// libraryLogger returns a logger for libraries that writes to the same place. The given one stays as it is.
func libraryLogger(log logr.Logger) logr.Logger {
	if log.GetSink() == nil { // it discards all messages
		return log
	}
	return logr.New(librarySink{LogSink: log.WithCallDepth(1).GetSink()})
}

// librarySink raises the level of all messages by one. V of a logger would be lost: controller-runtime only uses the sink. Values are
// added to the messages: controller-runtime creates a logger with values for every reconcile and webhook request, and rarely uses it.
type librarySink struct {
	logr.LogSink
	values []any
}

// Init does nothing: the sink below is in use already, and zap's adds to its call depth with every Init, without a lock.
func (librarySink) Init(logr.RuntimeInfo) {}

func (l librarySink) Enabled(level int) bool { return l.LogSink.Enabled(level + 1) }

func (l librarySink) Info(level int, msg string, values ...any) {
	l.LogSink.Info(level+1, msg, slices.Concat(l.values, values)...)
}

func (l librarySink) Error(err error, msg string, values ...any) {
	l.LogSink.Error(err, msg, slices.Concat(l.values, values)...)
}

func (l librarySink) WithValues(values ...any) logr.LogSink {
	return librarySink{l.LogSink, slices.Concat(l.values, values)}
}

func (l librarySink) WithName(name string) logr.LogSink {
	return librarySink{l.LogSink.WithName(name), l.values}
}

// WithCallDepth keeps what is told about callers right in controller-runtime's loggers, which add a function to each call.
func (l librarySink) WithCallDepth(depth int) logr.LogSink {
	if below, ok := l.LogSink.(logr.CallDepthLogSink); ok {
		l.LogSink = below.WithCallDepth(depth)
	}
	return l
}
