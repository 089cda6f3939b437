// Package wait is how tests wait. A machine may be slow, and starve a process for half a minute: how fast something happens is no
// assertion, and the limit of a wait is only there so that a hang ends. So no wait takes a limit. What a test asserts about time itself
// ("never within 2 s", "not before the timeout") is a Stays or a comparison in the test, with a comment that says so.
package wait

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"
)

const (
	// Patience is how long nothing may change before a wait gives up.
	Patience = 3 * time.Minute
	// longest is how long a wait lasts, even if something changes all the time.
	longest = 20 * time.Minute
)

// Until waits until check returns no error. The test fails with the last error, if the error has not changed for Patience: a check that
// counts what is done may take longer. It checks often at first and less often later: most checks ask an API server, which takes processor
// time from what is under test. What check asks for has to last: a state that passes by may be missed.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	const most, least = 10 * time.Millisecond, 100 * time.Millisecond // between two checks
	began, ended := time.Now(), over(t)
	text, changed := "", began
	for {
		err := check()
		if err == nil {
			return
		}
		now := time.Now()
		if now.Sub(changed) >= Patience || now.Sub(began) >= longest {
			t.Fatalf("not so after %s: %s: %v", now.Sub(began).Round(time.Second), what, err)
		}
		if said := pointer.ReplaceAllString(err.Error(), ""); said != text {
			text, changed = said, now
		}
		select {
		case <-time.After(min(max(now.Sub(began)/20, most), least)):
		case <-ended.Done():
			t.Fatalf("not so when the test ended: %s: %v", what, err)
		}
	}
}

// pointer is what %+v makes of a pointer, which changes with every object that is read.
var pointer = regexp.MustCompile(`0x[0-9a-f]{8,}`)

// Receive waits for a value of a channel, and returns it: the zero value, if the channel is closed.
func Receive[T any](t testing.TB, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(Patience):
		t.Fatalf("not so after %s: %s", Patience, what)
	case <-over(t).Done():
		t.Fatalf("not so when the test ended: %s", what)
	}
	return value
}

// Ready is Receive for what is started, and says why it ended if it does so before it is ready: ended, which has a buffer, keeps the error.
func Ready[T any](t testing.TB, what string, ready <-chan T, ended chan error) (value T) {
	t.Helper()
	select {
	case value = <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("%s ended before it was ready: %v", what, err)
	case <-time.After(Patience):
		t.Fatalf("not ready after %s: %s", Patience, what)
	case <-over(t).Done():
		t.Fatalf("not ready when the test ended: %s", what)
	}
	return value
}

// Stays fails the test if check returns an error before some time is over: it is for what must not happen, of which a slow machine shows
// less, but nothing wrong.
func Stays(t testing.TB, during time.Duration, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatalf("no longer so: %s: %v", what, err)
		}
	}
}

// NextSecond waits until the clock shows another whole second: timestamps of objects have no fractions, and an order by them needs two.
func NextSecond(t testing.TB) {
	t.Helper()
	now := time.Now()
	select {
	case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
	case <-over(t).Done():
	}
}

// Quiet waits until a count has been the same for some time, and returns it. A starved program is quiet too: what the test asserts after it
// must not need an end of the work.
func Quiet(t testing.TB, during time.Duration, count func() int) int {
	t.Helper()
	n, since, began := count(), time.Now(), time.Now()
	for time.Since(since) < during {
		time.Sleep(20 * time.Millisecond)
		if now := count(); now != n {
			n, since = now, time.Now()
		}
		if time.Since(began) > longest {
			t.Fatalf("not quiet after %s: %d", longest, n)
		}
	}
	return n
}

// over is done when the test ends, except in its cleanup, which may wait as well.
func over(t testing.TB) context.Context {
	if t.Context().Err() != nil {
		return context.WithoutCancel(t.Context())
	}
	return t.Context()
}

// Is makes a check of a condition. An error that names what there is instead is better, if there is such a thing.
func Is(so func() bool) func() error {
	return func() error {
		if so() {
			return nil
		}
		return errNot
	}
}

var errNot = errors.New("it is not so")
