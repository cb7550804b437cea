package sprout

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"vitrine/reference/ims/sipudp"
	"vitrine/reference/keep"
)

// What a Sprout gives to its keeper, the default first.
const (
	publishPersistent = "persistent" // what outlives a transaction
	publishAll        = "all"        // also the messages of each transaction
)

// The kinds of messages of a transaction. Each message is a record, which is written once.
const (
	requestMessage   = "request"   // as received
	forwardedMessage = "forwarded" // the request, as sent to the next hop
	answerMessage    = "answer"    // the final answer, as sent back
)

// publishedFor is how long a message stays published: as long as a transaction usually
// exists, which is the time for the answer and the time in which retransmissions arrive.
const publishedFor = 10 * time.Second

// A messageRecord is the record of a message.
type messageRecord struct {
	Message string `json:"message"`
}

// publishedKey returns the key of a transaction's message.
func publishedKey(tx *sipudp.Transaction, kind string) string {
	return "tx/" + strings.ReplaceAll(tx.Key(), " ", "/") + "/" + kind
}

// publish writes a message of a transaction.
func (s *server) publish(ctx context.Context, tx *sipudp.Transaction, kind string, message []byte) error {
	value, err := json.Marshal(messageRecord{string(message)})
	if err != nil {
		return err
	}
	err = s.records.Put(ctx, publishedKey(tx, kind), keep.Record{Value: value, Expires: s.records.Now().Add(publishedFor)}, keep.Move{})
	if errors.Is(err, keep.ErrChanged) {
		return nil // another Sprout has received this request too
	}
	return err
}

// handle serves a request. With --publish all, it publishes the request first, and then
// what it sent: the request to the next hop, or the answer.
func (s *server) handle(ctx context.Context, tx *sipudp.Transaction) {
	if s.answered == nil {
		s.answer(tx, s.serve(ctx, tx))
		return
	}
	if err := s.publish(ctx, tx, requestMessage, sipudp.Bytes(tx.Request)); err != nil {
		s.answer(tx, err)
		return
	}
	s.answer(tx, s.serve(ctx, tx))
	forwarded, answer := s.transactions.Sent(tx)
	if forwarded != nil {
		s.publishSent(ctx, tx, forwardedMessage, forwarded) // the answer follows when it is there
	} else {
		s.publishSent(ctx, tx, answerMessage, answer)
	}
}

// publishSent publishes a message that was sent. The request has been served, so a failure
// is only counted.
func (s *server) publishSent(ctx context.Context, tx *sipudp.Transaction, kind string, message []byte) {
	if err := s.publish(ctx, tx, kind, message); err != nil {
		s.counts.unpublished.Inc()
	}
}

// publishLater has a worker publish the answer to a forwarded request, because the caller
// must not wait for the store. If the queue is full, the answer is not published.
func (s *server) publishLater(tx *sipudp.Transaction) {
	if s.answered == nil {
		return
	}
	select {
	case s.answered <- tx:
	default:
		s.counts.unpublished.Inc()
	}
}
