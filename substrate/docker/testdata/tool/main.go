// Tool is what the tests of package docker run in images of their own.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(4)
	}
}

// run runs a verb, and after "then" the next.
func run(args []string) error {
	var rest []string
	if i := slices.Index(args, "then"); i >= 0 {
		args, rest = args[:i], args[i+1:]
	}
	if err := verb(args[0], args[1:]); err != nil || rest == nil {
		return err
	}
	return run(rest)
}

func verb(name string, args []string) error {
	switch name {
	case "write": // FILE TEXT
		return os.WriteFile(args[0], []byte(args[1]), 0o644)
	case "read": // FILE
		b, err := os.ReadFile(args[0])
		fmt.Println(string(b))
		return err
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "wait": // MARK; ends by SIGTERM as a program does that knows nothing of signals
		signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2) // else a deadlock
		fmt.Println("waiting")
		select {}
	case "child": // ARGS...: goes on while this process ends
		child := exec.Command("/proc/self/exe", args...)
		child.Stdout = os.Stdout
		return child.Start()
	}
	return nil
}
