package sipp

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"vitrine/load"
	"vitrine/load/sip"
)

//go:embed scenarios/*.xml
var scenarios embed.FS

// Scenarios returns the scenario files that come with the driver.
func Scenarios() fs.FS {
	files, err := fs.Sub(scenarios, "scenarios")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return files
}

// A job is one SIPp process: the calls to one target.
type job struct {
	target    string
	turn      int // the process makes calls turn, turn + targets, turn + 2 targets ...
	calls     int64
	local     netip.Addr
	folder    string // folder of this job, in the trial's scratch folder
	callee    netip.AddrPort
	firstUser int // first subscriber of the job's share of the pool
	pool      int // maximum open calls, not counting calls that pause
	// pauses has the wait of each call before its first message. SIPp starts calls at even
	// intervals, and the pauses move the calls to their scheduled times. nil keeps the even
	// intervals.
	pauses []time.Duration
	lost   atomic.Int64 // messages lost in the receive buffers of the job's SIPps
}

// schedule returns the due times of the trial's calls. SIPp has only one rate, so the warm-up of
// paced calls does not rise.
func schedule(t load.Trial, arrivals string) []time.Duration {
	s := t.Steady()
	if arrivals == load.Poisson {
		s = t.Schedule(load.Poisson)
	}
	var dues []time.Duration
	for due, ok := s.Next(); ok; due, ok = s.Next() {
		dues = append(dues, due)
	}
	return dues
}

// assignPauses sets the jobs' pauses, and returns the delay that they add to all calls. It is the
// smallest delay for which no pause is negative.
func assignPauses(jobs []job, dues []time.Duration, rate float64) (later time.Duration) {
	gap := float64(len(jobs)) / rate * float64(time.Second) // interval between the calls of one SIPp
	for i := range jobs {
		jobs[i].pauses = make([]time.Duration, jobs[i].calls)
		for n := range jobs[i].pauses {
			due := dues[n*len(jobs)+jobs[i].turn] - min(dues[0], 0) // without warm-up calls, the window begins with SIPp
			jobs[i].pauses[n] = due - time.Duration(float64(n)*gap)
			later = max(later, -jobs[i].pauses[n])
		}
	}
	for i := range jobs {
		for n := range jobs[i].pauses {
			jobs[i].pauses[n] += later
		}
	}
	return later
}

// lag returns how long after the first SIPp the job's SIPp starts: until its turn of paced calls.
// Otherwise the calls of all SIPps would arrive at the same times. Pauses contain the turn.
func (j *job) lag(rate float64) time.Duration {
	if j.pauses != nil {
		return 0
	}
	return time.Duration(float64(j.turn) / rate * float64(time.Second))
}

// maxOpenCalls returns the largest number of calls that SIPp may have open: the pool, and the
// calls that pause.
func (j *job) maxOpenCalls(rate float64) int {
	if j.pauses == nil {
		return j.pool
	}
	return j.pool + int(math.Ceil(rate*slices.Max(j.pauses).Seconds())) + 1
}

// plan divides the calls of the trial among its targets. A target whose first call would be due
// after the window gets no SIPp.
func plan(t load.Trial, p sip.Params, calls int, scratch string) ([]job, error) {
	parties := p.Parties()
	share, err := poolOfTarget(t, p)
	if err != nil {
		return nil, err
	}
	targets := min(len(t.Targets), calls)
	jobs := make([]job, targets)
	for i, target := range t.Targets[:targets] {
		local, err := localAddress(p.Local, target)
		if err != nil {
			return nil, err
		}
		j := &jobs[i]
		*j = job{target: target, turn: i, local: local, folder: filepath.Join(scratch, "sipp-"+strconv.Itoa(i+1))}
		j.calls = int64((calls - i + targets - 1) / targets)
		j.firstUser, j.pool = p.FirstUser+i*share*parties, share
		if p.Scenario == sip.RegInvite {
			port := p.Port
			if port != 0 {
				port += i
			}
			j.callee = netip.AddrPortFrom(local, uint16(port))
		}
	}
	return jobs, nil
}

