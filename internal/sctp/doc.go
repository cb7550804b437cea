// Package sctp has one-to-one SCTP sockets (RFC 6458 section 4) whose messages are read
// and written as records: a header of twelve octets and one message.
//
//	octets  0-3   length of the message
//	octets  4-7   payload protocol identifier
//	octets  8-9   stream
//	octets 10-11  zero
//
// All numbers are in network byte order. A stream of records is what package frame of
// wire/s1ap puts on TCP, so code above a net.Conn need not know which transport it has.
//
// The sockets are of Linux, by system calls. github.com/ishidawataru/sctp, which was
// looked at first, blocks a thread in each read, has no deadlines, takes a part of a
// message for a whole one, and allocates for each message.
package sctp
