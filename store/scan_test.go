package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/store"
)

// TestScanTime checks that a scan ends with Late after ScanTime, both if it always finds another
// record and if the server never answers.
func TestScanTime(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, give func(*store.Record) bool) error{
		"endless": func(_ context.Context, give func(*store.Record) bool) error {
			for r := (store.Record{}); give(&r); {
				time.Sleep(time.Second)
			}
			return nil
		},
		"expired records alone": func(_ context.Context, give func(*store.Record) bool) error {
			for r := (store.Record{Expires: time.Unix(1, 0)}); give(&r); {
				time.Sleep(time.Second)
			}
			return nil
		},
		"no answer": func(ctx context.Context, _ func(*store.Record) bool) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				if err := last(store.Scanned(t.Context(), store.Query{Space: "s"}, time.Now, run)); !isLate(err) {
					t.Errorf("the scan ended with %v, want a deadline error", err)
				}
				if took := time.Since(began); took < store.ScanTime || took > store.ScanTime+time.Second {
					t.Errorf("the scan took %s, want about ScanTime", took)
				}
			})
		})
	}
}

func isLate(err error) bool {
	var late *store.Late
	return errors.As(err, &late)
}

// last returns the error that ends a scan.
func last(scan func(func(*store.Record, error) bool)) (err error) {
	for _, err = range scan {
	}
	return err
}

// TestScanCause checks that a scan ends with the cause of its context's end. A scan that was
// complete before must have no error.
func TestScanCause(t *testing.T) {
	cause := errors.New("the client's time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	two := func(_ context.Context, give func(*store.Record) bool) error {
		var r store.Record
		for n := 0; n < 2 && give(&r); n++ {
		}
		return nil
	}
	n := 0
	for _, err := range store.Scanned(ctx, store.Query{Space: "s"}, time.Now, two) {
		if n++; n == 2 && !errors.Is(err, cause) {
			t.Errorf("item after the end of the context: got %v, want its cause", err)
		}
		cancel(cause)
	}
	if n != 2 {
		t.Errorf("got %d items, want a record and an error", n)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	defer cancel(nil)
	n = 0
	for _, err := range store.Scanned(ctx, store.Query{Space: "s"}, time.Now, two) {
		if err != nil {
			t.Error(err)
		}
		if n++; n == 2 {
			cancel(cause)
		}
	}
}
