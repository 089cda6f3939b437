package quota

import (
	"encoding/json"
	"math"
	"testing"
)

// TestWeightJSON: a weight is written in thousandths, of which earlier versions read and wrote whole ones.
func TestWeightJSON(t *testing.T) {
	for text, want := range map[string]Weight{
		"0": 0, "1000": DefaultWeight, "2500": 2.5e9, "0.1": 100_000, "0.9": 900_000, "0.000002": 2, "1000.000001": 1_000_000_001, "10": 1e7,
		"9223372036854.775807": math.MaxInt64,
	} {
		var got Weight
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is read as %d, %v; want %d", text, got, err, want)
		}
		if back, err := json.Marshal(want); err != nil || string(back) != text {
			t.Errorf("%d is written as %s, %v; want %s", want, back, err, text)
		}
	}
	var got Weight
	if err := json.Unmarshal([]byte("1"+"0000000000000000"), &got); err != nil || got != math.MaxInt64 {
		t.Errorf("a weight past counting is %d, %v", got, err)
	}
	for _, text := range []string{"-1", "1e3", `"2"`, "{}"} {
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %d", text, got)
		}
	}
}
