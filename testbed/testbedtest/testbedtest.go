// Package testbedtest is the suite that every pair of substrate and fabric must pass to be used as
// a site. A test opens a Harness and calls Run.
package testbedtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/internal/runstate"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/substratetest"
	"vitrine/testbed"
)

// A Harness has the parameters to open a site.
type Harness struct {
	Config testbed.Config
	Choice spec.Choice
	// Left lists everything that still has the run's label after the site was closed.
	Left func() ([]string, error)
}

// Local returns a testbed of processes on a bridge, for any choice.
func Local(run *runstate.Run) testbed.Config {
	place := func() (substrate.Substrate, error) {
		return process.New(process.Config{Run: run, Environ: os.Environ()})
	}
	return testbed.Config{
		Run:       run.ID,
		Substrate: func(context.Context, spec.Choice, document.Node) (substrate.Substrate, error) { return place() },
		Host:      func(context.Context, spec.Choice) (substrate.Substrate, error) { return place() },
		Fabric: func(context.Context, spec.Choice, document.Node) (fabric.Fabric, error) {
			return bridge.New(bridge.Config{Run: run})
		},
	}
}

// Run runs the suite. open makes a Harness with its own run. It skips the test if this host does
// not support the back ends (*vitrine.Unsupported).
func Run(t *testing.T, open func(t *testing.T) Harness) {
	program := substratetest.Build(t)
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"Life", testLife},
		{"OldFiles", testOldFiles},
		{"Addresses", testAddresses},
		{"NotReady", testNotReady},
		{"Ended", testEnded},
		{"LogIsBounded", testLogIsBounded},
		{"FailureLeavesNothing", testFailureLeavesNothing},
		{"CloseRemovesAll", testCloseRemovesAll},
		{"HostAlone", testOnlyHost},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(begin(t, open(t), program)) })
	}
}

type suite struct {
	*testing.T
	Harness
	ctx     context.Context
	dir     string
	program string
	site    *testbed.Site
}

// logLimit is the bound of logs in the suite, in bytes.
const logLimit = 1 << 20

