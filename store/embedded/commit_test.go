package embedded_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/embedded"
)

// BenchmarkPut measures 64 writers of records of 256 bytes, each answered after its sync. On a
// machine with other load, cpu-ns/op says more than ns/op.
func BenchmarkPut(b *testing.B) {
	const writers, keys = 64, 100_000
	e, err := embedded.Open(embedded.Config{Dir: b.TempDir(), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	value := bytes.Repeat([]byte("v"), 256)
	var next atomic.Int64
	b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	b.RunParallel(func(p *testing.PB) {
		ops := make([]store.Op, 1)
		for p.Next() {
			ops[0] = store.Op{Action: store.Put, Name: "k" + strconv.FormatInt(next.Add(1)*7919%keys, 10), Value: value}
			if err := e.Write(b.Context(), "s", ops...); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}

// processorTime returns the CPU time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
