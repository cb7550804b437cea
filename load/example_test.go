package load_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"vitrine/load"
)

// generator is a complete load generator for a function that echoes datagrams, as a user may write
// it. It reads a trial, keeps to the schedule whatever the answers are, and prints a report. Each
// call has a goroutine, so that no call waits for the answer to another one.
func generator() error {
	trial, err := load.ReadTrial(os.Args[2:], os.Environ())
	if err != nil {
		return err
	}
	schedule, record := trial.Schedule(load.Paced), load.NewRecorder(trial.Duration)
	start := time.Now().Add(time.Duration(trial.Warmup * float64(time.Second))) // start of the window
	var recording sync.Mutex
	var calls sync.WaitGroup
	for due, ok := schedule.Next(); ok; due, ok = schedule.Next() {
		time.Sleep(time.Until(start.Add(due)))
		recording.Lock()
		record.Scheduled(due)
		late := record.TooLate(time.Since(start))
		recording.Unlock()
		if late {
			continue // not offered
		}
		calls.Go(func() {
			conn, err := send(trial.Targets[0])
			if err != nil {
				return // not offered
			}
			defer conn.Close()
			sent := time.Since(start)
			_, err = conn.Read(make([]byte, 16))
			ended := time.Since(start)
			recording.Lock()
			defer recording.Unlock()
			record.Offered(due, sent)
			if err != nil {
				record.Failed(due, ended, "timeout")
				return
			}
			record.Succeeded(due, ended-due)
		})
	}
	calls.Wait()
	report, err := record.Report(start)
	if err != nil {
		return err
	}
	return report.Print(os.Stdout)
}

// send sends a datagram. The connection that it returns waits for the echo, for at most 10 s.
func send(target string) (net.Conn, error) {
	conn, err := net.Dial("udp", target)
	if err != nil {
		return nil, err
	}
	err = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if err == nil {
		_, err = conn.Write([]byte("hello"))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "generate" {
		if err := generator(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// echo starts a server that returns each datagram to its sender after a delay, until the test ends.
func echo(t *testing.T, delay time.Duration) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			buffer := make([]byte, 64)
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			time.AfterFunc(delay, func() { _, _ = conn.WriteTo(buffer[:n], from) })
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr().String()
}

// TestGeneratorOfAUser runs the generator as a trial does. Answers take as long as four calls are
// apart, and must not delay the calls.
func TestGeneratorOfAUser(t *testing.T) {
	const delay = 100 * time.Millisecond
	c := load.Command([]string{os.Args[0], "generate"}, load.Trial{Rate: 40, Duration: 1, Warmup: 0.5, Targets: []string{echo(t, delay)}})
	cmd := exec.CommandContext(t.Context(), c.Args[0], c.Args[1:]...)
	cmd.Env = c.Env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	report, err := load.ParseReport(&stdout)
	if err != nil {
		t.Fatal(err)
	}
	if report.Scheduled != 40 || report.Offered != 40 || report.Succeeded != 40 {
		t.Errorf("scheduled %d, offered %d, succeeded %d: want 40 each", report.Scheduled, report.Offered, report.Succeeded)
	}
	if slices.Max(report.InFlight) < 2 {
		t.Errorf("calls in flight %v: want about 4, because calls do not wait for answers", report.InFlight)
	}
}

// TestScriptOfAUser runs a shell script that writes its own report. The contract
// needs no library.
func TestScriptOfAUser(t *testing.T) {
	c := load.Command([]string{"testdata/refuse.sh"}, load.Trial{Rate: 5, Duration: 2, Targets: []string{"127.0.0.1:9"}, Params: map[string]string{"cause": "busy"}})
	cmd := exec.CommandContext(t.Context(), c.Args[0], c.Args[1:]...)
	cmd.Env = append(c.Env, "PATH="+os.Getenv("PATH"))
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	report, err := load.ParseReport(bytes.NewReader(stdout))
	if err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	if report.Scheduled != 10 || report.Failed["busy"] != 10 || report.Seconds.Failed["busy"][1] != 5 {
		t.Errorf("%+v", report)
	}
}
