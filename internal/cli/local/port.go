package local

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below those that systems give to outgoing connections, of which a control plane makes hundreds: a
// port from there could be gone before it is listened on.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePort is a port of 127.0.0.1 on which nothing listens.
func FreePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // chance only keeps two managers apart
		if listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 among 100 tried from %d to %d", firstPort, lastPort)
}
