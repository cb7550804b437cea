package replica

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRecordsTravel(t *testing.T) {
	for _, r := range []Record{
		{},
		{Value: []byte("value"), Version: 1<<64 - 1, Expires: time.UnixMilli(1_700_000_000_123)},
		{Version: 7, Timer: true, Expires: time.UnixMilli(1)},
		{Version: 7, deleted: true},
	} {
		key, got, err := parseRecord(appendRecord(nil, "key", r))
		if err != nil || key != "key" || !reflect.DeepEqual(got, r) {
			t.Errorf("record %+v decoded as %+v of %q, error %v", r, got, key, err)
		}
	}
	whole := appendRecord(nil, "key", Record{Value: []byte("value")})
	for n := range whole {
		if _, _, err := parseRecord(whole[:n]); !errors.Is(err, errWire) {
			t.Errorf("record truncated to %d bytes: got %v", n, err)
		}
	}
}

// FuzzPeer feeds the bytes of a peer to the code that answers peers.
func FuzzPeer(f *testing.F) {
	record := appendRecord(nil, "key", Record{Value: []byte("value"), Version: 3, Expires: time.UnixMilli(1)})
	hello := endFrame(append(beginFrame(nil), magic...), opHello, 1)
	f.Add(hello)
	f.Add(endFrame(beginFrame(nil), opPing, 2))
	f.Add(append(bytes.Clone(hello), endFrame(append(beginFrame(nil), "key"...), opGet, 3)...))
	f.Add(append(bytes.Clone(hello), endFrame(append(append(beginFrame(nil), 0, 0, 0, 0, 0, 0, 0, 3), record...), opCompare, 4)...))
	f.Add(append(bytes.Clone(hello), endFrame(append(beginFrame(nil), record...), opSet, 5)...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := New(Config{
			Self: netip.MustParseAddrPort("127.0.0.1:1"), Copies: 2,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry(),
		})
		r := bufio.NewReader(bytes.NewReader(data))
		var in, out []byte
		for {
			var request frame
			var err error
			if request, in, err = readFrame(r, in); err != nil {
				return
			}
			out, err = s.handle(beginFrame(out), request, time.Unix(0, 0))
			answer, _, wrong := readFrame(bufio.NewReader(bytes.NewReader(out)), nil)
			if wrong != nil || answer.id != request.id {
				t.Fatalf("answer to op %d: got %x: %v", request.op, out, wrong)
			}
			if err != nil {
				if answer.op != opRefused {
					t.Fatalf("got op %#x after error %v", answer.op, err)
				}
				return
			}
			if answer.op == opRecord {
				if _, _, err := parseRecord(answer.body); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
