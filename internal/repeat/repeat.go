// Package repeat limits repeated log lines and their length, so that nobody can fill a disk by repeating
// an action that is logged. It counts the omitted lines and logs the count.
package repeat

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	burst    = 50               // lines of one message at once
	every    = time.Second      // between two lines after that
	reports  = 10 * time.Second // between two counts of omitted lines
	messages = 1024             // messages with a limit of their own; all others share one
	longest  = 256              // bytes; messages that agree in these count as one
	longText = 1024             // bytes of an attribute that is logged
	others   = "other messages"
)

// Limit returns a handler that passes lines to next within the limit of their level and message. A
// line's attributes do not matter. Limit cuts long text in them, such as the path of a request, but not the
// stack of a panic.
func Limit(next slog.Handler) slog.Handler {
	return &handler{Handler: next, limits: &limits{next: next, lines: map[key]*line{}}}
}

type handler struct {
	slog.Handler
	limits *limits
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limits.admit(key{r.Level, constant(r.Message)}) {
		return nil
	}
	return h.Handler.Handle(ctx, cut(r)) //nolint:wrapcheck // it is the next handler's
}

// cut returns a record whose texts, except a stack, have at most longText bytes each.
func cut(r slog.Record) slog.Record {
	short := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" && a.Value.Kind() == slog.KindString && len(a.Value.String()) > longText {
			a = slog.String(a.Key, a.Value.String()[:longText]+"...")
		}
		short.AddAttrs(a)
		return true
	})
	return short
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limits}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limits}
}

// constant returns the part of a message before anything that may vary: a number, an address or a
// quoted name. Libraries without attributes write such values into the message.
func constant(message string) string {
	message = message[:min(len(message), longest)]
	if end := strings.IndexAny(message, "0123456789[\"'`"); end >= 0 {
		return message[:end]
	}
	return message
}

type key struct {
	level   slog.Level
	message string
}

// limits holds the limits of all messages.
type limits struct {
	next slog.Handler // logs the counts

	mu     sync.Mutex
	lines  map[key]*line
	forgot time.Time // when forget last ran
}

// A line is the state of one message.
type line struct {
	limiter *rate.Limiter
	omitted int       // lines omitted since the last count
	since   time.Time // time of the first omitted line
}

// admit reports whether a line is within its limit, and counts it if not.
func (l *limits) admit(k key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.lines[k]
	if one == nil && len(l.lines) >= messages {
		l.forget()
	}
	if one == nil && len(l.lines) >= messages {
		k.message = others
		one = l.lines[k]
	}
	if one == nil {
		k.message = strings.Clone(k.message) // keeps only these bytes, not the whole line
		one = &line{limiter: rate.NewLimiter(rate.Every(every), burst)}
		l.lines[k] = one
	}
	if one.limiter.Allow() {
		return true
	}
	if one.omitted == 0 {
		one.since = time.Now()
		time.AfterFunc(reports, func() { l.report(k, one) })
	}
	one.omitted++
	return false
}

// forget drops messages that were absent for so long that their limit is full again. It runs at
// most once a second.
func (l *limits) forget() {
	now := time.Now()
	if now.Sub(l.forgot) < every {
		return
	}
	l.forgot = now
	for k, one := range l.lines {
		if one.omitted == 0 && one.limiter.TokensAt(now) >= burst {
			delete(l.lines, k)
		}
	}
}

// report logs how many lines were omitted.
func (l *limits) report(k key, one *line) {
	l.mu.Lock()
	omitted, since := one.omitted, one.since
	one.omitted = 0
	l.mu.Unlock()
	r := slog.NewRecord(time.Now(), k.level, strings.TrimSpace(k.message), 0)
	r.AddAttrs(slog.Int("more_lines_left_out", omitted), slog.Duration("within", r.Time.Sub(since)))
	_ = l.next.Handle(context.Background(), r) // an error cannot be logged
}
