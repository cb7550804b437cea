package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"vitrine"
	"vitrine/substrate"
)

// accountOf looks up the user of an instance's commands; nil: the user of this process. Without
// the privilege to change users, the error is a *vitrine.Unsupported.
func accountOf(user string) (*substrate.Account, error) {
	if user == "" {
		return nil, nil
	}
	a, err := substrate.FindAccount(user)
	if uid := os.Geteuid(); err == nil && uid != 0 {
		if uint32(uid) == a.UID && uint32(os.Getegid()) == a.GID {
			return nil, nil
		}
		return nil, &vitrine.Unsupported{What: "running as user " + user, Missing: "the privilege to change the user", Do: "run as root, or leave out user"}
	}
	return a, err
}

// Own gives a file or folder to the user that commands run as.
func (in *Instance) Own(path string) error { return in.account.Own(path) }

// giveOutput gives the output's files to the command's user, so that it can open them again as
// /dev/stdout and /dev/stderr.
func giveOutput(cmd *exec.Cmd, account *substrate.Account) error {
	if account == nil {
		return nil
	}
	for _, to := range []io.Writer{cmd.Stdout, cmd.Stderr} {
		if err := to.(*os.File).Chown(int(account.UID), int(account.GID)); err != nil {
			return fmt.Errorf("giving the output to user %s: %w", account, err)
		}
	}
	return nil
}

// noAccess explains why the command's user could not start it.
func noAccess(cmd *exec.Cmd, account *substrate.Account, err error) error {
	return errors.Join(&vitrine.BadInput{
		File: "user " + account.String(), Found: fmt.Sprintf("it may not enter %s or not execute %s", cmd.Dir, cmd.Path),
		Want: "folders that it may enter: give the run another folder (--out), and keep the program where every user may read it",
	}, err)
}
