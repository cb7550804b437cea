package monitor

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]uint64{"0\n": 0, "123": 123, "18446744073709551615\n": math.MaxUint64} {
		if got, err := parseNumber([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "max\n", "-1\n", "1 2\n", "18446744073709551616\n"} {
		if got, err := parseNumber([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestParseField(t *testing.T) {
	const text = "inactive_file_x 1\ntotal_inactive_file 2\ninactive_file 3\nMemTotal:       4 kB\nlast 5"
	for key, want := range map[string]uint64{"inactive_file": 3, "total_inactive_file": 2, "MemTotal": 4, "last": 5} {
		if got, err := parseField([]byte(text), key); err != nil || got != want {
			t.Errorf("%s is %d, %v", key, got, err)
		}
	}
	for _, key := range []string{"inactive", "Mem", "file", "none"} {
		if got, err := parseField([]byte(text), key); err == nil {
			t.Errorf("%s is %d", key, got)
		}
	}
}

func TestParseNetDev(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0: 100 2 3 4 5 6 7 8 900 10 11 12 13 14 15 16
eth0:1:1 0 0 0 0 0 0 0 20 0 0 0 0 0 0 0
lo1: 1000 0 0 0 0 0 0 0 3000 0 0 0 0 0 0 0
`
	rx, tx, err := parseNetDev([]byte(text), "")
	if err != nil || rx != 1101 || tx != 3920 {
		t.Errorf("received %d, sent %d, %v", rx, tx, err)
	}
	if rx, tx, err := parseNetDev([]byte(text), "eth0"); err != nil || rx != 100 || tx != 900 {
		t.Errorf("only eth0: received %d, sent %d, %v", rx, tx, err)
	}
	for _, bad := range []string{"", "head\n", text[:len(text)-1], "head\nhead\nnothing\n", "head\nhead\neth0: 1 2\n", "head\nhead\neth0: x\n"} {
		if rx, tx, err := parseNetDev([]byte(bad), ""); err == nil {
			t.Errorf("%q: received %d, sent %d", bad, rx, tx)
		}
	}
}

func TestParseStat(t *testing.T) {
	const text = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu2 10 0 0 4 5 0 1 2 0 0\nintr 5\n"
	if n := countCPUs([]byte(text)); n != 3 {
		t.Errorf("%d CPUs, want 3, because one is offline", n)
	}
	all := make([]ticks, 4)
	all[2].seen = true
	if err := parseStat([]byte(text), all); err != nil {
		t.Fatal(err)
	}
	// user 1 + nice 2 + system 3 + irq 6 + softirq 7
	want := []ticks{{19, 7, 8, true}, {19, 7, 8, true}, {}, {11, 1, 2, true}}
	for i := range want {
		if !want[i].seen {
			if all[i].seen {
				t.Errorf("line %d counts as present", i)
			}
			continue
		}
		if all[i] != want[i] {
			t.Errorf("line %d is %+v, want %+v", i, all[i], want[i])
		}
	}
	if err := parseStat([]byte(text), make([]ticks, 2)); err != nil {
		t.Errorf("a CPU that came online later: %v", err)
	}
	for _, bad := range []string{"", "intr 1\n", "cpu  1 2 3\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpux 1 2 3 4 5 6 7 8\n"} {
		if err := parseStat([]byte(bad), all); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestParseThisKernel compares the parsers' results on this kernel's files with the
// results of other code.
func TestParseThisKernel(t *testing.T) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	want, err := strconv.ParseUint(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseStatm(data); err != nil || got != want {
		t.Errorf("statm: %d, %v; want %d", got, err, want)
	}
	for name, parse := range map[string]func([]byte) error{
		"/proc/net/dev": func(data []byte) error { _, _, err := parseNetDev(data, ""); return err },
		"/proc/stat":    func(data []byte) error { return parseStat(data, make([]ticks, 1+countCPUs(data))) },
		"/proc/meminfo": func(data []byte) error { _, err := parseField(data, "MemAvailable"); return err },
	} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := parse(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadLongFile checks that a file longer than one read of the kernel is read whole.
func TestReadLongFile(t *testing.T) {
	want, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/proc/kallsyms", "/proc/self/maps"} {
		f, err := openFile(name)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<16)
		got, err := f.read(buf)
		f.close()
		if err != nil {
			t.Fatal(err)
		}
		if len(got) < min(len(want), len(buf))/2 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		if name == "/proc/kallsyms" && len(got) != len(buf) {
			t.Errorf("%s: %d bytes, want the buffer full", name, len(got))
		}
	}
}

func TestAppendNumber(t *testing.T) {
	for _, c := range []struct {
		value       float64
		denominator int64
		want        string
	}{
		{0, 10_000, "0.0000"}, {1.00005, 10_000, "1.0001"}, {0.99996, 10_000, "1.0000"}, {-1.5, 10_000, "-1.5000"},
		{-0.05, 10_000, "-0.0500"}, {12.3456, 10_000, "12.3456"}, {math.NaN(), 10_000, ""}, {math.NaN(), 1, ""},
		{1 << 40, 1, "1099511627776"}, {2.5, 1, "3"}, {2.4, 1, "2"},
	} {
		if got := string(appendNumber(nil, c.value, c.denominator)); got != c.want {
			t.Errorf("%v is %q, want %q", c.value, got, c.want)
		}
	}
}

// FuzzParsers checks that the parsers never panic, and that a number they return is in the input.
func FuzzParsers(f *testing.F) {
	for _, name := range []string{"/proc/net/dev", "/proc/stat", "/proc/meminfo", "/proc/self/statm"} {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data[:min(len(data), 2000)], "MemTotal")
		}
	}
	f.Add([]byte("usage_usec 5\nthrottled_usec 18446744073709551616\n"), "usage_usec")
	f.Add([]byte("12345\n"), "")
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		before := bytes.Clone(data)
		check := func(what string, v uint64, err error) {
			if err == nil && !bytes.Contains(bytes.TrimLeft(data, "0"), []byte(strconv.FormatUint(v, 10))) && v != 0 {
				t.Errorf("%s found %d in %q", what, v, data)
			}
		}
		v, err := parseNumber(data)
		check("parseNumber", v, err)
		v, err = parseField(data, key)
		check("parseField", v, err)
		v, err = parseStatm(data)
		check("parseStatm", v, err)
		_, _, _ = parseNetDev(data, "")
		all := make([]ticks, 1+countCPUs(data))
		if parseStat(data, all) == nil && !all[0].seen {
			t.Error("no line for all CPUs, and no error")
		}
		if !bytes.Equal(before, data) {
			t.Error("the parser changed its input")
		}
	})
}
