package debian

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"vitrine"
)

// debianKeyring has the keys of Debian's archive. debootstrap uses this file by default. If the
// file is missing, debootstrap skips the check, unless it has --force-check-gpg.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// mirrorKeyring is the file in the tree from which apt reads the mirror's keys.
const mirrorKeyring = "etc/apt/trusted.gpg.d/vitrine-mirror.gpg"

// keys returns the content of the keyring and its path.
func (o Options) keys() (file string, keys []byte, err error) {
	file = cmp.Or(o.Keyring, debianKeyring)
	keys, err = os.ReadFile(file)
	switch {
	case err == nil:
		return file, keys, nil
	case o.Keyring != "":
		return "", nil, &vitrine.BadInput{File: "keyring", Found: err.Error(), Want: "a file of OpenPGP keys in binary form, as gpg --export writes it"}
	}
	return "", nil, &vitrine.Unsupported{
		What: "building a Debian guest", Missing: "the keys that sign the archive: " + err.Error(),
		Do: "install debian-archive-keyring, or name the keys of your mirror: debian.keyring",
	}
}

// signatureFailure matches debootstrap's errors about the archive's signature.
var signatureFailure = regexp.MustCompile(`(?mi)^E: .*(release signature|signature file|signed by unknown key|gpgv).*$`)

// debootstrap makes the minimal system in root. An archive without a valid signature is a
// *vitrine.BadInput.
func (b Builder) debootstrap(ctx context.Context, o Options, root string) error {
	file, keys, err := o.keys()
	if err != nil {
		return err
	}
	args := []string{"debootstrap", "--variant=minbase", "--force-check-gpg", "--keyring=" + file, "--include=" + strings.Join(included, ","), o.Release, root}
	if o.Mirror != "" {
		args = append(args, o.Mirror)
	}
	if err := b.run(ctx, args...); err != nil {
		found := signatureFailure.FindString(err.Error())
		if found == "" {
			return err
		}
		return errors.Join(&vitrine.BadInput{
			File: "mirror " + cmp.Or(o.Mirror, "of Debian"), Found: strings.TrimPrefix(found, "E: "),
			Want: fmt.Sprintf("an archive signed by a key of %s: name the keys of your mirror in debian.keyring", file),
		}, err)
	}
	if o.Keyring == "" {
		return nil // the tree has Debian's keys
	}
	return os.WriteFile(filepath.Join(root, mirrorKeyring), keys, 0o644)
}
