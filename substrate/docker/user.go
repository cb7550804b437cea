package docker

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"vitrine/substrate"
)

// noNewPrivileges forbids a container's processes to gain privileges.
const noNewPrivileges = "no-new-privileges"

// userOf returns the user of the instance's containers in the engine's format. Without an image
// there are no users but those of this host.
func userOf(spec substrate.Spec) (string, error) {
	if spec.User == "" || spec.Image != "" {
		return spec.User, nil
	}
	a, err := substrate.FindAccount(spec.User)
	if err != nil {
		return "", err
	}
	return a.String(), nil
}

// Own makes a file or folder of the host writable for the user that commands run as. The number
// of a name is known only in its image. Such a folder becomes writable for all users, as /tmp is.
func (i *Instance) Own(path string) error {
	of := cmp.Or(i.user, i.base.user)
	name, _, _ := strings.Cut(of, ":")
	uid, err := strconv.Atoi(name)
	if of == "" || name == "root" || err == nil && os.Lchown(path, uid, -1) == nil {
		return nil
	}
	return os.Chmod(path, 0o777|os.ModeSticky)
}
