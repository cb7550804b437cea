/* The least work of a UDP proxy that receives each datagram on its own: it
 * receives messages by recvmmsg and sends them unread and unchanged by
 * sendmmsg, to the destinations in turn. A proxy with UDP_GRO, as the director
 * is, receives bursts of one sender for less.
 *
 * usage: forwarder PORT FIRST COUNT      from 127.0.0.1:PORT to COUNT ports from
 *                                        FIRST on; ends when its standard input does
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64
#define ROOM 2048

static char bytes[BATCH][ROOM];
static struct iovec parts[BATCH];
static struct mmsghdr in[BATCH], out[BATCH];

static void *ended(void *unused) {
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	exit(0);
	return unused;
}

int main(int argc, char **argv) {
	if (argc != 4) {
		fprintf(stderr, "usage: forwarder PORT FIRST COUNT\n");
		return 2;
	}
	int first = atoi(argv[2]), count = atoi(argv[3]), room = 4 << 20, next = 0;
	struct sockaddr_in self = {AF_INET, htons(atoi(argv[1])), {htonl(INADDR_LOOPBACK)}, {0}};
	struct sockaddr_in *to = calloc(count, sizeof *to);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (!to || fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) ||
	    bind(fd, (struct sockaddr *)&self, sizeof self)) {
		perror("forwarder");
		return 1;
	}
	for (int i = 0; i < count; i++)
		to[i] = (struct sockaddr_in){AF_INET, htons(first + i), {htonl(INADDR_LOOPBACK)}, {0}};
	for (int i = 0; i < BATCH; i++) {
		parts[i] = (struct iovec){bytes[i], ROOM};
		in[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
		out[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1, .msg_namelen = sizeof *to};
	}
	pthread_t watch;
	if (pthread_create(&watch, NULL, ended, NULL))
		return 1;
	for (;;) {
		for (int i = 0; i < BATCH; i++)
			parts[i].iov_len = ROOM;
		int n = recvmmsg(fd, in, BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < n; i++) {
			parts[i].iov_len = in[i].msg_len;
			out[i].msg_hdr.msg_name = &to[next];
			next = next + 1 < count ? next + 1 : 0;
		}
		for (int done = 0; done < n; ) {
			int sent = sendmmsg(fd, out + done, n - done, 0);
			done += sent > 0 ? sent : 1; /* drop a message that cannot be sent */
		}
	}
}
