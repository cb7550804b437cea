package docker

import (
	"bytes"
	"cmp"
	"fmt"
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
	root := of == "" || name == "root"
	if root {
		uid, err = 0, nil
	}
	owner := i.hostUID(uid)
	if root && owner == 0 || err == nil && os.Lchown(path, owner, -1) == nil {
		return nil
	}
	return os.Chmod(path, 0o777|os.ModeSticky)
}

// hostUID returns the number on this host of a user of the containers. It is another one with
// userns-remap, and with a rootless engine.
func (i *Instance) hostUID(uid int) int {
	here, err := os.ReadFile("/proc/self/uid_map")
	there, failed := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", i.holder))
	if err != nil || failed != nil || bytes.Equal(here, there) { // the same user namespace
		return uid
	}
	return mapUID(string(there), uid)
}

// mapUID returns the number outside a user namespace. text is the uid_map of the namespace
// (user_namespaces(7)).
func mapUID(text string, uid int) int {
	for line := range strings.Lines(text) {
		var inside, outside, count int
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && uid >= inside && uid-inside < count {
			return outside + uid - inside
		}
	}
	return uid
}
