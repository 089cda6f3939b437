package embeddedtest

import "testing"

// TestFreePortIsOurs: a port is given out once, across processes.
func TestFreePortIsOurs(t *testing.T) {
	port := FreePort(t)
	if mine, err := lockPort(port); mine || err != nil {
		t.Errorf("port %d could be had again: %v", port, err)
	}
}
