package message

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// TestStoresAreKnownByTheirNames: a key is the same at all addresses of a store, and another one at
// another store with the same address.
func TestStoresAreKnownByTheirNames(t *testing.T) {
	names := map[string]string{"192.0.2.4": "Store", "192.0.2.5": "Store"}
	for name, request := range map[string]string{"Redis": redisRequest("GET k"), "HTTP": "GET /kv/k HTTP/1.1\r\n\r\n", "MongoDB": mongoFind} {
		key := func(from, to string) (hash uint64) {
			file := connection(t, from, to, ">"+request)
			_, err := Read(context.Background(), []string{file}, Options{Name: func(text string) string { return names[text] }}, func(m *Message) error {
				for _, a := range m.Access {
					hash = a.Key.Hash
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return hash
		}
		one, other := key("192.0.2.3:40000", "192.0.2.4:9999"), key("192.0.2.3:40000", "192.0.2.5:9999")
		if one == 0 || one != other {
			t.Errorf("%s: two addresses of one store have the keys %x and %x, want one key", name, one, other)
		}
		one, other = key("127.0.0.1:40000", "127.0.0.1:9998"), key("127.0.0.1:40000", "127.0.0.1:9999")
		if one == 0 || one == other {
			t.Errorf("%s: two stores of one address have the keys %x and %x, want two keys", name, one, other)
		}
	}
}

// TestKeysOfRedisHaveTheirOwnBytes: a value belongs to the key before it, and scripts and options before
// the first key to none. Commands that store a result only read their other keys.
func TestKeysOfRedisHaveTheirOwnBytes(t *testing.T) {
	for text, want := range map[string]string{
		"MSET a value b abc":  "writes a of 192.0.2.4 5 B|writes b of 192.0.2.4 3 B",
		"HSET k field value":  "writes k of 192.0.2.4 10 B",
		"EVAL script 1 k ab":  "takes k of 192.0.2.4 2 B",
		"SUNIONSTORE d a b":   "writes d of 192.0.2.4 0 B|reads a of|reads b of",
		"ZUNIONSTORE d 2 a b": "writes d of 192.0.2.4 0 B|reads a of|reads b of",
		"BITOP AND d a":       "writes d of 192.0.2.4 0 B|reads a of",
		"PFMERGE d a":         "takes d of 192.0.2.4 0 B|reads a of",
	} {
		lines, _ := read(t, Options{}, connection(t, client.String(), "192.0.2.4:9999", ">"+redisRequest(text)))
		name, _, _ := strings.Cut(text, " ")
		expect(t, lines, fmt.Sprintf("Redis request %q|%s", name, want))
	}
}

// redisRequest returns a request of Redis with the words of a text.
func redisRequest(text string) string {
	words := strings.Fields(text)
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return string(b)
}

// TestMongoDBNamesWhatItWrites: updates, deletions and new documents are in a list of the command, or in
// a sequence behind it. The document is the one that a find with the same filter reads.
func TestMongoDBNamesWhatItWrites(t *testing.T) {
	imsi := "\x02imsi\x00" + bsonText("001010000000001")
	update := "\x03q\x00" + bson(imsi) + "\x03u\x00" + bson("")
	deletion := "\x03q\x00" + bson(imsi) + "\x10limit\x00\x01\x00\x00\x00"
	document := "\x02_id\x00" + bsonText("001010000000001") + imsi
	for name, c := range map[string]struct{ list, item string }{
		"update": {"updates", update}, "delete": {"deletes", deletion}, "insert": {"documents", document},
	} {
		command := "\x02" + name + "\x00" + bsonText("subscribers")
		for form, message := range map[string]string{
			"in a list":     opMsg(7, 0, bson(command+"\x04"+c.list+"\x00"+bson("\x030\x00"+bson(c.item)))),
			"in a sequence": opMsg(7, 0, bson(command)+bsonSequence(c.list, bson(c.item)+bson(""))),
		} {
			t.Run(name+" "+form, func(t *testing.T) {
				lines, _ := read(t, Options{}, connection(t, client.String(), "192.0.2.4:9999", ">"+mongoFind, "<"+mongoReply, ">"+message))
				expect(t, lines, "reads subscribers/001010000000001 of", "of 1",
					fmt.Sprintf("request \"%s subscribers\"|IMSI*=001010000000001|writes subscribers/001010000000001 of 192.0.2.4 %d B", name, len(message)))
			})
		}
	}
}

// bsonSequence returns a document sequence of OP_MSG.
func bsonSequence(name, documents string) string {
	size := 4 + len(name) + 1 + len(documents)
	return string(binary.LittleEndian.AppendUint32([]byte{1}, uint32(size))) + name + "\x00" + documents
}
