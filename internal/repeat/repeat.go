// Package repeat limits lines of a log that repeat, so that nobody can fill a disk by
// doing again and again what is logged. What is left out is counted, and the count is
// logged.
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
	every    = time.Second      // between two lines, then
	reports  = 10 * time.Second // between two counts of what was left out
	messages = 1024             // that are told apart; the others share a limit
	longest  = 256              // bytes of a message by which it is told apart
	others   = "other messages"
)

// Limit is a handler that passes lines on to next within the limit of their level and
// message. A line's attributes do not tell it apart.
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
	return h.Handler.Handle(ctx, r) //nolint:wrapcheck // it is the next handler's
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limits}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limits}
}

// constant is the part of a message before what may vary: a number, an address or a
// quoted name. Libraries that know no attributes write those into the message.
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

// limits are those of all messages.
type limits struct {
	next slog.Handler // for the counts

	mu     sync.Mutex
	lines  map[key]*line
	forgot time.Time // when forget last ran
}

// A line is what is known of one message.
type line struct {
	limiter *rate.Limiter
	left    int       // out, since the last count
	since   time.Time // of the first of them
}

// admit says whether a line is within its limit, and counts it if it is not.
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
		k.message = strings.Clone(k.message) // not all of a long line
		one = &line{limiter: rate.NewLimiter(rate.Every(every), burst)}
		l.lines[k] = one
	}
	if one.limiter.Allow() {
		return true
	}
	if one.left == 0 {
		one.since = time.Now()
		time.AfterFunc(reports, func() { l.report(k, one) })
	}
	one.left++
	return false
}

// forget drops the messages that did not come for so long that their limit is whole again.
// It looks for them once a second at most.
func (l *limits) forget() {
	now := time.Now()
	if now.Sub(l.forgot) < every {
		return
	}
	l.forgot = now
	for k, one := range l.lines {
		if one.left == 0 && one.limiter.TokensAt(now) >= burst {
			delete(l.lines, k)
		}
	}
}

// report logs how many lines were left out.
func (l *limits) report(k key, one *line) {
	l.mu.Lock()
	left, since := one.left, one.since
	one.left = 0
	l.mu.Unlock()
	r := slog.NewRecord(time.Now(), k.level, strings.TrimSpace(k.message), 0)
	r.AddAttrs(slog.Int("more_lines_left_out", left), slog.Duration("within", r.Time.Sub(since)))
	_ = l.next.Handle(context.Background(), r) // nobody to tell
}
