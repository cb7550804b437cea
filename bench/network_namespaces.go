package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

//go:embed namespaces/namespaces.c
var namespacesSource []byte

const (
	namespacesCount  = 100
	namespacesRounds = 9
	// The kernel destroys namespaces some time after their names are removed.
	namespacesPause = time.Second
)

// networkNamespaces compares the time to create and remove 100 namespaces on a bridge. Our side
// uses fabric/bridge and internal/netns, as for processes. The other side is a C program that
// makes only the system and netlink calls.
func networkNamespaces(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	if err := netns.Possible(); err != nil { // this also creates the namespaces' folder
		return nil, err
	}
	program, err := compileC(ctx, dir, "namespaces", namespacesSource)
	if err != nil {
		return nil, err
	}
	var made, removed Pairs // ms
	ours := func(ctx context.Context) (float64, error) {
		defer time.Sleep(namespacesPause)
		making, removing, err := namespaces(ctx, filepath.Join(dir, "runs"))
		made.Ours, removed.Ours = append(made.Ours, making), append(removed.Ours, removing)
		return making + removing, err
	}
	theirs := func(ctx context.Context) (float64, error) {
		defer time.Sleep(namespacesPause)
		making, removing, err := bareNamespaces(ctx, program)
		made.Theirs, removed.Theirs = append(made.Theirs, making), append(removed.Theirs, removing)
		return making + removing, err
	}
	both, err := interleave(ctx, namespacesRounds, ours, theirs, progress)
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name, of, aim string
		Pairs
	}{
		{"network/namespaces", "made and removed", "<= 1.5", both},
		{"network/namespaces/make", "made", "", made},
		{"network/namespaces/remove", "removed", "", removed},
	} {
		row, err := part.row(part.name, "ms", fmt.Sprintf("the same system and netlink calls made in C; %d namespaces on a bridge, %s", namespacesCount, part.of), part.aim)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// namespaces creates and removes our namespaces and returns the times in ms.
func namespaces(ctx context.Context, root string) (made, removed float64, err error) {
	run, err := runstate.New(root)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	start := time.Now()
	f, err := bridge.New(bridge.Config{Run: run})
	if err != nil {
		return 0, 0, err
	}
	var names []string
	for i := range namespacesCount {
		instance := fmt.Sprintf("sprout-%d", i+1)
		name := runstate.Name(run.ID, instance)
		path, e := netns.Create(name)
		if e == nil {
			names = append(names, name)
			_, e = f.Attach(ctx, fabric.Port{Instance: instance, NetNS: path})
		}
		if e != nil {
			err = e
			break
		}
	}
	middle := time.Now()
	err = errors.Join(err, f.Close(ctx), deleteNamespaces(names))
	const ms = float64(time.Millisecond)
	return float64(middle.Sub(start)) / ms, float64(time.Since(middle)) / ms, err
}

func deleteNamespaces(names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, netns.Delete(name))
	}
	return err
}

// bareNamespaces runs the C program and returns the times in ms. If the program fails or is
// interrupted, bareNamespaces removes its namespaces.
func bareNamespaces(ctx context.Context, program string) (made, removed float64, err error) {
	prefix := fmt.Sprintf("vt-bench%d", os.Getpid())
	cmd := exec.CommandContext(ctx, program, prefix, fmt.Sprint(namespacesCount))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // at Ctrl-C in a terminal, the context ends it
	out, err := finish(cmd, (*exec.Cmd).Start)
	if err != nil {
		names, failed := netns.List(prefix + "-")
		return 0, 0, errors.Join(err, failed, deleteNamespaces(names))
	}
	if _, err := fmt.Fscan(strings.NewReader(out), &made, &removed); err != nil {
		return 0, 0, fmt.Errorf("the program in C printed %q: %w", out, err)
	}
	return made * 1000, removed * 1000, nil
}
