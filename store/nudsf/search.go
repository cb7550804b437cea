package nudsf

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// Limits of the results of one search. The count continues beyond them.
const (
	maxReferences = 10_000
	maxPayload    = 16 << 20 // bytes of records
)

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
	payload := q.Count("max-payload-size", maxPayload>>10) // kilo-octets
	s.payload = min(payload, maxPayload>>10) << 10
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
	at, err := a.Storages.Of(service, r)
	if err != nil {
		return err
	}
	s, err := a.readSearch(r)
	if err != nil {
		return err
	}
	result, err := rest.Long(w, func() (wire.SearchResult, error) { return a.search(r.Context(), at.Space(), s) })
	if err != nil {
		return err
	}
	if result.Count == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return rest.JSON(w, http.StatusOK, result)
}

func (a *API) search(ctx context.Context, space string, s searchRequest) (wire.SearchResult, error) {
	var result wire.SearchResult
	now := a.Clock()
	size := 0
	for r, err := range rest.Records(ctx, a.Engine, space, kindRecord, s.filter) {
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
		if s.count || result.Count > s.limit {
			continue
		}
		id := strings.TrimPrefix(r.Key.Name, kindRecord)
		if s.retrieve == "" {
			result.References = append(result.References, a.uri(space, "records", id))
			continue
		}
		found, n := retrieved(e, s.retrieve, len(r.Meta))
		if size += n; size > s.payload {
			size = math.MaxInt32 // skip all later records, so that the answer keeps the order
			continue
		}
		if result.MatchingRecords == nil {
			result.MatchingRecords = map[string]wire.Record{}
		}
		result.MatchingRecords[id] = found
	}
	return result, nil
}

// retrieved returns the requested part of a record, in its own memory, and about how many bytes it
// takes in the answer.
func retrieved(e *entry, what string, header int) (wire.Record, int) {
	size := header + 64
	for name, values := range e.Meta.Tags {
		for _, v := range values {
			size += len(name) + len(v) + 8
		}
	}
	r := wire.Record{Meta: e.Meta}
	if what == metaAndBlocks {
		for _, b := range e.Blocks {
			b.Content = append([]byte(nil), b.Content...)
			r.Blocks = append(r.Blocks, b)
			size += len(b.Content)*4/3 + 128 // base64
		}
	}
	return r, size
}

// deleteRecords deletes the records that a filter matches, TS 29.598 clause 5.2.2.5.5.
func (a *API) deleteRecords(w http.ResponseWriter, r *http.Request) error {
	at, err := a.Storages.Of(service, r)
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
	deleted, err := rest.Long(w, func() ([]string, error) { return a.deleteMatching(r.Context(), at.Space(), filter) })
	if err != nil {
		return err
	}
	if len(deleted) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return rest.JSON(w, http.StatusOK, wire.RecordIDList{RecordIDList: deleted})
}

// deleteMatching deletes the records that match. It checks a record again if it changes meanwhile.
func (a *API) deleteMatching(ctx context.Context, space string, f *wire.Filter) ([]string, error) {
	var deleted []string
	batch := newBatch(a, space)
	for r, err := range rest.Records(ctx, a.Engine, space, kindRecord, f) {
		if err != nil {
			return deleted, fmt.Errorf("search %s: %w", space, err)
		}
		done, err := batch.add(ctx, r, f)
		deleted = append(deleted, done...)
		if err != nil {
			return deleted, err
		}
	}
	done, err := batch.flush(ctx, f)
	return append(deleted, done...), err
}

// A batch deletes several records with one write.
type batch struct {
	api     *API
	space   string
	ids     []string
	ops     []store.Op
	entries []*entry
	bytes   int
}

func newBatch(a *API, space string) *batch { return &batch{api: a, space: space} }

// Limits of a batch.
const (
	maxBatch      = store.MaxOps
	maxBatchBytes = 8 << 20
)

func (b *batch) add(ctx context.Context, r *store.Record, f *wire.Filter) ([]string, error) {
	e, err := load(r)
	if err != nil {
		return nil, err
	}
	if e.expired(b.api.Clock()) {
		return nil, nil // consumers do not see it, and the agenda deletes it
	}
	e.Record, _ = retrieved(e, metaAndBlocks, 0) // the memory of r belongs to the scan
	b.bytes += len(r.Value)
	b.ids = append(b.ids, strings.TrimPrefix(r.Key.Name, kindRecord))
	b.ops = append(b.ops, store.Op{Action: store.Delete, Name: r.Key.Name, If: store.Condition{Version: r.Version}})
	b.entries = append(b.entries, e)
	if len(b.ops) < maxBatch && b.bytes < maxBatchBytes {
		return nil, nil
	}
	return b.flush(ctx, f)
}

// flush deletes the batch's records. If the batch conflicts or is too large, it deletes those that
// still match one by one.
func (b *batch) flush(ctx context.Context, f *wire.Filter) (deleted []string, err error) {
	if len(b.ops) == 0 {
		return nil, nil
	}
	err = b.api.Engine.Write(ctx, b.space, b.ops...)
	switch {
	case err == nil:
		for i, e := range b.entries {
			b.api.notify(ctx, place{b.space, b.ids[i]}, wire.Deleted, &e.Record)
		}
		deleted = b.ids
	case store.Apart(err):
		err = nil
		for _, id := range b.ids {
			gone, single := b.api.deleteIf(ctx, place{b.space, id}, f)
			if gone {
				deleted = append(deleted, id)
			}
			err = errors.Join(err, single)
		}
	}
	*b = batch{api: b.api, space: b.space}
	return deleted, err
}

// errKept means that the record does not match the filter or is absent.
var errKept = errors.New("nudsf: not to be deleted")

func (a *API) deleteIf(ctx context.Context, at place, f *wire.Filter) (bool, error) {
	_, _, err := a.change(ctx, at, func(before *entry) (*entry, error) {
		if before == nil || !f.Matches(at.id, before.Meta.Tags) {
			return nil, errKept
		}
		return nil, nil
	}, false)
	if errors.Is(err, errKept) {
		return false, nil
	}
	return err == nil, err
}
