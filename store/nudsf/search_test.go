package nudsf

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/rest"
)

// TestSelectedOwns checks that a record to delete has its own copy of the content, because the scan
// reuses its memory.
func TestSelectedOwns(t *testing.T) {
	a := &API{Config: rest.Config{Clock: time.Now}}
	r := &store.Record{
		Key: store.Key{Space: "s", Name: kindRecord + "one"}, Version: 1,
		Meta: []byte(`{"blocks":[{"id":"b","size":3}]}`), Value: []byte("old"),
	}
	selected, record, err := a.selected(r)
	if err != nil || !selected {
		t.Fatalf("got %v, %v", selected, err)
	}
	copy(r.Value, "new")
	if got := string(record.Blocks[0].Content); got != "old" {
		t.Errorf("content of the record to delete: got %q, want old", got)
	}
}

// TestAnswersThatAreLarge checks which requests count as requests for a large answer.
func TestAnswersThatAreLarge(t *testing.T) {
	const records = "/nudsf-dr/v1/Realm/Storage/records"
	for target, want := range map[string]int64{
		records: 0, records + "?limit-range=10": 0, records + "/one?retrieve-records=META_AND_BLOCKS": 0,
		records + "?retrieve-records=META_AND_BLOCKS":                       3 * maxPayload,
		records + "?retrieve%2Drecords=ONLY_META&max-payload-size=10":       3 * 10 << 10,
		records + "?retrieve-records=ONLY_META&max-payload-size=2000000000": 3 * maxPayload,
		"/nudsf-dr/v1/Realm/Storage/subs-to-notify":                         maxPayload,
		"/nudsf-dr/v1/Realm/Storage/subs-to-notify/one":                     0,
	} {
		if got := Answer(httptest.NewRequest(http.MethodGet, target, nil)); got != want {
			t.Errorf("%s: got limit %d, want %d", target, got, want)
		}
	}
	if got := Answer(httptest.NewRequest(http.MethodDelete, records+"?retrieve-records=ONLY_META", nil)); got != 0 {
		t.Errorf("limit of a deletion: got %d bytes, want 0", got)
	}
}
