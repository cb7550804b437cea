/* Sends a frame repeatedly on a schedule and reports how late the packets were:
 * the least work of a sender, with the system calls and the policy of
 * measure/packet. It sleeps until shortly before a packet's time and then spins.
 * It sends a late packet at once. The schedule of later packets does not move.
 *
 * usage: schedule INTERFACE PACKETS RATE < FRAME     (packets a second)
 *
 * It prints the 99th percentile of the delay, in nanoseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADERS = 42, EARLY = 150 * 1000, RETRIES = 1000 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t await(int64_t due)
{
	for (;;) {
		int64_t at = now(), left = due - at;
		struct timespec nap;

		if (left <= 0)
			return at;
		if (left > 2 * EARLY) {
			left -= EARLY;
			nap.tv_sec = left / 1000000000;
			nap.tv_nsec = left % 1000000000;
			nanosleep(&nap, NULL);
		}
	}
}

static int open_packet_socket(const char *interface)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(interface)};
	int room = 16 << 20, one = 1, fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	if (setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one))
		die("PACKET_QDISC_BYPASS");
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
	if (bind(fd, (struct sockaddr *)&at, sizeof at))
		die("bind");
	return fd;
}

static void transmit(int fd, const unsigned char *frame, size_t size)
{
	for (int i = 0; i < RETRIES; i++) {
		if (sendto(fd, frame, size, MSG_DONTWAIT, NULL, 0) >= 0)
			return;
		if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR)
			die("sendto");
	}
}

/* put writes the probe: its sequence number, its scheduled time and its delay. */
static void put(unsigned char *payload, uint32_t sequence, int64_t due, int64_t at)
{
	uint32_t number = htonl(sequence), late = htonl(at - due);
	uint64_t time = __builtin_bswap64(due);

	memcpy(payload + 6, &number, 4);
	memcpy(payload + 10, &time, 8);
	memcpy(payload + 18, &late, 4);
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	unsigned char frame[9216];
	int64_t *late, begin;
	double interval;
	size_t size;
	int packets, fd;

	if (argc != 4)
		return 2;
	packets = atoi(argv[2]);
	interval = 1e9 / atof(argv[3]);
	size = fread(frame, 1, sizeof frame, stdin);
	late = malloc(packets * sizeof *late);
	if (packets < 1 || size < HEADERS + 22 || !late)
		return 2;
	memset(late, 0xff, packets * sizeof *late);
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	fd = open_packet_socket(argv[1]);
	begin = now() + 1000000;
	for (int i = 0; i < packets; i++) {
		int64_t due = begin + (int64_t)(i * interval), at = await(due);

		put(frame + HEADERS, i, due, at);
		transmit(fd, frame, size);
		late[i] = at - due;
	}
	qsort(late, packets, sizeof *late, compare);
	printf("%lld\n", (long long)late[(int)(0.99 * packets)]);
	return 0;
}
