package ray

// IsCurrent is isCurrent.
var IsCurrent = isCurrent
