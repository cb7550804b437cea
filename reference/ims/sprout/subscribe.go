package sprout

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/reference/ims/sipudp"
	wiresip "vitrine/wire/sip"
)

// subscribe handles a SUBSCRIBE to the reg event package (RFC 6665, RFC 3680).
func (s *server) subscribe(ctx context.Context, tx *sipudp.Transaction) error {
	req := tx.Request
	event := req.GetHeader("Event")
	if event == nil {
		event = req.GetHeader("o") // compact form
	}
	if event == nil || string(wiresip.WithoutParams([]byte(event.Value()))) != "reg" {
		return refuse(489, "Bad Event", sip.NewHeader("Allow-Events", "reg")) // mandatory: RFC 3265 section 7.2
	}
	impu, err := identity(&req.To().Address)
	if err != nil {
		return err
	}
	if watcher, err := identity(&req.From().Address); err != nil || watcher != impu {
		return refuse(sip.StatusForbidden, "Forbidden") // users may watch only themselves
	}
	dialog, err := s.dialog(req, time.Now())
	if err != nil {
		return err
	}
	r, err := s.updateRegistration(ctx, impu, func(r *registration, now time.Time) error {
		if len(r.Bindings) == 0 {
			return refuse(sip.StatusForbidden, "Not Registered")
		}
		return watch(r, dialog, req.To().Params.Has("tag"))
	})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(r.Subscriptions, func(have subscription) bool { return have.same(dialog) })
	current := r.Subscriptions[i]
	res := sipudp.Reply(req, sip.StatusOK, "OK",
		sip.NewHeader("Contact", "<"+s.uri("")+">"),
		sip.NewHeader("Expires", strconv.FormatInt(seconds(current.Expires, time.Now()), 10)))
	if tag, ok := wiresip.Param([]byte(current.Local), "tag"); ok {
		res.To().Params.Add("tag", string(tag))
	}
	s.counts.subscriptions.Inc()
	s.respond(tx, res)
	s.notify(impu, r, []subscription{current}, tx.Event)
	return nil
}

func (s subscription) same(other subscription) bool {
	return s.CallID == other.CallID && s.Remote == other.Remote
}

// seconds returns the remaining time, rounded, at least 0.
func seconds(expires int64, now time.Time) int64 {
	return max((expires-now.UnixMilli()+500)/1000, 0)
}

// dialog returns the subscription that a SUBSCRIBE requests.
func (s *server) dialog(req *sip.Request, now time.Time) (subscription, error) {
	contact := req.Contact()
	if contact == nil {
		return subscription{}, refuse(sip.StatusBadRequest, "No Contact")
	}
	route, err := routes(req.GetHeaders("Record-Route"))
	if err != nil {
		return subscription{}, refuse(sip.StatusBadRequest, "Bad Record-Route")
	}
	life, err := expiresOf(req, s.maxExpires)
	if err != nil {
		return subscription{}, err
	}
	expires := int64(0) // has ended by every clock
	if life > 0 {
		expires = now.Add(min(life, s.maxExpires)).UnixMilli()
	}
	tag, ok := req.To().Params.Get("tag")
	if !ok {
		tag = sipudp.NewToken()
	}
	return subscription{
		CallID: string(*req.CallID()), Local: "<" + req.To().Address.String() + ">;tag=" + tag,
		Remote: req.From().Value(), Target: contact.Address.String(), Route: route,
		Expires: expires,
	}, nil
}

// maxSubscriptions is how many subscriptions a user may have. Each change of the
// registration sends a NOTIFY for each of them.
const maxSubscriptions = 100

// watch adds, refreshes or ends a subscription, and counts the NOTIFY that is
// due. A subscription that ends stays, expired, for that NOTIFY.
func watch(r *registration, dialog subscription, refresh bool) error {
	i := slices.IndexFunc(r.Subscriptions, func(have subscription) bool { return have.same(dialog) })
	switch {
	case i < 0 && refresh:
		return refuse(sip.StatusCallTransactionDoesNotExists, "No Such Subscription")
	case i < 0 && len(r.Subscriptions) >= maxSubscriptions:
		return refuse(sip.StatusForbidden, "Too Many Subscriptions")
	case i < 0:
		dialog.CSeq = 1
		r.Subscriptions = append(r.Subscriptions, dialog)
	default:
		have := &r.Subscriptions[i]
		have.Expires, have.Target = dialog.Expires, dialog.Target
		have.CSeq++
	}
	return nil
}

// notify sends the present registration to the watchers, as an event of this Sprout. The
// caller has already incremented the watchers' CSeq. Each NOTIFY is retransmitted until it
// is answered, like any request. If it fails, the subscription ends.
func (s *server) notify(impu string, r registration, watchers []subscription, of truth.Event) {
	now := s.records.Now() // other Sprouts may have written the times
	for _, w := range watchers {
		state, owner := fmt.Sprintf("active;expires=%d", seconds(w.Expires, now)), any(watcher{impu, w, of})
		switch {
		case len(r.Bindings) == 0:
			state, owner = "terminated;reason=noresource", nil
		case w.Expires <= now.UnixMilli():
			state, owner = "terminated;reason=timeout", nil
		}
		req, to, err := s.notification(impu, r, w, state, now)
		if err == nil {
			err = s.transactions.Forward(sipudp.Begin(req, of), req, to, owner)
		}
		if err != nil {
			s.log.Warn("a NOTIFY was not sent", "identity", impu, "error", err)
			continue
		}
		s.counts.notifies.Inc()
	}
}

