package etcd

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// member serves HTTP like an etcd member whose clock is ahead.
func member(t *testing.T, ahead time.Duration) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	}))
	t.Cleanup(s.Close)
	return s
}

// hostClock returns the clock of a host whose own clock is ahead. It is not checked against the
// members yet.
func hostClock(t *testing.T, ahead time.Duration, members ...*httptest.Server) *clock {
	t.Helper()
	c := &Config{Now: func() time.Time { return time.Now().Add(ahead) }, Logger: slog.New(slog.DiscardHandler)}
	for _, m := range members {
		c.Endpoints = append(c.Endpoints, m.URL)
	}
	k, err := newClock(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.client.CloseIdleConnections)
	return k
}

// TestSchemes checks that the scheme of an endpoint cannot switch TLS off: the password and the records
// would go in clear.
func TestSchemes(t *testing.T) {
	secure := &tls.Config{}
	for _, c := range []struct {
		endpoints string
		tls       *tls.Config
		want      bool
	}{
		{"http://127.0.0.1:1", secure, false}, {"127.0.0.1:1,HTTP://127.0.0.1:2", secure, false}, {"http://127.0.0.1:1,https://127.0.0.1:2", nil, false},
		{"https://127.0.0.1:1,127.0.0.1:2", secure, true}, {"http://127.0.0.1:1,127.0.0.1:2", nil, true}, {"https://127.0.0.1:1", nil, true},
	} {
		config := &Config{Endpoints: strings.Split(c.endpoints, ","), TLS: c.tls}
		if err := config.checkSchemes(); (err == nil) != c.want || err != nil && !vitrine.IsBadInput(err) {
			t.Errorf("%s, options of TLS %t: got error %v", c.endpoints, c.tls != nil, err)
		}
	}
	if _, err := Open(t.Context(), Config{Endpoints: []string{"http://127.0.0.1:1"}, TLS: secure, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}); !vitrine.IsBadInput(err) {
		t.Errorf("Open with TLS and http: got %v, want a bad input", err)
	}
}

// TestClock checks that the members' clocks correct a host's wrong clock and leave a right clock
// alone. One wrong member of three must not matter.
func TestClock(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{time.Hour, -time.Hour} {
		right, other, bad := member(t, 0), member(t, 0), member(t, wrong)
		for _, ahead := range []time.Duration{0, time.Minute, -time.Minute} {
			k := hostClock(t, ahead, right, bad, other)
			if err := k.check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if off := time.Until(k.now()); off.Abs() > time.Second {
				t.Errorf("on a host %s ahead the clock is wrong by %s", ahead, off)
			}
			if shift := time.Duration(k.shift.Load()); ahead == 0 && shift.Abs() > time.Second {
				t.Errorf("a correct clock was shifted by %s", shift)
			}
		}
	}
}

// TestClockWithoutMembers checks that a check without an answer fails and keeps the correction.
func TestClockWithoutMembers(t *testing.T) {
	t.Parallel()
	m := member(t, 0)
	k := hostClock(t, time.Minute, m)
	if err := k.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if err := k.check(t.Context()); err == nil {
		t.Error("check succeeded without members")
	}
	if off := time.Until(k.now()); off.Abs() > time.Second {
		t.Errorf("after the failed check the clock is wrong by %s", off)
	}
	undated := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }))
	defer undated.Close()
	if err := hostClock(t, 0, undated).check(t.Context()); err == nil {
		t.Error("check accepted an answer without a Date")
	}
}

// TestClockOfMinority checks that one wrong member does not change a right clock while the two right
// members do not answer.
func TestClockOfMinority(t *testing.T) {
	t.Parallel()
	right, other, bad := member(t, 0), member(t, 0), member(t, time.Hour)
	k := hostClock(t, 0, right, other, bad)
	right.Close()
	other.Close()
	if err := k.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if shift := time.Duration(k.shift.Load()); shift.Abs() >= time.Second {
		t.Errorf("a right clock was shifted by %s", shift)
	}
}

// TestAgree checks the bounds on which members agree. A minority with wrong clocks must not exclude
// the right time, which is 0 here.
func TestAgree(t *testing.T) {
	at := func(seconds float64) bounds {
		low := time.Duration(seconds * float64(time.Second))
		return bounds{low: low, high: low + time.Second}
	}
	right := []float64{-0.9, -0.1, -0.5, -0.3}
	for members := 1; members <= 7; members++ {
		for bad := 0; 2*bad < members; bad++ {
			for _, sign := range []float64{1, -1} {
				var all []bounds
				for i := range members {
					if i < bad {
						all = append(all, at(sign*float64(60*(i+1))))
						continue
					}
					all = append(all, at(right[i%len(right)]))
				}
				if got := agree(all); got.low > 0 || got.high < 0 || got.high < got.low {
					t.Errorf("with %d of %d members wrong, the true time is outside %v", bad, members, got)
				}
				if got := agree(all); members%2 == 1 && got.high-got.low > 2*time.Second {
					t.Errorf("with %d of %d members wrong, the bounds %v are too wide", bad, members, got)
				}
			}
		}
	}
}
