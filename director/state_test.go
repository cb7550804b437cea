package director

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
)

// TestRestart checks that a restart keeps changes by REST, and the table before the last change. If
// the file's instances have changed in between, the file counts instead.
func TestRestart(t *testing.T) {
	var clock skipper
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), long)
	r := run(t, path, clock.options)
	ctx := t.Context()
	if _, err := r.client.Drain(ctx, "reg-1"); err != nil {
		t.Fatal(err)
	}
	before := r.settle(t)
	ids := map[string]uint16{}
	for _, in := range r.roster.list() {
		ids[in.Name] = in.ID
	}
	r.stop()

	r = run(t, path, clock.options)
	s, err := r.client.Status(ctx)
	if err != nil || s.Epoch != before.Epoch || s.Digest != before.Digest {
		t.Fatalf("after a restart: status %+v, want %+v: %v", s, before, err)
	}
	if !s.Restarted {
		t.Error("after the restart, unknown keys do not use the previous table")
	}
	steered := r.protocols[0].Steerings()[0]
	moved := 0
	for key := range uint64(200) {
		i, _ := r.epochs.View().Previous(r.now()).Pick(0, key, 0, nil)
		want := r.epochs.View().Previous(r.now()).Instance(i).Name
		at, ok := steered.Choose(r.now(), 0, key, 0)
		if !ok || at.Name != want {
			t.Fatalf("an unknown key does not go to %s, its instance in the previous table", want)
		}
		if want == "reg-1" {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no key belonged to the draining instance, so the test proves nothing")
	}
	clock.skip(30 * time.Second)
	if r.epochs.View().Previous(r.now()) != nil {
		t.Error("the previous table still applies after the transition")
	}
	r.stop()

	write(t, path, long+"workers: 1\n")
	r = run(t, path, clock.options)
	r.checkDrained(t, before.Epoch)
	r.stop()

	write(t, path, strings.Replace(long, "weight: 100}", "weight: 250}", 1))
	r = run(t, path, clock.options)
	if s := r.settle(t); s.Epoch != before.Epoch+1 {
		t.Errorf("epoch with another file: got %d, want one more than %d", s.Epoch, before.Epoch)
	}
	for _, in := range r.roster.list() {
		if in.ID != ids[in.Name] || in.State != vitrine.Active {
			t.Errorf("instance is %+v, want it active with ID %d", in, ids[in.Name])
		}
	}
}

// reordered returns the file long with its types in another order.
func reordered() string {
	const first, second = "  - {name: registration, protocol: sip}\n", "  - {name: session, protocol: sip, drain: dialog}\n"
	return strings.Replace(long, first+second, second+first, 1)
}

// TestRestartWithOtherTypesKeepsIDs restarts a director whose file has its types in another order.
// Instances must keep their IDs, because messages carry them.
func TestRestartWithOtherTypesKeepsIDs(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), long)
	r := run(t, path)
	in, err := r.client.Instance(t.Context(), "reg-1")
	if err != nil {
		t.Fatal(err)
	}
	const id = 7
	if in.ID == id {
		t.Fatalf("reg-1 has the ID %d without a change, so the test proves nothing", id)
	}
	in.ID = id
	if _, err := r.client.Put(t.Context(), in.Instance); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	r.stop()

	r = run(t, write(t, path, reordered()))
	table := r.epochs.View().Table
	if got := table.ByName("reg-1").ID; got != id || table.Types()[0] != "session" {
		t.Errorf("got ID %d and types %v, want ID %d and session first", got, table.Types(), id)
	}
}

// TestDrainedAfterABoot restarts a director after the host has booted. The last change is longer ago
// than a transition, although the time since the boot is shorter.
func TestDrainedAfterABoot(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	r := run(t, path)
	if _, err := r.client.Drain(t.Context(), "reg-1"); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	r.stop()
	booted := time.Now()
	r = run(t, path, func(o *Options) {
		o.Clock = Clock{
			Boot: "another",
			Now:  func() time.Duration { return time.Second + time.Since(booted) },
			Wall: func() time.Time { return time.Now().Add(time.Minute) },
		}
	})
	if in, err := r.client.Instance(t.Context(), "reg-1"); err != nil || !in.Drained {
		t.Errorf("got %+v, %v, want a drained instance", in, err)
	}
}

