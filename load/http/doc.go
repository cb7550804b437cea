// Package http is the built-in HTTP/1.1 load generator: open loop on a fixed
// schedule, from one thread that waits with epoll, keeps connections open and
// allocates nothing per request.
//
// A call is one GET of Params.Path. It succeeds when a whole response of status
// 2xx is in within Params.Timeout, counted from when the call was begun. The
// causes of failure are the status, "timeout", "connect" (no connection could be
// made), "reset" (the connection ended before the response did) and "malformed"
// (what came is not a response of HTTP/1.x, or has more than 64 KiB of fields).
// Bodies are read to their end and dropped. Redirections are not followed.
//
// A call takes the connection that was free last, or a new one while there are
// fewer than Params.Connections. Beyond that it waits for one: it is late, not
// skipped, and its wait is in its latency. A call that waits counts as sent and in
// flight, because connections run out when the function is slow: were it not
// counted, a function with a growing backlog would look steady. A call that times
// out, or fails otherwise before its response is whole, closes its connection.
//
// A server may close a connection that was free just as a request is sent on it.
// So a request on a connection that has carried one before, and that ends without
// a byte of an answer, is sent once more, on a new connection (RFC 9112 section
// 9.3.1).
//
// The calls go to the targets in turn.
package http
