package ovs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/document"
	"vitrine/internal/netns"
	"vitrine/internal/thread"
)

// Names of the daemons.
const (
	databaseName = "ovsdb-server"
	switchName   = "ovs-vswitchd"
)

// A server is a database server and a switch of the run's own. All their files
// are in one folder. The folder is in their command lines, so cleaning finds
// them by it.
type server struct {
	dir      string        // absolute
	cpus     document.CPUs // chosen by the user; polling threads use only these
	runCPUs  document.CPUs
	programs map[string]string
	daemons  []*daemon // in the order in which they were started; only start changes it
}

// folder returns the folder of a run's server.
func folder(root, run string) string { return filepath.Join(root, run, "ovs") }

func newServer(dir string, cpus document.CPUs) (*server, error) {
	programs, err := find("ovsdb-tool", databaseName, switchName)
	return &server{dir: dir, cpus: cpus, programs: programs}, err
}

// affinity returns the CPUs that the daemons may run on. Vitrine's own threads
// run only on the generator's CPUs, and daemons that inherit these would take
// the sender's time. affinity returns none if the daemons inherit the CPUs of
// the thread that starts them, or if the switch is the user's.
func (s *server) affinity() document.CPUs {
	switch {
	case s == nil:
		return nil
	case len(s.cpus) > 0:
		return s.cpus
	}
	return s.runCPUs
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *server) socket() string { return s.path("db.sock") }

// start makes a database and starts both daemons in the network namespace. It
// returns when the database answers. The first command waits for the switch.
// stop must follow even if start fails.
func (s *server) start(ctx context.Context, namespace string, c *client) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("making the switch's folder: %w", err)
	}
	database := s.path("conf.db")
	if out, err := exec.CommandContext(ctx, s.programs["ovsdb-tool"], "create", database).CombinedOutput(); err != nil { //nolint:gosec // found by newServer
		return fmt.Errorf("making the switch's database: %w: %s", err, out)
	}
	if err := s.launch(namespace, databaseName, database, "--remote=punix:"+s.socket()); err != nil {
		return err
	}
	if err := s.initialize(ctx, c); err != nil {
		return s.explain(fmt.Errorf("starting the switch's database: %w", err))
	}
	return s.launch(namespace, switchName, "unix:"+s.socket())
}

// initialize writes the first entries of the database, as soon as the database
// can be reached.
func (s *server) initialize(ctx context.Context, c *client) error {
	args := []string{"--no-wait", "init"}
	if len(s.cpus) > 0 {
		args = append(args, "--", "set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask="+mask(s.cpus))
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := c.vsctl(ctx, args...)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-s.daemons[0].ended:
			return err
		}
	}
}

// mask returns the CPUs as a hexadecimal bit mask.
func mask(cpus document.CPUs) string {
	digits := make([]byte, cpus[len(cpus)-1]/4+1)
	for _, cpu := range cpus {
		digits[len(digits)-1-cpu/4] |= 1 << (cpu % 4)
	}
	for i, d := range digits {
		digits[i] = "0123456789abcdef"[d]
	}
	return "0x" + string(digits)
}

// A daemon is a process of the server.
type daemon struct {
	name  string
	cmd   *exec.Cmd
	log   string        // path of its log file
	ended chan struct{} // closed after the end, when err is set
	err   error
}

// launch starts a daemon in the namespace, bound to the CPUs.
func (s *server) launch(namespace, name string, args ...string) error {
	args = append(args,
		"--pidfile="+s.path(name+".pid"), "--log-file="+s.path(name+".log"), "--no-chdir",
		"--verbose=console:err", "--verbose=syslog:off")
	d := &daemon{name: name, log: s.path(name + ".log"), ended: make(chan struct{})}
	d.cmd = exec.Command(s.programs[name], args...) //nolint:gosec,noctx // found by newServer; stop ends it
	d.cmd.Env = []string{"OVS_RUNDIR=" + s.dir, "OVS_LOGDIR=" + s.dir, "OVS_DBDIR=" + s.dir, "PATH=" + os.Getenv("PATH")}
	d.cmd.Dir = s.dir
	// A Ctrl-C at a terminal must not reach the daemons. This program stops them
	// after everything else is undone.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := os.OpenFile(s.path(name+".err"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	d.cmd.Stderr = stderr
	err = netns.Do(namespace, func() error { return onCPUs(s.affinity(), d.cmd.Start) })
	if err := errors.Join(err, stderr.Close()); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	s.daemons = append(s.daemons, d)
	return nil
}

// onCPUs calls f on this thread, which may run only on the CPUs meanwhile.
// Processes that f starts inherit this. No CPUs means the thread's own.
func onCPUs(cpus document.CPUs, f func() error) error {
	if len(cpus) == 0 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := thread.Keep(cpus...)
	if errors.Is(err, unix.EINVAL) {
		return &vitrine.BadInput{File: "fabric ovs", Found: "cpus: " + cpus.String(), Want: "CPUs of this host that this process may run on"}
	}
	if err != nil {
		return fmt.Errorf("binding to CPUs %v: %w", cpus, err)
	}
	return errors.Join(f(), back())
}

// ended returns an error for each daemon that has ended, with the daemon's last
// output. It returns nil if none has, or if the switch is the user's.
func (s *server) ended() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, d := range s.daemons {
		if d.hasEnded() {
			errs = append(errs, fmt.Errorf("%s has ended (%v): %s", d.name, d.err, s.last(d))) //nolint:errorlint // nil is an end too
		}
	}
	return errors.Join(errs...)
}

// explain adds to an error which daemons have ended.
func (s *server) explain(err error) error {
	if err == nil {
		return nil
	}
	if ended := s.ended(); ended != nil {
		return fmt.Errorf("%w; %w", err, ended)
	}
	return err
}

func (d *daemon) hasEnded() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// ifRunning calls change, which changes the switch. If one of the daemons has
// ended, there is no switch to change, and ifRunning returns nil.
func (s *server) ifRunning(change func() error) error {
	ended := func() bool { return s != nil && slices.ContainsFunc(s.daemons, (*daemon).hasEnded) }
	if ended() {
		return nil
	}
	err := change()
	if ended() {
		return nil
	}
	return err
}

// last returns the end of a daemon's output, from its log file and its stderr.
func (s *server) last(d *daemon) string {
	const enough = 500 // bytes
	var all strings.Builder
	for _, file := range []string{d.log, s.path(d.name + ".err")} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the daemon wrote nothing there
		}
		all.Write(b[max(0, len(b)-enough):])
	}
	return strings.TrimSpace(all.String())
}

// stop ends the daemons, the switch first, and removes their folder. Idempotent.
func (s *server) stop(ctx context.Context) error {
	for _, d := range slices.Backward(s.daemons) {
		if err := d.stop(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("removing the switch's folder: %w", err)
	}
	return nil
}

// stopTimeout is how long a daemon has to end after SIGTERM.
const stopTimeout = 5 * time.Second

func (d *daemon) stop(ctx context.Context) error {
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	// An error means that the daemon has ended; the wait below sees that.
	_ = d.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-d.ended:
		return nil
	case <-timeout.C:
		_ = d.cmd.Process.Kill()
	}
	select {
	case <-d.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not end after SIGKILL: %w", d.name, context.Cause(ctx))
	}
}

// changeContext returns a context for methods that change the switch but get no
// context. It ends after 20 s, whether or not the run is cancelled.
func changeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 20*time.Second)
}