// begin opens a site. When the test ends, it closes the site and checks that the run left nothing.
func begin(t *testing.T, h Harness, program string) *suite {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	h.Config.LogLimit = logLimit
	s := &suite{T: t, Harness: h, ctx: ctx, dir: t.TempDir(), program: program}
	s.site = s.open(h.Choice)
	t.Cleanup(func() {
		for range 2 {
			if err := s.site.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if left, err := h.Left(); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return s
}

func (s *suite) open(choice spec.Choice) *testbed.Site {
	s.Helper()
	site, err := testbed.Open(s.ctx, s.Config, choice)
	if vitrine.IsUnsupported(err) {
		s.Skip(err)
	}
	s.check(err)
	return site
}

func (s *suite) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// wantError checks that the error contains all words.
func (s *suite) wantError(err error, words ...string) {
	s.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			s.Errorf("the error %v does not contain %q", err, word)
		}
	}
}

func instance(name string) testbed.Spec {
	return testbed.Spec{Spec: substrate.Spec{Name: name, Component: "some"}}
}

func (s *suite) place(specs ...testbed.Spec) *testbed.Placement {
	s.Helper()
	placed, err := s.site.Place(s.ctx, s.dir, specs...)
	s.check(err)
	return placed
}

func (s *suite) start(in *testbed.Instance, args ...string) {
	s.Helper()
	s.check(in.Start(s.ctx, vitrine.Command{Args: append([]string{s.program}, args...), Env: []string{"ADDRESS=" + in.Endpoint.Addr.String()}}))
}

// ready waits until the instance has logged that it is ready.
func (s *suite) ready(in *testbed.Instance) {
	s.Helper()
	s.check(in.Await(s.ctx, time.Minute, func(context.Context) error {
		if !strings.Contains(in.Log(), "ready") {
			return errors.New("the instance has not logged it")
		}
		return nil
	}))
}

// testLife starts an instance, stops it and starts it again in the same place.
func testLife(s *suite) {
	placed := s.place(instance("life-1"))
	in := placed.Instances[0]
	s.start(in, "serve", "a-mark")
	s.ready(in)
	if err := placed.Ended(); err != nil {
		s.Errorf("it runs: %v", err)
	}
	s.check(in.Run(s.ctx, vitrine.Command{Args: []string{s.program, "where"}}))
	s.check(placed.Stop(s.ctx, 10*time.Second))
	<-in.Done()
	if err := in.Err(); err != nil {
		s.Errorf("the stopped command returned %v", err)
	}
	s.check(os.WriteFile(filepath.Join(in.Scratch(), "file"), nil, 0o644))
	s.check(in.ClearScratch())
	if files, err := os.ReadDir(in.Scratch()); err != nil || len(files) > 0 {
		s.Errorf("the folder holds %v, %v", files, err)
	}
	s.start(in, "print", "second", "words", "0")
	<-in.Done()
	if log := in.Log(); !strings.Contains(log, "second") || strings.Contains(log, "ready") {
		s.Errorf("the log of the second start is %q", log)
	}
	for range 2 {
		s.check(placed.Remove(s.ctx))
	}
	if _, err := os.Stat(filepath.Join(in.Dir, "log")); err != nil {
		s.Errorf("Remove removed the log: %v", err)
	}
	if _, err := os.Stat(in.Scratch()); !errors.Is(err, os.ErrNotExist) {
		s.Errorf("Remove left the scratch folder: %v", err)
	}
	s.place(instance("life-1")) // reuses the name
}

// testOldFiles checks that an instance does not find the files that a killed run left, and that no
// link among those files leads the removal out of the folder.
func testOldFiles(s *suite) {
	kept := filepath.Join(s.TempDir(), "kept")
	old, linked := filepath.Join(s.dir, "old-1"), filepath.Join(s.dir, "linked-1")
	s.check(errors.Join(
		os.WriteFile(kept, nil, 0o644),
		os.MkdirAll(filepath.Join(old, "scratch", "folder"), 0o755), os.Mkdir(linked, 0o755),
		os.WriteFile(filepath.Join(old, "scratch", "folder", "file"), nil, 0o644),
		os.Symlink(filepath.Dir(kept), filepath.Join(old, "scratch", "link")),
		os.Symlink(filepath.Dir(kept), filepath.Join(linked, "scratch"))))
	for _, in := range s.place(instance("old-1"), instance("linked-1")).Instances {
		info, err := os.Lstat(in.Scratch())
		s.check(err)
		if files, err := os.ReadDir(in.Scratch()); err != nil || len(files) > 0 || !info.IsDir() {
			s.Errorf("the folder of %s, %v, holds %v, %v", in.Name, info.Mode(), files, err)
		}
	}
	if _, err := os.Stat(kept); err != nil {
		s.Errorf("a file behind the links: %v", err)
	}
}

// testLogIsBounded checks that a log keeps its start and its end, and has the number of bytes
// dropped in between. The bound must hold for all starts of an instance together.
func testLogIsBounded(s *suite) {
	const lines = 200_000
	placed := s.place(instance("loud-1"))
	in := placed.Instances[0]
	s.start(in, "print", "first", "words", "0")
	<-in.Done()
	for range 2 {
		s.start(in, "flood", fmt.Sprint(lines))
		<-in.Done()
		s.check(in.Err())
	}
	s.start(in, "print", "last", "words", "0")
	<-in.Done()
	s.check(placed.Remove(s.ctx))
	text, err := os.ReadFile(filepath.Join(in.Dir, "log"))
	s.check(err)
	log := string(text)
	if len(log) > logLimit || len(log) < logLimit/4 || strings.Contains(log, "\x00") {
		s.Errorf("the log has %d bytes", len(log))
	}
	if !strings.HasPrefix(log, "first\n") && !strings.HasPrefix(log, "words\n") || !strings.Contains(log[len(log)-20:], "last") {
		s.Errorf("the log begins with %q and ends with %q", log[:20], log[len(log)-20:])
	}
	each := 0
	for i := range lines {
		each += len(fmt.Sprintf("line %d\n", i))
	}
	written := len("first\nwords\n") + 2*each + len("last\nwords\n")
	before, rest, _ := strings.Cut(log, "\n[vitrine: ")
	var dropped, bound int
	if _, err := fmt.Sscanf(rest, "%d bytes are dropped here, because this log has more than %d]", &dropped, &bound); err != nil || bound != logLimit {
		s.Fatalf("no note about the dropped bytes: %v", err)
	}
	_, after, _ := strings.Cut(rest, "]\n")
	if n := len(before) + dropped + len(after); n != written {
		s.Errorf("%d bytes are kept or dropped, but %d were written", n, written)
	}
	if !strings.Contains(in.Log(), "last") {
		s.Errorf("the end of the log is %q", in.Log())
	}
}

// testAddresses checks that every wired instance has its own address, in the order of placement,
// and that the other instances reach it there.
func testAddresses(s *suite) {
	host, unwired := instance("generator"), instance("apart-1")
	host.OnHost, unwired.OnHost, unwired.Unwired = true, true, true
	placed := s.place(host, instance("one-1"), instance("two-1"), unwired)
	var last netip.Addr
	for _, in := range placed.Instances[:3] {
		if addr := in.Endpoint.Addr; !addr.IsValid() || last.IsValid() && !last.Less(addr) {
			s.Errorf("%s has %v after %v", in.Name, addr, last)
		}
		last = in.Endpoint.Addr
	}
	if end := placed.Instances[3].Endpoint; end != (fabric.Endpoint{}) {
		s.Errorf("an unwired instance has %v", end)
	}
	server := placed.Instances[1]
	s.start(server, "late", "7001", "7000")
	for _, from := range []*testbed.Instance{placed.Instances[0], placed.Instances[2]} {
		s.check(server.Await(s.ctx, time.Minute, func(ctx context.Context) error {
			return from.Inside(func() error { return testbed.ProbeTCP(ctx, server.At(7001)) })
		}))
	}
}

// testNotReady checks an instance that is not ready in time, and one that ends first. Their errors
// must have the end of the log.
func testNotReady(s *suite) {
	in := s.place(instance("slow-1")).Instances[0]
	never := func(context.Context) error { return errors.New("probe failed on purpose") }
	s.start(in, "serve", "a-mark")
	s.ready(in)
	s.wantError(in.Await(s.ctx, 50*time.Millisecond, never), "slow-1 was not ready within 50ms", "probe failed on purpose", "ready")
	slow := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(1200 * time.Millisecond):
			return nil
		}
	}
	s.check(in.Await(s.ctx, time.Minute, slow)) // one check may take a tenth of the time
	s.wantError(in.Await(s.ctx, 1100*time.Millisecond, slow), "slow-1 was not ready within 1.1s", "one check took longer than 1s")
	ctx, cancel := context.WithCancelCause(s.ctx)
	cancel(errors.New("called off"))
	s.wantError(in.Await(ctx, time.Minute, never), "called off")
	s.check(in.Stop(s.ctx, 10*time.Second))
	s.start(in, "print", "last", "words", "7")
	s.wantError(in.Await(s.ctx, time.Minute, never), "slow-1 ended before it was ready", "7", "words")
}

