package director

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"vitrine"
	"vitrine/director/sip"
	"vitrine/internal/durable"
)

// A key signs the director's own entries in SIP messages, from since until the next key
// begins.
type key struct {
	id     uint8
	secret [16]byte
	since  time.Time
}

const keyWant = "want an ID from 1 to 255, 32 hexadecimal digits, and the time from which the key signs, such as 2 000102030405060708090a0b0c0d0e0f 2026-01-02T15:04:05Z"

// readKeys reads a file of keys, one per line, and sorts them by since. It ignores empty
// lines and lines that begin with #. Errors never contain a secret.
func readKeys(path string) (all []key, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "keys.file must be a file that can be read"}
	}
	seen := map[uint8]bool{}
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		k, found := parseKey(line)
		switch {
		case found != "":
			return nil, &vitrine.BadInput{File: path, Line: n + 1, Column: 1, Found: found, Want: keyWant}
		case seen[k.id]:
			return nil, &vitrine.BadInput{File: path, Line: n + 1, Column: 1, Found: fmt.Sprintf("duplicate key %d", k.id), Want: "key IDs must be unique"}
		}
		seen[k.id] = true
		all = append(all, k)
	}
	if len(all) == 0 {
		return nil, &vitrine.BadInput{File: path, Found: "no key", Want: keyWant}
	}
	slices.SortStableFunc(all, func(a, b key) int { return a.since.Compare(b.since) })
	return all, nil
}

// parseKey reads one line; found describes what is wrong with it.
func parseKey(line string) (k key, found string) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return k, fmt.Sprintf("%d fields", len(fields))
	}
	id, err := strconv.ParseUint(fields[0], 10, 8)
	if err != nil || id == 0 {
		return k, "the ID " + strconv.Quote(fields[0])
	}
	secret, err := hex.DecodeString(fields[1])
	if err != nil || len(secret) != len(k.secret) {
		return k, fmt.Sprintf("a secret of %d characters", len(fields[1]))
	}
	if k.since, err = time.Parse(time.RFC3339, fields[2]); err != nil {
		return k, "the time " + strconv.Quote(fields[2])
	}
	k.id = uint8(id)
	copy(k.secret[:], secret)
	return k, ""
}

// makeKeys creates the file with one key, unless the file exists. The file appears
// complete or not at all.
func makeKeys(path string, now time.Time) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // readKeys reports what is wrong with the file
	}
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails (crypto/rand)
	text := fmt.Sprintf("# ID, secret, time from which it signs. Directors side by side share this file.\n1 %x %s\n", secret, now.UTC().Format(time.RFC3339))
	err := durable.Create(path, []byte(text), 0o600) // a lost key would void all that it signed
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the file of keys %s: %w", path, err)
	}
	return nil
}

// loadKeys reads the keys of a configuration. Without keys.file, the keys are in a file
// beside the state file, which loadKeys creates if necessary. It does not create the file
// if the configuration in force, old, already uses it: signatures of the lost key could not
// be verified.
func loadKeys(c, old *Config, now time.Time) ([]key, error) {
	if len(c.Listen.SIP) == 0 {
		return nil, nil
	}
	path := c.Keys.File
	if path == "" {
		path = strings.TrimSuffix(c.State, ".state") + ".keys"
		if old == nil || old.Keys.File != "" {
			if err := makeKeys(path, now); err != nil {
				return nil, err
			}
		}
	}
	return readKeys(path)
}

// signing returns the keys in force at a time; the first of them signs. The signing key is
// the last key that has begun, or the first key of all if none has begun, because this
// host's clock may be behind. An older key verifies as long as messages that it signed may
// come back. A later key verifies too, because another host's clock may be ahead.
func signing(keys []key, c *Config, now time.Time) (all []sip.SigningKey) {
	for i, k := range keys {
		s := sip.SigningKey{ID: k.id, Secret: k.secret, Via: true, Route: true}
		if i+1 < len(keys) {
			old := now.Sub(keys[i+1].since)
			s.Via, s.Route = old < time.Duration(c.Keys.Ringing), old < time.Duration(c.Keys.Dialogs)
		}
		if k.since.After(now) {
			all = append(all, s)
		} else {
			all = slices.Insert(all, 0, s)
		}
	}
	return all
}

// keyring returns the Keyring for now.
func (d *Director) keyring(c *Config, keys []key) (*sip.Keyring, error) {
	return sip.NewKeyring(signing(keys, c, d.options.Clock.Wall()))
}

// updateKeyring puts the keys for now in force.
func (d *Director) updateKeyring() {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	for _, p := range d.protocols {
		if p.setKeys == nil {
			continue
		}
		r, err := d.keyring(d.config.Load(), *d.keys.Load())
		if err != nil { // the keys were checked when they were read
			d.log.Error("cannot change the keys; the old ones stay in force", "error", err)
			return
		}
		p.setKeys(r)
	}
}

// setDefaults fills in the defaults. transition is that of the configuration.
func (k *Keys) setDefaults(transition Duration) {
	k.Ringing = cmp.Or(k.Ringing, max(Duration(10*time.Minute), transition))
	k.Dialogs = cmp.Or(k.Dialogs, Duration(24*time.Hour))
}
