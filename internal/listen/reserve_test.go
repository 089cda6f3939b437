package listen

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// TestReservation: no other program gets the port by listening or reserving: between its choice and the start of its owner's listener,
// while that listens, and between two listeners. All connections reach the owner. This holds for a free port and for a given one on which
// connections have just ended.
func TestReservation(t *testing.T) {
	used := embeddedtest.FreePort(t)
	endConnection(t, used)
	seen := map[int]bool{}
	for name, port := range map[string]int{"free": 0, "another": 0, "named": used} {
		t.Run(name, func(t *testing.T) {
			r, err := Reserve(port)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Release()
			if seen[r.Port] || port != 0 && r.Port != port {
				t.Errorf("port %d, after %v", r.Port, seen)
			}
			seen[r.Port] = true
			for range 3 {
				intrude(t, r, "before its owner listens")
				sharing := Sharing()
				l, err := sharing.Listen(t.Context(), "tcp", r.Address())
				if err != nil {
					t.Fatal(err)
				}
				intrude(t, r, "while its owner listens")
				for range 20 {
					connect(t, l)
				}
				_ = l.Close()
			}
			intrude(t, r, "after its owner")
			r.Release()
			again, err := Reserve(r.Port)
			if err != nil {
				t.Fatalf("after its release: %v", err)
			}
			again.Release()
		})
	}
}

// intrude fails the test if another program gets the port.
func intrude(t *testing.T, r *Reservation, when string) {
	t.Helper()
	for _, address := range []string{r.Address(), fmt.Sprintf("0.0.0.0:%d", r.Port)} {
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			t.Errorf("a neighbour listens on %s %s", address, when)
		}
	}
	if second, err := Reserve(r.Port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a neighbour reserves port %d %s (%v, %v)", r.Port, when, second, err)
	}
}

// connect makes a connection that the listener accepts, and ends it from there.
func connect(t *testing.T, l net.Listener) {
	t.Helper()
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.Close()
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// endConnection leaves an ended connection on the port, which the system remembers for a minute.
func endConnection(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connect(t, l)
}
