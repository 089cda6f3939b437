package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// cpuOf is the processor time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return inSeconds(stat.CPUTime()), err
}

// child finds the child of a process that was started under a name.
func child(parent int, name string) (int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil || stat.PPID != parent {
			continue // it may have ended meanwhile
		}
		line, err := p.CmdLine()
		if err != nil {
			return 0, err
		}
		if len(line) > 0 && filepath.Base(line[0]) == name {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("no child of process %d is named %s", parent, name)
}

// peakRSS is the most memory that a process ever had resident, in MiB.
func peakRSS(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	return float64(status.VmHWM) / (1 << 20), err
}

// machineCPU is the processor time that everything on the machine has used.
func machineCPU() (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	c := stat.CPUTotal
	return inSeconds(c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ), nil
}

// ownCPU is the processor time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only its arguments can be wrong
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inSeconds is a duration of n seconds.
func inSeconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
