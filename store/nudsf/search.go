package nudsf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"vitrine/store"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// Values of retrieve-records: RetrieveRecords, TS 29.598 clause 6.1.6.3.9.
const (
	onlyMeta      = "ONLY_META"
	metaAndBlocks = "META_AND_BLOCKS"
)

// Limits of the results of one search, besides rest.MaxAnswer. The count continues beyond them.
const (
	maxReferences = 10_000
	maxPayload    = rest.MaxAnswer // bytes of records
)

// Answer returns how many bytes of memory a large answer may take: the records of a search and their
// JSON, or all subscriptions of a storage. Other answers are small: 0.
func Answer(r *http.Request) int64 {
	switch {
	case rest.Method(r) != "get":
		return 0
	case strings.HasSuffix(r.URL.Path, "/subs-to-notify"):
		return maxPayload
	case r.URL.RawQuery == "" || Operation(r) != "nudsf search get":
		return 0
	}
	q := rest.ReadQuery(r)
	if _, ok := q.Text("retrieve-records"); !ok {
		return 0
	}
	return 3 * payloadOf(q)
}

// payloadOf returns how many bytes of records a search may return at most. The parameter is in
// kilo-octets.
func payloadOf(q *rest.Query) int64 {
	return int64(min(q.Count("max-payload-size", maxPayload>>10), maxPayload>>10)) << 10
}

// A searchRequest is the query of a search.
type searchRequest struct {
	filter   *wire.Filter
	limit    int // references or records in the answer
	count    bool
	retrieve string
	payload  int // bytes
}

func (a *API) readSearch(r *http.Request) (searchRequest, error) {
	q := rest.ReadQuery(r)
	q.Refuse("tag-count-filter")
	s := searchRequest{
		filter: q.Filter("filter", a.Limits),
		limit:  min(q.Count("limit-range", maxReferences), maxReferences),
		count:  q.Bool("count-indicator"),
	}
	s.payload = int(payloadOf(q))
	s.retrieve, _ = q.Text("retrieve-records")
	if err := q.Err(); err != nil {
		return s, err
	}
	switch s.retrieve {
	case "", onlyMeta, metaAndBlocks:
	default:
		return s, wire.BadParam(wire.CauseQueryIncorrect, "retrieve-records", "is %q, not ONLY_META or META_AND_BLOCKS", s.retrieve)
	}
	if s.filter == nil {
		all := wire.All()
		s.filter = &all
	}
	return s, nil
}

func (a *API) searchRecords(w http.ResponseWriter, r *http.Request) error {
	space, err := a.Storages.Space(service, r)
	if err != nil {
		return err
	}
	s, err := a.readSearch(r)
	if err != nil {
		return err
	}
	ctx, hold, end := a.Begin(r)
	defer end()
	result, err := rest.Long(w, func() (searchResult, error) { return a.search(ctx, hold, space, s) })
	if err != nil {
		return err
	}
	if result.Count == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return rest.JSON(w, http.StatusOK, result)
}

// A searchResult is a wire.SearchResult with records that are encoded already.
type searchResult struct {
	Count           int                        `json:"count"`
	References      []string                   `json:"references,omitempty"`
	MatchingRecords map[string]json.RawMessage `json:"matchingRecords,omitempty"`
}

// search returns the records that match. The answer ends before the first result that does
// not fit, so that it keeps the order. The count includes all matches.
func (a *API) search(ctx context.Context, hold *rest.Hold, space string, s searchRequest) (searchResult, error) {
	result := searchResult{MatchingRecords: map[string]json.RawMessage{}}
	references := rest.NewIDs(hold)
	now := a.Clock()
	left, full := s.payload, s.count
	for r, err := range rest.Records(ctx, a.Engine, hold, space, kindRecord, s.filter) {
		if err != nil {
			return result, fmt.Errorf("search %s: %w", space, err)
		}
		e, err := load(r)
		if err != nil {
			return result, err
		}
		if e.expired(now) {
			continue
		}
		result.Count++
		if full = full || result.Count > s.limit; full {
			continue
		}
		id := strings.TrimPrefix(r.Key.Name, kindRecord)
		if s.retrieve == "" {
			uri := a.uri(space, "records", id)
			if err := references.Reserve(uri); err == nil {
				references.Add(uri)
			} else if full = errors.Is(err, rest.ErrEnough); !full {
				return result, err
			}
			continue
		}
		text, err := retrieved(e, s.retrieve)
		if err != nil {
			return result, fmt.Errorf("write record %s: %w", id, err)
		}
		size := rest.TextSize(id) + len(text) + len(":")
		if left -= size; left < 0 {
			full = true
			continue
		}
		if err := hold.Take(2 * size); err != nil { // the answer is encoded once more
			return result, err
		}
		result.MatchingRecords[id] = text
	}
	result.References = references.List
	return result, nil
}

// retrieved returns the requested part of a record, encoded.
func retrieved(e *entry, what string) (json.RawMessage, error) {
	r := wire.Record{Meta: e.Meta}
	if what == metaAndBlocks {
		r.Blocks = e.Blocks
	}
	return json.Marshal(r)
}

// deleteRecords deletes the records that a filter matches, TS 29.598 clause 5.2.2.5.5.
func (a *API) deleteRecords(w http.ResponseWriter, r *http.Request) error {
	space, err := a.Storages.Space(service, r)
	if err != nil {
		return err
	}
	q := rest.ReadQuery(r)
	filter := q.Filter("filter", a.Limits)
	if err := q.Err(); err != nil {
		return err
	}
	if filter == nil {
		return wire.BadParam(wire.CauseQueryMissing, "filter", "is needed; GTE of the empty tag and value matches everything")
	}
	ctx, hold, end := a.Begin(r)
	defer end()
	deleted, err := rest.Long(w, func() (wire.RecordIDList, error) { return a.deleteMatching(ctx, hold, space, filter) })
	if err != nil {
		return err
	}
	if len(deleted.RecordIDList) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return rest.JSON(w, http.StatusOK, deleted)
}

// deleteMatching deletes the records that match, until it reaches a bound.
func (a *API) deleteMatching(ctx context.Context, hold *rest.Hold, space string, f *wire.Filter) (wire.RecordIDList, error) {
	d := rest.Deletion{Engine: a.Engine, Hold: hold, Space: space, Prefix: kindRecord, Filter: f, Select: a.selected}
	d.Notify = func(id string, r *wire.Record) { a.notify(ctx, place{space, id}, wire.Deleted, r) }
	d.Single = func(id string) error {
		_, _, err := a.change(ctx, place{space, id}, func(before *entry) (*entry, error) {
			if before == nil || !f.Matches(id, before.Meta.Tags) {
				return nil, rest.ErrKept
			}
			return nil, nil
		}, false)
		return err
	}
	ids, incomplete, err := d.Run(ctx)
	return wire.RecordIDList{RecordIDList: ids, Incomplete: incomplete}, err
}

// selected returns a copy of a stored record to delete, because the memory of r belongs to the scan. It
// selects no expired record: consumers do not see it, and the agenda deletes it.
func (a *API) selected(r *store.Record) (bool, *wire.Record, error) {
	e, err := load(r)
	if err != nil || e.expired(a.Clock()) {
		return false, nil, err
	}
	for i, b := range e.Blocks {
		e.Blocks[i].Content = bytes.Clone(b.Content)
	}
	return true, &e.Record, nil
}
