package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

type object = metav1.PartialObjectMetadata

// version returns the object that "VERSION [deleting] [of UID]" describes.
func version(text string) *object {
	words := strings.Fields(text)
	o := &object{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u", ResourceVersion: words[0]}}
	for i, w := range words {
		switch w {
		case "deleting":
			o.DeletionTimestamp = new(metav1.Now())
		case "of":
			o.UID = types.UID(words[i+1])
		}
	}
	return o
}

// text is the inverse of version, for a list of objects, separated by commas.
func text(objects ...*object) string {
	var out []string
	for _, o := range objects {
		s := o.ResourceVersion
		if o.DeletionTimestamp != nil {
			s += " deleting"
		}
		if o.UID != "u" {
			s += " of " + string(o.UID)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

var (
	errLost     = errors.New("the connection broke")
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", nil)
)

// The contract: writes, the state of the cache, and the results for readers. Steps are "created V", "updated V", "deleted V", "lost V", "refused V"
// (V is the version that was overwritten), "saw V", "gone", "wait".
func TestOverlayContract(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []string
		shown string // by the cache; "" for nothing
		list  string // what List returns
		kept  int    // number of entries afterwards
	}{
		"nothing was written":                    {nil, "5", "5", 0},
		"the cache is behind":                    {[]string{"updated 7"}, "5", "7", 1},
		"it has the write":                       {[]string{"updated 7"}, "7", "7", 0},
		"it has more":                            {[]string{"updated 7"}, "9", "9", 0},
		"versions are numbers":                   {[]string{"updated 10"}, "9", "10", 1},
		"of any size":                            {[]string{"updated 100000000000000000000"}, "99999999999999999999", "100000000000000000000", 1},
		"versions that cannot be compared":       {[]string{"updated b"}, "a", "a", 0},
		"the last write counts":                  {[]string{"updated 7", "updated 8"}, "7", "8", 1},
		"answers that overtake each other":       {[]string{"updated 8", "updated 7"}, "5", "8", 1},
		"a write that was refused":               {[]string{"refused 5"}, "5", "5", 0},
		"another object of the name":             {[]string{"updated 7"}, "5 of v", "5 of v", 0},
		"a write is not believed for ever":       {[]string{"updated 7", "wait"}, "5", "5", 0},
		"an event ends it":                       {[]string{"updated 7", "saw 7"}, "5", "5", 0},
		"an older event does not":                {[]string{"updated 7", "saw 6"}, "5", "7", 1},
		"created, and not shown":                 {[]string{"created 7"}, "", "7", 1},
		"created, changed, and not shown":        {[]string{"created 7", "updated 8"}, "", "8", 1},
		"created and changed, and shown in part": {[]string{"created 7", "updated 8"}, "7", "8", 1},
		"created, and gone since":                {[]string{"created 7", "gone"}, "", "", 0},
		"created, and never shown":               {[]string{"created 7", "wait"}, "", "", 0},
		"changed, and gone since":                {[]string{"updated 7"}, "", "", 0},
		"created, changed, shown and gone":       {[]string{"created 7", "updated 8", "saw 7"}, "", "", 0},
		"being deleted":                          {[]string{"deleted 5"}, "5", "5 deleting", 1},
		"whatever was written meanwhile":         {[]string{"deleted 5"}, "6", "5 deleting", 1},
		"a late answer does not revoke it":       {[]string{"deleted 5", "updated 6"}, "5", "5 deleting", 1},
		"deletion after a write":                 {[]string{"updated 6", "deleted 6"}, "5", "6 deleting", 1},
		"the deletion is shown":                  {[]string{"deleted 5"}, "6 deleting", "6 deleting", 0},
		"the object is gone":                     {[]string{"deleted 5"}, "", "", 0},
		"deleted before it was shown":            {[]string{"created 5", "deleted 5"}, "", "", 1},
		"and shown then":                         {[]string{"created 5", "deleted 5"}, "5", "5 deleting", 1},
		"a deletion is not believed for ever":    {[]string{"deleted 5", "wait"}, "6", "6", 0},
		"no answer":                              {[]string{"lost 5"}, "5", "5", 1},
		"no answer, and the cache is behind":     {[]string{"updated 5", "lost 5"}, "4", "5", 1},
		"no answer, and a change is shown":       {[]string{"lost 5"}, "6", "6", 0},
		"no answer, then one":                    {[]string{"lost 5", "updated 6"}, "5", "6", 1},
	} {
		overlay := func() *Overlay[*object] {
			now := time.Unix(1000, 0)
			o := NewOverlay[*object](func() time.Time { return now })
			for _, s := range tc.steps {
				what, of, _ := strings.Cut(s, " ")
				switch what {
				case "created":
					o.Created(version(of))
				case "updated":
					o.Updated(version(of))
				case "deleted":
					o.Deleted(version(of + " deleting"))
				case "lost":
					o.Wrote(version(of), version(of), errLost)
				case "refused":
					o.Wrote(version(of), version(of), errConflict)
				case "saw":
					o.Saw(version(of))
				case "gone":
					o.Gone("u")
				case "wait":
					now = now.Add(Believed)
				}
			}
			return o
		}
		var shown []*object
		if tc.shown != "" {
			shown = append(shown, version(tc.shown))
			if got := text(overlay().Newest(shown[0])); got != tc.list {
				t.Errorf("%s: newest %q, want %q", name, got, tc.list)
			}
			if got, want := overlay().IsBehind(shown[0]), tc.kept > 0; got != want {
				t.Errorf("%s: behind: %v", name, got)
			}
		}
		o := overlay()
		if got := text(o.List(shown, nil)...); got != tc.list || o.Len() != tc.kept {
			t.Errorf("%s: list %q, want %q; %d entries, want %d", name, got, tc.list, o.Len(), tc.kept)
		}
		if len(shown) == 1 && text(shown...) != tc.shown {
			t.Errorf("%s: the cache's own list was changed: %s", name, text(shown...))
		}
		if got := text(overlay().List(nil, func(*object) bool { return false })...); got != "" {
			t.Errorf("%s: %q is in the list of another collection", name, got)
		}
	}
}

// stored is an API server with at most one object.
type stored struct {
	client.Reader
	object *object
	err    error
	asked  int
}

func (s *stored) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.asked++
	switch {
	case s.err != nil:
		return s.err
	case s.object == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "a")
	}
	if got := into.GetObjectKind().GroupVersionKind().Kind; got != "Thing" {
		return fmt.Errorf("a %q is asked for", got)
	}
	s.object.DeepCopyInto(into.(*object))
	return nil
}

// Only uncertain writes are read from the API server, and an answer is believed for as long as a write.
func TestResolve(t *testing.T) {
	for name, tc := range map[string]struct {
		note    func(*Overlay[client.Object])
		waits   time.Duration
		live    string // "" if it was deleted
		want    string
		asked   int
		entries int
	}{
		"nothing was written":             {func(*Overlay[client.Object]) {}, 0, "9", "5", 0, 0},
		"it is known":                     {func(o *Overlay[client.Object]) { o.Updated(version("6")) }, 0, "9", "6", 0, 1},
		"not shown for long":              {func(o *Overlay[client.Object]) { o.Updated(version("6")) }, Believed, "9", "9", 1, 1},
		"not shown for very long":         {func(o *Overlay[client.Object]) { o.Updated(version("6")) }, kept - 1, "6", "6", 1, 1},
		"it was made":                     {func(o *Overlay[client.Object]) { o.Wrote(version("5"), version("5"), errLost) }, 0, "6", "6", 1, 1},
		"it was not made":                 {func(o *Overlay[client.Object]) { o.Wrote(version("5"), version("5"), errLost) }, 0, "5", "5", 1, 0},
		"it was refused":                  {func(o *Overlay[client.Object]) { o.Wrote(version("5"), version("5"), errConflict) }, 0, "6", "5", 0, 0},
		"it is gone":                      {func(o *Overlay[client.Object]) { o.Wrote(version("5"), version("5"), errLost) }, 0, "", "5 deleting", 1, 1},
		"there is another one":            {func(o *Overlay[client.Object]) { o.Wrote(version("5"), version("5"), errLost) }, 0, "6 of v", "5 deleting", 1, 1},
		"a deletion":                      {func(o *Overlay[client.Object]) { o.Deleted(version("5 deleting")) }, 0, "5", "5 deleting", 0, 1},
		"a deletion that was not made":    {func(o *Overlay[client.Object]) { o.Deleted(version("5 deleting")) }, Believed, "5", "5", 1, 0},
		"one that was, and is not shown":  {func(o *Overlay[client.Object]) { o.Deleted(version("5 deleting")) }, Believed, "", "5 deleting", 1, 1},
		"one that takes its time":         {func(o *Overlay[client.Object]) { o.Deleted(version("5 deleting")) }, Believed, "6 deleting", "6 deleting", 1, 1},
		"a late answer after no answer":   {func(o *Overlay[client.Object]) { o.Wrote(version("5"), nil, errLost); o.Updated(version("6")) }, 0, "9", "6", 0, 1},
		"no answer over a version before": {func(o *Overlay[client.Object]) { o.Updated(version("6")); o.Wrote(version("5"), nil, errLost) }, 0, "9", "6", 0, 1},
	} {
		now := time.Unix(1000, 0)
		o := NewOverlay[client.Object](func() time.Time { return now })
		tc.note(o)
		now = now.Add(tc.waits)
		live := &stored{}
		if tc.live != "" {
			live.object = version(tc.live)
		}
		shown := version("5")
		shown.Kind = "Thing"
		for range 2 { // the second time without a read
			got, err := Resolve[client.Object](t.Context(), o, live, shown)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if text(got.(*object)) != tc.want || live.asked != tc.asked || o.Len() != tc.entries {
				t.Errorf("%s: %s, want %s; asked %d times, want %d; %d entries, want %d",
					name, text(got.(*object)), tc.want, live.asked, tc.asked, o.Len(), tc.entries)
			}
		}
	}
	o := NewOverlay[client.Object](time.Now)
	o.Wrote(version("5"), nil, errLost)
	if _, err := Resolve[client.Object](t.Context(), o, &stored{err: errLost}, version("5")); !errors.Is(err, errLost) || o.Len() != 1 {
		t.Errorf("the API server does not answer: %v, %d entries", err, o.Len())
	}
}

func TestOverlayIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	o := NewOverlay[*object](func() time.Time { return now })
	for i := range most + 10 {
		o.Created(version(fmt.Sprintf("5 of %d", i)))
	}
	if list := o.List(nil, nil); len(list) != most || list[0].UID != "10" {
		t.Errorf("%d objects, from %s", len(list), list[0].UID)
	}
	now = now.Add(kept)
	o.Updated(version("5"))
	if o.Len() != 1 {
		t.Errorf("%d entries of long ago", o.Len()-1)
	}
}

