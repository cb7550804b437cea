package director

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/document"
	"vitrine/internal/access"
)

// reloads holds the results of reading the configuration file again.
type reloads struct {
	serial sync.Mutex // serializes reloads, changes of rules, and freeze

	mu     sync.Mutex
	done   uint64
	failed uint64
	at     time.Time // as lastReload returns it
	err    error     // of the last
	unread error     // of the files of tokens, certificates and keys, when they were last read
}

// settle is how long the file must be unchanged before it is read, because editors write
// it in several steps.
const settle = 100 * time.Millisecond

// listenToFile reloads on request and when the file changes. It looks at the file, and does not watch its
// folder, because any folder of a chain of symbolic links can put another file in its place.
func (d *Director) listenToFile(ctx context.Context) error {
	seen, _ := os.Stat(d.options.Path)
	look, timer := time.NewTicker(settle/2), time.NewTimer(0) // the file may have changed since it was read
	defer look.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
			if now, _ := os.Stat(d.options.Path); !isUnchanged(seen, now) {
				seen = now
				timer.Reset(settle)
			}
			continue
		case <-d.options.Reload:
		case <-timer.C:
		}
		if err := d.reload(); isTransient(err) {
			timer.Reset(time.Second)
		}
	}
}

// isUnchanged compares two looks at a path; nil: there was no file.
func isUnchanged(was, now fs.FileInfo) bool {
	if was == nil || now == nil {
		return was == nil && now == nil
	}
	return os.SameFile(was, now) && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime())
}

// isTransient reports whether a reload that failed with the error is to be tried again: a lease or a hand-over
// refused it.
func isTransient(err error) bool {
	var lease *Conflict
	return errors.As(err, &lease) || errors.Is(err, errFrozen)
}

// reload reads the tokens, certificates and keys again, and puts the whole configuration file in force, or
// nothing of it. Changes by REST stay in the parts of the file that have not changed. reload logs an error of
// the configuration before the status shows it. A transient error is logged and counted once.
func (d *Director) reload() error {
	d.reloads.serial.Lock()
	defer d.reloads.serial.Unlock()
	_, was := d.lastReload()
	unread := d.readFiles() // first, because an error of the configuration must not keep a leaked token valid
	changed, err := d.load()
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	d.reloads.at, d.reloads.err = d.options.Clock.Wall(), err
	if changed && err == nil { // with the files that the new configuration names
		d.reloads.unread, unread = nil, nil
		d.reloads.done++
		d.log.Info("configuration reloaded", "file", d.options.Path)
	}
	err = errors.Join(err, unread)
	if err == nil || isTransient(err) && was != nil && was.Error() == err.Error() {
		return err
	}
	d.reloads.failed++
	d.log.Error("reload failed; the configuration is unchanged", "error", err, "tried_again", isTransient(err))
	return err
}

// readFiles reads the files of tokens, certificates and keys again that the configuration in force names. A
// file with an error changes nothing: its old content stays in force. The caller holds reloads.serial.
func (d *Director) readFiles() error {
	c := d.config.Load()
	keys, err := loadKeys(c, c, d.options.Clock.Wall())
	if err == nil {
		d.keys.Store(&keys)
		d.updateKeyring()
	}
	err = errors.Join(d.tokens.Load().Reload(), d.readCertificates(c), err)
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	if d.reloads.unread = err; err != nil {
		d.reloads.at = d.options.Clock.Wall()
	}
	return err
}

// readCertificates reads the files of certificates again. Their paths never change.
func (d *Director) readCertificates(c *Config) error {
	if d.secure == nil {
		return nil
	}
	return c.locateTLS(d.secure.Reload())
}

// rereadFiles reads the files again every 30 s until ctx is done, as the other services do.
func (d *Director) rereadFiles(ctx context.Context) error {
	access.Reread(ctx, nil, d.log, new(atomic.Bool), d.readAgain) // lastReload has the error
	return context.Cause(ctx)
}

