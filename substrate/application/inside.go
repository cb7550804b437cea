package application

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/substrate"
)

// Inside replaces this process with a command whose root folder is an unpacked image. args
// are the image's folder, the instance's folder (which the command sees under the same
// path), the user's UID:GID (empty: root), the working folder (empty: the instance's), and the
// command. Inside returns only on failure. Its mounts are private and end with the command.
func Inside(args, env []string) error {
	if len(args) < 5 {
		return &vitrine.BadInput{File: "inside", Found: fmt.Sprintf("%d words", len(args)), Want: "ROOT SHARED USER DIR COMMAND..."}
	}
	root, shared, user, dir, command := args[0], args[1], args[2], args[3], args[4:]
	if dir == "" {
		dir = shared
	}
	runtime.LockOSThread() // the namespace belongs to this thread, and so to the command
	parent := os.Getppid()
	if err := enter(root, shared); err != nil {
		return fmt.Errorf("entering the image in %s: %w", root, err)
	}
	if user != "" {
		if err := become(user); err != nil {
			return fmt.Errorf("becoming user %s: %w", user, err)
		}
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	// The command must end with Vitrine. A change of user clears this signal, and only the thread that
	// was forked had it (prctl(2), PR_SET_PDEATHSIG).
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tying the command to Vitrine: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("vitrine has ended")
	}
	err = syscall.Exec(program, command, env)
	return fmt.Errorf("running %s: %w", program, err)
}

// become changes to a user. The group's and the user's numbers are changed on all threads.
func become(user string) error {
	account, err := substrate.FindAccount(user)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(int(account.GID)), syscall.Setuid(int(account.UID)))
}

func enter(root, shared string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, mount := range []struct {
		dir   string
		flags uintptr
	}{{"/proc", unix.MS_REC}, {"/sys", unix.MS_REC}, {"/dev", unix.MS_REC}, {shared, 0}} {
		target := filepath.Join(root, mount.dir)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(mount.dir, target, "", unix.MS_BIND|mount.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", mount.dir, err)
		}
	}
	return errors.Join(unix.Chroot(root), os.Chdir("/"))
}
