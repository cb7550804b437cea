package client

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"vitrine/store/nudsf/wire"
)

// A Storage is Nudsf_DataRepository and Nudsf_Timer for one storage of a realm.
type Storage struct {
	client      *Client
	realm, name string
}

// Storage returns the standard API for a storage of a realm.
func (c *Client) Storage(realm, storage string) *Storage { return &Storage{c, realm, storage} }

func (s *Storage) path(service string, elements ...string) string {
	path := "/" + service + "/v1/" + url.PathEscape(s.realm) + "/" + url.PathEscape(s.name)
	for _, e := range elements {
		path += "/" + url.PathEscape(e)
	}
	return path
}

func (s *Storage) records(elements ...string) string {
	return s.path("nudsf-dr", append([]string{"records"}, elements...)...)
}

// limits are larger than any server's.
func limits() wire.Limits {
	return wire.Limits{Blocks: 1 << 16, BlockBytes: maxReply, Bytes: maxReply, Tags: 1 << 16, TagBytes: 1 << 16, ID: 1 << 16}
}

// Get reads a record; see NotFound and ErrNotModified.
func (s *Storage) Get(ctx context.Context, id string, conditions Conditions) (*wire.Record, string, error) {
	r, err := s.client.do(ctx, request{method: "GET", path: s.records(id), conditions: conditions})
	if err != nil {
		return nil, "", err
	}
	return record(r)
}

func record(r *reply) (*wire.Record, string, error) {
	got, err := wire.ReadRecord(r.header.Get("Content-Type"), bytes.NewReader(r.body), limits())
	if err != nil {
		return nil, "", err
	}
	return &got, r.etag(), nil
}

// Put creates or replaces a whole record and returns its entity tag.
func (s *Storage) Put(ctx context.Context, id string, r wire.Record, conditions Conditions) (etag string, created bool, err error) {
	contentType, body, err := r.Encode()
	if err != nil {
		return "", false, err
	}
	got, err := s.client.do(ctx, request{method: "PUT", path: s.records(id), contentType: contentType, body: body, conditions: conditions})
	if err != nil {
		return "", false, err
	}
	return got.etag(), got.status == http.StatusCreated, nil
}

// Delete removes a record; see NotFound.
func (s *Storage) Delete(ctx context.Context, id string, conditions Conditions) error {
	_, err := s.client.do(ctx, request{method: "DELETE", path: s.records(id), conditions: conditions})
	return err
}

// Meta reads a record's meta.
func (s *Storage) Meta(ctx context.Context, id string, conditions Conditions) (wire.Meta, string, error) {
	r, err := s.client.do(ctx, request{method: "GET", path: s.records(id, "meta"), conditions: conditions})
	if err != nil {
		return wire.Meta{}, "", err
	}
	m, err := parse[wire.Meta](r)
	return m, r.etag(), err
}

// PatchMeta changes a record's meta and returns the instructions that were not applied.
func (s *Storage) PatchMeta(ctx context.Context, id string, patch []wire.PatchItem, conditions Conditions) ([]wire.ReportItem, error) {
	return s.patch(ctx, s.records(id, "meta"), patch, conditions)
}

func (s *Storage) patch(ctx context.Context, path string, patch []wire.PatchItem, conditions Conditions) ([]wire.ReportItem, error) {
	body, err := marshal(patch)
	if err != nil {
		return nil, err
	}
	r, err := s.client.do(ctx, request{method: "PATCH", path: path, contentType: wire.TypePatch, body: body, conditions: conditions})
	if err != nil || r.status == http.StatusNoContent {
		return nil, err
	}
	result, err := parse[wire.PatchResult](r)
	return result.Report, err
}

// Block reads one block of a record.
func (s *Storage) Block(ctx context.Context, id, block string, conditions Conditions) (wire.Block, string, error) {
	r, err := s.client.do(ctx, request{method: "GET", path: s.records(id, "blocks", block), conditions: conditions})
	if err != nil {
		return wire.Block{}, "", err
	}
	return wire.Block{
		ID: block, ContentType: r.header.Get("Content-Type"), Encoding: r.header.Get("Content-Transfer-Encoding"), Content: r.body,
	}, r.etag(), nil
}

// PutBlock creates or replaces one block of an existing record and returns the block's entity tag.
func (s *Storage) PutBlock(ctx context.Context, id string, b wire.Block, conditions Conditions) (etag string, err error) {
	r, err := s.client.do(ctx, request{method: "PUT", path: s.records(id, "blocks", b.ID), contentType: b.ContentType, encoding: b.Encoding, body: b.Content, conditions: conditions})
	if err != nil {
		return "", err
	}
	return r.etag(), nil
}

// DeleteBlock removes one block of a record.
func (s *Storage) DeleteBlock(ctx context.Context, id, block string, conditions Conditions) error {
	_, err := s.client.do(ctx, request{method: "DELETE", path: s.records(id, "blocks", block), conditions: conditions})
	return err
}

