// Package toppage is the page of `berth top --watch` without a terminal: figures and keys change its state, and the state and the time make
// its lines.
package toppage

import (
	"fmt"
	"strings"
	"time"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
)

// Use is the use of a quota. Reserved is held by Workloads, and Admitted is the part of it that runs.
type Use struct{ Quota, Reserved, Admitted float64 }

// Full is the part of the quota that is reserved: 1 for a use without a quota.
func (u Use) Full() float64 {
	switch {
	case u.Quota > 0:
		return u.Reserved / u.Quota
	case u.Reserved > 0:
		return 1
	}
	return 0
}

// Percent is the reserved part in percent, - without a quota.
func (u Use) Percent() string {
	if u.Quota <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", u.Full()*100)
}

// Bar draws the use in so many cells. Above the quota it ends in a plus.
func (u Use) Bar(width int) string {
	if u.Quota <= 0 {
		if u.Reserved <= 0 {
			return strings.Repeat("░", width)
		}
		return strings.Repeat("█", width) + "+"
	}
	cells := func(amount float64) int { return min(width, int(amount/u.Quota*float64(width)+0.5)) }
	full, about := cells(min(u.Admitted, u.Reserved)), cells(u.Reserved)
	if u.Reserved > 0 && about == 0 {
		full, about = 1, 1 // small amounts stay visible
	}
	drawn := strings.Repeat("█", full) + strings.Repeat("▒", about-full) + strings.Repeat("░", width-about)
	if u.Reserved > u.Quota {
		drawn += "+"
	}
	return drawn
}

// Resource is the use of a resource in all queues and flavors.
type Resource struct {
	Name   string
	Use    Use
	Amount string // in words
}

// Queue is a ClusterQueue.
type Queue struct {
	Name, Cohort string
	Off          string // why it admits nothing, "" if it does
	Fullest      string // the flavor and resource of Use
	Use          Use
	Borrowed     string  // the amount and its resource
	Borrows      float64 // that amount as a part of its quota, for the order
	Admitted     int
	Pending      int
	Waits        time.Time // since when the oldest in its line waits; zero if that is unknown
	Why          string    // why the first in its line waits
	Starts       string    // when that is expected to start, "" if that was not asked
}

// Figures are the answer to one refresh.
type Figures struct {
	At        time.Time
	Resources []Resource // the most wanted first: of several, the last ones are left out
	Queues    []Queue
	LastHour  *berthv1alpha1.Activity // of the queues; nil if it is unknown
	Note      string                  // where no manager made the figures, or some are unknown
	Workloads *PendingList            // of the queue that was asked for
}

// PendingList is the Workloads in the line of a ClusterQueue, the first one first.
type PendingList struct {
	Queue     string
	Workloads []Workload
	Note      string // what is unknown about them, and why
}

// Workload is a pending Workload.
type Workload struct {
	Name                  string // with its namespace
	Position, Priority    string
	Waits                 time.Time
	Starts, Why, JobQueue string
}

// pending is how many Workloads wait in all queues.
func (f *Figures) pending() (n int) {
	for i := range f.Queues {
		n += f.Queues[i].Pending
	}
	return n
}
