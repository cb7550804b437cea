package substrate

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"vitrine"
)

// An Account is a user of this host that commands run as. The nil Account is the user of this
// process.
type Account struct {
	UID, GID uint32
	Groups   []uint32 // supplementary groups
	Home     string   // empty: unknown
}

// FindAccount looks up USER or USER:GROUP, by name or number, among the users of this host.
// As in Docker, GROUP replaces all groups of the user. The error for an unknown user is a
// *vitrine.BadInput.
func FindAccount(text string) (*Account, error) {
	a, err := findAccount(text)
	if err != nil {
		return nil, &vitrine.BadInput{File: "user " + text, Found: err.Error(), Want: "USER or USER:GROUP of this host, by name or number; a number without an entry in /etc/passwd needs a group"}
	}
	return a, nil
}

func findAccount(text string) (*Account, error) {
	name, group, withGroup := strings.Cut(text, ":")
	a := new(Account)
	uid, notNumber := strconv.ParseUint(name, 10, 32)
	find := user.Lookup
	if notNumber == nil {
		find = user.LookupId
	}
	entry, err := find(name)
	switch {
	case err == nil:
		a.Home = entry.HomeDir
		if a.UID, err = parseID(entry.Uid); err != nil {
			return nil, err
		}
	case notNumber == nil && withGroup:
		a.UID = uint32(uid)
	default:
		return nil, err
	}
	if withGroup {
		a.GID, err = findGroup(group)
		return a, err
	}
	if a.GID, err = parseID(entry.Gid); err != nil {
		return nil, err
	}
	groups, err := entry.GroupIds()
	for _, text := range groups {
		id, bad := parseID(text)
		err = errors.Join(err, bad)
		a.Groups = append(a.Groups, id)
	}
	return a, err
}

func findGroup(name string) (uint32, error) {
	if id, err := parseID(name); err == nil {
		return id, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return parseID(g.Gid)
}

func parseID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of a user or group: %w", text, err)
	}
	return uint32(id), nil
}

// Credential returns the credential of the account's processes; nil: this process's own.
func (a *Account) Credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.UID, Gid: a.GID, Groups: a.Groups}
}

// Own gives a file or folder to the account.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.UID), int(a.GID))
}

// String returns UID:GID, which needs no lookup; empty: the user of this process.
func (a *Account) String() string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", a.UID, a.GID)
}
