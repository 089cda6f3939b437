package supervise

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reservation is a port of 127.0.0.1 that no other program can take: a socket is bound to it and accepts no connections. Programs of the
// same user that set SO_REUSEPORT, as Sharing does, can listen on the port and get all connections. So another program cannot take a port
// between its choice and the start of its listener, nor between two listeners.
type Reservation struct {
	// Port is the number of the port.
	Port   int
	socket int
}

// Reserve reserves a port until Release: the given one, or a free one for 0. The error is EADDRINUSE if the port is in use or reserved.
func Reserve(port int) (*Reservation, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port on 127.0.0.1: %w", err)
	}
	unix.CloseOnExec(socket)
	r := &Reservation{socket: socket}
	if err := r.bind(port); err != nil {
		r.Release()
		return nil, fmt.Errorf("reserve a port on 127.0.0.1: %w", err)
	}
	return r, nil
}

func (r *Reservation) bind(port int) error {
	named := port != 0
	if named { // ignore connections that ended on the port a moment ago
		if err := unix.SetsockoptInt(r.socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(r.socket, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if named { // listening without SO_REUSEADDR excludes sockets that only reuse the address
		err := errors.Join(unix.Listen(r.socket, 0), unix.SetsockoptInt(r.socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0))
		if err != nil {
			return err
		}
	}
	// Not before it is bound: until then the port must also be free of sharing sockets.
	if err := share(r.socket); err != nil {
		return err
	}
	if named { // stop listening, stay bound
		if err := unix.Shutdown(r.socket, unix.SHUT_RD); err != nil {
			return err
		}
	}
	address, err := unix.Getsockname(r.socket)
	if err != nil {
		return err
	}
	bound, ok := address.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("it is bound to a %T", address)
	}
	r.Port = bound.Port
	return nil
}

// Address is the host and port.
func (r *Reservation) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port)) }

// Release frees the port. Listeners on it stay. A second Release has no effect.
func (r *Reservation) Release() {
	_ = unix.Close(r.socket)
	r.socket = -1
}

func share(socket int) error {
	return unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

// Sharing makes listeners on ports that the same user reserved.
func Sharing() net.ListenConfig {
	return net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(socket uintptr) { failed = share(int(socket)) })
		return errors.Join(err, failed)
	}}
}
