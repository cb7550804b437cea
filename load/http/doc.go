// Package http is the built-in HTTP/1.1 load generator. It drives an open loop on
// a fixed schedule. One thread waits with epoll, keeps connections open and
// allocates nothing per request.
//
// A call is one GET of Params.Path. It succeeds if a complete response of status
// 2xx arrives within Params.Timeout of the start of the call. The causes of
// failure are the status, "timeout", "connect" (no connection could be made),
// "reset" (the connection ended before the response did) and "malformed" (the
// response is not HTTP/1.x, or has more than 64 KiB of fields). Bodies are read
// to their end and discarded. Redirections are not followed.
//
// A call uses the connection that became free last. If none is free, it opens a new
// one, up to its target's share of Params.Connections. Otherwise it waits: the call is
// late, not skipped, and the wait is part of its latency. A waiting call counts as
// sent and in flight, because connections run out when the function is slow.
// Otherwise a function with a growing backlog would look steady. A call that times
// out, or fails in another way before its response is complete, closes its
// connection.
//
// A server may close a free connection just as a request is sent on it. So if a
// reused connection ends before the first byte of the response, the request is sent
// once more, on a new connection (RFC 9112 section 9.3.1).
//
// Calls take the targets in turn.
package http
