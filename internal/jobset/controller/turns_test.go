package controller

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// 60 §6.1: a small JobSet gets every second turn beside a large one that came before it and has a thousand writes to make.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, large, small = 5, 1000, 10
		queue := make(turns, places)
		var done []string // whose writes ended, in order
		end := make(chan struct{})
		write := func(of string, n int) (work []func() error) {
			for range n {
				work = append(work, func() error {
					<-end
					done = append(done, of) // one at a time, as each is let end on its own
					return errors.New(of)
				})
			}
			return work
		}
		failed := make(chan int, 2)
		start := func(of string, n int) {
			go func() { failed <- len(queue.atOnce(write(of, n))) }()
			synctest.Wait()
		}
		start("large", large)
		start("small", small)
		if len(queue) != places {
			t.Errorf("%d writes are under way", len(queue))
		}
		for range large + small {
			end <- struct{}{}
			synctest.Wait()
		}
		if a, b := <-failed, <-failed; a+b != large+small {
			t.Errorf("%d and %d failed", a, b)
		}
		last := len(done) - 1
		for ; last >= 0 && done[last] != "small"; last-- {
		}
		if most := 2*small + 2*places; last+1 > most {
			t.Errorf("the small one was done after %d writes, want at most %d", last+1, most)
		}
		if n := len(slices.DeleteFunc(done, func(of string) bool { return of == "large" })); n != small {
			t.Errorf("%d writes of the small one", n)
		}
	})
}
