//go:build !linux

package ctl

// page needs the pseudo-terminals of Linux.
func (w *world) page() { w.Skip("there is no pseudo-terminal of Linux") }