// readAgain is readFiles without a reload.
func (d *Director) readAgain() error {
	d.reloads.serial.Lock()
	defer d.reloads.serial.Unlock()
	return d.readFiles()
}

// load puts the configuration file in force if it has changed.
func (d *Director) load() (changed bool, err error) {
	old := d.config.Load()
	c, err := Load(d.options.Path)
	if err != nil || c.Digest() == old.Digest() {
		return false, err
	}
	if err := c.checkChanges(old); err != nil {
		return false, err
	}
	tokens, unread := access.ReadTokenFile(c.Control.TokenFile)
	keys, err := loadKeys(c, old, d.options.Clock.Wall())
	if err := errors.Join(unread, d.readCertificates(c), err); err != nil {
		return false, err
	}
	// Try everything that can fail before the first change.
	if _, err := c.overSCTP(); err != nil {
		return false, err
	}
	err = d.roster.change(func(draft *draft) error {
		draft.update(c, old.parts())
		for _, in := range sorted(draft.instances) { // those of REST may need a listener that the file does not
			if err := c.checkSender(&in); err != nil {
				return err
			}
		}
		_, err := d.prepareRules(c, draft.rules)
		return err
	})
	if err != nil {
		return false, err
	}
	d.tokens.Store(tokens)
	d.keys.Store(&keys)
	defer d.updateKeyring()
	return true, d.takeEffect(c)
}

// takeEffect puts a checked configuration in force, after the roster has its instances.
func (d *Director) takeEffect(c *Config) error {
	old := d.config.Swap(c)
	for { // new types must be in the table before rules name them
		wait, err := d.publish()
		if err != nil {
			return err
		}
		if wait == 0 {
			break
		}
		time.Sleep(wait)
	}
	rules, _ := d.roster.rulesAndRooms()
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.makeGates(old, c)
	d.quotas = makeQuotas(old, c, d.quotas)
	d.state.Digest, d.state.Parts, d.state.Rules = c.Digest(), c.parts(), rules
	d.save()
	d.watch.follow(d.epochs.View().Table, c)
	return d.setRules(c, rules)
}

// checkChanges returns an error if options changed that cannot change while the director runs.
func (c *Config) checkChanges(old *Config) error {
	errs := document.Errors{Node: c.file.Root()}
	fixed := func(same bool, option string) {
		if !same {
			errs.Bad(option+" has changed", "this needs a restart: vitrine director restart, or SIGUSR2", option)
		}
	}
	fixed(slices.Equal(c.Listen.SIP, old.Listen.SIP) && slices.Equal(c.Listen.GTPC, old.Listen.GTPC) && slices.Equal(c.Listen.S1AP, old.Listen.S1AP) &&
		c.Listen.Control == old.Listen.Control && c.Listen.Advertise == old.Listen.Advertise, "listen")
	fixed(c.Workers == old.Workers, "workers")
	fixed(c.Transition == old.Transition, "transition")
	fixed(c.Memory == old.Memory, "memory")
	fixed(c.State == old.State, "state")
	fixed(c.GTPC.RestartCounter == old.GTPC.RestartCounter && c.GTPC.PeerPort == old.GTPC.PeerPort, "gtpc")
	fixed(c.S1AP.sameIdentity(&old.S1AP), "s1ap")
	fixed(slices.Equal(regionNetworks(c), regionNetworks(old)) || len(c.Listen.GTPC)+len(c.Listen.S1AP) == 0, "regions")
	fixed(c.Control.Socket == old.Control.Socket && c.Control.Certificate == old.Control.Certificate && c.Control.Key == old.Control.Key && c.Control.Clients == old.Control.Clients, "control")
	if !sameTypes(c, old.typeNames()) {
		fixed(false, "types")
	}
	return errs.Join()
}

// lastReload returns the time of the last reload, or of the last failure to read the files if that is later. The
// error joins both. A zero time means neither yet.
func (d *Director) lastReload() (at time.Time, err error) {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	return d.reloads.at, errors.Join(d.reloads.err, d.reloads.unread)
}

// explainError joins the parts of an error for one line of JSON.
func explainError(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