// TestDrainedDespiteOtherChanges drains an instance while an orchestrator changes weights all the time. The
// drain must end a transition after it began.
func TestDrainedDespiteOtherChanges(t *testing.T) {
	var clock skipper
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), long), clock.options)
	if _, err := r.client.Drain(t.Context(), "reg-2"); err != nil {
		t.Fatal(err)
	}
	epoch := r.settle(t).Epoch
	for i := range 3 {
		r.checkIsDrained(t, "reg-2", i == 2)
		weight := 200 + float64(i)
		if _, err := r.client.Alter(t.Context(), "reg-1", client.Change{Weight: &weight}); err != nil {
			t.Fatal(err)
		}
		next := r.settle(t).Epoch
		if next == epoch {
			t.Fatal("the change of a weight made no epoch, so the test proves nothing")
		}
		epoch = next
		clock.skip(15 * time.Second)
	}
	r.checkIsDrained(t, "reg-2", true)
}

// TestIdleWithADialog drains an instance whose dialog may have ended at another director. It is idle, which an
// orchestrator of both directors needs to know, but not drained.
func TestIdleWithADialog(t *testing.T) {
	var clock skipper
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), long), clock.options)
	r.meter.Worker().Dialog(r.epochs.View().Table.ByName("ses-1"), true)
	r.meter.Expire(r.now()) // from now on the director sees that the instance gets no request
	if _, err := r.client.Drain(t.Context(), "ses-1"); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	clock.skip(31 * time.Second)
	until(t, "the instance is idle", func() bool {
		in, err := r.client.Instance(t.Context(), "ses-1")
		if err != nil || in.Drained {
			t.Fatalf("got %+v, %v, want an instance that is not drained", in, err)
		}
		return in.Idle
	})
}

// TestDialogsOutliveARestart starts a director again without a hand-over, once with a dialog open and once
// with a dialog that began at another director and ended here. An instance with a dialog is not drained. The
// other director needs the count below 0 for the sum.
func TestDialogsOutliveARestart(t *testing.T) {
	for began, want := range map[bool]int64{true: 1, false: -1} {
		var clock skipper
		path := write(t, filepath.Join(t.TempDir(), "director.yaml"), long)
		r := run(t, path, clock.options)
		r.meter.Worker().Dialog(r.epochs.View().Table.ByName("ses-1"), began)
		r.saveTerms()
		if s, err := readState(r.config.Load().State); err != nil || s.Dialogs["ses-1"] != want {
			t.Errorf("got state %+v, %v, want %d dialogs", s, err, want)
		}
		r.stop()
		r = run(t, path, clock.options)
		r.meter.Expire(r.now()) // from now on the director sees that the instance gets no request
		if _, err := r.client.Drain(t.Context(), "ses-1"); err != nil {
			t.Fatal(err)
		}
		r.settle(t)
		clock.skip(61 * time.Second)
		until(t, "the instance is idle", func() bool {
			in, err := r.client.Instance(t.Context(), "ses-1")
			if err != nil || in.Dialogs != want || in.DialogsBegun != 0 || in.Drained != (in.Idle && !began) {
				t.Fatalf("got %+v, %v, want %d dialogs, and drained only without one", in, err, want)
			}
			return in.Idle
		})
		r.meter.Worker().Dialog(r.epochs.View().Table.ByName("ses-1"), false)
		r.checkIsDrained(t, "ses-1", true)
		r.stop()
	}
}

// checkIsDrained checks whether an instance is drained.
func (r *running) checkIsDrained(t *testing.T, name string, want bool) {
	t.Helper()
	if in, err := r.client.Instance(t.Context(), name); err != nil || in.Drained != want {
		t.Errorf("got %+v, %v, want drained %v", in, err, want)
	}
}

// TestDrainedAfterACrash starts a director one and a half transitions after a drain began. The process
// before it may have steered a transaction to the instance until a transition after the drain, and that
// transaction may take another transition.
func TestDrainedAfterACrash(t *testing.T) {
	var clock skipper
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), long)
	r := run(t, path, clock.options)
	if _, err := r.client.Drain(t.Context(), "reg-1"); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	r.stop()
	clock.skip(45 * time.Second)
	r = run(t, path, clock.options)
	r.checkIsDrained(t, "reg-1", false)
	clock.skip(15 * time.Second)
	r.checkIsDrained(t, "reg-1", true)
}

