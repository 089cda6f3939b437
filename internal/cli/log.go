package cli

import (
	"flag"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/wire"
)

// logging are the flags of the manager's log.
type logging struct {
	level string
	zap   zap.Options
}

// zapFlags are the library's flags that upstream managers have, besides the level. spec: 70 §5.5.
var zapFlags = map[string]string{
	"zap-encoder":          "how lines are written: console or json",
	"zap-devel":            "log as for development: level debug, stacks of warnings",
	"zap-stacktrace-level": "from which level on there are stacks: info, error or panic",
	"zap-time-encoding":    "how times are written: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano (default rfc3339nano)",
}

func (l *logging) add(flags *pflag.FlagSet) {
	logFlag(flags, &l.level)
	library := flag.NewFlagSet("", flag.ContinueOnError)
	l.zap.BindFlags(library)
	for _, name := range slices.Sorted(maps.Keys(zapFlags)) {
		f := pflag.PFlagFromGoFlag(library.Lookup(name))
		f.Usage = zapFlags[name]
		flags.AddFlag(f)
	}
}

func logFlag(flags *pflag.FlagSet, level *string) {
	flags.StringVarP(level, "log-level", "v", levelInfo, "how much to log: error, info, debug, or a number, the more the higher")
}

const levelInfo = "info"

// newLog makes a log in readable lines, also used by the libraries.
func newLog(to io.Writer, level string) (logr.Logger, error) {
	return (&logging{level: level}).open(to)
}

// open makes the log of the flags, also used by the libraries.
func (l *logging) open(to io.Writer) (logr.Logger, error) {
	enabled, err := parseLevel(l.level)
	if err != nil {
		return logr.Logger{}, err
	}
	o := l.zap
	o.DestWriter = to
	if !o.Development || l.level != levelInfo {
		o.Level = enabled
	}
	if o.StacktraceLevel == nil && !o.Development {
		o.StacktraceLevel = zapcore.DPanicLevel
	}
	if o.TimeEncoder == nil {
		o.TimeEncoder = zapcore.RFC3339NanoTimeEncoder
	}
	if o.NewEncoder == nil {
		console := flag.NewFlagSet("", flag.ContinueOnError)
		o.BindFlags(console)
		if err := console.Set("zap-encoder", "console"); err != nil {
			return logr.Logger{}, err
		}
	}
	log := zap.New(zap.UseFlagOptions(&o))
	wire.LeadLogs(log)
	return log, nil
}

func parseLevel(level string) (zapcore.Level, error) {
	switch level {
	case "error":
		return zapcore.ErrorLevel, nil
	case levelInfo:
		return zapcore.InfoLevel, nil
	case "debug":
		return zapcore.DebugLevel, nil
	}
	n, err := strconv.Atoi(level)
	if err != nil || n < 0 || n > 127 {
		return 0, cluster.Usage("--log-level %q: must be error, info, debug, or a number from 0 to 127", level)
	}
	return zapcore.Level(-n), nil
}
