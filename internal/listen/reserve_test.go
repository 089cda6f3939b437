package listen

import (
	"fmt"
	"net"
	"testing"
)

// A neighbour tries to take the port between its choice and the moment at which it is listened on, and afterwards.
func TestReservation(t *testing.T) {
	r, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	intrude := func(when string) {
		for _, address := range []string{r.Address(), fmt.Sprintf("0.0.0.0:%d", r.Port)} {
			if l, err := net.Listen("tcp", address); err == nil {
				_ = l.Close()
				t.Errorf("a neighbour listens on %s %s", address, when)
			}
		}
	}
	intrude("before its owner does")
	sharing := Sharing()
	l, err := sharing.Listen(t.Context(), "tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	intrude("after its owner does")
	for range 20 { // all connections are for the listener
		served := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				err = conn.Close()
			}
			served <- err
		}()
		conn, err := net.Dial("tcp", r.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	}
}
