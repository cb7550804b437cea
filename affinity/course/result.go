package course

import "vitrine/affinity/flow"

// Measured is what the transactions of one type did.
type Measured struct {
	Type         string      `json:"type" jsonschema:"required"`            // The type of transaction.
	Transactions int         `json:"transactions" jsonschema:"required"`    // How many there are.
	Messages     float64     `json:"messages" jsonschema:"required"`        // Of the mean transaction, without retransmissions.
	Begins       Message     `json:"begins" jsonschema:"required"`          // The message that begins most of them.
	Ends         Message     `json:"ends" jsonschema:"required"`            // The message that ends most of them; empty names: all were given up.
	Duration     *flow.Times `json:"duration,omitempty"`                    // From the first message to the end.
	Repeats      int         `json:"retransmissions" jsonschema:"required"` // Messages that were sent again.
	Unanswered   int         `json:"unanswered" jsonschema:"required"`      // Requests without an answer in the capture.
	GivenUp      int         `json:"given_up" jsonschema:"required"`        // Transactions closed before their end, because memory was full. They are in no course.
	Failures     []Failure   `json:"failures" jsonschema:"required"`        // Answers that report failure.
	Path         []Segment   `json:"path" jsonschema:"required"`            // The critical path of the most frequent course, with its times.
	Functions    []Function  `json:"functions" jsonschema:"required"`       // What each function does.
	Hops         []Hop       `json:"hops" jsonschema:"required"`            // How long messages and answers take.
	Processing   []Process   `json:"processing" jsonschema:"required"`      // How long functions take.
	Rare         Rare        `json:"rare" jsonschema:"required"`            // The courses that are not listed.
	Beyond       int         `json:"beyond,omitempty"`                      // Messages of hops that are not kept, because there are too many.
}

// A Message is a message between two functions.
type Message struct {
	From string `json:"from" jsonschema:"required"`
	To   string `json:"to" jsonschema:"required"`
	Name string `json:"name" jsonschema:"required"`
}

// A Failure is an answer that reports failure.
type Failure struct {
	Message
	Count int `json:"count" jsonschema:"required"` // How often.
}

// A Segment is a step of the critical path: a function has received a message, and
// sends the next. The means of all segments add up to the mean duration of the path.
type Segment struct {
	Function string      `json:"function" jsonschema:"required"` // The function that takes this time.
	In       string      `json:"in"`                             // What it received; empty: it begins the transaction.
	Out      string      `json:"out" jsonschema:"required"`      // What it sends.
	To       string      `json:"to" jsonschema:"required"`       // The function that receives it.
	Mean     float64     `json:"mean_ms" jsonschema:"required"`  // From receiving to sending. Where a message was captured at one place only, it has a share of the time on the way.
	Times    *flow.Times `json:"times,omitempty"`                // The same.
	Way      float64     `json:"way_mean_ms"`                    // From the first place that captured the message to the last; 0: captured at one place.
	Share    float64     `json:"share" jsonschema:"required"`    // Of the mean duration of the path, both times together, 0 to 1.
}

// A Function is what a function does in the transactions of one type. Counts are of the
// mean transaction.
type Function struct {
	Name     string  `json:"name" jsonschema:"required"`                   // The function.
	Receives float64 `json:"receives" jsonschema:"required"`               // Messages.
	Sends    float64 `json:"sends" jsonschema:"required"`                  // Messages.
	Passes   float64 `json:"passes_on" jsonschema:"required"`              // Messages that it sends under the name under which it received them from another function.
	Asks     float64 `json:"asks" jsonschema:"required"`                   // Requests and notices that it sends of its own.
	Decides  float64 `json:"answers_itself" jsonschema:"required"`         // Answers that it does not have from another function.
	Absorbs  float64 `json:"absorbs" jsonschema:"required"`                // Retransmissions that it received and did not pass on.
	Time     float64 `json:"time_mean_ms" jsonschema:"required"`           // On the critical path of the most frequent course.
	Share    float64 `json:"share_of_path" jsonschema:"required"`          // Of the mean duration of that path, 0 to 1.
	Outside  bool    `json:"outside,omitempty" jsonschema:"default=false"` // Transactions only begin or end at it: a UE, an eNodeB, a client.
}

// A Hop is the time of a message and of its answer between two functions.
type Hop struct {
	Message
	Count  int         `json:"count" jsonschema:"required"` // How often.
	Way    *flow.Times `json:"way,omitempty"`               // From the first place that captured it to the last; left out: captured at one place.
	Answer *flow.Times `json:"answer,omitempty"`            // From the request to its final answer; left out: no request.
}

// A Process is how long a function takes from a message to the next.
type Process struct {
	Function string      `json:"function" jsonschema:"required"` // The function.
	In       string      `json:"in" jsonschema:"required"`       // What it received last.
	Out      string      `json:"out" jsonschema:"required"`      // What it sends.
	Count    int         `json:"count" jsonschema:"required"`    // How often.
	Times    *flow.Times `json:"times" jsonschema:"required"`    // From receiving to sending.
}

// Rare sums up courses that are not listed.
type Rare struct {
	Courses      int `json:"courses" jsonschema:"required"`      // At most how many: a course that was forgotten and comes back counts twice.
	Transactions int `json:"transactions" jsonschema:"required"` // With such courses.
}

// An Other is what belongs to no transaction: an exchange that names no user, such as a
// heartbeat, or whose cause cannot be decided.
type Other struct {
	Message
	Exchanges int    `json:"exchanges" jsonschema:"required"` // How many.
	Messages  int    `json:"messages" jsonschema:"required"`  // In all of them.
	Because   string `json:"because" jsonschema:"required"`   // Why they belong to none.
}