// world is an API server whose history a cache follows, and this process, which writes.
type world struct {
	t       *testing.T
	random  *rand.Rand
	overlay *Overlay[*object]
	version int
	uids    int
	server  map[types.UID]*object
	cache   map[types.UID]*object
	history []change
	wrote   map[types.UID]int  // the version of our last write
	doomed  map[types.UID]bool // the objects that we deleted
}

type change struct {
	object *object
	gone   bool
}

// set makes a change at the API server.
func (w *world) set(uid types.UID, deleting bool) *object {
	w.version++
	o := version(fmt.Sprintf("%d of %s", w.version, uid))
	o.Name = string(uid)
	if old := w.server[uid]; deleting {
		o.DeletionTimestamp = new(metav1.Now())
	} else if old != nil {
		o.DeletionTimestamp = old.DeletionTimestamp
	}
	w.server[uid] = o
	w.history = append(w.history, change{object: o})
	return o
}

// remove deletes an object, at once or with a deletion timestamp first.
func (w *world) remove(uid types.UID) {
	old := w.server[uid]
	if old.DeletionTimestamp == nil && w.random.IntN(2) == 0 {
		w.set(uid, true)
		return
	}
	delete(w.server, uid)
	w.history = append(w.history, change{old, true})
}

// write makes one write of this process.
func (w *world) write(uid types.UID) {
	switch over := w.server[uid]; {
	case over == nil:
		w.uids++
		uid = types.UID(fmt.Sprintf("n%d", w.uids))
		w.overlay.Created(w.set(uid, false))
	case w.random.IntN(4) == 0:
		w.remove(uid)
		going := over.DeepCopy()
		going.DeletionTimestamp = new(metav1.Now())
		w.overlay.Deleted(going)
		w.doomed[uid] = true
		return
	case w.random.IntN(4) == 0: // the answer is lost, and maybe the write, too
		if w.random.IntN(2) == 0 {
			w.set(uid, false)
		}
		w.overlay.Wrote(over, nil, errLost)
		return
	default:
		w.overlay.Wrote(over, w.set(uid, false), nil)
	}
	w.wrote[uid] = w.version
}

