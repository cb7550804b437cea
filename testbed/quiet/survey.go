package quiet

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// surveyWindow is the length of a window of a Survey. Most trials are longer, and a longer trial
// averages over more of what a neighbour does.
const surveyWindow = 2 * time.Second

// A Survey says how often trials on this host would be disturbed.
type Survey struct {
	Windows, Disturbed int
	Strict             int    // windows that would be disturbed with a Slowdown of StrictSlowdown
	Last               string // the reason of the last disturbance; empty: none
}

// Survey watches the host for a time, while nothing of a run works. A context that ends ends the
// survey early, without an error.
func (g *Guard) Survey(ctx context.Context, length time.Duration) (s Survey, err error) {
	var watched []*hostWatch
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
		g.row = 0 // no rest after a disturbance
		watch, err := g.Watch(context.WithoutCancel(ctx))
		if err != nil {
			return s, err
		}
		select {
		case <-time.After(surveyWindow):
		case <-ctx.Done():
		}
		if _, _, err := watch.End(context.WithoutCancel(ctx)); err != nil {
			return s, err
		}
		w := watch.(*hostWatch)
		g.idle.improve(w.reading) // no window is judged before the best speed of all windows is known
		watched = append(watched, w)
	}
	for _, w := range watched {
		s.Windows++
		if _, why := w.Judge(0); why != "" {
			s.Disturbed, s.Last = s.Disturbed+1, why
		}
		if _, why := judge(g.cpus, g.idle, w.reading, StrictSlowdown); why != "" {
			s.Strict++
		}
	}
	return s, nil
}

func (s Survey) String() string {
	text := fmt.Sprintf("%d of %d trials of %v would be disturbed, %d with --slowdown %g", s.Disturbed, s.Windows, surveyWindow, s.Strict, StrictSlowdown)
	if s.Last != "" {
		text += ", the last one: " + strings.TrimPrefix(s.Last, "disturbed: ")
	}
	return text
}