// Search finds records. retrieve is "" (only references), ONLY_META or META_AND_BLOCKS. limit 0
// means the store's limit.
func (s *Storage) Search(ctx context.Context, f wire.Filter, retrieve string, limit int) (wire.SearchResult, error) {
	query, err := filterQuery(f)
	if err != nil {
		return wire.SearchResult{}, err
	}
	if retrieve != "" {
		query.Set("retrieve-records", retrieve)
	}
	if limit > 0 {
		query.Set("limit-range", strconv.Itoa(limit))
	}
	return s.search(ctx, query)
}

// Count returns the number of records that match a filter.
func (s *Storage) Count(ctx context.Context, f wire.Filter) (int, error) {
	query, err := filterQuery(f)
	if err != nil {
		return 0, err
	}
	query.Set("count-indicator", "true")
	result, err := s.search(ctx, query)
	return result.Count, err
}

func (s *Storage) search(ctx context.Context, query url.Values) (wire.SearchResult, error) {
	r, err := s.client.do(ctx, request{method: "GET", path: s.records() + "?" + query.Encode()})
	if err != nil || r.status == http.StatusNoContent {
		return wire.SearchResult{}, err
	}
	return parse[wire.SearchResult](r)
}

func filterQuery(f wire.Filter) (url.Values, error) {
	text, err := marshal(f)
	return url.Values{"filter": {string(text)}}, err
}

// DeleteMatching deletes the records that match a filter and returns their IDs. It repeats
// its request until the store has looked at all records. After an error it returns the IDs
// that the earlier requests deleted.
func (s *Storage) DeleteMatching(ctx context.Context, f wire.Filter) (deleted []string, err error) {
	query, err := filterQuery(f)
	if err != nil {
		return nil, err
	}
	for {
		r, err := s.client.do(ctx, request{method: "DELETE", path: s.records() + "?" + query.Encode()})
		if err != nil || r.status == http.StatusNoContent {
			return deleted, err
		}
		list, err := parse[wire.RecordIDList](r)
		deleted = append(deleted, list.RecordIDList...)
		if err != nil || !list.Incomplete {
			return deleted, err
		}
	}
}

func (s *Storage) subscription(id string) string { return s.path("nudsf-dr", "subs-to-notify", id) }

// Subscribe creates or replaces a subscription.
func (s *Storage) Subscribe(ctx context.Context, id string, sub wire.Subscription) error {
	body, err := marshal(sub)
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, request{method: "PUT", path: s.subscription(id), contentType: wire.TypeJSON, body: body})
	return err
}

// Unsubscribe deletes a subscription of the client of.
func (s *Storage) Unsubscribe(ctx context.Context, id string, of wire.ClientID) error {
	query := url.Values{}
	if of.NfID != "" {
		query.Set("nfId", of.NfID)
	}
	if of.NfSetID != "" {
		query.Set("nfSetId", of.NfSetID)
	}
	_, err := s.client.do(ctx, request{method: "DELETE", path: s.subscription(id) + "?" + query.Encode()})
	return err
}

func (s *Storage) timers(elements ...string) string {
	return s.path("nudsf-timer", append([]string{"timers"}, elements...)...)
}

// StartTimer starts or replaces a timer.
func (s *Storage) StartTimer(ctx context.Context, id string, t wire.Timer) error {
	body, err := marshal(t)
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, request{method: "PUT", path: s.timers(id), contentType: wire.TypeJSON, body: body})
	return err
}

// Timer reads a timer; see NotFound.
func (s *Storage) Timer(ctx context.Context, id string) (wire.Timer, error) {
	r, err := s.client.do(ctx, request{method: "GET", path: s.timers(id)})
	if err != nil {
		return wire.Timer{}, err
	}
	return parse[wire.Timer](r)
}

// PatchTimer changes a timer and returns the instructions that were not applied.
func (s *Storage) PatchTimer(ctx context.Context, id string, patch []wire.PatchItem) ([]wire.ReportItem, error) {
	return s.patch(ctx, s.timers(id), patch, Conditions{})
}

// StopTimer deletes a timer; see NotFound.
func (s *Storage) StopTimer(ctx context.Context, id string) error {
	_, err := s.client.do(ctx, request{method: "DELETE", path: s.timers(id)})
	return err
}

// Timers returns the IDs of the timers that match a filter; with expired, only
// the IDs of expired timers.
func (s *Storage) Timers(ctx context.Context, f wire.Filter, expired bool) ([]string, error) {
	query, err := filterQuery(f)
	if err != nil {
		return nil, err
	}
	if expired {
		query.Set("expired-filter", "null")
	}
	r, err := s.client.do(ctx, request{method: "GET", path: s.timers() + "?" + query.Encode()})
	if err != nil || r.status == http.StatusNoContent {
		return nil, err
	}
	list, err := parse[wire.TimerIDList](r)
	return list.TimerIDs, err
}