// poolOfTarget returns the number of calls that each target may have open. It divides the calls that
// the rate needs among the targets, and rounds up, because each target may have the odd call. If the
// function has more subscribers (parameter users), each target may have more calls open.
func poolOfTarget(t load.Trial, p sip.Params) (int, error) {
	if _, err := p.Pool(t.Rate); err != nil {
		return 0, err
	}
	given := p.Users
	p.Users = 0
	need, err := p.Pool(t.Rate)
	if err != nil {
		return 0, err
	}
	each := p.Parties() * len(t.Targets) // subscribers of one open call for each target
	least := (need + each - 1) / each
	switch {
	case given == 0:
		return least, nil
	case given < least*each:
		return 0, bad(fmt.Sprintf("parameter users is %d", given),
			fmt.Sprintf("%d targets with equal shares take %d subscribers; provision them, or lower the rate, timeout or call_time", len(t.Targets), least*each))
	}
	return given / each, nil
}

// localAddress returns given. If given is empty, it returns the local address of the route to the
// target.
func localAddress(given, target string) (netip.Addr, error) {
	if given != "" {
		return netip.ParseAddr(given)
	}
	to, err := net.ResolveUDPAddr("udp", target)
	if err != nil {
		return netip.Addr{}, bad("target "+target, err.Error())
	}
	conn, err := net.DialUDP("udp", nil, to) // sends nothing
	if err != nil {
		return netip.Addr{}, bad("target "+target, err.Error())
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// freePort returns a UDP port for the callee that nobody uses now.
func freePort(local netip.Addr) (uint16, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	if err != nil {
		return 0, fmt.Errorf("find a free port on %v: %w", local, err)
	}
	port := conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	return port, conn.Close()
}

// prepare writes the files that the job's SIPp reads: scenarios, pauses and
// subscribers.
func (j *job) prepare(p Params) error {
	if err := os.MkdirAll(j.folder, 0o755); err != nil {
		return fmt.Errorf("make SIPp's folder: %w", err)
	}
	if err := j.remove(shortLog, errorLog, statLog); err != nil { // of an earlier SIPp
		return err
	}
	if j.callee.IsValid() && j.callee.Port() == 0 {
		port, err := freePort(j.local)
		if err != nil {
			return err
		}
		j.callee = netip.AddrPortFrom(j.local, port)
	}
	if err := j.writeScenarios(p); err != nil {
		return err
	}
	if err := j.writePauses(); err != nil {
		return err
	}
	return j.writeUsers(p)
}

// remove removes those of the job's files that exist.
func (j *job) remove(names ...string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(j.folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a file of SIPp: %w", err)
		}
	}
	return nil
}

func (j *job) writeScenarios(p Params) error {
	var scenario []byte
	var err error
	if p.ScenarioFile != "" {
		scenario, err = os.ReadFile(p.ScenarioFile)
	} else {
		scenario, err = scenarios.ReadFile("scenarios/" + p.Scenario + ".xml")
	}
	if err != nil {
		return fmt.Errorf("read the scenario: %w", err)
	}
	if j.pauses != nil {
		if scenario, err = addPauseStep(scenario); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(j.folder, "scenario.xml"), scenario, 0o644); err != nil {
		return fmt.Errorf("write the scenario: %w", err)
	}
	if !j.callee.IsValid() {
		return nil
	}
	if scenario, err = scenarios.ReadFile("scenarios/reg-invite-callee.xml"); err != nil {
		return fmt.Errorf("read the callee's scenario: %w", err)
	}
	if err := os.WriteFile(filepath.Join(j.folder, "callee.xml"), scenario, 0o644); err != nil {
		return fmt.Errorf("write the callee's scenario: %w", err)
	}
	return nil
}

// opening matches the tag before a scenario's first step.
var opening = regexp.MustCompile(`<scenario(\s[^>]*)?>`)

// addPauseStep adds a first step to the scenario: the call's pause, from its line in
// the pauses file, in milliseconds.
func addPauseStep(scenario []byte) ([]byte, error) {
	at := opening.FindIndex(scenario)
	if at == nil {
		return nil, bad("a scenario without the tag <scenario>", "a SIPp scenario, to which arrivals: poisson adds a first step")
	}
	const step = `
  <nop><action>
    <assignstr assign_to="vitrine_pause" value="[field0 file=&quot;` + pausesFile + `&quot;]"/>
    <todouble assign_to="vitrine_pause_ms" variable="vitrine_pause"/>
  </action></nop>
  <pause variable="vitrine_pause_ms"/>`
	return slices.Insert(slices.Clone(scenario), at[1], []byte(step)...), nil
}

// writePauses writes SIPp's second injection file: one line per call, in whole
// milliseconds, the unit of SIPp's clock.
func (j *job) writePauses() error {
	if j.pauses == nil {
		return nil
	}
	text := []byte("SEQUENTIAL\n")
	for _, d := range j.pauses {
		text = append(strconv.AppendInt(text, d.Round(time.Millisecond).Milliseconds(), 10), '\n')
	}
	if err := os.WriteFile(filepath.Join(j.folder, pausesFile), text, 0o644); err != nil {
		return fmt.Errorf("write the pauses before calls: %w", err)
	}
	return nil
}

// writeUsers writes SIPp's first injection file: one line per open call. SIPp
// takes the lines in turn.
func (j *job) writeUsers(p Params) (err error) {
	f, err := os.Create(filepath.Join(j.folder, usersFile))
	if err != nil {
		return fmt.Errorf("write the subscribers: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "SEQUENTIAL")
	for i := range j.pool {
		caller := j.firstUser + i
		fmt.Fprintf(w, "%s;%s;%s", p.user(caller), p.Domain, p.authentication(caller))
		if j.callee.IsValid() {
			callee := j.firstUser + j.pool + i
			fmt.Fprintf(w, ";%s;%s;%v", p.user(callee), p.authentication(callee), j.callee)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the subscribers: %w", err)
	}
	return nil
}

// SIPp's injection files, in the job's folder: subscribers, and pauses before calls.
const (
	usersFile  = "users.csv"
	pausesFile = "pauses.csv"
)

// The files with SIPp's output, in the job's folder.
const (
	shortLog  = "messages.csv"
	errorLog  = "errors.log"
	statLog   = "statistics.csv"
	screenLog = "screen.log"
	calleeLog = "callee.log"
)

// arguments returns the arguments of the job's SIPp.
func (j *job) arguments(t load.Trial, p Params, longest time.Duration) []string {
	rate := t.Rate / float64(len(t.Targets))
	args := []string{
		j.target, "-sf", "scenario.xml", "-inf", usersFile, "-i", j.local.String(), "-nostdin",
		"-r", strconv.FormatFloat(rate, 'f', -1, 64),
		"-m", strconv.FormatInt(j.calls, 10), "-l", strconv.Itoa(j.maxOpenCalls(rate)),
		"-recv_timeout", strconv.FormatInt(time.Duration(p.Timeout).Milliseconds(), 10),
		"-timeout", strconv.FormatInt(int64(longest/time.Second)+1, 10) + "s",
		// SIPp aborts a call on an unexpected message, but sends no BYE or CANCEL for it.
		"-default_behaviors", "abortunexp",
		"-auth_uri", p.Domain, "-buff_size", strconv.Itoa(8 << 20),
		"-trace_shortmsg", "-shortmessage_file", shortLog,
		"-trace_err", "-error_file", errorLog,
		"-trace_stat", "-stf", statLog, "-fd", "1",
	}
	if j.pauses != nil {
		args = append(args, "-inf", pausesFile)
	}
	if p.Scenario == sip.RegSubscribe {
		args = append(args, "-aa") // answer a NOTIFY that the scenario does not wait for
	}
	if !p.Retransmit {
		args = append(args, "-nr")
	}
	return args
}

// calleeArguments returns the arguments of the SIPp that is the callee.
func (j *job) calleeArguments(p Params) []string {
	args := []string{
		"-sf", "callee.xml", "-i", j.local.String(), "-p", strconv.Itoa(int(j.callee.Port())), "-nostdin",
		"-default_behaviors", "abortunexp", "-buff_size", strconv.Itoa(8 << 20),
		"-recv_timeout", strconv.FormatInt(time.Duration(p.Timeout).Milliseconds(), 10),
	}
	if !p.Retransmit {
		args = append(args, "-nr")
	}
	return args
}
