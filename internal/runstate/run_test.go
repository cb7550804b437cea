package runstate

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const holderRoot = "RUNS_TEST_ROOT"

// TestMain runs the test binary as a run that can be killed, if holderRoot is set.
func TestMain(m *testing.M) {
	if root := os.Getenv(holderRoot); root != "" {
		run, err := New(root)
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString(run.ID + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // waits to be killed
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestRunIsAliveUntilClosed(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	run, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if !idPattern.MatchString(run.ID) {
		t.Errorf("ID %q is not 8 characters of a-z0-9", run.ID)
	}
	if !Alive(root, run.ID) {
		t.Error("the run is not alive before Close")
	}
	if err := Forget(root, run.ID); err == nil {
		t.Error("Forget removed a live run")
	}
	if dead, _ := Dead(root); len(dead) != 0 {
		t.Errorf("dead runs %v, although the only run is alive", dead)
	}
	for range 2 {
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if Alive(root, run.ID) {
		t.Error("the run is alive after Close")
	}
	if left, _ := os.ReadDir(root); len(left) != 0 {
		t.Errorf("Close left %v", left)
	}
}

func TestRunDiesWithItsProcess(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderRoot+"="+root)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	id := strings.TrimSpace(line)
	if err != nil || !Alive(root, id) {
		t.Errorf("the run %q of a live process is not alive: %v", id, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if Alive(root, id) {
		t.Error("the run is alive after its process ended")
	}
	if dead, err := Dead(root); err != nil || !slices.Equal(dead, []string{id}) {
		t.Errorf("dead runs %v, %v; want %s", dead, err, id)
	}
	if err := Forget(root, id); err != nil {
		t.Error(err)
	}
	if dead, err := Dead(root); err != nil || len(dead) != 0 {
		t.Errorf("dead runs %v, %v after Forget", dead, err)
	}
}

func TestRecordsOutliveNothingButTheRun(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	run, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	for _, value := range []string{"first", "second"} {
		if err := run.Record("process", "sprout-1", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	records, err := Records(root, run.ID, "process")
	if err != nil || len(records) != 1 || string(records["sprout-1"]) != "second" {
		t.Errorf("records %q, %v", records, err)
	}
	for range 2 {
		if err := run.Erase("process", "sprout-1"); err != nil {
			t.Error(err)
		}
	}
	if records, err := Records(root, run.ID, "process"); err != nil || len(records) != 0 {
		t.Errorf("records %q, %v after Erase", records, err)
	}
}

// TestRecordsOfOneNameAreMadeAtOnce records one name from many goroutines, because instances that
// start at the same time do that.
func TestRecordsOfOneNameAreMadeAtOnce(t *testing.T) {
	r, err := New(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var group errgroup.Group
	for range 64 {
		group.Go(func() error { return r.Record("kind", "name", []byte("value")) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if records, err := Records(r.Root, r.ID, "kind"); err != nil || string(records["name"]) != "value" {
		t.Errorf("%q, %v", records, err)
	}
}

// TestRemainsOfDeadRunsAreUndone checks that each record is undone once. A failure for one record
// must not stop the others, and the next call must try that record again.
func TestRemainsOfDeadRunsAreUndone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	alive, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	if err := alive.Record("thing", "c", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"aaaaaaaa", "bbbbbbbb"} { // no process holds their locks
		dead := &Run{ID: id, Root: root}
		if err := errors.Join(dead.Record("thing", "a", []byte(id)), dead.Record("thing", "b", nil), os.WriteFile(filepath.Join(dead.Dir(), lockName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("stuck")
	undo := func(stuck string) ([]string, error) {
		return EachDead(root, func(id string) ([]string, error) {
			return Undo(root, id, "thing", func(_ string, value []byte) (string, error) {
				if string(value) == stuck {
					return "", broken
				}
				return string(value), nil
			})
		})
	}
	for _, c := range []struct {
		stuck string
		want  []string
		err   error
	}{{"aaaaaaaa", []string{"bbbbbbbb"}, broken}, {"", []string{"aaaaaaaa"}, nil}, {"", nil, nil}} {
		if removed, err := undo(c.stuck); !slices.Equal(removed, c.want) || !errors.Is(err, c.err) {
			t.Errorf("undone %q, %v; want %q, %v", removed, err, c.want, c.err)
		}
	}
}

// TestRootsOfAUser checks that the runs of cron, which has no XDG_RUNTIME_DIR, are found from a session. Root
// has one folder only.
func TestRootsOfAUser(t *testing.T) {
	session, temporary := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("XDG_RUNTIME_DIR", session)
	want := []string{filepath.Join(session, "vitrine")}
	if os.Geteuid() == 0 {
		want = []string{"/run/vitrine"}
	}
	if got := Roots(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	cron := filepath.Join(temporary, fmt.Sprintf("vitrine-%d", os.Geteuid()))
	if err := MakeRoot(cron); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		want = append(want, cron)
	}
	if got := Roots(); !slices.Equal(got, want) {
		t.Errorf("after a run of cron: got %q, want %q", got, want)
	}
}

func TestNewRefusesRootsOfOthers(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := New(open); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("a root that everybody can write to: %v", err)
	}
	own, link := filepath.Join(dir, "own"), filepath.Join(dir, "link")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	if _, err := New(link); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("a symbolic link as root: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(own, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := New(own); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("a root of another user: %v", err)
	}
}

// TestUnreadableRunIsNotDead checks a run whose lock exists but cannot be opened.
func TestUnreadableRunIsNotDead(t *testing.T) {
	root := t.TempDir()
	const id = "aaaaaaaa"
	if Alive(root, id) {
		t.Error("a run without a folder is alive")
	}
	lock := filepath.Join(root, id, lockName)
	if err := errors.Join(os.Mkdir(filepath.Dir(lock), 0o700), os.Symlink(lock, lock)); err != nil { // ELOOP
		t.Fatal(err)
	}
	if !Alive(root, id) {
		t.Error("a run with an unreadable lock is not alive")
	}
	if err := Forget(root, id); err == nil {
		t.Error("Forget removed a run with an unreadable lock")
	}
	if dead, err := Dead(root); err != nil || len(dead) > 0 {
		t.Errorf("dead runs %q, %v; want none", dead, err)
	}
}

func TestDeadLeavesUnknownNamesAlone(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{".new-1", "README", "notarun!"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if dead, err := Dead(root); err != nil || len(dead) != 0 {
		t.Errorf("dead runs %v, %v", dead, err)
	}
}

// TestRunWithRemainsIsDead checks that a run that is closed with records counts as
// dead, and an abandoned run too.
func TestRunWithRemainsIsDead(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	recorded, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	abandoned, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(recorded.Record("thing", "a", nil), recorded.Close(), abandoned.Abandon()); err != nil {
		t.Fatal(err)
	}
	want := []string{recorded.ID, abandoned.ID}
	slices.Sort(want)
	if dead, err := Dead(root); err != nil || !slices.Equal(dead, want) {
		t.Errorf("dead runs %q, %v; want %q", dead, err, want)
	}
	if records, err := Records(root, recorded.ID, "thing"); err != nil || len(records) != 1 {
		t.Errorf("records %q, %v", records, err)
	}
}

// TestUncleanedFindsTheRuns checks that Uncleaned finds the runs in wrapped errors, and
// reports whether there are other errors.
func TestUncleanedFindsTheRuns(t *testing.T) {
	stuck := errors.New("stuck")
	of := func(id string) error { return &uncleaned{id, stuck} }
	for _, c := range []struct {
		err    error
		want   []string
		others bool
	}{
		{nil, nil, false}, {stuck, nil, true},
		{errors.Join(of("aaaaaaaa"), fmt.Errorf("docker: %w", errors.Join(of("bbbbbbbb")))), []string{"aaaaaaaa", "bbbbbbbb"}, false},
		{errors.Join(of("aaaaaaaa"), stuck), []string{"aaaaaaaa"}, true},
	} {
		if got, others := Uncleaned(c.err); !slices.Equal(got, c.want) || others != c.others {
			t.Errorf("%v: runs %q, others %t; want %q, %t", c.err, got, others, c.want, c.others)
		}
	}
}

// TestForgetUnnamed checks that only the folder of a process that was killed inside New is removed,
// not the folder of a process that is inside New now, or that was stopped there for long.
func TestForgetUnnamed(t *testing.T) {
	root := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{"killed": 2 * newLimit, "began": 0, "held": 2 * newLimit} {
		dir := filepath.Join(root, newPrefix+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := hold(filepath.Join(dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if name != "held" {
			err = lock.Close()
		}
		if err := errors.Join(err, os.Chtimes(dir, now, now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := ForgetUnnamed(root); err != nil {
		t.Error(err)
	}
	var left []string
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{newPrefix + "began", newPrefix + "held"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %q, %v; want %q", left, err, want)
	}
	if err := ForgetUnnamed(filepath.Join(root, "none")); err != nil {
		t.Errorf("without a root: %v", err)
	}
}
