// Package sctp provides one-to-one SCTP sockets (RFC 6458 section 4). Callers read and
// write messages as records: a header of twelve octets, followed by one message.
//
//	octets  0-3   length of the message
//	octets  4-7   payload protocol identifier
//	octets  8-9   stream
//	octets 10-11  zero
//
// All numbers are in network byte order. Package frame of wire/s1ap writes the same records
// to TCP connections, so code that uses a net.Conn need not know the transport.
//
// The package makes Linux system calls itself. It does not use
// github.com/ishidawataru/sctp, because that package blocks a thread in each read, has no
// deadlines, treats part of a message as a whole one, and allocates for each message.
package sctp
