package director

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
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
	at     time.Time
	err    error // of the last
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

// reload puts the whole configuration file in force, or changes nothing. If the file has not
// changed, reload only reads the tokens, certificates and keys again, which are in other files.
// Changes by REST stay in the parts of the file that have not changed. reload logs the outcome
// before the status shows it. A transient error is logged and counted once.
func (d *Director) reload() error {
	d.reloads.serial.Lock()
	defer d.reloads.serial.Unlock()
	changed, err := d.load()
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	was := d.reloads.err
	d.reloads.at, d.reloads.err = d.options.Clock.Wall(), err
	if err != nil {
		if isTransient(err) && was != nil && was.Error() == err.Error() {
			return err
		}
		d.reloads.failed++
		d.log.Error("reload failed; the configuration is unchanged", "error", err, "tried_again", isTransient(err))
		return err
	}
	if changed {
		d.reloads.done++
		d.log.Info("configuration reloaded", "file", d.options.Path)
	}
	return nil
}

func (d *Director) load() (changed bool, err error) {
	old := d.config.Load()
	c, err := Load(d.options.Path)
	if err != nil {
		return false, err
	}
	opening, err := access.ReadTokens(c.Control.TokenFile)
	if err != nil {
		return false, err
	}
	secure, err := c.tlsConfig()
	if err != nil {
		return false, err
	}
	keys, err := loadKeys(c, old, d.options.Clock.Wall())
	if err != nil {
		return false, err
	}
	if c.Digest() == old.Digest() {
		secured, was, had := d.secure.Swap(secure), d.tokens.Swap(&opening), d.keys.Swap(&keys)
		d.updateKeyring()
		return !access.SameTLS(secured, secure) || !slices.Equal(*was, opening) || !slices.Equal(*had, keys), nil
	}
	if err := c.checkChanges(old); err != nil {
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
	d.tokens.Store(&opening)
	d.secure.Store(secure)
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

// lastReload returns the time of the last reload and its error; a zero time: no reload yet.
func (d *Director) lastReload() (at time.Time, err error) {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	return d.reloads.at, d.reloads.err
}

// explainError joins the parts of an error for one line of JSON.
func explainError(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
