// Program is the program that the suite of package substratetest runs inside instances. It
// is built without cgo, so that it also runs in an image made from scratch.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail("want a verb")
	}
	verb, args := os.Args[1], os.Args[2:]
	switch verb {
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "print": // STDOUT STDERR STATUS
		fmt.Println(args[0])
		fmt.Fprintln(os.Stderr, args[1])
		os.Exit(number(args[2]))
	case "flood": // LINES
		out := bufio.NewWriter(os.Stdout)
		for i := range number(args[0]) {
			fmt.Fprintf(out, "line %d\n", i)
		}
		_ = out.Flush()
	case "where":
		dir, err := os.Getwd()
		if err != nil {
			fail(err.Error())
		}
		fmt.Println(dir)
	case "status": // FIELD
		fmt.Println(status(args[0]))
	case "user": // FILE
		user(args[0])
	case "cpus":
		fmt.Println(status("Cpus_allowed_list"))
	case "spin":
		spin(time.Duration(number(args[0])) * time.Millisecond)
	case "allocate":
		allocate(number(args[0]))
	case "serve": // MARK
		wait(syscall.SIGTERM)
	case "stubborn": // MARK
		wait()
	case "late": // GATE PORT
		late(args[0], args[1])
	case "probe": // ADDRESS:PORT
		if line, err := ask(args[0]); line != "ready" {
			fail(fmt.Sprintf("%q, %v", line, err))
		}
	case "peer": // NAME PORT
		peer(args[0], args[1])
	case "family": // MARK
		family(args[0], true)
	case "leave": // MARK
		leave(args[0])
	case "household": // MARK
		family(args[0], false)
	default:
		fail("no verb " + verb)
	}
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, "program:", why)
	os.Exit(2)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fail(err.Error())
	}
	return n
}

// wait prints "ready" and exits with status 0 at one of the signals. It ignores SIGTERM unless
// SIGTERM is among the signals.
func wait(ends ...os.Signal) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	end := make(chan os.Signal, 1)
	signal.Notify(end, append(ends, syscall.SIGUSR2)...) // without any signal, the runtime reports a deadlock
	fmt.Println("ready")
	<-end
	fmt.Println("bye")
}

// late is a server that becomes ready in steps. After the first connection to its gate, it listens
// and answers "busy". After the second, it answers "ready".
func late(gate, port string) {
	opener := listen(gate)
	fmt.Println("running")
	var state atomic.Value
	for _, next := range []string{"busy", "ready"} {
		conn, err := opener.Accept()
		if err != nil {
			fail(err.Error())
		}
		if state.Swap(next) == nil {
			go serve(listen(port), func() string { return state.Load().(string) })
		}
		fmt.Fprintln(conn, next)
		conn.Close()
	}
	wait(syscall.SIGTERM) // prints "ready"
}

// peer sends its name to every client, and asks its peers for their names in turn.
func peer(name, port string) {
	go serve(listen(port), func() string { return name })
	for _, address := range strings.Split(os.Getenv("PEERS"), ",") {
		line, err := ask(address)
		for ; err != nil; line, err = ask(address) {
			time.Sleep(20 * time.Millisecond) // the peer may not run yet
		}
		fmt.Printf("reached %s at %s\n", line, address)
	}
	wait(syscall.SIGTERM)
}

func listen(port string) net.Listener {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", net.JoinHostPort(os.Getenv("ADDRESS"), port))
	if err != nil {
		fail(err.Error())
	}
	return l
}

// serve sends a line to every client.
func serve(l net.Listener, line func() string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			fail(err.Error())
		}
		fmt.Fprintln(conn, line())
		conn.Close()
	}
}

func ask(address string) (string, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp4", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// family ignores SIGTERM and starts two children that ignore it, too. With leaves, the second
// child runs in its own session.
func family(mark string, leaves bool) {
	for i := range 2 {
		child := exec.CommandContext(context.Background(), os.Args[0], "stubborn", mark)
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: leaves && i == 1}
		out, err := child.StdoutPipe()
		if err != nil {
			fail(err.Error())
		}
		if err := child.Start(); err != nil {
			fail(err.Error())
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			fail(err.Error())
		}
	}
	wait()
}

// leave starts a child that outlives this process.
func leave(mark string) {
	child := exec.CommandContext(context.Background(), os.Args[0], "stubborn", mark)
	if err := child.Start(); err != nil {
		fail(err.Error())
	}
}

// spin keeps two CPUs busy for the given wall time. It prints the CPU time and the wall time, in
// nanoseconds.
func spin(long time.Duration) {
	runtime.GOMAXPROCS(2)
	start := time.Now()
	before := used()
	done := make(chan bool)
	for range 2 {
		go func() {
			for time.Since(start) < long {
			}
			done <- true
		}()
	}
	<-done
	<-done
	fmt.Println((used() - before).Nanoseconds(), time.Since(start).Nanoseconds())
}

func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fail(err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// allocate fills the given number of MiB of memory and then waits, as serve does.
func allocate(mib int) {
	var held [][]byte
	for range mib {
		held = append(held, bytes.Repeat([]byte{1}, 1<<20))
	}
	wait(syscall.SIGTERM)
	runtime.KeepAlive(held)
}

// user writes a file. It reopens its standard output and prints its user and group there.
func user(file string) {
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		fail(err.Error())
	}
	out, err := os.OpenFile("/proc/self/fd/1", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		fail(err.Error())
	}
	fmt.Fprintln(out, os.Getuid(), os.Getgid())
}

// status returns a field of the kernel's status of this process (proc(5)).
func status(field string) string {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		fail(err.Error())
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	fail("no " + field + " in /proc/thread-self/status")
	return ""
}
