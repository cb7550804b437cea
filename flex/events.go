package flex

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"vitrine/flex/decide"
	"vitrine/internal/durable"
)

// The kinds of events, in addition to the kinds of decide.Action.
const (
	EventAdopt    = "adopt"    // found a running instance that the state file does not have
	EventStart    = "start"    // ordered an instance
	EventReady    = "ready"    // all members of the instance are ready
	EventActive   = "active"   // the instance gets transactions
	EventDrain    = "drain"    // the instance gets no new transactions
	EventDrained  = "drained"  // the instance has no open transactions or dialogs
	EventLost     = "lost"     // the drain deadline passed with open transactions or dialogs
	EventFail     = "fail"     // the instance did not start, or a member ended
	EventStopped  = "stopped"  // all resources of the instance are freed
	EventAway     = "away"     // a director, the store or the runner does not answer, a director has foreign instances, or all directors find an instance away
	EventBack     = "back"     // the end of what EventAway reported
	EventAlert    = "alert"    // a user should act
	EventService  = "service"  // a service started or ended
	EventMeasure  = "measure"  // redline begins to measure an instance
	EventMeasured = "measured" // a measurement ended, or a new capacity or objective in the file replaced what was measured
)

// An Event is one thing that happened, and why.
type Event struct {
	At       time.Time    `json:"at"`
	Kind     string       `json:"kind"`
	Type     string       `json:"type,omitempty"`     // Aggregate type.
	Instance string       `json:"instance,omitempty"` // Instance or service.
	State    string       `json:"state,omitempty"`    // State of the instance after the event.
	Cause    decide.Cause `json:"cause,omitempty"`    // For programs.
	Reason   string       `json:"reason"`             // For people, with the figures.
}

// Bounds of the event log.
const (
	eventsInMemory = 1000
	eventsOnDisk   = 8 << 20 // bytes of EventsFile before it is rotated to EventsBefore
)

// The files of the event log in the state folder, with one event per line.
const (
	EventsFile   = "events.jsonl"
	EventsBefore = "events.1.jsonl"
)

// Events is the event log. It keeps the last eventsInMemory events in memory and more on disk.
type Events struct {
	mu       sync.Mutex
	folder   string
	log      *slog.Logger
	file     *os.File
	size     int64
	last     []Event
	failed   error  // error of the last write; nil: it succeeded
	failures uint64 // events that are not on disk
	torn     bool   // the file may end within a line
}

// openEvents opens the log in the folder for appending, and loads its last events.
func openEvents(folder string, log *slog.Logger) (*Events, error) {
	e := &Events{folder: folder, log: log}
	e.last = append(readEvents(filepath.Join(folder, EventsBefore)), readEvents(filepath.Join(folder, EventsFile))...)
	e.last = e.last[max(0, len(e.last)-eventsInMemory):]
	return e, e.open()
}

func (e *Events) open() error {
	f, err := os.OpenFile(filepath.Join(e.folder, EventsFile), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of events: %w", err)
	}
	size, torn, err := durable.Torn(f)
	if err != nil {
		return errors.Join(fmt.Errorf("read the log of events: %w", err), f.Close())
	}
	e.file, e.size, e.torn = f, size, torn
	return nil
}

// readEvents reads the last events of a file. It skips a line that a crash cut off.
func readEvents(path string) (last []Event) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := bytes.Split(text, []byte("\n"))
	for _, line := range lines[max(0, len(lines)-eventsInMemory-1):] { // the last one is empty or cut off
		var event Event
		if json.Unmarshal(line, &event) == nil {
			last = append(last, event)
		}
	}
	return last
}

// add records an event, and logs it. A failed write, such as on a full disk, does not stop the
// orchestrator: the event is still in memory.
func (e *Events) add(event Event) {
	event.logTo(e.log)
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
		line := append(text, '\n')
		if e.torn { // otherwise the event would be lost with the torn line
			line = slices.Insert(line, 0, '\n')
		}
		var n int
		n, err = e.file.Write(line)
		e.size += int64(n)
		e.torn = err != nil
	}
	e.report(err)
}

// logTo logs an event, as a warning if a user should know of it.
func (event *Event) logTo(log *slog.Logger) {
	write := log.Info
	switch event.Kind {
	case EventAlert, EventAway, EventFail, EventLost:
		write = log.Warn
	}
	var attributes []any
	for _, a := range []slog.Attr{
		slog.String("type", event.Type), slog.String("instance", event.Instance), slog.String("cause", string(event.Cause)), slog.String("reason", event.Reason),
	} {
		if a.Value.String() != "" {
			attributes = append(attributes, a)
		}
	}
	write("event: "+event.Kind, attributes...) // the limit of repeated lines goes by this text
}

// report takes the outcome of a write. It logs when writes begin to fail, and when they succeed again.
func (e *Events) report(err error) {
	switch {
	case err != nil && e.failed == nil:
		e.log.Error("cannot write the events to disk; they are only in memory", "folder", e.folder, "error", err)
	case err == nil && e.failed != nil:
		e.log.Info("events are written to disk again", "folder", e.folder)
	}
	if e.failed = err; err != nil {
		e.failures++
	}
}

// unwritten returns the number of events that could not be written to disk.
func (e *Events) unwritten() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failures
}

// turn rotates the log file.
func (e *Events) turn() error {
	from := filepath.Join(e.folder, EventsFile)
	if err := os.Rename(from, filepath.Join(e.folder, EventsBefore)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = e.file.Close() // all events are already written
	return e.open()
}

// all returns the events in memory, the oldest first.
func (e *Events) all() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Event{}, e.last...) // in JSON [], not null
}

func (e *Events) close() error { return e.file.Close() }

// event adds an event about an instance.
func (o *Orchestrator) event(in *instance, kind string, cause decide.Cause, reason string) {
	o.events.add(Event{Kind: kind, Type: in.Type, Instance: in.Name, State: stateName(in.State), Cause: cause, Reason: reason})
}

func stateName(s decide.State) string { return stateNames()[s] }

// stateNames returns the names of all states, in the order of decide.State.
func stateNames() [decide.Stopping + 1]string {
	return [...]string{"starting", "warming", "active", "draining", "drained", "failed", "stopping"}
}
