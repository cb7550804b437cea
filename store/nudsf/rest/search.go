package rest

import (
	"context"
	"errors"
	"iter"
	"strings"

	"vitrine/store"
	"vitrine/store/nudsf/wire"
)

// seenBytes is the memory of a record in the set of records that were found, besides its name.
const seenBytes = 48

// Records yields the records of a space whose names begin with prefix and that match the filter,
// each once. It uses the engine's tag index where the filter allows. A search over several ranges
// remembers the records that it found; their memory counts in hold. A record is valid until the next
// one. Errors may be *wire.Problem.
func Records(ctx context.Context, e store.Engine, hold *Hold, space, prefix string, f *wire.Filter) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		sources, ok := plan(f)
		if !ok {
			sources = []source{{}}
		}
		var seen map[string]struct{}
		if len(sources) > 1 || sources[0].repeats() {
			seen = map[string]struct{}{}
		}
		for r, err := range all(ctx, e, space, prefix, sources) {
			if err != nil {
				yield(nil, cut(ctx, err))
				return
			}
			id, mine := strings.CutPrefix(r.Key.Name, prefix)
			if _, twice := seen[id]; twice || !mine || !f.Matches(id, Tags(r)) {
				continue
			}
			if seen != nil {
				if err := hold.Take(len(r.Key.Name) + seenBytes); err != nil {
					yield(nil, err)
					return
				}
				seen[id] = struct{}{}
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// all yields the records of the sources, one source after the other. It stops at an error.
func all(ctx context.Context, e store.Engine, space, prefix string, sources []source) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		for _, s := range sources {
			for r, err := range s.records(ctx, e, space, prefix) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// A source yields candidate records: by ID, by a tag, or all.
type source struct {
	ids   []string
	match *store.Match
}

// repeats reports whether the source may yield a record twice.
func (s source) repeats() bool {
	return len(s.ids) > 1 || s.match != nil && s.match.Op != store.Equal
}

// cost ranks sources: a lower cost promises fewer records.
func (s source) cost() int {
	switch {
	case s.ids != nil:
		return 0
	case s.match == nil:
		return 3
	case s.match.Op == store.Equal:
		return 1
	}
	return 2
}

// plan returns sources that together cover all matching records. It returns false if only a full
// scan does.
func plan(f *wire.Filter) ([]source, bool) {
	switch {
	case f.RecordIDList != nil:
		return []source{{ids: f.RecordIDList}}, true
	case f.IsAll():
		return nil, false
	case f.Op != "":
		return []source{{match: &store.Match{Tag: *f.Tag, Op: compares(f.Op), Value: *f.Value}}}, true
	case f.Cond == wire.And:
		return planAnd(f.Units)
	case f.Cond == wire.Or:
		var every []source
		for i := range f.Units {
			some, ok := plan(&f.Units[i])
			if !ok {
				return nil, false
			}
			every = append(every, some...)
		}
		return every, true
	}
	return nil, false // NOT: no index lists the records without a tag
}

// planAnd returns the sources of the unit with the lowest cost. Records checks the other units on
// each record.
func planAnd(units []wire.Filter) ([]source, bool) {
	var best []source
	lowest, found := 0, false
	for i := range units {
		some, ok := plan(&units[i])
		if !ok {
			continue
		}
		cost := 0
		for _, s := range some {
			cost += s.cost()
		}
		if !found || cost < lowest {
			best, lowest, found = some, cost, true
		}
	}
	return best, found
}

func compares(op string) store.Compare {
	switch op {
	case wire.Equal:
		return store.Equal
	case wire.NotEqual:
		return store.NotEqual
	case wire.Greater:
		return store.Greater
	case wire.GreaterOrEqual:
		return store.GreaterOrEqual
	case wire.Less:
		return store.Less
	default:
		return store.LessOrEqual
	}
}

func (s source) records(ctx context.Context, e store.Engine, space, prefix string) iter.Seq2[*store.Record, error] {
	if s.ids == nil {
		return e.Scan(ctx, store.Query{Space: space, Prefix: prefix, Match: s.match})
	}
	return func(yield func(*store.Record, error) bool) {
		var r store.Record
		for _, id := range s.ids {
			err := e.Get(ctx, store.Key{Space: space, Name: prefix + id}, &r)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if !yield(&r, err) || err != nil {
				return
			}
		}
	}
}
