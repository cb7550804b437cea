package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"vitrine"
	"vitrine/flex"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/load"
)

// contained runs a script beside a copy of the catalog's package, in a network namespace of its
// own. All calls in the printed report must have succeeded, and no process may be left. It returns
// the report, the text on standard error and the copy's folder.
func contained(t *testing.T, name, script string, edit func(file, text string) string) (r load.Report, status, dir string) {
	t.Helper()
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	hosttest.Need(t, netns.Possible())
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{".", "ims-kamailio", name} { // a package's own folder, and what packages refer to
		copyFiles(t, filepath.Join("../../catalog", folder), filepath.Join(root, folder), edit)
	}
	dir = filepath.Join(root, name)
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", "set -eu; ip link set lo up; "+script)
	c.Dir, c.Env = dir, append(os.Environ(), "VITRINE="+program(t))
	// The script, run.sh and the orchestrator, which stops all others, are one group.
	end := func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.SysProcAttr, c.Cancel, c.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, end, limit
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	failed := c.Run()
	if failed != nil && c.Process != nil {
		t.Errorf("%v:\n%s", failed, errs.String())
		_ = end() // an error means that all have ended
	}
	hosttest.Until(t, limit, "the end of all processes in "+root, func() bool { return len(processesIn(root)) == 0 })
	if failed != nil {
		t.Fatal(failed)
	}
	r, err = load.ParseReport(&out)
	if err != nil || r.Succeeded != r.Scheduled || r.Scheduled == 0 {
		t.Errorf("%d of %d calls succeeded, %v, failed: %v\n%s", r.Succeeded, r.Scheduled, err, r.Failed, errs.String())
	}
	return r, errs.String(), dir
}

// copyFiles copies the files of a folder, with the edit.
func copyFiles(t *testing.T, from, to string, edit func(file, text string) string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), []byte(edit(e.Name(), string(text))), 0o700) // scripts are among them
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// processesIn returns the processes whose working folder is below the folder.
func processesIn(folder string) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is valid
	for _, link := range all {
		at, err := os.Readlink(link) // an error: the process has ended
		if err == nil && strings.HasPrefix(at, folder) {
			found = append(found, filepath.Dir(link))
		}
	}
	return found
}

// TestContainedIMS runs the catalog's Contain-ed for the IMS with its single command. Aggregates of
// three types must start, and every call must succeed.
func TestContainedIMS(t *testing.T) {
	t.Parallel()
	as := func(_, text string) string { return text }
	for _, scenario := range []string{"reg-subscribe", "reg-invite"} {
		t.Run(scenario, func(t *testing.T) {
			_, status, _ := contained(t, "contain-ed-ims", "SCENARIO="+scenario+" RATE=4 SECONDS_OF_CALLS=5 exec sh run.sh", as)
			for _, name := range []string{"registration-1", "subscription-1", "session-1"} {
				if !strings.Contains(status, name) {
					t.Errorf("the status does not list %s:\n%s", name, status)
				}
			}
		})
	}
}

// TestContainedEPC runs the catalog's Contain-ed for the EPC with its single command. Aggregates of
// three types must start. The load exceeds the capacity of one HANDOVER-SR, so a second one must
// start. Then the first one is drained. Every call must succeed.
func TestContainedEPC(t *testing.T) {
	t.Parallel()
	_, status, dir := contained(t, "contain-ed-epc", `
export AFTER='until grep -q "\"drained\"" flex.yaml.flex/events.jsonl; do sleep 0.2; done'
RATE=10 SECONDS_OF_CALLS=10 sh run.sh & run=$!
until "$VITRINE" flex status flex.yaml 2>/dev/null | grep -q 'handover-sr-2 .* active '; do kill -0 $run; sleep 0.2; done
"$VITRINE" flex drain flex.yaml handover-sr-1 >/dev/null
wait $run`, func(file, text string) string {
		switch file {
		case "flex.yaml": // a low declared rate makes few calls a high load
			return strings.Replace(text, "rate: 30", "rate: 2", 1)
		case "director.yaml":
			return strings.Replace(text, "transition: 5s", "transition: 2s", 1)
		case "aggregate.yaml": // without load control, calls on a slow host are late but do not fail
			return strings.Replace(text, "--instance,", `--overload, "off", --store-timeout, 20s, --instance,`, 1)
		}
		return text
	})
	for _, name := range []string{"attach-detach-1", "handover-sr-2", "bearer-crt-1"} {
		if !strings.Contains(status, name) {
			t.Errorf("the status does not list %s:\n%s", name, status)
		}
	}
	checkDrained(t, dir, "handover-sr-1")
}