// drained runs a director with the file, drains reg-1 by REST and stops it. It returns the epoch.
func drained(t *testing.T, path string) (epoch uint64) {
	t.Helper()
	r := run(t, path)
	if _, err := r.client.Drain(t.Context(), "reg-1"); err != nil {
		t.Fatal(err)
	}
	epoch = r.settle(t).Epoch
	r.stop()
	return epoch
}

// checkDrained checks that reg-1 is draining in the epoch.
func (r *running) checkDrained(t *testing.T, epoch uint64) {
	t.Helper()
	in, err := r.client.Instance(t.Context(), "reg-1")
	if got := r.epoch(t); err != nil || in.State != vitrine.Draining || got != epoch {
		t.Errorf("got %+v, %v in epoch %d, want a draining instance in epoch %d", in, err, got, epoch)
	}
}

// TestFailedStartKeepsTheState checks that a director that cannot start, with an edited file, leaves the
// state of the one that served.
func TestFailedStartKeepsTheState(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	epoch := drained(t, path)
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	write(t, path, strings.Replace(good, "control: 127.0.0.1:0", "control: "+taken.Addr().String(), 1))
	if _, err := New(t.Context(), Options{Path: path, Clock: clock, Log: slog.Default()}); err == nil {
		t.Fatal("a director started although its control address is in use")
	}
	write(t, path, good)
	run(t, path).checkDrained(t, epoch)
}

// TestFailedHandOverWritesTheStateAgain checks that a director that continues after a failed hand-over
// replaces the state that the new process wrote.
func TestFailedHandOverWritesTheStateAgain(t *testing.T) {
	d := newDirector(t, good)
	if err := d.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, d.config.Load().State, `{"vitrine_director_state": 1, "file_sha256": "of the new process"}`)
	d.thaw()
	if s, err := readState(d.config.Load().State); err != nil || s.Digest != d.config.Load().Digest() {
		t.Errorf("got state %+v, %v, want that of the process that continues", s, err)
	}
}

// TestUnsavedChangesAreNotHandedOver checks that a director whose state file lacks a change is not handed
// over before it can write the file. It tries to write the file again, and its status says so.
func TestUnsavedChangesAreNotHandedOver(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "state")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	r := run(t, write(t, filepath.Join(dir, "director.yaml"), good+"state: state/director.state\n"))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Drain(t.Context(), "reg-1"); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	if err := r.freeze(t.Context()); err == nil || !strings.Contains(err.Error(), "write the director's state") {
		t.Errorf("hand-over with a change that the file lacks: got error %v", err)
	}
	if why := r.settle(t).Unsaved; !strings.Contains(why, "write the director's state") {
		t.Errorf("the status says %q about the state file, want the error", why)
	}
	if n, lines := r.counts.stateFailures.Load(), strings.Count(r.log.String(), "cannot save the state"); n < 2 || lines != 1 {
		t.Errorf("got %d failures and %d log lines, want at least 2 failures and 1 line", n, lines)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	r.saveTerms()
	s, err := readState(r.config.Load().State)
	if err != nil || s == nil || s.Current.Instances[0].State != vitrine.Draining {
		t.Errorf("got state %+v, %v, want reg-1 draining", s, err)
	}
	if why := r.settle(t).Unsaved; why != "" || !strings.Contains(r.log.String(), "the state is saved again") {
		t.Errorf("after the file was written the status says %q; log: %s", why, r.log)
	}
	if err := r.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.thaw()
}

// TestStartOnAFullDisk checks that a director starts although it cannot write its state, if the file has
// the state already, or only a lease more that is over. The name of the file is so long that no temporary
// file fits beside it.
func TestStartOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "director.yaml"), good)
	epoch := drained(t, path)
	s, err := readState(filepath.Join(dir, "director.state"))
	if err != nil {
		t.Fatal(err)
	}
	text := good + "state: " + strings.Repeat("s", 250) + "\nkeys: {file: director.keys}\n"
	write(t, path, text)
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s.Digest = c.Digest()
	var r *running
	for _, leased := range []bool{false, true} {
		if leased {
			s.Terms = map[string]term{"session": {Token: 3, Holder: "redline", TTL: time.Second}}
			s.Current.Leases = []lease{{Type: "session", Token: 3}}
			epoch++
		}
		content, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		write(t, c.State, string(content))
		r = run(t, path)
		r.checkDrained(t, epoch)
		r.saveTerms()
		if n := r.counts.stateFailures.Load(); n < 2 || strings.Count(r.log.String(), "cannot save the state") != 1 || r.settle(t).Unsaved == "" {
			t.Errorf("leased %t: got %d failures, want at least 2 and one log line; log: %s", leased, n, r.log)
		}
		r.stop()
	}
	write(t, path, strings.Replace(text, "weight: 100}", "weight: 250}", 1))
	if _, err := New(t.Context(), r.options); err == nil || !strings.Contains(err.Error(), "write the director's state") {
		t.Errorf("with instances that are not in the state file: got %v", err)
	}
}

