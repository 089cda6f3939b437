package ledger

// Undoable returns the length of the undo log of the dimensions besides quota.
func (l *Ledger) Undoable() int { return len(l.log) }
