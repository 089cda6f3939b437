package wire

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

// lines is a sink that records its messages.
type lines struct {
	told      *[]string
	name      string
	verbosity int
}

func (lines) Init(logr.RuntimeInfo)                        {}
func (l lines) Enabled(level int) bool                     { return level <= l.verbosity }
func (l lines) Info(_ int, msg string, values ...any)      { l.tell(msg, values) }
func (l lines) Error(err error, msg string, values ...any) { l.tell(msg+": "+err.Error(), values) }
func (l lines) tell(msg string, values []any) {
	*l.told = append(*l.told, fmt.Sprint(l.name, msg, values))
}

func (l lines) WithValues(values ...any) logr.LogSink {
	l.tell("values", values)
	return l
}

func (l lines) WithName(name string) logr.LogSink {
	l.name += name + "/"
	return l
}

// Messages of libraries are logged one level above ours, with the values of their loggers. A logger is free until it logs.
func TestChatter(t *testing.T) {
	for verbosity, want := range map[int][]string{
		0: {"one/two/failed: no[a 1 b 2]"},
		1: {"one/two/told[a 1 b 2 c 3]", "one/two/failed: no[a 1 b 2]"},
	} {
		var told []string
		l := libraryLogger(logr.New(lines{told: &told, verbosity: verbosity})).WithName("one").WithValues("a", 1).WithName("two").WithValues("b", 2)
		l.WithValues("c", 3).V(1).Info("two levels later")
		l.WithValues("c", 3).Info("told")
		l.WithValues("d", 4)
		l.Error(errors.New("no"), "failed")
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("verbosity %d (-want +got):\n%s", verbosity, diff)
		}
	}
}

// TestNoLog: libraries can have a logger that discards all messages.
func TestNoLog(t *testing.T) {
	log := libraryLogger(logr.Discard())
	log.WithName("n").WithValues("k", "v").Info("nothing")
	log.Error(nil, "nothing")
	if log.Enabled() {
		t.Error("it says that it writes")
	}
}