// TestRestartWithAnAddressThatIsRefused starts a director whose state file has an instance at an address
// that older versions accepted. The others must stay.
func TestRestartWithAnAddressThatIsRefused(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	epoch := drained(t, path)
	file := strings.TrimSuffix(path, ".yaml") + ".state"
	s, err := readState(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, address := range []string{"[::ffff:10.0.0.7]:5060", "[::1]:5060"} { // the director has no IPv6 listener
		in := vitrine.Instance{Name: fmt.Sprintf("reg-%d", 7+i), Type: "registration", Address: netip.MustParseAddrPort(address), Weight: 1, ID: uint16(1000 + i)}
		s.Current.Instances = append(s.Current.Instances, in)
	}
	if err := s.write(file); err != nil {
		t.Fatal(err)
	}
	r := run(t, path)
	r.checkDrained(t, epoch+1)
	for name, kept := range map[string]bool{"reg-2": true, "reg-7": false, "reg-8": false} {
		if in := r.epochs.View().Table.ByName(name); (in != nil) != kept {
			t.Errorf("%s: got %+v, want it in the table: %v", name, in, kept)
		}
	}
	if n := strings.Count(r.log.String(), "is left out, because its address is not allowed"); n != 2 {
		t.Errorf("%d log lines, want 2: %s", n, r.log)
	}
}

// TestStateOfAnOlderDirector starts a director with the state of one that wrote no parts of the file. With
// the same file, changes by REST must stay. With another file, the file counts.
func TestStateOfAnOlderDirector(t *testing.T) {
	for text, want := range map[string]vitrine.State{good: vitrine.Draining, good + "workers: 1\n": vitrine.Active} {
		path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
		drained(t, path)
		file := strings.TrimSuffix(path, ".yaml") + ".state"
		s, err := readState(file)
		if err != nil {
			t.Fatal(err)
		}
		s.Parts = fileParts{}
		if err := s.write(file); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
		if in, err := run(t, path).client.Instance(t.Context(), "reg-1"); err != nil || in.State != want {
			t.Errorf("%s: got %+v, %v, want it %s", text[len(good):], in, err, want)
		}
	}
}

// TestStateFile checks that an unreadable state file stops the start with advice. A jump of the
// calendar clock must not prolong a transition.
func TestStateFile(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	state := strings.TrimSuffix(path, ".yaml") + ".state"
	for _, text := range []string{"{", `{"vitrine_director_state": 99}`} {
		write(t, state, text)
		if _, err := New(t.Context(), Options{Path: path, Clock: clock, Log: slog.Default()}); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v", text, err)
		}
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := stateOf(clock, at)
	for name, c := range map[string]struct {
		clock Clock
		want  time.Duration
	}{
		"an hour back":       {Clock{Now: func() time.Duration { return s.Changed + time.Second }, Boot: clock.Boot, Wall: func() time.Time { return at.Add(-time.Hour) }}, time.Second},
		"an hour forward":    {Clock{Now: func() time.Duration { return s.Changed + time.Second }, Boot: clock.Boot, Wall: func() time.Time { return at.Add(time.Hour) }}, time.Second},
		"booted meanwhile":   {Clock{Now: func() time.Duration { return 5 * time.Second }, Boot: "other", Wall: func() time.Time { return at.Add(20 * time.Second) }}, 20 * time.Second},
		"booted, clock back": {Clock{Now: func() time.Duration { return 5 * time.Second }, Boot: "other", Wall: func() time.Time { return at.Add(-time.Hour) }}, 0},
	} {
		if got := s.age(c.clock); got != c.want {
			t.Errorf("%s: got age %s, want %s", name, got, c.want)
		}
	}
}

func stateOf(c Clock, at time.Time) *state {
	return &state{Version: stateVersion, Boot: c.Boot, Changed: 100 * time.Second, Wall: at}
}
