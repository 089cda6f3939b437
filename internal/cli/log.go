package cli

import (
	"io"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/berth-project/berth/internal/wire"
)

// logFlag adds --log-level.
func logFlag(flags *pflag.FlagSet, level *string) {
	flags.StringVarP(level, "log-level", "v", "info", "how much to log: error, info, debug, or a number, the more the higher")
}

// newLog makes the log of the manager, in readable lines, and leads those of the libraries to it.
func newLog(to io.Writer, level string) (logr.Logger, error) {
	enabled, err := parseLevel(level)
	if err != nil {
		return logr.Logger{}, err
	}
	log := zap.New(zap.WriteTo(to), zap.ConsoleEncoder(), zap.Level(enabled), zap.StacktraceLevel(zapcore.DPanicLevel))
	wire.LeadLogs(log)
	return log, nil
}

func parseLevel(level string) (zapcore.Level, error) {
	switch level {
	case "error":
		return zapcore.ErrorLevel, nil
	case "info":
		return zapcore.InfoLevel, nil
	case "debug":
		return zapcore.DebugLevel, nil
	}
	n, err := strconv.Atoi(level)
	if err != nil || n < 0 || n > 127 {
		return 0, usage("--log-level %q: must be error, info, debug, or a number from 0 to 127", level)
	}
	return zapcore.Level(-n), nil
}