// checkDrained checks that the instance was drained once, and that nothing failed or was lost.
func checkDrained(t *testing.T, dir, name string) {
	t.Helper()
	s := system{t: t, file: filepath.Join(dir, "flex.yaml")}
	drained := 0
	for _, e := range s.events() {
		if e.Kind == flex.EventDrained && e.Instance == name {
			drained++
		}
		if e.Kind == flex.EventLost || e.Kind == flex.EventFail {
			t.Errorf("%+v", e)
		}
	}
	if drained != 1 {
		t.Errorf("%s: want exactly one drain: %+v", name, s.events())
	}
}

// TestContainedKamailio runs the catalog's Contain-ed for Kamailio by its one command. The
// load is more than one REGISTER aggregate carries, so another one starts; then the first
// one is drained. Every call finds its callee, although the Kamailio of the INVITE aggregate
// never sees a REGISTER.
func TestContainedKamailio(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kamailio", "kamcmd", "redis-server", "redis-cli"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(&vitrine.Unsupported{What: "the package contain-ed-kamailio", Missing: "the program " + name, Do: "run .ci/install"})
		}
	}
	r, status, dir := contained(t, "contain-ed-kamailio", `
export AFTER='until grep -q "\"drained\"" flex.yaml.flex/events.jsonl; do sleep 0.2; done
for member in edge registrar; do
	(cd flex.yaml.flex/logs/session-1/session-1-$member-1/scratch && kamcmd -s unix:ctl stats.get_statistics all) >$member.counters
done'
RATE=10 SECONDS_OF_CALLS=20 sh run.sh & run=$!
until "$VITRINE" flex status flex.yaml 2>/dev/null | grep -q 'registration-2 .* active '; do kill -0 $run; sleep 0.2; done
"$VITRINE" flex drain flex.yaml registration-1 >/dev/null
wait $run`, func(file, text string) string {
		switch file {
		case "flex.yaml": // each call has four REGISTERs; one session aggregate has all INVITEs
			return strings.Replace(strings.Replace(text, "rate: 100", "rate: 30", 1), "max: 2", "max: 1", 1)
		case "director.yaml":
			return "transition: 2s\n" + text
		}
		return text
	})
	for _, name := range []string{"registration-2", "session-1"} {
		if !strings.Contains(status, name) {
			t.Errorf("the status does not list %s:\n%s", name, status)
		}
	}
	checkDrained(t, dir, "registration-1")
	// A call passes the edge twice: on its way in and on its way to the callee.
	for member, times := range map[string]int64{"edge": 2, "registrar": 1} {
		text, err := os.ReadFile(filepath.Join(dir, member+".counters"))
		if err != nil {
			t.Fatal(err)
		}
		invites, registers := counter(t, text, "core:rcv_requests_invite"), counter(t, text, "core:rcv_requests_register")
		if invites < times*r.Scheduled || registers != 0 {
			t.Errorf("%s of session-1 got %d INVITEs and %d REGISTERs in %d calls", member, invites, registers, r.Scheduled)
		}
	}
}

// counter returns a counter that kamcmd printed.
func counter(t *testing.T, text []byte, name string) (n int64) {
	t.Helper()
	match := regexp.MustCompile(`(?m)^\s*` + name + ` = (\d+)\s*$`).FindSubmatch(text)
	if match == nil {
		t.Fatalf("missing counter %s:\n%s", name, text)
	}
	n, err := strconv.ParseInt(string(match[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
