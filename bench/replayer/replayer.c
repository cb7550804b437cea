/* The least work of a generator over TCP: it sends recorded chunks of bytes at
 * their recorded times, and reads what arrives without looking at it. What another
 * generator costs above this is the cost of its protocol and of its schedule.
 *
 * usage: replayer PORT FILE BYTES      to 127.0.0.1:PORT; ends when it has sent FILE
 *                                      and received BYTES
 *
 * FILE has, for each chunk: its time in nanoseconds (8 bytes), its length (8 bytes),
 * both in the byte order of the host, and its bytes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char in[1 << 16];
static long long received;

static int fail(const char *what) {
	perror(what);
	return 1;
}

/* drain reads what has arrived. It returns 0 if the connection is lost. */
static int drain(int fd, int flags) {
	ssize_t n;
	while ((n = recv(fd, in, sizeof in, flags)) > 0) {
		received += n;
		if (!flags)
			break;
	}
	return n > 0 || (n < 0 && flags && errno == EAGAIN);
}

static int replay(int fd, const char *at, const char *end) {
	struct timespec start;
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (at < end) {
		uint64_t when, length;
		memcpy(&when, at, sizeof when);
		memcpy(&length, at + sizeof when, sizeof length);
		at += sizeof when + sizeof length;
		uint64_t due = start.tv_nsec + when;
		struct timespec until = {start.tv_sec + due / 1000000000, due % 1000000000};
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
			;
		if (!drain(fd, MSG_DONTWAIT))
			return fail("receive");
		for (uint64_t sent = 0; sent < length;) {
			ssize_t n = send(fd, at + sent, length - sent, MSG_NOSIGNAL);
			if (n < 0)
				return fail("send");
			sent += n;
		}
		at += length;
	}
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 4) {
		fprintf(stderr, "usage: replayer PORT FILE BYTES\n");
		return 2;
	}
	FILE *f = fopen(argv[2], "r");
	if (!f || fseek(f, 0, SEEK_END))
		return fail(argv[2]);
	long size = ftell(f);
	rewind(f);
	char *chunks = malloc(size + 1);
	if (!chunks || fread(chunks, 1, size, f) != (size_t)size)
		return fail(argv[2]);
	struct sockaddr_in to = {AF_INET, htons(atoi(argv[1])), {htonl(INADDR_LOOPBACK)}, {0}};
	struct timeval patience = {10, 0};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
	    connect(fd, (struct sockaddr *)&to, sizeof to))
		return fail("connect");
	if (replay(fd, chunks, chunks + size))
		return 1;
	for (long long want = atoll(argv[3]); received < want;)
		if (!drain(fd, 0))
			return fail("receive");
	return 0;
}
