package rest

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
)

// TestLogOfMessagesIsClosedWithoutMetrics has the address of --metrics in use. What was
// logged must be in the file.
func TestLogOfMessagesIsClosedWithoutMetrics(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "messages")
	c := ims.NewCommand("x", "", io.Discard, io.Discard)
	c.Metrics = addrOf(taken.Addr())
	if c.Messages, err = truth.Open(file, "x"); err != nil {
		t.Fatal(err)
	}
	c.Messages.Write(truth.Line{Name: "message"})
	group, ctx := errgroup.WithContext(t.Context())
	if err := Wait(ctx, group, c, c.Metrics); err == nil {
		t.Error("got no error for an address in use")
	}
	if text, err := os.ReadFile(file); err != nil || len(text) == 0 {
		t.Errorf("the log has %d bytes, error %v", len(text), err)
	}
}
