/* The least work of a proxy for S1AP frames over TCP: it cuts the frames of each
 * connection by their length and sends them unread and unchanged to the
 * destinations in turn, each of which has a connection of its own for it. In the
 * other direction it only reads and writes. What another proxy costs above this is
 * the cost of its proxy logic.
 *
 * usage: frames PORT FIRST COUNT         from 127.0.0.1:PORT to COUNT ports from
 *                                        FIRST on; ends when its standard input does
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 16         /* destinations */
#define ROOM (1 << 16)  /* of a receive buffer; a frame has at most 16 KiB */
#define BATCH 256       /* frames that are sent at once */
#define HEADER 12

struct client {
	int fd, next;
	int to[MOST];
	size_t have;
	char data[ROOM];
};
struct end {
	struct client *of;
	int index; /* of the destination; -1: the client's own end */
};

static int first, count, polled;

static void *ended(void *unused) {
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	exit(0);
	return unused;
}

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static void watch(int fd, struct client *of, int index) {
	struct end *e = malloc(sizeof *e);
	int one = 1;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = e};
	if (!e)
		fail("memory");
	*e = (struct end){of, index};
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) || epoll_ctl(polled, EPOLL_CTL_ADD, fd, &event))
		fail("watch");
}

/* join connects a new client to all destinations. */
static void join(int fd) {
	struct client *c = calloc(1, sizeof *c);
	if (!c)
		fail("memory");
	c->fd = fd;
	for (int i = 0; i < count; i++) {
		struct sockaddr_in to = {AF_INET, htons(first + i), {htonl(INADDR_LOOPBACK)}, {0}};
		c->to[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (c->to[i] < 0 || connect(c->to[i], (struct sockaddr *)&to, sizeof to))
			fail("connect");
		watch(c->to[i], c, i);
	}
	watch(fd, c, -1);
}

/* forward sends whole frames from a client's buffer, at most BATCH. It returns the octets that they have. */
static size_t forward(struct client *c, size_t at) {
	static struct iovec parts[MOST][BATCH];
	int used[MOST] = {0};
	size_t begun = at;
	for (int n = 0; n < BATCH && c->have - at >= HEADER; n++) {
		uint32_t length;
		memcpy(&length, c->data + at, sizeof length);
		length = ntohl(length) + HEADER;
		if (length > ROOM)
			exit(1);
		if (c->have - at < length)
			break;
		parts[c->next][used[c->next]++] = (struct iovec){c->data + at, length};
		c->next = c->next + 1 < count ? c->next + 1 : 0;
		at += length;
	}
	for (int i = 0; i < count; i++)
		if (used[i] && writev(c->to[i], parts[i], used[i]) < 0)
			exit(0); /* the instances have ended */
	return at - begun;
}

/* up handles what a client has sent. It returns 0 if the client has ended. */
static int up(struct client *c) {
	ssize_t n = read(c->fd, c->data + c->have, ROOM - c->have);
	if (n <= 0)
		return 0;
	c->have += n;
	size_t at = 0, sent;
	while ((sent = forward(c, at)) > 0)
		at += sent;
	c->have -= at;
	memmove(c->data, c->data + at, c->have);
	return 1;
}

/* down handles what a destination has sent. It returns 0 if an end has ended. */
static int down(struct client *c, int index) {
	static char data[ROOM];
	ssize_t n = read(c->to[index], data, ROOM);
	return n > 0 && write(c->fd, data, n) == n;
}

int main(int argc, char **argv) {
	if (argc != 4 || (count = atoi(argv[3])) < 1 || count > MOST) {
		fprintf(stderr, "usage: frames PORT FIRST COUNT\n");
		return 2;
	}
	first = atoi(argv[2]);
	struct sockaddr_in self = {AF_INET, htons(atoi(argv[1])), {htonl(INADDR_LOOPBACK)}, {0}};
	struct epoll_event events[64], accepts = {.events = EPOLLIN};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	polled = epoll_create1(0);
	if (fd < 0 || polled < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, (struct sockaddr *)&self, sizeof self) || listen(fd, 64) || epoll_ctl(polled, EPOLL_CTL_ADD, fd, &accepts))
		fail("frames");
	pthread_t watcher;
	if (pthread_create(&watcher, NULL, ended, NULL))
		return 1;
	for (;;) {
		int n = epoll_wait(polled, events, 64, -1);
		for (int i = 0; i < n; i++) {
			struct end *e = events[i].data.ptr;
			if (!e)
				join(accept(fd, NULL, NULL));
			else if (!(e->index < 0 ? up(e->of) : down(e->of, e->index)))
				close(e->index < 0 ? e->of->fd : e->of->to[e->index]);
		}
	}
}
