// Tool is the program that the tests of package docker run in their own images.
package main

import (
	"errors"
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

// run runs a verb and, after "then", the next one.
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
	case "link": // TARGET FILE: replaces the file by a link
		return errors.Join(os.Remove(args[1]), os.Symlink(args[0], args[1]))
	case "read": // FILE
		b, err := os.ReadFile(args[0])
		fmt.Println(string(b))
		return err
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "wait": // MARK; SIGTERM ends it, as it ends a program without a handler
		signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2) // otherwise the runtime reports a deadlock
		fmt.Println("waiting")
		select {}
	case "child": // ARGS...: outlives this process
		child := exec.Command("/proc/self/exe", args...)
		child.Stdout = os.Stdout
		return child.Start()
	}
	return nil
}
