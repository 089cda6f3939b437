package embeddedtest

import "testing"

// TestFreePortIsOurs is that a port is handed out once, to whichever process asks.
func TestFreePortIsOurs(t *testing.T) {
	port := FreePort(t)
	if mine, err := lockPort(port); mine || err != nil {
		t.Errorf("port %d could be had again: %v", port, err)
	}
}