// notification returns a NOTIFY and its destination.
func (s *server) notification(impu string, r registration, w subscription, state string, now time.Time) (*sip.Request, sipudp.Peer, error) {
	var target sip.Uri
	if err := sip.ParseUri(w.Target, &target); err != nil {
		return nil, sipudp.Peer{}, fmt.Errorf("contact of a subscription: %w", err)
	}
	body, err := regInfo(impu, r, w.CSeq-1, now)
	if err != nil {
		return nil, sipudp.Peer{}, err
	}
	req := sip.NewRequest(sip.NOTIFY, target)
	hops := sip.MaxForwardsHeader(70)
	callID := sip.CallIDHeader(w.CallID)
	for _, route := range w.Route {
		var uri sip.Uri
		if err := sip.ParseUri(route, &uri); err != nil {
			return nil, sipudp.Peer{}, fmt.Errorf("route of a subscription: %w", err)
		}
		req.AppendHeader(&sip.RouteHeader{Address: uri})
	}
	req.AppendHeader(&hops)
	req.AppendHeader(sip.NewHeader("From", w.Local))
	req.AppendHeader(sip.NewHeader("To", w.Remote))
	req.AppendHeader(&callID)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: w.CSeq, MethodName: sip.NOTIFY})
	req.AppendHeader(sip.NewHeader("Contact", "<"+s.uri("")+">"))
	req.AppendHeader(sip.NewHeader("Event", "reg"))
	req.AppendHeader(sip.NewHeader("Subscription-State", state))
	req.AppendHeader(sip.NewHeader("Content-Type", "application/reginfo+xml"))
	req.SetBody(body)
	if err := s.throughEdge(req); err != nil {
		return nil, sipudp.Peer{}, err
	}
	to, err := s.nextHop(req)
	return req, to, err
}

// A watcher is a subscription to an identity, and the Owner of a NOTIFY's transaction.
type watcher struct {
	impu string
	subscription
	event truth.Event
}

// notified handles the final answer to a NOTIFY. Without an answer, status is 408.
func (s *server) notified(tx *sipudp.Transaction, status int) {
	w, ok := tx.Owner.(watcher)
	if !ok || !endsSubscription(status) {
		return
	}
	select {
	case s.unwatched <- w:
	default: // too many at once; the next NOTIFY fails too
	}
}

// endsSubscription reports whether an answer to a NOTIFY ends the subscription (RFC 6665
// section 4.2.2). 408 counts as no answer (RFC 3261 section 12.2.1.2): a proxy sends it for
// a phone that does not answer.
func endsSubscription(status int) bool {
	switch status {
	case 404, 405, 408, 410, 416, 480, 481, 482, 483, 484, 485, 489, 501, 604:
		return true
	}
	return false
}

// endSubscriptions removes the subscriptions whose NOTIFY failed, until ctx is done.
func (s *server) endSubscriptions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-s.unwatched:
			_, err := s.updateRegistration(truth.With(ctx, w.event), w.impu, func(r *registration, now time.Time) error {
				return r.unwatch(w.subscription, now)
			})
			switch {
			case err == nil:
				s.counts.unwatched.Inc()
			case !errors.Is(err, errWatched) && ctx.Err() == nil:
				s.log.Warn("a subscription whose NOTIFY failed was not removed", "identity", w.impu, "error", err)
			}
		}
	}
}

// errWatched is the error for a subscription that stays although a NOTIFY failed.
var errWatched = errors.New("the subscription stays")

// unwatch removes a subscription whose NOTIFY failed. It fails with errWatched if the
// subscription has been refreshed since, or if the registration's timer is due: the next
// NOTIFY then decides.
func (r *registration) unwatch(gone subscription, now time.Time) error {
	i := slices.IndexFunc(r.Subscriptions, func(have subscription) bool { return have.same(gone) && have.Expires == gone.Expires })
	if i < 0 || r.Due <= now.UnixMilli() {
		return errWatched
	}
	r.Subscriptions = slices.Delete(r.Subscriptions, i, i+1)
	return nil
}

// regInfoDocument is the document of RFC 3680 section 5.
type regInfoDocument struct {
	XMLName       xml.Name              `xml:"urn:ietf:params:xml:ns:reginfo reginfo"`
	Version       uint32                `xml:"version,attr"`
	State         string                `xml:"state,attr"`
	Registrations []regInfoRegistration `xml:"registration"`
}

type regInfoRegistration struct {
	AOR      string           `xml:"aor,attr"`
	ID       string           `xml:"id,attr"`
	State    string           `xml:"state,attr"`
	Contacts []regInfoContact `xml:"contact"`
}

type regInfoContact struct {
	ID      string `xml:"id,attr"` // unique among all contacts of a subscription (RFC 3680 section 5.1)
	State   string `xml:"state,attr"`
	Event   string `xml:"event,attr"`
	Expires int64  `xml:"expires,attr"`
	URI     string `xml:"uri"`
}

// regInfo returns the full state of a registration at now. version counts the documents of a
// subscription, from 0 on (RFC 3680 section 5.1).
func regInfo(impu string, r registration, version uint32, now time.Time) ([]byte, error) {
	doc := regInfoDocument{Version: version, State: "full"}
	identities := r.Identities
	if len(identities) == 0 {
		identities = []string{impu}
	}
	for _, id := range identities {
		reg := regInfoRegistration{AOR: id, ID: ims.UserOf(id), State: "terminated"}
		for _, b := range r.Bindings {
			reg.State = "active"
			reg.Contacts = append(reg.Contacts, regInfoContact{
				ID: md5Hex(id + " " + b.URI), State: "active", Event: "registered", Expires: seconds(b.Expires, now), URI: b.URI,
			})
		}
		doc.Registrations = append(doc.Registrations, reg)
	}
	body, err := xml.Marshal(doc)
	return append([]byte(xml.Header), body...), err
}
