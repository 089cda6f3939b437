package embeddedtest

import (
	"net"
	"os/exec"
	"strconv"
	"testing"
)

// TestFreePortIsOurs: a port is given out once, across processes.
func TestFreePortIsOurs(t *testing.T) {
	port := FreePort(t)
	if mine, err := lockPort(port); mine || err != nil {
		t.Errorf("port %d could be had again: %v", port, err)
	}
}

// TestFreePortIsFree: the port can be listened on while processes are started, which have their parent's sockets at first.
func TestFreePortIsFree(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan error, 2)
	for range cap(stopped) {
		go func() {
			for {
				select {
				case <-stop:
					stopped <- nil
					return
				default:
				}
				if err := exec.Command("true").Run(); err != nil {
					stopped <- err
					return
				}
			}
		}()
	}
	for range 300 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t))))
		if err != nil {
			t.Error(err)
			break
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	for range cap(stopped) {
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}
