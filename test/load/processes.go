package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of processor times in /proc.
const tick = 10 * time.Millisecond

// process is what /proc says about one.
type process struct {
	pid, parent int
	cpu         time.Duration // user and system
}

// look reads /proc/PID/stat.
func look(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, string(data))
}

// parseStat reads the text of /proc/PID/stat. The name, in parentheses, may hold anything.
func parseStat(pid int, stat string) (process, error) {
	bad := fmt.Errorf("/proc/%d/stat: cannot read %q", pid, stat)
	at := strings.LastIndexByte(stat, ')')
	if at < 0 {
		return process{}, bad
	}
	fields := strings.Fields(stat[at+1:])
	if len(fields) < 13 {
		return process{}, bad
	}
	var n [3]int // parent, user time, system time
	for i, field := range []int{1, 11, 12} {
		var err error
		if n[i], err = strconv.Atoi(fields[field]); err != nil {
			return process{}, bad
		}
	}
	return process{pid, n[0], time.Duration(n[1]+n[2]) * tick}, nil
}

// child finds the child of a process that was started under a name.
func child(parent int, name string) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		p, err := look(pid)
		if err != nil || p.parent != parent {
			continue // it may have ended meanwhile
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		if program, _, _ := bytes.Cut(line, []byte{0}); filepath.Base(string(program)) == name {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no child of process %d is named %s", parent, name)
}

// peakRSS is the most memory that a process ever had resident, in MB.
func peakRSS(pid int) (float64, error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("%s: no VmHWM", name)
}

// machineCPU is the processor time that everything on the machine has used.
func machineCPU() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(first)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: cannot read %q", first)
	}
	var sum int
	for i, field := range fields[1:8] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 { // idle, waiting for disks
			sum += n
		}
	}
	return time.Duration(sum) * tick, nil
}

// ownCPU is the processor time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only its arguments can be wrong
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
