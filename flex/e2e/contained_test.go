package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vitrine/flex"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/load"
)

// contained runs a script beside a copy of the catalog's package, in a network namespace of its
// own. All calls in the printed report must have succeeded. It returns the standard error and the
// copy's folder.
func contained(t *testing.T, name, script string, edit func(file, text string) string) (status, dir string) {
	t.Helper()
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	hosttest.Need(t, netns.Possible())
	root := t.TempDir()
	dir = filepath.Join(root, name)
	for from, to := range map[string]string{"../../catalog/" + name: dir, "../../catalog": root} {
		files, err := filepath.Glob(from + "/*.*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", from, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				err = os.MkdirAll(to, 0o700)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(to, filepath.Base(file)), []byte(edit(filepath.Base(file), string(text))), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", "set -eu; ip link set lo up; "+script)
	c.Dir, c.Env = dir, append(os.Environ(), "VITRINE="+program(t))
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, limit
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%v:\n%s", err, errs.String())
	}
	r, err := load.ParseReport(&out)
	if err != nil || r.Succeeded != r.Scheduled || r.Scheduled == 0 {
		t.Errorf("%d of %d calls succeeded, %v, failed: %v\n%s", r.Succeeded, r.Scheduled, err, r.Failed, errs.String())
	}
	return errs.String(), dir
}

// TestContainedIMS runs the catalog's Contain-ed for the IMS with its single command. Aggregates of
// three types must start, and every call must succeed.
func TestContainedIMS(t *testing.T) {
	as := func(_, text string) string { return text }
	status, _ := contained(t, "contain-ed-ims", "RATE=4 SECONDS_OF_CALLS=5 exec sh run.sh", as)
	for _, name := range []string{"registration-1", "subscription-1", "session-1"} {
		if !strings.Contains(status, name) {
			t.Errorf("%s is not in the status:\n%s", name, status)
		}
	}
}

// TestContainedEPC runs the catalog's Contain-ed for the EPC with its single command. Aggregates of
// three types must start. The load exceeds the capacity of one HANDOVER-SR, so a second one must
// start. Then the first one is drained. Every call must succeed.
func TestContainedEPC(t *testing.T) {
	status, dir := contained(t, "contain-ed-epc", `
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
			t.Errorf("%s is not in the status:\n%s", name, status)
		}
	}
	s := system{t: t, file: filepath.Join(dir, "flex.yaml")}
	drained := 0
	for _, e := range s.events() {
		if e.Kind == flex.EventDrained && e.Instance == "handover-sr-1" {
			drained++
		}
		if e.Kind == flex.EventLost || e.Kind == flex.EventFail {
			t.Errorf("%+v", e)
		}
	}
	if drained != 1 {
		t.Errorf("handover-sr-1 was not drained: %+v", s.events())
	}
}
