package flex

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"vitrine/flex/decide"
)

// The kinds of events, besides the kinds of actions.
const (
	EventAdopt    = "adopt"    // it runs since before this orchestrator
	EventStart    = "start"    // it was ordered
	EventReady    = "ready"    // all its members are
	EventActive   = "active"   // it gets transactions
	EventDrain    = "drain"    // it gets no new ones
	EventDrained  = "drained"  // it has nothing left to do
	EventLost     = "lost"     // it is stopped at its deadline although it has
	EventFail     = "fail"     // it did not start, or a member ended
	EventStopped  = "stopped"  // nothing of it is left
	EventAway     = "away"     // a director, the store or the runner does not answer
	EventBack     = "back"     // it answers again
	EventAlert    = "alert"    // a user should do something
	EventService  = "service"  // a service was started, or ended
	EventMeasure  = "measure"  // redline begins to measure it
	EventMeasured = "measured" // a measurement ended, or a capacity in the file replaced what was measured
)

// An Event is one thing that happened, and why.
type Event struct {
	At       time.Time    `json:"at"`
	Kind     string       `json:"kind"`
	Type     string       `json:"type,omitempty"`     // Aggregate type.
	Instance string       `json:"instance,omitempty"` // Instance or service.
	State    string       `json:"state,omitempty"`    // Of the instance, afterwards.
	Cause    decide.Cause `json:"cause,omitempty"`    // For programs.
	Reason   string       `json:"reason"`             // For people, with the figures.
}

// The bounds of the log.
const (
	eventsInMemory = 1000
	eventsOnDisk   = 8 << 20 // bytes; then the file becomes EventsBefore, which it replaces
)

// The files of the log in the state folder, one event a line.
const (
	EventsFile   = "events.jsonl"
	EventsBefore = "events.1.jsonl"
)

// Events is the log of events: the last of them in memory, and more on the disk.
type Events struct {
	mu     sync.Mutex
	folder string
	file   *os.File
	size   int64
	last   []Event
	failed error // the last write; nil: it went well
}

// openEvents goes on with the log in the folder.
func openEvents(folder string) (*Events, error) {
	e := &Events{folder: folder}
	e.last = readEvents(filepath.Join(folder, EventsFile))
	return e, e.open()
}

func (e *Events) open() error {
	f, err := os.OpenFile(filepath.Join(e.folder, EventsFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of events: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	e.file, e.size = f, info.Size()
	return nil
}

// readEvents reads the last events of a file. It skips a line that a crash cut off.
func readEvents(path string) (last []Event) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := bytes.Split(text, []byte("\n"))
	for _, line := range lines[max(0, len(lines)-eventsInMemory):] {
		var event Event
		if json.Unmarshal(line, &event) == nil {
			last = append(last, event)
		}
	}
	return last
}

// add writes an event. A disk that is full does not stop the orchestrator: the events in
// memory go on.
func (e *Events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	event.At = time.Now().UTC()
	if len(e.last) >= eventsInMemory {
		e.last = slices.Delete(e.last, 0, 1)
	}
	e.last = append(e.last, event)
	text, err := json.Marshal(event)
	if err == nil && e.size >= eventsOnDisk {
		err = e.turn()
	}
	if err == nil {
		_, err = e.file.Write(append(text, '\n'))
		e.size += int64(len(text)) + 1
	}
	e.failed = err
}

// turn begins the file anew.
func (e *Events) turn() error {
	from := filepath.Join(e.folder, EventsFile)
	if err := os.Rename(from, filepath.Join(e.folder, EventsBefore)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = e.file.Close() // every event was written before
	return e.open()
}

// all returns the events in memory, the oldest first.
func (e *Events) all() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.last)
}

func (e *Events) close() error { return e.file.Close() }

// event adds an event of an instance.
func (o *Orchestrator) event(in *instance, kind string, cause decide.Cause, reason string) {
	o.events.add(Event{Kind: kind, Type: in.Type, Instance: in.Name, State: stateName(in.State), Cause: cause, Reason: reason})
}

// stateName returns the name of a state.
func stateName(s decide.State) string {
	return [...]string{"starting", "warming", "active", "draining", "drained", "failed", "stopping"}[s]
}
