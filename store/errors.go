package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of every engine.
var (
	ErrNotFound = errors.New("store: no such record")
	ErrClosed   = errors.New("store: closed")
	// ErrFull means that the disk, a quota or the limit on records is exhausted. Reads and deletes
	// still work. A write that puts records in place of others that it deletes may work.
	ErrFull = errors.New("store: full: free space, raise the limit, or delete records")
)

// A Conflict is the error of a Write with a condition that did not hold.
type Conflict struct {
	Op      int    // index of the first op whose condition did not hold
	Version uint64 // version of its record; 0: no record
}

func (e *Conflict) Error() string {
	return fmt.Sprintf("store: op %d: condition does not hold: the record has version %d", e.Op, e.Version)
}

// Behind is the error of a watch whose changes the engine no longer keeps.
type Behind struct {
	Oldest uint64 // a watch may start from this version; 0: unknown
}

func (e *Behind) Error() string {
	const advice = "watch from now, and list once the watch has started" // in this order, or changes in between are missed
	if e.Oldest == 0 {
		return "store: changes from that version on are not kept: " + advice
	}
	return fmt.Sprintf("store: changes up to version %d are no longer kept: %s", e.Oldest, advice)
}

// Busy is the error of a request that would wait too long, or that the engine's servers reject for now.
// Nothing was done.
type Busy struct {
	What       string // the resource that has run out, or what the servers do
	RetryAfter time.Duration
}

func (e *Busy) Error() string {
	return fmt.Sprintf("store: busy: %s: try again after %s", e.What, e.RetryAfter)
}

// Late is the error of a scan that took too long.
type Late struct {
	After time.Duration
}

func (e *Late) Error() string {
	return fmt.Sprintf("store: the scan did not end within %s: select fewer records", e.After)
}

// TooLarge is the error of a request that exceeds a limit. Nothing was done.
type TooLarge struct {
	What        string // "name", "value", "tags", "ops", ...
	Size, Limit int    // bytes or count; 0: unknown
}

func (e *TooLarge) Error() string {
	if e.Limit == 0 {
		return "store: " + e.What + " is too large"
	}
	return fmt.Sprintf("store: %s of %d is over the limit of %d", e.What, e.Size, e.Limit)
}

// Apart reports whether the caller may retry each op of a failed Write on its own: one of
// the records has changed, or the ops together are too large.
func Apart(err error) bool {
	var conflict *Conflict
	var large *TooLarge
	return errors.As(err, &conflict) || errors.As(err, &large)
}

// Invalid is the error of a request that no engine accepts.
type Invalid struct {
	Found string
}

func (e *Invalid) Error() string { return "store: " + e.Found }

// Valid returns an error unless every engine accepts the key.
func (k Key) Valid() error {
	if err := ValidSpace(k.Space); err != nil {
		return err
	}
	return validText("name", k.Name, 1, MaxName)
}

// ValidSpace returns an error unless every engine accepts the space.
func ValidSpace(space string) error { return validText("space", space, 1, MaxSpace) }

// ValidOps returns an error unless every engine accepts these ops in one Write.
func ValidOps(space string, ops []Op) error {
	if err := ValidSpace(space); err != nil {
		return err
	}
	if len(ops) == 0 {
		return &Invalid{Found: "a write without ops"}
	}
	if len(ops) > MaxOps {
		return &TooLarge{What: "ops", Size: len(ops), Limit: MaxOps}
	}
	for i := range ops {
		if err := ops[i].valid(); err != nil {
			return err
		}
		for j := range i {
			if ops[j].Name == ops[i].Name {
				return &Invalid{Found: fmt.Sprintf("ops %d and %d are on the same name %q", j, i, ops[i].Name)}
			}
		}
	}
	return nil
}

func (o *Op) valid() error {
	if o.Action < Put || o.Action > Check {
		return &Invalid{Found: fmt.Sprintf("no action %d", o.Action)}
	}
	if err := validText("name", o.Name, 1, MaxName); err != nil {
		return err
	}
	if n := len(o.Value) + len(o.Meta); n > MaxValue {
		return &TooLarge{What: "value", Size: n, Limit: MaxValue}
	}
	if len(o.Tags) > MaxTags {
		return &TooLarge{What: "tags", Size: len(o.Tags), Limit: MaxTags}
	}
	for _, t := range o.Tags {
		if err := validText("tag", t.Name, 1, MaxTag); err != nil {
			return err
		}
		if err := validText("tag", t.Value, 0, MaxTag-len(t.Name)); err != nil {
			return err
		}
	}
	return nil
}

func validText(what, s string, low, high int) error {
	if len(s) < low {
		return &Invalid{Found: what + " is empty"}
	}
	if len(s) > high {
		return &TooLarge{What: what, Size: len(s), Limit: high}
	}
	if strings.IndexByte(s, 0) >= 0 {
		return &Invalid{Found: what + " holds a NUL byte"}
	}
	return nil
}

// Valid returns an error unless every engine accepts the query.
func (q *Query) Valid() error {
	if err := ValidSpace(q.Space); err != nil {
		return err
	}
	if err := validText("prefix", q.Prefix, 0, MaxName); err != nil {
		return err
	}
	if err := validText("name", q.After, 0, MaxName); err != nil {
		return err
	}
	m := q.Match
	if m == nil {
		return nil
	}
	if q.After != "" {
		return &Invalid{Found: "a query both by tag and after a name"}
	}
	if m.Op < Equal || m.Op > LessOrEqual {
		return &Invalid{Found: fmt.Sprintf("no comparison %d", m.Op)}
	}
	if err := validText("tag", m.Tag, 1, MaxTag); err != nil {
		return err
	}
	return validText("tag", m.Value, 0, MaxTag)
}
