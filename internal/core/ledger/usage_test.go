package ledger_test

import (
	"encoding/json"
	"testing"
	"unsafe"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/ledger/ledgertest"
	"github.com/berth-project/berth/internal/core/resource"
)

const (
	none  ledger.Key = iota // a dimension of which no usage has a part
	racks                   // the one of ledgertest
)

// of is a usage of amounts of the FRs 0 and on, and of seats.
func of(amounts []resource.Amount, seats ...resource.Amount) ledger.Usage {
	var u ledger.Usage
	for fr, a := range amounts {
		if a > 0 {
			u.Quota = append(u.Quota, resource.Entry{FR: resource.FR(fr), Amount: a})
		}
	}
	if seats != nil {
		u = u.With(racks, ledgertest.Seats(seats))
	}
	return u
}

type amounts = []resource.Amount

// TestBeyond: a dimension that either side has no part of counts as nothing.
func TestBeyond(t *testing.T) {
	tests := map[string]struct{ u, o, want ledger.Usage }{
		"quota alone":        {of(amounts{5, 2}), of(amounts{3, 2}), of(amounts{2})},
		"nothing but seats":  {of(nil, 3), of(nil, 1), of(nil, 2)},
		"of both":            {of(amounts{5}, 3, 1), of(amounts{1}, 1, 1), of(amounts{4}, 2, 0)},
		"seats past none":    {of(amounts{5}, 3), of(amounts{1}), of(amounts{4}, 3)},
		"no seats past some": {of(amounts{5}), of(amounts{1}, 3), of(amounts{4})},
		"no more seats":      {of(amounts{5}, 3), of(amounts{1}, 3), of(amounts{4})},
		"seats in another place": {
			of(amounts{5}).With(none, ledgertest.Seats{2}), of(amounts{1}, 3), of(amounts{4}).With(none, ledgertest.Seats{2}),
		},
		"nothing is past as much": {of(amounts{5}, 3), of(amounts{5}, 3), ledger.Usage{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := tc.u.Clone()
			if got := tc.u.Beyond(tc.o); !got.Equal(tc.want) {
				t.Errorf("got %v, want %v", show(got), show(tc.want))
			}
			if !tc.u.Equal(u) {
				t.Errorf("it is %v now, was %v", show(tc.u), show(u))
			}
		})
	}
}

func show(u ledger.Usage) any { return []any{u.Quota, u.Part(racks)} }

func TestEqual(t *testing.T) {
	all := []ledger.Usage{
		{},
		of(amounts{5}), of(amounts{6}), of(amounts{5, 1}), of(nil, 1), of(nil, 2), of(amounts{5}, 1), of(amounts{5}, 1, 0),
		of(amounts{5}).With(none, ledgertest.Seats{1}), of(amounts{5}, 1).With(none, ledgertest.Seats{1}),
	}
	for i, a := range all {
		for j, b := range all {
			if a.Equal(b) != (i == j) {
				t.Errorf("%v and %v: equal is %v", show(a), show(b), a.Equal(b))
			}
		}
	}
	for i, u := range all {
		if u.IsZero() != (i == 0) {
			t.Errorf("%v is nothing: %v", show(u), u.IsZero())
		}
	}
	if u := of(amounts{5}, 1).With(racks, nil); !u.Equal(of(amounts{5})) || u.Part(racks) != nil {
		t.Errorf("without its seats it is %v", show(u))
	}
}

// TestWith: a usage with another part is another usage, and the first keeps its own.
func TestWith(t *testing.T) {
	u := of(amounts{5}, 1)
	v := u.With(racks, ledgertest.Seats{2})
	if u.Part(racks).(ledgertest.Seats)[0] != 1 || v.Part(racks).(ledgertest.Seats)[0] != 2 || v.Part(none) != nil || v.Part(racks+1) != nil {
		t.Errorf("they are %v and %v", show(u), show(v))
	}
}

// TestCopy: a copy shares no amounts of quota with the original, and is in the memory of another
// usage if that has room.
func TestCopy(t *testing.T) {
	u, into := of(amounts{5, 1}, 2), of(amounts{9, 9, 9}, 9)
	memory := &into.Quota[0]
	for name, c := range map[string]ledger.Usage{"clone": u.Clone(), "copy": u.Copy(into)} {
		if !c.Equal(u) {
			t.Errorf("the %s of %v is %v", name, show(u), show(c))
		}
		if c.Quota[0].Amount = 7; u.Quota[0].Amount != 5 {
			t.Errorf("the %s shares its amounts", name)
		}
	}
	if memory.Amount != 7 {
		t.Error("the copy is in other memory")
	}
	if b := u.Blank(); !b.Equal(ledger.Usage{}) || cap(b.Quota) < 2 {
		t.Errorf("a blank is %v", show(b))
	}
}

// TestStored: structures that embed a usage are stored as they were before there was more than
// quota in one.
func TestStored(t *testing.T) {
	type stored struct {
		Name string
		ledger.Usage
		Level int
	}
	const want = `{"Name":"a","Usage":[{"FR":1,"Amount":5}],"Level":2}`
	text, err := json.Marshal(stored{"a", of(amounts{0, 5}), 2})
	if err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	var back stored
	if err := json.Unmarshal([]byte(want), &back); err != nil || !back.Equal(of(amounts{0, 5})) || back.Level != 2 {
		t.Errorf("read back as %+v, %v", back, err)
	}
}

// TestSize: every workload has a usage.
func TestSize(t *testing.T) {
	if size := unsafe.Sizeof(ledger.Usage{}); size > 32 {
		t.Errorf("a usage has %d bytes", size)
	}
}
