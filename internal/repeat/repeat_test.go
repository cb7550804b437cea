package repeat

import (
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/internal/hosttest"
)

// A book holds the logged text.
type book struct{ hosttest.Output }

// lines returns the number of lines that contain all of the texts.
func (b *book) lines(texts ...string) (n int) {
	for line := range strings.Lines(b.String()) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			n++
		}
	}
	return n
}

func limited(b *book) *slog.Logger {
	return slog.New(Limit(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelInfo})))
}

// TestFlood logs 30,000 lines in 3 s. Some are written, and the others are counted.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		l := limited(b).With("of", "a part").WithGroup("g")
		for i := range 30_000 {
			l.Warn("callback failed", "target", i)
			time.Sleep(100 * time.Microsecond)
		}
		l.Warn("something else")
		if n := b.lines("callback failed"); n < burst || n > burst+4 {
			t.Errorf("%d lines", n)
		}
		if b.lines("something else", "of=\"a part\"") != 1 {
			t.Error("Limit omits another message")
		}
		written := b.lines("callback failed")
		time.Sleep(reports)
		synctest.Wait()
		if b.lines("callback failed", "level=WARN", fmt.Sprintf("more_lines_left_out=%d", 30_000-written)) != 1 {
			t.Errorf("%d were written, and no count of the others:\n%s", written, b.String())
		}
		before := b.lines()
		time.Sleep(time.Hour)
		l.Warn("callback failed", "target", "later")
		time.Sleep(reports)
		synctest.Wait()
		if b.lines("target=later") != 1 || b.lines() != before+1 {
			t.Error("an hour later, Limit omits a line or logs another count")
		}
	})
}

// TestVarying checks that varying text in a library's message does not make a new message, and
// that messages beyond the bound share one limit.
func TestVarying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		l := limited(b)
		old := log.New(slogWriter{l}, "", 0)
		for i := range 1000 {
			old.Printf("http: TLS handshake error from 192.0.2.1:%d: EOF", i)
		}
		if n := b.lines("TLS handshake"); n != burst {
			t.Errorf("%d lines", n)
		}
		for i := range 20 * messages {
			l.Info(made(i % 5000))
		}
		if n := b.lines("msg=x"); n > messages+5000 {
			t.Errorf("%d lines of invented messages", n)
		}
		time.Sleep(reports)
		synctest.Wait()
		if b.lines(others, "left_out") != 1 {
			t.Error("no count for the other messages")
		}
	})
}

// TestForgets checks that after a flood of invented messages, however long, a new message gets its
// own limit again.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		h := Limit(slog.NewTextHandler(b, nil)).(*handler)
		l := slog.New(h)
		for i := range 2 * messages {
			l.Info(made(i) + strings.Repeat("x", 10_000))
		}
		for k := range h.limits.lines {
			if len(k.message) > longest {
				t.Fatalf("Limit keeps %d bytes of a message", len(k.message))
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for range 2 * burst {
			l.Info("one more") // uses up the shared limit
			l.Info("and another")
		}
		if n, m := b.lines("one more"), b.lines("and another"); n != burst || m != burst {
			t.Errorf("%d and %d lines, want %d of each", n, m, burst)
		}
		if n := len(h.limits.lines); n > messages+1 {
			t.Errorf("Limit keeps %d messages", n)
		}
	})
}

// TestLongText checks that a sender cannot make a line long, by a long path for example. A stack is logged
// whole.
func TestLongText(t *testing.T) {
	b := &book{}
	l := limited(b)
	long := strings.Repeat("x", 60_000)
	l.Warn("access refused", "path", "/"+long, "status", 401)
	if n := len(b.String()); n > longText+200 || b.lines("path=/xxx", "xxx... status=401") != 1 {
		t.Errorf("got %d bytes, want the start of the path and the status: %.2000s", n, b.String())
	}
	l.Error("request failed", "path", "/"+long)
	if b.lines("request failed", "xxx...") != 1 {
		t.Error("the path of a failed request is not cut")
	}
	l.Error("a request's handler panicked", "stack", long)
	if b.lines("stack="+long) != 1 {
		t.Error("the stack is cut")
	}
}

// made returns an invented message.
func made(i int) string { return fmt.Sprintf("x%c%c%c", 'a'+i/676, 'a'+i/26%26, 'a'+i%26) }

type slogWriter struct{ *slog.Logger }

func (w slogWriter) Write(p []byte) (int, error) {
	w.Warn(strings.TrimSpace(string(p)))
	return len(p), nil
}

// TestLevels checks that lines below the level are not counted.
func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		l := limited(b)
		for range 1000 {
			l.Debug("detail")
		}
		time.Sleep(2 * reports)
		synctest.Wait()
		if n := b.lines(); n != 0 {
			t.Errorf("%d lines", n)
		}
	})
}
