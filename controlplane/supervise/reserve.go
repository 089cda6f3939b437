package supervise

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reservation is a free port of 127.0.0.1 that no other program can take: a socket is bound to it and never listens. A program
// of the same user that sets SO_REUSEPORT can listen on the port, and gets all connections. So a port is not lost between its
// choice and the start of the program that it is for, which binds it itself.
type reservation struct{ port, socket int }

func reserve() (reservation, error) {
	failed := func(err error) (reservation, error) {
		return reservation{}, fmt.Errorf("reserve a port on 127.0.0.1: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return failed(err)
	}
	r := reservation{socket: socket}
	unix.CloseOnExec(socket)
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		r.release()
		return failed(err)
	}
	// Not before it is bound: until then the port has to be free of those who share, too.
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		r.release()
		return failed(err)
	}
	address, err := unix.Getsockname(socket)
	if err != nil {
		r.release()
		return failed(err)
	}
	r.port = address.(*unix.SockaddrInet4).Port // it was bound to one
	return r, nil
}

func (r reservation) release() { _ = unix.Close(r.socket) }
