package embedded_test

import (
	"fmt"
	"strings"
	"testing"
)

// checkTrace checks strace's output line by line. Between "ask" and "answered", the log must be
// written, and a sync that began after that write must return 0.
func checkTrace(t *testing.T, text string) {
	t.Helper()
	answered := 0
	var wrote, synced bool
	began := map[string]bool{} // by thread: in a sync that began after the write
	for line := range strings.SplitSeq(text, "\n") {
		thread, call, _ := strings.Cut(line, " ")
		call = strings.TrimSpace(call)
		isSync := strings.HasPrefix(call, "fdatasync(") || strings.HasPrefix(call, "fsync(")
		switch {
		case strings.Contains(call, `"ask `):
			wrote, synced = false, false
			clear(began)
		case strings.Contains(call, `"answered `):
			if !strings.Contains(call, fmt.Sprintf(`"answered %d\n"`, answered)) {
				t.Fatalf("after %d answers: got %s", answered, line)
			}
			if !wrote || !synced {
				t.Errorf("answer %d: written %v, then synced %v", answered, wrote, synced)
			}
			answered++
		case strings.HasPrefix(call, "write(") && strings.Contains(call, ", \"") && !strings.HasPrefix(call, "write(2,"):
			wrote = wrote || strings.Contains(call, "straced") || len(call) > 40
			synced = false
		case isSync && strings.HasSuffix(call, "= 0"):
			synced = synced || wrote
		case isSync:
			began[thread] = wrote
		case strings.Contains(call, "sync resumed") && strings.HasSuffix(call, "= 0") && began[thread]:
			synced = true
		}
	}
	if answered != tracedCount {
		t.Errorf("the trace has %d answers, want %d", answered, tracedCount)
	}
}
