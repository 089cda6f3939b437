package dash

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/gorilla/websocket"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// query holds the parameters of a view, beside the path.
type query struct {
	namespace string // "" for all
	// delta sends the whole view first, and then JSON merge patches of it (RFC 7386). Items are then an object by name, because an array
	// can only be replaced as a whole.
	delta         bool
	limit, offset int // of a list; no limit is -1
	// Of lists of Workloads: those in a state, "" for all, sorted by state and not by name.
	state   string
	byState bool
	// Of views of topologies: the flavor, the domain as its values with slashes, and a pending workload as namespace/name.
	flavor, within, workload string
}

func parseQuery(values url.Values) (q query, err error) {
	q = query{
		namespace: values.Get("namespace"), limit: -1,
		flavor: values.Get("flavor"), within: values.Get("within"), workload: values.Get("workload"),
	}
	if text := values.Get("delta"); text != "" {
		if q.delta, err = strconv.ParseBool(text); err != nil {
			return q, fmt.Errorf("delta: %q is neither true nor false", text)
		}
	}
	if q.state = values.Get("state"); q.state != "" && !slices.Contains(states, q.state) {
		return q, fmt.Errorf("state: %q is none of %s", q.state, strings.Join(states, ", "))
	}
	switch order := values.Get("order"); order {
	case "", "name":
	case "state":
		q.byState = true
	default:
		return q, fmt.Errorf("order: %q is neither name nor state", order)
	}
	for _, f := range []struct {
		name  string
		value *int
	}{{"limit", &q.limit}, {"offset", &q.offset}} {
		text := values.Get(f.name)
		if text == "" {
			continue
		}
		if *f.value, err = strconv.Atoi(text); err != nil || *f.value < 0 {
			return q, fmt.Errorf("%s: %q is not a whole number from 0 up", f.name, text)
		}
	}
	return q, nil
}

// inState reports whether a Workload is in the requested state.
func (q *query) inState(w *kueue.Workload) bool {
	return q.state == "" || lifecycle.StateOf(w) == q.state
}

// ask is one view of one caller.
type ask struct {
	who             caller
	key             string // identifies the caller in limits
	namespace, name string // from the path
	query
}

// view is the content of a path.
type view struct {
	topics topic
	// show makes the content. A refused error ends the view.
	show func(context.Context, *ask) (any, error)
}

// stream serves a view until the caller leaves or may no longer see it.
func (s *Server) stream(v view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := parseQuery(r.URL.Query())
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		who, key, hangUp := s.connect(w, r)
		if hangUp == nil {
			return
		}
		defer hangUp()
		a := &ask{who: who, key: key, namespace: r.PathValue("ns"), name: r.PathValue("name"), query: q}
		if a.namespace != "" {
			a.query.namespace = a.namespace
		}
		sub := s.hub.subscribe(v.topics, a.query.namespace)
		defer s.hub.leave(sub)
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // it was answered
		}
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		c := &connection{Server: s, conn: conn, view: v, ask: a, sub: sub}
		go c.listen(cancel)
		if code, why := c.serve(ctx, r); code != 0 {
			_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, short(why)), time.Now().Add(s.pace.write))
		}
	}
}

// connect identifies the caller of a WebSocket within the limits of connections. hangUp is nil if the request was refused, and answered.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) (who caller, key string, hangUp func()) {
	who, ok := s.identify(w, r)
	if !ok {
		return who, "", nil
	}
	key = s.callerKey(who, r)
	hangUp, err := s.connections.Acquire(r.Context(), key, 1)
	if err != nil {
		busy(w, "there are too many connections")
		return who, key, nil
	}
	return who, key, hangUp
}

// callerKey identifies callers in limits: by their names, or without authentication by their addresses.
func (s *Server) callerKey(who caller, r *http.Request) string {
	if who.info == nil {
		return inflight.AddressOf(r)
	}
	return who.name()
}

func (s *Server) identify(w http.ResponseWriter, r *http.Request) (caller, bool) {
	who, err := s.access.caller(r.Context(), r, 0)
	switch {
	case err == nil:
		return who, true
	case errors.Is(err, errUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, err.Error())
	default:
		s.log.Error(err, "A caller of the dashboard could not be identified")
		refuse(w, http.StatusServiceUnavailable, "the API server could not be asked")
	}
	return caller{}, false
}

// short keeps a reason within what a close frame can hold.
func short(why string) string { return why[:min(len(why), 120)] }

// connection is a WebSocket with one view.
type connection struct {
	*Server
	conn *websocket.Conn
	view view
	ask  *ask
	sub  *subscription
	last []byte // the last content; only its hash without deltas
	sent bool
	// took is how long it took to make the view the last time, and rest how long it is not made again then.
	took, rest time.Duration

	unsure bool // the API server could not be asked about the token
}

