package wait

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that notes how it fails.
type failing struct {
	testing.TB
	ctx     context.Context
	message string
}

func (f *failing) Helper()                  {}
func (f *failing) Context() context.Context { return f.ctx }
func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A wait ends when its check succeeds, with the test, or with the last error when nothing changes any more, and lasts however slow it is.
func TestWaits(t *testing.T) {
	count := func(from time.Time, unit time.Duration) int { return int(time.Since(from) / unit) }
	cases := map[string]struct {
		ends  time.Duration // of the test; 0: it goes on, -1: it is over already, as in a cleanup
		run   func(testing.TB)
		takes time.Duration // at least, and at most a second longer
		fails string
	}{
		"at once":                 {0, func(t testing.TB) { Until(t, "all", func() error { return nil }) }, 0, ""},
		"it comes late":           {0, until(170 * time.Second), 170 * time.Second, ""},
		"it comes in the cleanup": {-1, until(170 * time.Second), 170 * time.Second, ""},
		"it never comes":          {0, until(time.Hour), Patience, "not so after 3m0s: all: short of it"},
		"the test ends":           {time.Minute, until(time.Hour), time.Minute, "not so when the test ended: all: short of it"},
		"slowly": {0, func(t testing.TB) {
			began := time.Now()
			Until(t, "all", func() error {
				if n := count(began, 2*time.Minute); n < 4 {
					return fmt.Errorf("%d of 4", n)
				}
				return nil
			})
		}, 8 * time.Minute, ""},
		"a pointer that always changes": {0, func(t testing.TB) {
			Until(t, "all", func() error { return fmt.Errorf("%+v", struct{ p *int }{new(int)}) })
		}, Patience, "not so after 3m0s: all: {p:0x"},
		"a message that always changes": {0, func(t testing.TB) {
			Until(t, "all", func() error { return fmt.Errorf("at %s", time.Now()) })
		}, longest, "not so after 20m0s: all: at "},
		"a value": {0, func(t testing.TB) {
			from := make(chan int, 1)
			time.AfterFunc(time.Minute, func() { from <- 7 })
			if got := Receive(t, "it", from); got != 7 {
				t.Fatalf("received %d", got)
			}
		}, time.Minute, ""},
		"no value":         {0, func(t testing.TB) { Receive(t, "it", make(chan int)) }, Patience, "not so after 3m0s: it"},
		"the test is over": {time.Minute, func(t testing.TB) { Receive(t, "it", make(chan int)) }, time.Minute, "not so when the test ended: it"},
		"a condition":      {0, func(t testing.TB) { Until(t, "all", Is(func() bool { return false })) }, Patience, "not so after 3m0s: all: it is not so"},
		"ready": {0, func(t testing.TB) {
			ready := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(ready) })
			Ready(t, "the manager", ready, make(chan error, 1))
		}, time.Minute, ""},
		"not ready": {0, func(t testing.TB) { Ready(t, "the manager", make(chan int), make(chan error, 1)) }, Patience, "not ready after 3m0s: the manager"},
		"never ready": {0, func(t testing.TB) {
			ended := make(chan error, 1)
			ended <- errors.New("no port")
			defer func() {
				if err := <-ended; err == nil {
					t.Error("the error is lost")
				}
			}()
			Ready(t, "the manager", make(chan int), ended)
		}, 0, "the manager ended before it was ready: no port"},
		"it stays": {0, func(t testing.TB) { Stays(t, time.Second, "all", func() error { return nil }) }, time.Second, ""},
		"it does not stay": {0, func(t testing.TB) {
			began := time.Now()
			Stays(t, time.Hour, "all", func() error {
				if count(began, time.Second) > 2 {
					return errors.New("gone")
				}
				return nil
			})
		}, 3 * time.Second, "no longer so: all: gone"},
		"quiet": {0, func(t testing.TB) {
			began := time.Now()
			if got := Quiet(t, 2*time.Second, func() int { return min(count(began, time.Second), 5) }); got != 5 {
				t.Fatalf("quiet at %d", got)
			}
		}, 7 * time.Second, ""},
		"never quiet": {0, func(t testing.TB) {
			Quiet(t, 2*time.Second, func() int { return time.Now().Nanosecond() })
		}, longest, "not quiet after 20m0s"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch {
				case tc.ends > 0:
					time.AfterFunc(tc.ends, cancel)
				case tc.ends < 0:
					cancel()
				}
				f, began, done := &failing{TB: t, ctx: ctx}, time.Now(), make(chan struct{})
				go func() {
					defer close(done)
					tc.run(f)
				}()
				<-done
				if took := time.Since(began); took < tc.takes || took > tc.takes+time.Second {
					t.Errorf("it took %s", took)
				}
				if !strings.HasPrefix(f.message, tc.fails) || f.message != "" && tc.fails == "" {
					t.Errorf("it failed with %q", f.message)
				}
			})
		})
	}
}

// until waits for what comes after a while.
func until(after time.Duration) func(testing.TB) {
	return func(t testing.TB) {
		began := time.Now()
		Until(t, "all", func() error {
			if time.Since(began) < after {
				return errors.New("short of it")
			}
			return nil
		})
	}
}
