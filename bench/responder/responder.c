/* The least work of a registrar over UDP: it answers 401 with a challenge to a
 * REGISTER without Authorization, and 200 to one with any credentials. It keeps
 * no state, so that two load generators can be compared against it.
 *
 * usage: responder ADDRESS PORT      (ends when its standard input does)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64
#define ROOM 4096

static char in[BATCH][ROOM], out[BATCH][ROOM];
static struct sockaddr_in from[BATCH];
static struct iovec ini[BATCH], outi[BATCH];
static struct mmsghdr inh[BATCH], outh[BATCH];

static int starts(const char *line, const char *name) { return strncasecmp(line, name, strlen(name)) == 0; }

/* answer writes the response to one request and returns its length. */
static size_t answer(char *request, size_t length, char *response) {
	static const char *copied[] = {"Via:", "From:", "To:", "Call-ID:", "CSeq:"};
	char lines[ROOM];
	size_t n = 0;
	int authorized = 0;
	request[length] = 0;
	for (char *line = strstr(request, "\r\n"); line && line[2] && line[2] != '\r'; ) {
		line += 2;
		char *end = strstr(line, "\r\n");
		if (!end)
			break;
		for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
			size_t size = (size_t)(end - line);
			if (!starts(line, copied[i]) || n + size + 16 > sizeof lines)
				continue;
			memcpy(lines + n, line, size);
			n += size;
			if (i == 2 && !memmem(line, size, ";tag=", 5)) {
				memcpy(lines + n, ";tag=r", 6);
				n += 6;
			}
			memcpy(lines + n, "\r\n", 2);
			n += 2;
		}
		authorized |= starts(line, "Authorization:");
		line = end;
	}
	lines[n] = 0;
	return (size_t)snprintf(response, ROOM, "%s\r\n%s%sContent-Length: 0\r\n\r\n",
		authorized ? "SIP/2.0 200 OK" : "SIP/2.0 401 Unauthorized", lines,
		authorized ? "" : "WWW-Authenticate: Digest realm=\"ims.test\",nonce=\"84a4cc6f3082121f32b42a2187831a9e\",algorithm=MD5,qop=\"auth\"\r\n");
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	int fd = socket(AF_INET, SOCK_DGRAM, 0), room = 8 << 20;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	struct sockaddr_in me = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
	socklen_t size = sizeof me;
	if (inet_pton(AF_INET, argv[1], &me.sin_addr) != 1 || bind(fd, (struct sockaddr *)&me, size) != 0) {
		perror("bind");
		return 1;
	}
	getsockname(fd, (struct sockaddr *)&me, &size);
	printf("%d\n", ntohs(me.sin_port));
	fflush(stdout);
	for (int i = 0; i < BATCH; i++) {
		ini[i] = (struct iovec){in[i], ROOM - 1};
		inh[i].msg_hdr = (struct msghdr){.msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &ini[i], .msg_iovlen = 1};
		outi[i].iov_base = out[i];
		outh[i].msg_hdr = (struct msghdr){.msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &outi[i], .msg_iovlen = 1};
	}
	struct pollfd fds[2] = {{fd, POLLIN, 0}, {0, POLLIN, 0}};
	for (;;) {
		if (poll(fds, 2, -1) < 0)
			return 1;
		if (fds[1].revents) {
			char ignored[64];
			if (read(0, ignored, sizeof ignored) <= 0)
				return 0;
		}
		int n = recvmmsg(fd, inh, BATCH, MSG_DONTWAIT, NULL);
		for (int i = 0; i < n; i++) {
			outi[i].iov_len = answer(in[i], inh[i].msg_len, out[i]);
			inh[i].msg_hdr.msg_namelen = sizeof from[i];
		}
		for (int done = 0; n > 0 && done < n;) {
			int sent = sendmmsg(fd, outh + done, (unsigned)(n - done), 0);
			done += sent > 0 ? sent : 1;
		}
	}
}