// listen reads until the peer is gone. The content of messages is ignored.
func (c *connection) listen(gone func()) {
	defer gone()
	c.conn.SetReadLimit(readLimit)
	alive := func(string) error { return c.conn.SetReadDeadline(time.Now().Add(2*c.pace.ping + c.pace.write)) }
	c.conn.SetPongHandler(alive)
	if alive("") != nil {
		return
	}
	for {
		_, message, err := c.conn.NextReader()
		if err == nil {
			_, err = io.Copy(io.Discard, message) // the read limit also covers fragmented messages
		}
		if err != nil {
			return
		}
	}
}

// serve sends the view now and after each change. It returns the close code and its reason; 0 if the client is gone.
func (c *connection) serve(ctx context.Context, r *http.Request) (code int, why string) {
	ping, recheck := time.NewTicker(c.pace.ping), time.NewTicker(c.pace.recheck)
	defer ping.Stop()
	defer recheck.Stop()
	wait := time.NewTimer(0)
	defer wait.Stop()
	defer func() { c.costly.pause(c.ask.key, c.took, 0) }()
	waiting, pause := true, c.pace.debounce
	for {
		var err error
		select {
		case <-ctx.Done():
			return 0, ""
		case <-c.hub.ended:
			return websocket.CloseGoingAway, "the manager ends"
		case <-c.sub.changed:
			if !waiting { // further changes until then are sent together
				wait.Reset(pause)
				waiting = true
			}
		case <-wait.C:
			waiting = false
			err = c.send(ctx)
			pause = max(c.pace.debounce, c.rest) // expensive views are sent less often
		case <-ping.C:
			if c.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.pace.write)) != nil {
				err = errUnsent
			}
		case <-recheck.C:
			err = c.recheck(ctx, r)
		}
		if err != nil {
			return c.ending(ctx, err)
		}
	}
}

// recheck authenticates and authorizes the caller again. An unreachable API server is tolerated once.
func (c *connection) recheck(ctx context.Context, r *http.Request) error {
	who, err := c.access.caller(ctx, r, c.pace.recheck/2)
	switch {
	case errors.Is(err, errUnauthenticated):
		return &refused{"the token is no longer good"}
	case err != nil && c.unsure:
		return err
	}
	if c.unsure = err != nil; c.unsure {
		return nil
	}
	c.ask.who = who
	return c.send(ctx) // permissions may have changed without an event
}

// ending returns the close code of a connection that ends with an error; 0 if the client is gone.
func (c *connection) ending(ctx context.Context, err error) (code int, why string) {
	no, forbidden := errors.AsType[*refused](err)
	switch {
	case forbidden:
		return websocket.ClosePolicyViolation, no.text
	case errors.Is(err, errUnsent), ctx.Err() != nil:
		return 0, ""
	}
	c.log.Error(err, "A view of the dashboard could not be made", "user", c.ask.who.name())
	return websocket.CloseTryAgainLater, "the view could not be made"
}

// errUnsent is the error of a connection that accepts no message, in time or at all.
var errUnsent = errors.New("the caller takes no message")

// missing is the content of a view of an object that does not exist.
type missing struct {
	Error string `json:"error"`
}

// send makes the view and sends it, or its changes, unless it is unchanged.
func (c *connection) send(ctx context.Context) error {
	message, err := c.compose(ctx)
	if err != nil || message == nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.pace.write)); err != nil {
		return errUnsent
	}
	if err := c.conn.WriteMessage(websocket.TextMessage, message); err != nil {
		return errUnsent
	}
	return nil
}

// compose makes the view within the caller's limit. It returns the message to send, nil for none, and sets how long the view rests then.
func (c *connection) compose(ctx context.Context) (message []byte, err error) {
	done, err := c.turns.Acquire(ctx, c.ask.key, 1)
	if err != nil {
		return nil, err
	}
	defer done()
	began := time.Now()
	defer func() {
		took := time.Since(began)
		c.rest, c.took = c.costly.pause(c.ask.key, c.took, took), took
	}()
	content, err := c.view.show(ctx, c.ask)
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("writing a view: %w", err)
	}
	message = now
	if c.ask.delta {
		if now, err = withoutNulls(now); err != nil {
			return nil, err
		}
		message = now
	} else {
		hash := sha256.Sum256(now)
		now = hash[:]
	}
	if c.sent && bytes.Equal(now, c.last) {
		return nil, nil
	}
	if c.sent && c.ask.delta {
		if message, err = jsonpatch.CreateMergePatch(c.last, now); err != nil {
			return nil, fmt.Errorf("comparing a view with the last: %w", err)
		}
	}
	c.last, c.sent = now, true
	return message, nil
}

// withoutNulls removes null fields from a document: in a merge patch they mean removal.
func withoutNulls(document []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return nil, err
	}
	prune(content)
	return json.Marshal(content)
}

func prune(content any) {
	switch c := content.(type) {
	case map[string]any:
		for key, value := range c { //berth:unordered each value is pruned independently
			if value == nil {
				delete(c, key)
			} else {
				prune(value)
			}
		}
	case []any:
		for _, value := range c {
			prune(value)
		}
	}
}
