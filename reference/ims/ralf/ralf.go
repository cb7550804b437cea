// Package ralf is the charging function of the reference IMS. It accepts
// accounting records and writes one charging data record for each.
package ralf

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// Run runs a Ralf until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	c := ims.NewCommand("ralf", "Ralf is the charging function of the reference IMS.", stdout, stderr)
	var listen netip.AddrPort
	c.Addr(&listen, "listen", true, "address, HTTP: IP:PORT")
	path := c.String("records", "", "file to append charging data records to, CSV; empty: they are only counted")
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	var records recordFile
	if *path != "" {
		file, openErr := os.OpenFile(*path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if openErr != nil {
			return fmt.Errorf("open the file of charging records (--records): %w", openErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		records = file
	}
	listener, err := ims.Listen(ctx, "listen", listen)
	if err != nil {
		return err
	}
	s := newServer(records)
	c.Registry.MustRegister(s.taken)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return rest.Serve(ctx, listener, c.Messages.Server(s.handler()), c.Log) })
	return rest.Wait(ctx, group, c, listener.Addr())
}

// A recordFile is the part of an *os.File, open for appending, that a server uses.
type recordFile interface {
	io.Writer
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
}

type server struct {
	taken *prometheus.CounterVec

	mu      sync.Mutex
	records recordFile // nil: records are only counted
	row     bytes.Buffer
	encoder *csv.Writer // to row: a csv.Writer refuses all rows after a failed write
}

func newServer(records recordFile) *server {
	s := &server{
		records: records,
		taken:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ralf_records_total", Help: "Records taken, by accounting record type."}, []string{"type"}),
	}
	s.encoder = csv.NewWriter(&s.row)
	return s
}

func (s *server) handler() http.Handler {
	mux := rest.NewMux()
	mux.HandleFunc("POST /call-id/{id}", s.take)
	return mux
}

// take writes a record before it acknowledges it, so every record that Sprout
// counts as accepted is in the file.
func (s *server) take(w http.ResponseWriter, r *http.Request) {
	record, ok := rest.Body(w, r, ims.ParseChargingRecord)
	if !ok {
		return
	}
	if err := s.write(r.PathValue("id"), record); err != nil {
		http.Error(w, "write the charging record: "+err.Error(), http.StatusInsufficientStorage)
		return
	}
	s.taken.WithLabelValues(strconv.Itoa(record.Type)).Inc()
}

// write appends a row to the file, whole or not at all.
func (s *server) write(callID string, r ims.ChargingRecord) error {
	if s.records == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.row.Reset()
	if err := s.encoder.WriteAll([][]string{{
		r.Time.UTC().Format(time.RFC3339Nano), strconv.Itoa(r.Type), r.Method, callID,
		r.Calling, r.Called, r.ICID, r.Node, strconv.Itoa(r.Cause),
	}}); err != nil {
		return err
	}
	n, err := s.records.Write(s.row.Bytes())
	if err != nil && n > 0 {
		err = errors.Join(err, s.cut(n))
	}
	return err
}

// cut removes the last n bytes of the file.
func (s *server) cut(n int) error {
	info, err := s.records.Stat()
	if err != nil {
		return err
	}
	return s.records.Truncate(info.Size() - int64(n))
}