// follow advances the cache by one step, which event handlers may report.
func (w *world) follow() {
	if len(w.history) == 0 {
		return
	}
	next := w.history[0]
	w.history = w.history[1:]
	if next.gone {
		delete(w.cache, next.object.UID)
		w.overlay.Gone(next.object.UID)
		return
	}
	w.cache[next.object.UID] = next.object
	if w.random.IntN(2) == 0 {
		w.overlay.Saw(next.object)
	}
}

// check compares the results for readers with the cache and with the writes.
func (w *world) check(step int) {
	var shown []*object
	for _, o := range w.cache {
		shown = append(shown, o)
	}
	listed := map[types.UID]*object{}
	for _, o := range w.overlay.List(shown, nil) {
		if listed[o.UID] != nil {
			w.t.Errorf("step %d: %s is there twice", step, o.UID)
		}
		listed[o.UID] = o
	}
	for uid, o := range w.cache {
		got := listed[uid]
		if got == nil || (IsOlder(got.ResourceVersion, o.ResourceVersion) && !w.doomed[uid]) {
			w.t.Fatalf("step %d: the cache shows %s, readers get %v", step, text(o), got)
		}
		if newest := w.overlay.Newest(o); newest != got {
			w.t.Errorf("step %d: newest is %s, in the list is %s", step, text(newest), text(got))
		}
		now, err := Resolve(w.t.Context(), w.overlay, &liveWorld{world: w}, o)
		if is := w.server[uid]; err != nil || (is == nil && w.doomed[uid] && now.DeletionTimestamp == nil) {
			w.t.Errorf("step %d: resolved is %s, %v, and there is %v", step, text(now), err, is)
		}
	}
	for uid, got := range listed {
		if w.doomed[uid] && got.DeletionTimestamp == nil {
			w.t.Errorf("step %d: %s was deleted, and is listed as %s", step, uid, text(got))
		}
		if !w.doomed[uid] && IsOlder(got.ResourceVersion, fmt.Sprint(w.wrote[uid])) {
			w.t.Errorf("step %d: version %d of %s was written, %s is listed", step, w.wrote[uid], uid, text(got))
		}
	}
	for uid := range w.wrote {
		if w.server[uid] != nil && listed[uid] == nil && !w.doomed[uid] {
			w.t.Errorf("step %d: %s is there, and is not listed", step, uid)
		}
	}
}

