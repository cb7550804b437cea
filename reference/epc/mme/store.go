package mme

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"vitrine/reference/keep"
	"vitrine/store/client"
	"vitrine/wire/identity"
)

// contextPrefix begins the key of a UE context, which ends in the IMSI. A second key
// finds the IMSI by the M-TMSI.
const contextPrefix = "ue/"

func contextKey(imsi string) string { return contextPrefix + imsi }

func tmsiKey(tmsi uint32) string { return fmt.Sprintf("tmsi/%08x", tmsi) }

// load reads the context that a job names by its IMSI or its S-TMSI. If there is no
// record, j.kept stays nil.
func (m *MME) load(ctx context.Context, j *job) error {
	imsi := j.request.IMSI.String()
	if imsi == "" {
		index, err := m.config.Store.Get(ctx, tmsiKey(j.stmsi.TMSI))
		if err != nil || index.Value == nil {
			return err
		}
		imsi = string(index.Value)
	}
	k, tag, err := m.read(ctx, imsi)
	if err == nil && k != nil && k.stmsi() == j.stmsi {
		j.kept, j.tag = k, tag
	}
	return err
}

// read reads the context of an IMSI; nil if there is none. A record that this build cannot parse, because
// another build wrote it, counts as none. So its UE attaches again, and the attach replaces the record.
func (m *MME) read(ctx context.Context, imsi string) (k *kept, tag string, err error) {
	r, err := m.config.Store.Get(ctx, contextKey(imsi))
	if err != nil || r.Value == nil {
		return nil, "", err
	}
	k, malformed := parseKept(r.Value)
	if malformed != nil {
		m.config.Log.Warn("this build cannot read the record of a UE, which has to attach again", "key", contextKey(imsi), "error", malformed)
	}
	return k, r.Tag, nil
}

// write replaces the record with the job's tag by the job's context. The old record's
// timer was due at before. fresh says that the M-TMSI is new.
func (m *MME) write(ctx context.Context, j *job, before time.Time, fresh bool, further ...client.Change) error {
	value, err := json.Marshal(j.kept)
	if err != nil {
		return fmt.Errorf("mme: write the record of a UE: %w", err)
	}
	index := client.Change{Op: "put", Key: tmsiKey(j.kept.TMSI), Value: []byte(j.kept.IMSI), ContentType: "text/plain"}
	if fresh {
		index.IfNoneMatch = "*"
	}
	record := keep.Record{Value: value, Tag: j.tag, Expires: j.kept.due()}
	tag, err := m.config.Store.Write(ctx, contextKey(j.kept.IMSI), record, keep.Move{From: before, To: j.kept.due()}, append(further, index)...)
	if err == nil {
		j.tag = tag
	}
	return err
}

// commits limits the attempts to write the record of an attach. An attempt fails if
// another MME changes the record at the same time.
const commits = 3

// commit writes the context of an attach over any record that the IMSI has, even another
// MME's: the last attach wins.
func (m *MME) commit(ctx context.Context, j *job) (err error) {
	for range commits {
		var old *kept
		if old, j.tag, err = m.read(ctx, j.kept.IMSI); err != nil {
			return err
		}
		var further []client.Change
		if old != nil && old.TMSI != j.kept.TMSI {
			further = append(further, client.Change{Op: "delete", Key: tmsiKey(old.TMSI)})
		}
		err = m.write(ctx, j, old.due(), old == nil || old.TMSI != j.kept.TMSI, further...)
		if !errors.Is(err, keep.ErrChanged) {
			return err
		}
	}
	return err
}

// acquire writes the context of a UE that begins a transaction. If two MMEs try, one of
// them fails. If the UE was at another MME, acquire tells the HSS and the gateway that
// the UE is here now. If they do not answer, the transaction continues, and its own
// calls to them fail.
func (m *MME) acquire(ctx context.Context, j *job) error {
	if err := m.write(ctx, j, j.due, false); err != nil {
		return err
	}
	if !j.moved {
		return nil
	}
	m.counts.takenOver.Inc()
	if _, err := m.config.Subscribers.UpdateLocation(ctx, j.request.IMSI, m.config.GUMMEI.PLMN); err != nil {
		m.config.Log.Debug("the HSS did not learn that a UE has moved to this MME", "error", err)
	}
	if err := m.config.Gateway.ModifyBearer(ctx, j.session, j.enodeb); err != nil {
		m.config.Log.Debug("the gateway did not learn that a UE has moved to this MME", "error", err)
	}
	return nil
}

// drop removes the record of a UE that is detached.
func (m *MME) drop(ctx context.Context, j *job) error {
	return m.config.Store.Remove(ctx, contextKey(j.request.IMSI.String()), j.tag, keep.Move{From: j.due},
		client.Change{Op: "delete", Key: tmsiKey(j.stmsi.TMSI)})
}

// orphaned is the time after which another MME detaches a silent UE, counted from the
// record's due time. By then the UE's own MME must have failed.
const orphaned = time.Minute

// overdue handles the timer of a record. Either the UE was silent for too long, or it
// was connected all the time.
func (m *MME) overdue(ctx context.Context, key string, at time.Time) {
	k, _, err := m.read(ctx, strings.TrimPrefix(key, contextPrefix))
	switch {
	case err != nil:
		m.config.Log.Warn("the record of a silent UE was not read", "key", key, "error", err)
	case k == nil || !k.due().Equal(at) || k.Owner != m.config.Instance && !k.Leaving && m.config.Store.Now().Sub(at) < orphaned:
	default:
		m.orderKept(k, order{})
	}
}

// orderKept gives an order for the UE of a record to the UE's worker. The zero order detaches
// the UE if it was silent for too long.
func (m *MME) orderKept(k *kept, o order) {
	o.imsi, _ = identity.MakeDigits(k.IMSI) // parseKept has checked it
	o.stmsi = k.stmsi()
	m.workers[k.TMSI%uint32(len(m.workers))].order(o)
}

// findLeg returns the session that has a TEID of this MME.
func (m *MME) findLeg(ctx context.Context, teid uint32) (leg, bool) {
	index, err := m.config.Store.Get(ctx, tmsiKey(teid))
	if err != nil || index.Value == nil {
		return leg{}, false
	}
	k, _, err := m.read(ctx, string(index.Value))
	if err != nil || k == nil || k.TMSI != teid {
		return leg{}, false
	}
	imsi, _ := identity.MakeDigits(k.IMSI)
	return leg{imsi: imsi, sgw: k.Session.Control}, true
}
