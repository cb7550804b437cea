package ralf

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A crowdedFile has no space for the second half of its second row.
type crowdedFile struct {
	*os.File
	rows int
}

func (f *crowdedFile) Write(row []byte) (int, error) {
	if f.rows++; f.rows != 2 {
		return f.File.Write(row)
	}
	n, err := f.File.Write(row[:len(row)/2])
	return n, cmp.Or(err, error(syscall.ENOSPC))
}

// TestFailedWrite checks that a row that could not be written is refused, leaves nothing
// in the file, and does not affect the next one.
func TestFailedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.csv")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	handler := newServer(&crowdedFile{File: file}).handler()
	for i, want := range []int{http.StatusOK, http.StatusInsufficientStorage, http.StatusOK} {
		body := strings.NewReader(`{"accounting_record_type":2,"sip_method":"INVITE","time":"2026-01-02T03:04:05Z"}`)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/call-id/call-%d", i), body))
		if w.Code != want {
			t.Errorf("record %d: got status %d %s, want %d", i, w.Code, w.Body, want)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(rows) != 2 || rows[0][3] != "call-0" || rows[1][3] != "call-2" {
		t.Errorf("got %q, error %v, want the rows of call-0 and call-2", text, err)
	}
}
