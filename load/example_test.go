package load_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"vitrine/load"
)

// generator is a complete load generator for a function that echoes datagrams, as a user may write
// it. It reads a trial, keeps to the schedule whatever the answers are, and prints a report. For
// its rates, one call at a time is enough.
func generator() error {
	trial, err := load.ReadTrial(os.Args[2:], os.Environ())
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp", trial.Targets[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	schedule, record := trial.Schedule(load.Paced), load.NewRecorder(trial.Duration)
	start := time.Now().Add(time.Duration(trial.Warmup * float64(time.Second))) // start of the window
	for due, ok := schedule.Next(); ok; due, ok = schedule.Next() {
		time.Sleep(time.Until(start.Add(due)))
		record.Scheduled(due)
		if _, err := conn.Write([]byte("hello")); err != nil {
			continue // not offered
		}
		record.Offered(due, time.Since(start))
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 16)); err != nil {
			record.Failed(due, time.Since(start), "timeout")
			continue
		}
		record.Succeeded(due, time.Since(start)-due)
	}
	report, err := record.Report(start)
	if err != nil {
		return err
	}
	return report.Print(os.Stdout)
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

// echo starts a server that returns each datagram to its sender until the test
// ends.
func echo(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if _, err := conn.WriteTo(buffer[:n], from); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr().String()
}

// TestGeneratorOfAUser runs the generator as a trial does.
func TestGeneratorOfAUser(t *testing.T) {
	c := load.Command([]string{os.Args[0], "generate"}, load.Trial{Rate: 40, Duration: 1, Warmup: 0.5, Targets: []string{echo(t)}})
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
