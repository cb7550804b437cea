package subscriberdb

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/subscriber"
	"vitrine/reference/ims"
	"vitrine/wire/mongo"
)

const imsi = "001010000000003"

// set returns the subscribers of a command line.
func set(t testing.TB, args ...string) *subscriber.Set {
	t.Helper()
	c := ims.NewCommand("test", "", io.Discard, io.Discard)
	parsed := subscriber.Flags(c)
	if _, err := c.Parse(args); err != nil {
		t.Fatal(err)
	}
	s, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A client sends commands over a connection.
type client struct {
	t    *testing.T
	conn net.Conn
}

// dial starts a server and connects to it.
func dial(t *testing.T) *client {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(set(t, "--subscribers", "10"))
	hosttest.Run(t, patience, "the server", func(ctx context.Context) error { return s.serve(ctx, listener) })
	conn, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn}
}

// request returns a message with a document, and a sequence of documents if there
// are any.
func request(t testing.TB, command bson.D, updates ...bson.D) []byte {
	t.Helper()
	b := make([]byte, mongo.HeaderSize, 256)
	b = append(b, 0, 0, 0, 0, 0)
	b = append(b, marshal(t, command)...)
	if len(updates) > 0 {
		section := []byte("updates\x00")
		for _, u := range updates {
			section = append(section, marshal(t, u)...)
		}
		b = binary.LittleEndian.AppendUint32(append(b, 1), uint32(len(section)+4))
		b = append(b, section...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint32(b[12:], uint32(mongo.OpMsg))
	return b
}

func marshal(t testing.TB, d bson.D) []byte {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ask sends a command and returns its reply.
func (c *client) ask(command bson.D, updates ...bson.D) bson.Raw {
	c.t.Helper()
	if _, err := c.conn.Write(request(c.t, command, updates...)); err != nil {
		c.t.Fatal(err)
	}
	const before = mongo.HeaderSize + 5
	head := make([]byte, before)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		c.t.Fatal(err)
	}
	h, err := mongo.ParseHeader(head, mongo.MaxMessage)
	if err != nil {
		c.t.Fatal(err)
	}
	reply := make(bson.Raw, h.Length-before)
	if _, err := io.ReadFull(c.conn, reply); err != nil {
		c.t.Fatal(err)
	}
	return reply
}

// find returns the subscribers that a filter finds.
func (c *client) find(filter bson.D) []bson.RawValue {
	c.t.Helper()
	reply := c.ask(bson.D{{Key: "find", Value: "subscribers"}, {Key: "filter", Value: filter}})
	found, err := reply.Lookup("cursor", "firstBatch").Array().Values()
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

func by(imsi string) bson.D { return bson.D{{Key: "imsi", Value: imsi}} }

// change returns an update of the subscriber.
func change(imsi, operator string, fields bson.D) bson.D {
	return bson.D{{Key: "q", Value: by(imsi)}, {Key: "u", Value: bson.D{{Key: operator, Value: fields}}}}
}

func TestFindReturnsKeysAndSubscription(t *testing.T) {
	c := dial(t)
	found := c.find(by(imsi))
	if len(found) != 1 {
		t.Fatalf("found %d subscribers, want 1", len(found))
	}
	d, secret := found[0].Document(), aka.SecretOf(imsi)
	for name, want := range map[string]string{"k": hex.EncodeToString(secret.K[:]), "opc": hex.EncodeToString(secret.OPc[:]), "amf": "8000"} {
		if got := d.Lookup("security", name).StringValue(); got != want {
			t.Errorf("field %s: got %s, want %s", name, got, want)
		}
	}
	if got := d.Lookup("security", "sqn").Int64(); got != firstSQN {
		t.Errorf("first sequence number: got %d", got)
	}
	if got := d.Lookup("ambr", "uplink").Int64(); got != 50_000_000>>10 {
		t.Errorf("uplink: got %d kibit/s", got)
	}
	for i, want := range []string{"internet", "ims"} {
		if got := d.Lookup("pdn", string(rune('0'+i)), "apn").StringValue(); got != want {
			t.Errorf("access point %d: got %s, want %s", i, got, want)
		}
	}
}

// TestFindByAccessPointSelectsIt checks what the PCRF needs: its projection has the
// one access point alone.
func TestFindByAccessPointSelectsIt(t *testing.T) {
	c := dial(t)
	found := c.find(append(by(imsi), bson.E{Key: "pdn.apn", Value: "ims"}))
	if len(found) != 1 {
		t.Fatalf("found %d subscribers, want 1", len(found))
	}
	pdn, err := found[0].Document().Lookup("pdn").Array().Values()
	if err != nil || len(pdn) != 1 || pdn[0].Document().Lookup("qos", "qci").Int32() != 5 {
		t.Errorf("access points: got %v, error %v", pdn, err)
	}
	for name, filter := range map[string]bson.D{
		"unknown subscriber":   by("001010000000011"),
		"unknown access point": append(by(imsi), bson.E{Key: "pdn.apn", Value: "mms"}),
	} {
		if found := c.find(filter); len(found) != 0 {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

// TestUpdatesChangeTheSequenceNumber sends the updates of an authentication, in both
// forms of the command.
func TestUpdatesChangeTheSequenceNumber(t *testing.T) {
	c := dial(t)
	random := strings.Repeat("5a", 16)
	inline := bson.D{{Key: "update", Value: "subscribers"}, {Key: "updates", Value: bson.A{
		change(imsi, "$set", bson.D{{Key: "security.rand", Value: random}, {Key: "security.sqn", Value: int64(0x1000000000003f)}}),
	}}}
	if n := c.ask(inline).Lookup("n").Int32(); n != 1 {
		t.Errorf("updated %d subscribers, want 1", n)
	}
	const maxSQN = int64(1<<48 - 1)
	n := c.ask(bson.D{{Key: "update", Value: "subscribers"}},
		change(imsi, "$inc", bson.D{{Key: "security.sqn", Value: int64(32)}}),
		change(imsi, "$bit", bson.D{{Key: "security.sqn", Value: bson.D{{Key: "and", Value: maxSQN}}}}),
		change("001010000000011", "$inc", bson.D{{Key: "security.sqn", Value: int64(32)}}),
	).Lookup("n").Int32()
	if n != 2 {
		t.Errorf("updated %d subscribers, want 2 because one is unknown", n)
	}
	security := c.find(by(imsi))[0].Document().Lookup("security").Document()
	if got := security.Lookup("sqn").Int64(); got != 0x5f {
		t.Errorf("got sequence number %#x", got)
	}
	if got := security.Lookup("rand").StringValue(); got != random {
		t.Errorf("got random number %s", got)
	}
	if got := c.find(by("001010000000004"))[0].Document().Lookup("security", "sqn").Int64(); got != firstSQN {
		t.Errorf("sequence number of the next subscriber: got %d", got)
	}
}

func TestUnknownCommandsAreRefused(t *testing.T) {
	c := dial(t)
	reply := c.ask(bson.D{{Key: "dropDatabase", Value: int32(1)}})
	if reply.Lookup("ok").Double() != 0 || reply.Lookup("code").Int32() != commandNotFound {
		t.Errorf("got reply %v", reply)
	}
	if reply := c.ask(bson.D{{Key: "isMaster", Value: int32(1)}}); !reply.Lookup("ismaster").Boolean() {
		t.Errorf("got greeting %v", reply)
	}
}

func TestAMalformedMessageEndsItsConnection(t *testing.T) {
	c := dial(t)
	if _, err := c.conn.Write(make([]byte, mongo.HeaderSize)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestInvalidDocumentsHaveNoValues changes each octet of an update. An invalid document at any depth
// must not end the program.
func TestInvalidDocumentsHaveNoValues(t *testing.T) {
	valid, err := bson.Marshal(change(imsi, "$set", bson.D{{Key: "security.sqn", Value: int64(1)}}))
	if err != nil {
		t.Fatal(err)
	}
	d := &newServer(set(t, "--subscribers", "10")).database
	if !d.change(valid) {
		t.Fatal("the valid update changes no subscriber")
	}
	for at := range valid {
		for _, octet := range []byte{0, 1, 3, 4, 0x7f, 0xff} {
			invalid := bytes.Clone(valid)
			invalid[at] = octet
			d.change(invalid)
		}
	}
}

// TestRunServesUntilItIsStopped runs the program.
func TestRunServesUntilItIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, []string{"--listen", "127.0.0.1:0"}, out, io.Discard) }()
	line := make([]byte, 256)
	n, err := in.Read(line)
	if err != nil || !bytes.HasPrefix(line[:n], []byte("subscribers: ready on 127.0.0.1:")) {
		t.Fatalf("got output %q, error %v", line[:n], err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Run(t.Context(), nil, io.Discard, io.Discard); !vitrine.IsBadInput(err) {
		t.Errorf("run without an address: got %v", err)
	}
}

// FuzzReply checks that any message is answered or refused, and that a reply can be
// read.
func FuzzReply(f *testing.F) {
	f.Add(request(f, bson.D{{Key: "find", Value: "subscribers"}, {Key: "filter", Value: append(by(imsi), bson.E{Key: "pdn.apn", Value: "ims"})}}))
	f.Add(request(f, bson.D{{Key: "update", Value: "subscribers"}}, change(imsi, "$inc", bson.D{{Key: "security.sqn", Value: int64(32)}})))
	f.Add(request(f, bson.D{{Key: "update", Value: "s"}, {Key: "updates", Value: bson.A{change(imsi, "$set", bson.D{{Key: "security.sqn", Value: int64(1)}})}}}))
	f.Add(request(f, bson.D{{Key: "isMaster", Value: int32(1)}}))
	s := newServer(set(f, "--subscribers", "10"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := mongo.ParseHeader(b, mongo.MaxMessage)
		if err != nil || h.Length > len(b) {
			return
		}
		out, err := s.reply(nil, 1, h, b[mongo.HeaderSize:h.Length])
		if err != nil || len(out) == 0 {
			return
		}
		if got, err := mongo.ParseHeader(out, mongo.MaxMessage); err != nil || got.Length != len(out) || got.To != h.ID {
			t.Errorf("header of the reply: got %+v, error %v", got, err)
		}
		if len(s.database.states) > 10 {
			t.Errorf("got %d states for 10 subscribers", len(s.database.states))
		}
	})
}
