// SCTP servers over TCP, for hosts whose kernel has no SCTP. Preloaded, it makes
// each one-to-one SCTP socket (RFC 6458 section 4) that a program listens on a TCP
// socket. A message is a frame: a header of 12 octets and the message.
//
//	octets  0-3   length of the message
//	octets  4-7   SCTP payload protocol identifier
//	octets  8-9   SCTP stream
//	octets 10-11  zero
//
// All numbers are in network byte order. This is not SCTP on the wire: streams block
// each other, and there is no second path. Options of SCTP are accepted and do nothing.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/sctp.h>

enum {
	HEADER = 12,
	STREAMS = 30,  // that an association reports in each direction
	PATIENCE = 10, // seconds for the rest of a frame, and for a frame to be sent
};

// The state of a descriptor. NextEPC waits by select(2), so there are few.
enum state {
	OTHER,     // no SCTP socket
	LISTENING, // or not used yet
	NEW,       // accepted; the program does not know yet that the association is up
	UP,
};

static volatile unsigned char states[FD_SETSIZE];

static int is_ours(int fd)
{
	return fd >= 0 && fd < FD_SETSIZE && states[fd] != OTHER;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// prepare makes a TCP socket one that carries messages. It returns fd, or -1 after
// it has closed it.
static int prepare(int fd, enum state s)
{
	const int on = 1;
	const struct timeval patience = {.tv_sec = PATIENCE};

	if (fd < 0)
		return fd;
	if (fd >= FD_SETSIZE) {
		NEXT(close)(fd);
		errno = EMFILE;
		return -1;
	}
	if (NEXT(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
	    NEXT(setsockopt)(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
	    (s == NEW && NEXT(setsockopt)(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)) {
		const int error = errno;
		NEXT(close)(fd);
		errno = error;
		return -1;
	}
	states[fd] = s;
	return fd;
}

int socket(int domain, int type, int protocol)
{
	if (protocol != IPPROTO_SCTP)
		return NEXT(socket)(domain, type, protocol);
	if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM) {
		errno = EPROTONOSUPPORT; // one-to-many sockets
		return -1;
	}
	return prepare(NEXT(socket)(domain, type, 0), LISTENING);
}

int accept(int fd, struct sockaddr *from, socklen_t *size)
{
	const int accepted = NEXT(accept)(fd, from, size);
	return is_ours(fd) ? prepare(accepted, NEW) : accepted;
}

int close(int fd)
{
	if (is_ours(fd))
		states[fd] = OTHER; // before another thread can get the same number
	return NEXT(close)(fd);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t size)
{
	if (level == IPPROTO_SCTP && is_ours(fd))
		return 0;
	return NEXT(setsockopt)(fd, level, option, value, size);
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *size)
{
	if (level == IPPROTO_SCTP && is_ours(fd)) {
		memset(value, 0, *size);
		return 0;
	}
	return NEXT(getsockopt)(fd, level, option, value, size);
}

// sctp_sendmsg sends one frame, as sctp_sendmsg(3) does a message. ppid is in network
// byte order. An association that a frame was cut on is of no more use.
int sctp_sendmsg(int fd, const void *message, size_t length, struct sockaddr *to, socklen_t to_size, uint32_t ppid,
		 uint32_t flags, uint16_t stream, uint32_t life, uint32_t context)
{
	unsigned char header[HEADER] = {0};
	const uint32_t size = htonl((uint32_t)length);
	const uint16_t number = htons(stream);
	struct iovec parts[2] = {{header, sizeof header}, {(void *)message, length}};
	const struct msghdr frame = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t sent;

	(void)to, (void)to_size, (void)flags, (void)life, (void)context;
	memcpy(header, &size, sizeof size);
	memcpy(header + 4, &ppid, sizeof ppid);
	memcpy(header + 8, &number, sizeof number);
	do
		sent = sendmsg(fd, &frame, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent != (ssize_t)(sizeof header + length)) {
		if (sent >= 0)
			errno = ETIMEDOUT;
		shutdown(fd, SHUT_RDWR);
		return -1;
	}
	return (int)length;
}

// receive_all receives exactly that many octets: 1, or 0 at the end of the
// connection, or -1.
static int receive_all(int fd, void *into, size_t length)
{
	size_t done = 0;

	while (done < length) {
		const ssize_t n = recv(fd, (char *)into + done, length - done, MSG_WAITALL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0 ? 0 : -1;
		done += (size_t)n;
	}
	return 1;
}

// notify gives the program an SCTP_ASSOC_CHANGE in place of a message (RFC 6458
// section 6.1.1).
static int notify(void *message, size_t room, int state, int *flags)
{
	const struct sctp_assoc_change change = {
		.sac_type = SCTP_ASSOC_CHANGE,
		.sac_length = sizeof change,
		.sac_state = (__u16)state,
		.sac_outbound_streams = STREAMS,
		.sac_inbound_streams = STREAMS,
	};
	const size_t size = room < sizeof change ? room : sizeof change;

	memcpy(message, &change, size);
	*flags = MSG_NOTIFICATION | MSG_EOR;
	return (int)size;
}

// sctp_recvmsg receives one message, or the notification that the association is up
// or has ended, as sctp_recvmsg(3) does. A frame that does not fit ends it.
int sctp_recvmsg(int fd, void *message, size_t room, struct sockaddr *from, socklen_t *from_size,
		 struct sctp_sndrcvinfo *info, int *flags)
{
	unsigned char header[HEADER];
	uint32_t size, ppid;
	uint16_t stream;
	int received;

	if (!is_ours(fd)) {
		errno = ENOTSOCK;
		return -1;
	}
	*flags = 0;
	if (info != NULL)
		memset(info, 0, sizeof *info);
	if (from != NULL && from_size != NULL)
		(void)getpeername(fd, from, from_size);
	if (states[fd] == NEW) {
		states[fd] = UP;
		return notify(message, room, SCTP_COMM_UP, flags);
	}
	received = receive_all(fd, header, sizeof header);
	if (received <= 0)
		return notify(message, room, received == 0 ? SCTP_SHUTDOWN_COMP : SCTP_COMM_LOST, flags);
	memcpy(&size, header, sizeof size);
	memcpy(&ppid, header + 4, sizeof ppid);
	memcpy(&stream, header + 8, sizeof stream);
	size = ntohl(size);
	if (size == 0 || size > room || size > INT32_MAX || receive_all(fd, message, size) != 1)
		return notify(message, room, SCTP_COMM_LOST, flags);
	if (info != NULL) {
		info->sinfo_ppid = ppid;
		info->sinfo_stream = ntohs(stream);
	}
	*flags = MSG_EOR;
	return (int)size;
}
