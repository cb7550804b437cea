/* Sends messages to a device under test at a given rate and counts the messages
 * that the device forwards, all on 127.0.0.1.
 *
 * It sends with UDP segmentation offload: a burst of messages takes one system
 * call and passes the kernel once. The sinks read nothing: a filter makes the
 * kernel drop and count the messages, so that one core can send more than
 * another forwards. To measure latency, the filter lets samples pass, and the
 * kernel stamps them on arrival.
 *
 * usage: load TARGET SOURCE+COUNT SINK+COUNT CORPUS     (ports; ends with its input)
 *
 * CORPUS is a sequence of bursts: source, size, count, each 16 bits in the
 * host's order, then count messages of size bytes. Commands, a line each:
 *
 *   rate MESSAGES SECONDS    evenly spaced bursts, MESSAGES a second
 *   latency MESSAGES SECONDS the same with random gaps, measuring latency
 *
 * The answer to each is one line: messages sent, seconds of sending, messages
 * that arrived at the sinks. After latency the line also has the largest delay
 * of a burst, the number of samples, and their 50th, 90th, 99th and 99.9th
 * percentile and maximum, in nanoseconds. A message is a sample if the byte
 * before its last 20 is 'T'. The time overwrites the 16 bytes after that byte.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <math.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BATCH 32
#define ROOM 2048
#define SAMPLES (8 << 20)
#define STAMP 20 /* the sixteen digits and the empty line after them */
#define DRAINED 100000000 /* ns without arrivals */
#define STUCK 5000000000  /* ns without arrivals while something waits for the device */

struct ports { int first, count, *fds; };
struct burst { char *data; uint16_t source, size, count; };

static int device; /* port */
static struct ports sources, sinks;
static struct burst *bursts;
static size_t total, next_burst;
static uint32_t *samples;
static size_t sampled;

static void fail(const char *what) {
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct sockaddr_in local(int port) {
	return (struct sockaddr_in){AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
}

/* filter makes the kernel drop all messages, or all but the samples. */
static void filter(int fd, int keep_samples) {
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, STAMP + 1),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'T', 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ROOM),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog whole = {sizeof code / sizeof *code, code}, drop = {1, code + 6};
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, keep_samples ? &whole : &drop, sizeof drop) ||
	    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &keep_samples, sizeof keep_samples))
		fail("filter a sink");
}

/* open_ports binds the ports, and connects them if there is a target. */
static void open_ports(struct ports *p, const char *text, int target) {
	if (sscanf(text, "%d+%d", &p->first, &p->count) != 2 || !(p->fds = calloc(p->count, sizeof(int))))
		fail(text);
	for (int i = 0; i < p->count; i++) {
		struct sockaddr_in self = local(p->first + i), peer = local(target);
		int fd = p->fds[i] = socket(AF_INET, SOCK_DGRAM, 0), room = 1 << 20;
		if (fd < 0 || bind(fd, (struct sockaddr *)&self, sizeof self))
			fail(text);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
		filter(fd, 0);
		if (target && connect(fd, (struct sockaddr *)&peer, sizeof peer))
			fail(text);
	}
}

static void read_corpus(const char *file) {
	struct stat info;
	int fd = open(file, O_RDONLY);
	if (fd < 0 || fstat(fd, &info))
		fail(file);
	char *at = mmap(NULL, info.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (at == MAP_FAILED)
		fail(file);
	for (char *end = at + info.st_size; at < end; total++) {
		uint16_t head[3];
		if (!(total & (total + 1)) && !(bursts = realloc(bursts, (2 * total + 2) * sizeof *bursts)))
			fail(file);
		memcpy(head, at, sizeof head);
		bursts[total] = (struct burst){at + sizeof head, head[0], head[1], head[2]};
		at += sizeof head + (size_t)head[1] * head[2];
	}
	if (!total)
		fail("no burst in the corpus");
}

static void stamp(struct burst *b) {
	char digits[17], *last = b->data + (size_t)b->size * b->count;
	snprintf(digits, sizeof digits, "%016llx", (unsigned long long)now(CLOCK_REALTIME));
	for (char *end = b->data + b->size; end <= last; end += b->size)
		memcpy(end - STAMP, digits, 16);
}

static void send_burst(const struct burst *b) {
	union { char bytes[CMSG_SPACE(sizeof(uint16_t))]; struct cmsghdr align; } control;
	struct iovec part = {b->data, (size_t)b->size * b->count};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	if (b->count > 1) {
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
		memcpy(CMSG_DATA(c), &b->size, sizeof b->size);
	}
	while (sendmsg(sources.fds[b->source], &m, 0) < 0)
		if (errno != ECONNREFUSED && errno != ENOBUFS)
			fail("send");
}

/* collect reads the samples that wait at one sink. */
static void collect(int fd) {
	static char bytes[BATCH][ROOM], control[BATCH][64];
	struct iovec parts[BATCH];
	struct mmsghdr m[BATCH];
	for (int i = 0; i < BATCH; i++) {
		parts[i] = (struct iovec){bytes[i], ROOM};
		m[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]};
	}
	int n = recvmmsg(fd, m, BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n && sampled < SAMPLES; i++) {
		struct cmsghdr *c = CMSG_FIRSTHDR(&m[i].msg_hdr);
		struct timespec arrived;
		if (!c || c->cmsg_type != SCM_TIMESTAMPNS || m[i].msg_len < STAMP)
			continue;
		memcpy(&arrived, CMSG_DATA(c), sizeof arrived);
		bytes[i][m[i].msg_len - STAMP + 16] = 0;
		samples[sampled++] = arrived.tv_sec * 1000000000LL + arrived.tv_nsec - strtoll(bytes[i] + m[i].msg_len - STAMP, NULL, 16);
	}
}

