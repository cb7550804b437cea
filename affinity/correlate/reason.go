package correlate

// A Reason says why a message belongs to its transaction.
type Reason uint8

// The reasons.
const (
	Begins    Reason = iota // nothing caused it: it begins the transaction
	Answers                 // it answers a message of the transaction
	Repeats                 // it is a retransmission of a message of the transaction
	Session                 // it names a session of the transaction
	Contained               // its sender has a request of the transaction to answer, and both name the same user
	Follows                 // its sender received a message of the transaction, and both name the same user
	Learned                 // like Contained or Follows, but by identifiers that were learned to belong together
	Gap                     // it names the session or user, but the message that caused it is not in the capture
	TimeOnly                // its sender has a request of the transaction to answer; nothing else is known
	Orphan                  // none: it answers or repeats a message that is not in the capture
	Ambiguous               // it begins a transaction, because several transactions may have caused it
	KeepAlive               // it keeps a path alive: no user causes it, and it causes nothing but its answer
	Late                    // it names the dialog of a transaction that is over
	reasons   = iota
)

func (r Reason) String() string {
	return [reasons]string{"nothing caused it: it begins the transaction", "it answers a message of the transaction", "it is a retransmission",
		"it names a session of the transaction", "its sender has a request of the transaction to answer, and both name the same user",
		"its sender received a message of the transaction before, and both name the same user",
		"its sender takes part in the transaction, and its identifiers were learned to go with those of the transaction",
		"it names the session or the user, but what made its sender send it is not in the capture",
		"its sender has a request of the transaction to answer, and sends such messages then only",
		"it answers or repeats a message that is not in the capture",
		"several transactions may have caused it, equally likely",
		"it keeps a path alive",
		"it names a call or session whose transaction is over"}[r]
}
