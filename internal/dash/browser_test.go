package dash

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// browser is a tab of a real browser.
type browser struct {
	*testing.T
	ctx context.Context
}

// newBrowser opens a tab. The test fails if a script of a page does. Without a browser on this machine the test is skipped:
// `make test-browser` installs one.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no browser is installed: make test-browser installs one")
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun,
		chromedp.WindowSize(1200, 900), chromedp.Flag("disable-dev-shm-usage", true))
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	b := &browser{t, ctx}
	b.must(chromedp.Do(ctx, chromedp.Navigate("about:blank"))) // the browser ends with the context of the first call
	b.must(chromedp.Listen(ctx, func(event any) {
		if e, is := event.(*runtime.EventExceptionThrown); is {
			t.Errorf("a script failed: %+v", e.ExceptionDetails)
		}
	}))
	return b
}

func (b *browser) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, end := context.WithTimeout(b.ctx, wait.Patience)
	defer end()
	b.must(chromedp.Do(ctx, actions...))
}

// pictures is where pages are drawn to: make pictures.
var pictures = flag.String("pictures", "", "folder for pictures of the pages that are tested, light and dark")

// picture draws the page to two files, if the user wants pictures.
func (b *browser) picture(name string) {
	b.Helper()
	if *pictures == "" {
		return
	}
	b.must(os.MkdirAll(*pictures, 0o750))
	for _, scheme := range []string{"dark", "light"} {
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
			return err
		}))
		drawn, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		b.must(err)
		b.must(os.WriteFile(filepath.Join(*pictures, name+"-"+scheme+".png"), drawn, 0o600))
	}
}

// login opens a page with a token, by the form.
func (b *browser) login(w *world, path, token string) {
	b.Helper()
	b.do(chromedp.Navigate("http://" + w.url + path))
	b.shows("Log in")
	b.do(chromedp.SetValue("#token", token), chromedp.Click("form button"))
}

// narrow makes the window as wide as that of a phone, and wide makes it as it was.
func (b *browser) narrow() { b.Helper(); b.resize(420) }
func (b *browser) wide()   { b.Helper(); b.resize(1200) }

func (b *browser) resize(width int64) {
	b.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})
		return err
	}))
	if wider := find[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wider > 0 {
		b.Errorf("at a width of %d the page is %d wider than that", width, wider)
	}
}

// harmless fails if a text has become part of the page, or a script of it has run.
func (b *browser) harmless() {
	b.Helper()
	if got := find[string](b, `String(window.hacked) + document.querySelectorAll("main img, main script, main iframe").length`); got != "undefined0" {
		b.Errorf("a text has run: %s", got)
	}
}

// find evaluates a JavaScript expression in the page.
func find[T any](b *browser, expression string) T {
	b.Helper()
	ctx, end := context.WithTimeout(b.ctx, wait.Patience)
	defer end()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	b.must(err)
	return found
}

// shows waits until the page has all these texts.
func (b *browser) shows(texts ...string) {
	b.Helper()
	wait.Until(b, "the page shows "+strings.Join(texts, ", "), func() error {
		page := find[string](b, `document.body?.innerText ?? ""`) // a page that is being loaded has no body yet
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return errors.New(text + " is not in: " + page)
			}
		}
		return nil
	})
}

// As a user: the link to a map leads through the login, racks are coloured by use and open their hosts, and a chosen workload shows the
// amounts that each lacks for it.
func TestTopologyPage(t *testing.T) {
	t.Parallel()
	n := newNodes(2, 2)
	w := topologyWorldOf(t, n, func(s *Server) {
		n.serve(s)
		s.options.Origins = nil // the page is the dashboard's own, on this machine
	})
	b := newBrowser(t)
	waits := w.red + "/waits"
	b.do(chromedp.Navigate("http://" + w.url + "/topology/" + w.red + "?workload=" + url.QueryEscape(waits)))
	b.shows("Log in")
	b.do(chromedp.SendKeys("#token", "wrong"), chromedp.Click("form button"))
	b.shows("does not know this token")
	b.do(chromedp.SetValue("#token", w.administrator()), chromedp.Click("form button"))
	b.shows("4 nodes count", "3 of 8 free", "1 of 8 free", waits+", main: 6 pods in one rack: the best holds 3", "holds 3, lacks 3 pods", "holds 1, lacks 5 pods")
	widths := find[[]string](b, `[...document.querySelectorAll(".map .tile .fill")].map((f) => f.style.width)`)
	if got := strings.Join(widths, " "); got != "63% 88%" {
		t.Errorf("the racks are filled to %s", got)
	}
	b.do(chromedp.Click(`[data-key="tile r0"]`))
	b.shows("r0-h0", "r0-h1", w.red+"/train ×4", "Whose pods are there")
	n.node(0, 1, false)
	b.shows("1 of 2 nodes excluded")
	b.picture("topology")
	find[bool](b, `(() => {
		const choice = document.querySelector('select[aria-label="What a pending workload needs"]');
		choice.value = "";
		return choice.dispatchEvent(new Event("change"));
	})()`)
	wait.Until(t, "nothing is lacking any more", func() error {
		if find[int](b, `document.querySelectorAll(".map .lacks").length`) > 0 {
			return errors.New("tiles say what they lack")
		}
		return nil
	})
	b.do(chromedp.Navigate("http://" + w.url + "/topologies"))
	b.shows(w.red, "3 nodes count; not: 1 not ready", "2 rack, 4 hostname")
	b.picture("topologies")
}