// liveWorld reads the API server of a world.
type liveWorld struct {
	client.Reader
	*world
}

func (l *liveWorld) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	is := l.server[types.UID(key.Name)]
	if is == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
	}
	is.DeepCopyInto(into.(*object))
	return nil
}

// For all writes and all lags of the cache: readers get no state that is older than the cache or than our last write, no object that
// we deleted comes back, and no entry remains once the cache has caught up.
func TestOverlayProperty(t *testing.T) {
	first := embeddedtest.Seed(t, 1)
	for seed := first; seed < first+200; seed++ {
		now := time.Unix(1000, 0)
		w := &world{
			t: t, random: rand.New(rand.NewPCG(seed, 1)), overlay: NewOverlay[*object](func() time.Time { return now }),
			server: map[types.UID]*object{}, cache: map[types.UID]*object{}, wrote: map[types.UID]int{}, doomed: map[types.UID]bool{},
		}
		for step := range 100 {
			uid := types.UID(fmt.Sprintf("n%d", 1+w.random.IntN(5)))
			switch n := w.random.IntN(10); {
			case n < 4:
				w.write(uid)
			case n == 4 && w.server[uid] != nil:
				w.remove(uid)
			case n == 5 && w.server[uid] != nil:
				w.set(uid, false)
			default:
				w.follow()
			}
			now = now.Add(time.Millisecond)
			w.check(step)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		for len(w.history) > 0 {
			w.follow()
		}
		w.check(100)
		for uid, o := range w.cache {
			if got := w.overlay.Newest(o); got != o || w.server[uid] != o {
				t.Errorf("seed %d: the cache has caught up, and readers get %s instead of %s", seed, text(got), text(o))
			}
		}
		if w.overlay.Len() > 0 || len(w.cache) != len(w.server) {
			t.Fatalf("seed %d: %d entries are left", seed, w.overlay.Len())
		}
	}
}

func TestOverlayIsSafe(_ *testing.T) {
	o := NewOverlay[client.Object](time.Now)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 500 {
				shown := version(fmt.Sprintf("%d of %d", 1+n, n%10))
				switch (i + n) % 5 {
				case 0:
					o.Created(shown)
				case 1:
					o.Wrote(shown, version(fmt.Sprintf("%d of %d", 2+n, n%10)), nil)
				case 2:
					o.Saw(shown)
				case 3:
					o.List([]client.Object{shown}, nil)
				default:
					o.Gone(shown.UID)
				}
			}
		})
	}
	wg.Wait()
}
