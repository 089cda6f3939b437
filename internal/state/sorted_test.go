package state

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A set equals a sorted list after any changes, its depth stays logarithmic, and no change is seen in the sets before.
func TestSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			set  sorted[int]
			list []int
		}
		var now version
		var past []version
		ordered := rapid.Bool().Draw(t, "in order")
		for i := range rapid.IntRange(0, 400).Draw(t, "changes") {
			x := i
			if !ordered {
				x = rapid.IntRange(0, 120).Draw(t, "item")
			}
			past = append(past, version{now.set, slices.Clone(now.list)})
			if rapid.IntRange(0, 19).Draw(t, "many") == 0 {
				some := rapid.SliceOfNDistinct(rapid.IntRange(0, 120), 0, 60, rapid.ID).Draw(t, "items")
				slices.Sort(some)
				now.set = now.set.putAll(some, cmp.Compare[int])
				now.list = append(slices.Clone(now.list), some...)
				slices.Sort(now.list)
				now.list = slices.Compact(now.list)
				continue
			}
			at, has := slices.BinarySearch(now.list, x)
			if rapid.IntRange(0, 2).Draw(t, "drop") > 0 {
				if now.set = now.set.put(x, cmp.Compare[int]); !has {
					now.list = slices.Insert(now.list, at, x)
				}
				continue
			}
			if now.set = now.set.drop(x, cmp.Compare[int]); has {
				now.list = slices.Delete(now.list, at, at+1)
			}
		}
		for i, v := range append(past, now) {
			if got := slices.Collect(v.set.all()); !slices.Equal(got, v.list) || v.set.Len() != len(v.list) {
				t.Fatalf("version %d: %v, want %v", i, got, v.list)
			}
		}
		for _, x := range []int{-1, 0, 7, 60, 400} {
			at, has := slices.BinarySearch(now.list, x)
			if _, before, found := now.set.find(func(y int) int { return cmp.Compare(y, x) }); before != at || found != has {
				t.Fatalf("%d is at %d (%v), want %d (%v)", x, before, found, at, has)
			}
		}
		from := append(past, now)[rapid.IntRange(0, len(past)).Draw(t, "from")]
		var gone, added []int
		differences(from.set, now.set, cmp.Compare[int], func(old, is int) {
			if old != 0 {
				gone = append(gone, old)
			} else {
				added = append(added, is)
			}
		})
		if !slices.Equal(gone, without(from.list, now.list)) || !slices.Equal(added, without(now.list, from.list)) {
			t.Fatalf("from %v to %v: %v are gone and %v added", from.list, now.list, gone, added)
		}
		checkBalance(t, now.set.branch)
		again := sortedOf(now.list)
		if got := slices.Collect(again.all()); !slices.Equal(got, now.list) {
			t.Fatalf("made of %v it has %v", now.list, got)
		}
		checkBalance(t, again.branch)
	})
}

// TestSortedReplaces: putAll replaces equal items, and what no item of it is near to stays as it was.
func TestSortedReplaces(t *testing.T) {
	type item struct{ key, value int }
	compare := func(a, b item) int { return cmp.Compare(a.key, b.key) }
	var items, some []item
	for i := range 1000 {
		items = append(items, item{i, 0})
		if i%10 == 0 && i < 500 {
			some = append(some, item{i, 1})
		}
	}
	before := sortedOf(items)
	now := before.putAll(some, compare)
	for x := range now.all() {
		if want := (item{x.key, 0}); x != want && !slices.Contains(some, x) {
			t.Errorf("%v, want %v", x, want)
		}
	}
	n := 0
	differences(before, now, compare, func(_, _ item) { n++ })
	if n != len(some) || now.right != before.right {
		t.Errorf("%d items differ, want %d, all on the left", n, len(some))
	}
}

// without returns the items of a that b lacks; 0 is none.
func without(a, b []int) (out []int) {
	for _, x := range a {
		if x != 0 && !slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

func checkBalance(t *rapid.T, b *branch[int]) {
	if b == nil {
		return
	}
	l, r := b.left.count(), b.right.count()
	if b.size != l+r+1 || l+r > 1 && (l > heavier*r || r > heavier*l) {
		t.Fatalf("%d items: %d on the left, %d on the right", b.size, l, r)
	}
	checkBalance(t, b.left)
	checkBalance(t, b.right)
}
