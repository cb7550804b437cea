package message

import (
	"vitrine/wire/http1"
	"vitrine/wire/resp"
)

// ordered decodes HTTP/1 and Redis, whose answers come in the order of the requests. It is
// large, so only the connections of these protocols have it.
type ordered struct {
	http1   http1.Decoder
	redis   resp.Decoder
	command resp.Request
	values  redisValues
}

// needOrdered makes the decoders of HTTP/1 and Redis.
func (x *half) needOrdered() {
	if x.ordered == nil {
		x.ordered = &ordered{}
	}
}

// restart makes the decoders of HTTP/1 and Redis expect the start of a message.
func (x *half) restart() {
	if x.ordered != nil {
		*x.ordered = ordered{}
	}
}
