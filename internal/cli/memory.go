package cli

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
)

// memoryLimits are the kernel's files with the container's memory limit: cgroups of version 2, then 1.
var memoryLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// ofLimit is the part of the container's memory from which on garbage is collected more often; memory outside of the heap needs the rest.
const ofLimit = 0.9

// limitMemory sets Go's memory limit below the container's, unless GOMEMLIMIT is set.
func limitMemory(log logr.Logger, files []string) {
	limit := containerMemory(files)
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	soft := int64(float64(limit) * ofLimit)
	debug.SetMemoryLimit(soft)
	log.Info("Memory is limited", "limit", limit, "soft", soft)
}

// containerMemory is the limit in bytes in the first readable file; 0 is none.
func containerMemory(files []string) int64 {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || limit <= 0 || limit > math.MaxInt64/2 { // "max", or its equivalent in version 1
			return 0
		}
		return limit
	}
	return 0
}
