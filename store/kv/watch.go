package kv

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"vitrine/store"
)

// watches reports whether the client asks for server-sent events.
func watches(r *http.Request) bool {
	return len(r.URL.Path) <= len(Root)+1 && r.Method == http.MethodGet &&
		strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

var eventNames = map[store.Change]string{
	store.Started: "started", store.Written: "written", store.Deleted: "deleted", store.Expired: "expired",
}

// watch answers GET of Root with Accept: text/event-stream: ?prefix= &from=VERSION &values=true.
// Last-Event-ID takes precedence over from. The id of each event is its version, so a client that
// reconnects misses nothing or gets 410. If the request's context ends because of store.ErrClosed, the
// client gets an event that says so.
// https://html.spec.whatwg.org/multipage/server-sent-events.html
func (a *API) watch(w http.ResponseWriter, r *http.Request, space string) error {
	given := r.URL.Query()
	from, err := parseVersion(r.Header.Get("Last-Event-ID"), given.Get("from"))
	if err != nil {
		return err
	}
	values, err := parseFlag(given.Get("values"))
	if err != nil {
		return err
	}
	prefix := given.Get("prefix")
	if err := checkText("prefix", prefix); err != nil {
		return err
	}
	s := &stream{w: w, control: http.NewResponseController(w), values: values}
	ctx, cancel := context.WithCancel(r.Context())
	var beat sync.WaitGroup
	defer beat.Wait()
	defer cancel()
	for v, err := range a.config.Engine.Watch(ctx, space, prefix, from) {
		if err != nil && errors.Is(context.Cause(ctx), store.ErrClosed) {
			err = store.ErrClosed // in place of the error of a client that has left
		}
		if err != nil && !s.opened {
			return err
		}
		if err != nil {
			s.end(a.report(r.WithContext(ctx), err))
			return nil
		}
		if v.Change == store.Started {
			_ = s.control.SetReadDeadline(time.Time{}) // nothing more is read; not every server supports it
			s.open()
			beat.Go(func() { s.beat(ctx, cancel, a.config.Silence) })
		}
		if err := s.event(v); err != nil {
			return nil // the client is gone, or reads nothing
		}
	}
	return nil
}

func parseVersion(given ...string) (uint64, error) {
	for _, s := range given {
		if s == "" {
			continue
		}
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, badRequest("a watch begins from a version: a number")
		}
		return v, nil
	}
	return 0, nil
}

// A stream is the answer to one watch. It has no queue: it waits for its client. If the
// client is slow, the engine's history drops events that the client has not read, and the
// watch ends.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	values  bool

	mu     sync.Mutex // one writer at a time: an event or a comment
	text   bytes.Buffer
	opened bool
}

func (s *stream) open() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusOK)
	s.opened = true
}

// stall is how long a client may read nothing before its watch ends.
const stall = 30 * time.Second

// write sends the text, with the stall deadline, and empties the buffer.
func (s *stream) write() error {
	defer s.text.Reset()
	if err := s.control.SetWriteDeadline(time.Now().Add(stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(s.text.Bytes()); err != nil {
		return err
	}
	return s.control.Flush()
}

// event sends a change.
func (s *stream) event(v *store.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.WriteString("id: ")
	s.text.WriteString(strconv.FormatUint(v.Record.Version, 10))
	s.text.WriteString("\nevent: ")
	s.text.WriteString(eventNames[v.Change])
	s.text.WriteString("\ndata: ")
	e := entry(&v.Record, false)
	if v.Change != store.Written {
		e.ETag = ""
	}
	if err := json.NewEncoder(&s.text).Encode(e); err != nil { // ends with a line feed
		return err
	}
	if s.values && len(v.Record.Value) > 0 {
		s.text.Truncate(s.text.Len() - len("}\n"))
		if err := s.value(v.Record.Value); err != nil {
			return err
		}
		s.text.WriteString("}\n")
	}
	s.text.WriteByte('\n')
	return s.write()
}

// pieceBytes is the length of a piece of a value. It is a multiple of 3, so that only the last piece ends with
// padding.
const pieceBytes = 24 << 10

// value adds the value to an open JSON object. It sends what becomes long, so that the watch holds no 1.4 MiB
// of base64 while its client reads, or afterwards.
func (s *stream) value(value []byte) error {
	s.text.WriteString(`,"value":"`)
	for piece := range slices.Chunk(value, pieceBytes) {
		if s.text.Len() > pieceBytes {
			if err := s.write(); err != nil {
				return err
			}
		}
		s.text.Write(base64.StdEncoding.AppendEncode(s.text.AvailableBuffer(), piece))
	}
	s.text.WriteByte('"')
	return nil
}

// end sends an event that says why the watch ends.
func (s *stream) end(e *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.WriteString("event: end\ndata: ")
	if json.NewEncoder(&s.text).Encode(e) == nil {
		s.text.WriteByte('\n')
		_ = s.write()
	}
}

// beat sends a comment at intervals. The write fails if the client is gone.
func (s *stream) beat(ctx context.Context, cancel context.CancelFunc, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		s.text.WriteString(": still here\n\n")
		err := s.write()
		s.mu.Unlock()
		if err != nil {
			cancel()
			return
		}
	}
}
