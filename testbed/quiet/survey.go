package quiet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// surveyWindow is the length of a window of a Survey. Most trials are longer, and a longer trial
// averages over more of what a neighbour does.
const surveyWindow = 2 * time.Second

// A Survey says how often trials on this host would be disturbed.
type Survey struct {
	Usual, Awake Tally  // while idle CPUs halt as usual; while they are kept awake
	Last         string // the reason of the last disturbance; empty: none
}

// A Tally counts windows.
type Tally struct {
	Windows, Disturbed int
	Strict             int // windows that would be disturbed with a Slowdown of StrictSlowdown
}

// A surveyed is a window of a Survey.
type surveyed struct {
	reading reading
	awake   bool
}

// Survey watches the host for a time, while nothing of a run works. In every second window it keeps
// idle CPUs awake, if it can. A context that ends ends the survey early, without an error.
func (g *Guard) Survey(ctx context.Context, length time.Duration) (s Survey, err error) {
	canWake := TryAwake() == nil
	var windows []surveyed
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
		w := surveyed{awake: canWake && len(windows)%2 == 1}
		if w.reading, err = g.survey(ctx, w.awake); err != nil {
			return s, err
		}
		g.idle.improve(w.reading) // no window is judged before the best speed of all windows is known
		windows = append(windows, w)
	}
	for _, w := range windows {
		t := &s.Usual
		if w.awake {
			t = &s.Awake
		}
		t.Windows++
		if _, why := judge(g.cpus, g.idle, w.reading, g.Slowdown); why != "" {
			t.Disturbed, s.Last = t.Disturbed+1, why
		}
		if _, why := judge(g.cpus, g.idle, w.reading, StrictSlowdown); why != "" {
			t.Strict++
		}
	}
	return s, nil
}

// survey reads one window.
func (g *Guard) survey(ctx context.Context, keepAwake bool) (_ reading, err error) {
	if keepAwake {
		awake, failed := KeepAwake()
		if failed != nil {
			return reading{}, failed
		}
		defer func() { err = errors.Join(err, awake.Close()) }()
	}
	watch, err := g.Watch(context.WithoutCancel(ctx))
	if err != nil {
		return reading{}, err
	}
	select {
	case <-time.After(surveyWindow):
	case <-ctx.Done():
	}
	_, _, err = watch.End(context.WithoutCancel(ctx))
	w := watch.(*hostWatch)
	w.reading.use = w.last.since(w.first, g.cpus, 0)
	return w.reading, err
}

// Noisy reports whether most trials would be disturbed.
func (s Survey) Noisy() bool {
	return 2*(s.Usual.Disturbed+s.Awake.Disturbed) > s.Usual.Windows+s.Awake.Windows
}

func (s Survey) String() string {
	text := fmt.Sprintf("%d of %d trials of %v would be disturbed, %d with --slowdown %g",
		s.Usual.Disturbed, s.Usual.Windows, surveyWindow, s.Usual.Strict, StrictSlowdown)
	if a := s.Awake; a.Windows > 0 {
		text += fmt.Sprintf("; with servers.keep_awake %d of %d, %d with --slowdown %g", a.Disturbed, a.Windows, a.Strict, StrictSlowdown)
	}
	if s.Last != "" {
		text += ", the last one: " + strings.TrimPrefix(s.Last, "disturbed: ")
	}
	return text
}