/* arrivals returns how many messages the kernel has dropped at the sinks since they were opened. */
static uint32_t arrivals(void) {
	uint32_t info[SK_MEMINFO_VARS], sum = 0;
	for (int i = 0; i < sinks.count; i++) {
		socklen_t size = sizeof info;
		if (getsockopt(sinks.fds[i], SOL_SOCKET, SO_MEMINFO, info, &size) || size != sizeof info)
			fail("count arrivals");
		sum += info[SK_MEMINFO_DROPS];
	}
	return sum;
}

/* waiting returns how many bytes the kernel holds for the device. */
static unsigned long waiting(void) {
	char line[256];
	unsigned long sum = 0, bytes;
	unsigned port;
	FILE *f = fopen("/proc/self/net/udp", "r");
	if (!f)
		fail("/proc/self/net/udp");
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%*d: %*x:%x %*x:%*x %*x %*x:%lx", &port, &bytes) == 2 && (int)port == device)
			sum += bytes;
	fclose(f);
	return sum;
}

/* drain waits until no message arrives and none can arrive later, because later
 * ones would count with the next burst. The device may not get its core for a
 * long time. It is empty when its queue was empty and no message arrived during
 * the DRAINED nanoseconds after that. */
static uint32_t drain(int collecting) {
	uint32_t last = arrivals();
	int64_t at = now(CLOCK_MONOTONIC), since = at, moved = at;
	int none = 0; /* the device's queue was empty at since */
	for (;;) {
		usleep(1000);
		for (int i = 0; collecting && i < sinks.count; i++)
			collect(sinks.fds[i]);
		at = now(CLOCK_MONOTONIC);
		uint32_t n = arrivals();
		if (n != last) {
			since = moved = at;
			last = n;
			none = 0;
		} else if (at >= since + DRAINED) {
			if (none || at >= moved + STUCK)
				return last;
			since = at;
			none = !waiting();
		}
	}
}

/* gap returns the time from one burst to the next, in ns. */
static double gap(double mean, int random) {
	return random ? -log(drand48() + 1e-12) * mean : mean;
}

static int by_size(const void *a, const void *b) {
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static void run(double rate, double seconds, int latency) {
	for (int i = 0; i < sinks.count; i++)
		filter(sinks.fds[i], latency);
	sampled = 0;
	uint64_t sent = 0, wanted = rate * seconds;
	uint32_t before = arrivals();
	int64_t start = now(CLOCK_MONOTONIC), at = start, give_up = start + 2e9 * seconds;
	double due = start, late = 0;
	for (unsigned sink = 0; sent < wanted && at < give_up; at = now(CLOCK_MONOTONIC)) {
		if (at < due) {
			if (latency)
				collect(sinks.fds[sink++ % sinks.count]);
			continue;
		}
		struct burst *b = &bursts[next_burst];
		next_burst = next_burst + 1 < total ? next_burst + 1 : 0;
		if (at - due > late)
			late = at - due;
		if (latency)
			stamp(b);
		send_burst(b);
		sent += b->count;
		due += gap(b->count * 1e9 / rate, latency);
	}
	double took = (now(CLOCK_MONOTONIC) - start) / 1e9;
	uint32_t punctual = arrivals() - before + (uint32_t)sampled;
	uint32_t arrived = drain(latency) - before + (uint32_t)sampled;
	printf("%llu %.6f %u %u", (unsigned long long)sent, took, punctual, arrived);
	if (latency) {
		static const double shares[] = {0.5, 0.9, 0.99, 0.999, 1};
		qsort(samples, sampled, sizeof *samples, by_size);
		printf(" %.0f %zu", late, sampled);
		for (size_t i = 0; sampled && i < sizeof shares / sizeof *shares; i++)
			printf(" %u", samples[(size_t)(shares[i] * (sampled - 1))]);
	}
	puts("");
	fflush(stdout);
}

int main(int argc, char **argv) {
	if (argc != 5) {
		fprintf(stderr, "usage: load TARGET SOURCE+COUNT SINK+COUNT CORPUS\n");
		return 2;
	}
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files))
		fail("limits");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files))
		fail("open files");
	read_corpus(argv[4]);
	device = atoi(argv[1]);
	open_ports(&sources, argv[2], device);
	open_ports(&sinks, argv[3], 0);
	if (!(samples = malloc(SAMPLES * sizeof *samples)))
		fail("samples");
	puts("ready");
	fflush(stdout);
	char what[16];
	double rate, seconds;
	while (scanf("%15s %lf %lf", what, &rate, &seconds) == 3)
		run(rate, seconds, !strcmp(what, "latency"));
	return 0;
}