// testEnded checks that a placement names the instance that has ended.
func testEnded(s *suite) {
	placed := s.place(instance("lives-1"), instance("ends-1"))
	if err := placed.Ended(); err != nil {
		s.Errorf("Ended before any start: %v", err)
	}
	s.start(placed.Instances[0], "serve", "a-mark")
	s.start(placed.Instances[1], "print", "some", "words", "3")
	<-placed.Instances[1].Done()
	s.wantError(placed.Ended(), "ends-1 ended", "3", "words")
}

// testFailureLeavesNothing checks that a placement that cannot be completed leaves nothing.
func testFailureLeavesNothing(s *suite) {
	s.place(instance("there-1"))
	before, err := s.Left()
	s.check(err)
	for _, specs := range [][]testbed.Spec{
		{instance("new-1"), instance("there-1")}, // the second name is taken
		{instance("new-1"), instance("new-2"), instance("new-1")},
	} {
		if _, err := s.site.Place(s.ctx, s.dir, specs...); err == nil {
			s.Errorf("placed two instances with the same name")
		}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.site.Place(ctx, s.dir, instance("new-1")); err == nil {
		s.Errorf("placed an instance although the context had ended")
	}
	if after, err := s.Left(); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		s.Errorf("%v, %v; before %v", after, err, before)
	}
	for name, want := range map[string]bool{"new-1": false, "new-2": false, "there-1": true} {
		if _, err := os.Stat(filepath.Join(s.dir, name, "scratch")); (err == nil) != want {
			s.Errorf("the scratch folder of %s: %v", name, err)
		}
	}
	s.place(instance("new-1")) // reuses the names
}

// testCloseRemovesAll checks that Close removes all placements of the site, even if their commands
// run.
func testCloseRemovesAll(s *suite) {
	for _, name := range []string{"first-1", "second-1"} {
		in := s.place(instance(name)).Instances[0]
		s.start(in, "stubborn", "a-mark")
		s.ready(in)
	}
} // the cleanup of begin closes the site and checks

// testOnlyHost checks that a choice without substrate and fabric is a site of only the host.
func testOnlyHost(s *suite) {
	site := s.open(spec.Choice{})
	defer func() { s.check(site.Close(s.ctx)) }()
	if site.Substrate() != nil || site.Fabric() != nil {
		s.Errorf("a site of only the host has %v, %v", site.Substrate(), site.Fabric())
	}
	host := instance("alone-1")
	host.OnHost = true
	placed, err := site.Place(s.ctx, s.dir, host)
	s.check(err)
	if end := placed.Instances[0].Endpoint; end != (fabric.Endpoint{}) {
		s.Errorf("wired to %v without a fabric", end)
	}
	s.start(placed.Instances[0], "print", "some", "words", "0")
	<-placed.Instances[0].Done()
}
