/*
 * The init program of a unikernel image. The application is the only other
 * program in the image.
 *
 * It mounts the usual file systems, brings up lo and eth0 (kernel parameter
 * ip=, Documentation/admin-guide/nfs/nfsroot.rst), runs the application and
 * sends its output to the host. It ends the application when the host asks for
 * that, reports to the host how the application ended, and powers off.
 *
 * A start list describes the application. Each record is a letter, text and a
 * NUL: d the working folder, e an environment variable, a an argument. The
 * image has a start list in /vitrine/start. The host may send another.
 *
 * The channels to the host are virtio ports, by name. vitrine.log carries the
 * output, and vitrine.out, if present, standard output alone. On
 * vitrine.control the host sends the line "start BYTES" and that many bytes of
 * records (0: use the image's list), and later perhaps the line "term". The
 * guest sends the lines "running", "failed WHY", "exit STATUS", "signal NUMBER"
 * or "memory". Without ports, everything goes to the console.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RECORDS = 4096, PORTS_WAIT_MS = 10000 };

static int control = -1; /* to the host; -1: none */

/* tell sends one line to the host, or prints it if there is no control port. */
static void tell(const char *format, ...)
{
	char line[1024];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	if (control >= 0) {
		(void)!write(control, line, n);
		return;
	}
	fprintf(stderr, "vitrine init: %.*s", n, line);
}

/* off ends the machine by a reset: the host runs it without reboot. */
static void off(void)
{
	sync();
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

static void fail(const char *what)
{
	tell("failed %s: %s", what, strerror(errno));
	off();
}

static void mounts(void)
{
	static const struct { const char *type, *target, *options; mode_t mode; } list[] = {
		{ "proc", "/proc", NULL, 0555 },
		{ "sysfs", "/sys", NULL, 0555 },
		{ "devtmpfs", "/dev", NULL, 0755 },
		{ "tmpfs", "/dev/shm", "mode=1777", 01777 },
	};
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		mkdir(list[i].target, list[i].mode);
		if (mount(list[i].type, list[i].target, list[i].type, MS_NOSUID, list[i].options) < 0)
			fail(list[i].target);
	}
	(void)!symlink("/proc/self/fd", "/dev/fd");
	(void)!symlink("/proc/self/fd/0", "/dev/stdin");
	(void)!symlink("/proc/self/fd/1", "/dev/stdout");
	(void)!symlink("/proc/self/fd/2", "/dev/stderr");
}

/* slurp returns the content of a small file; NULL: no such file. */
static char *slurp(const char *path, size_t *size)
{
	size_t room = 1 << 16, n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	char *text = malloc(room + 1);
	for (;;) {
		ssize_t got = text ? read(fd, text + n, room - n) : -1;
		if (got < 0)
			fail(path);
		if (got == 0)
			break;
		n += got;
		if (n == room)
			text = realloc(text, (room *= 2) + 1);
	}
	close(fd);
	text[n] = 0;
	if (size)
		*size = n;
	return text;
}

static void put(struct sockaddr *to, const char *address)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	if (inet_pton(AF_INET, address, &in.sin_addr) != 1) {
		errno = EINVAL;
		fail(address);
	}
	memcpy(to, &in, sizeof in);
}

static void up(int s, const char *device)
{
	struct ifreq r = { 0 };
	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", device);
	if (ioctl(s, SIOCGIFFLAGS, &r) < 0)
		fail(device);
	r.ifr_flags |= IFF_UP;
	if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
		fail(device);
}

/* network reads ip=ADDRESS:SERVER:GATEWAY:MASK:HOST:DEVICE:AUTOCONF. */
static void network(char *cmdline)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		fail("socket");
	up(s, "lo");
	char *at = strncmp(cmdline, "ip=", 3) ? strstr(cmdline, " ip=") : cmdline;
	if (!at)
		return;
	at = strchr(at, '=') + 1;
	at[strcspn(at, " \n")] = 0;
	char *field[7] = { "", "", "", "", "", "", "" };
	for (int i = 0; i < 7 && at; i++)
		field[i] = strsep(&at, ":");
	const char *device = *field[5] ? field[5] : "eth0";
	struct ifreq r = { 0 };
	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", device);
	put(&r.ifr_addr, field[0]);
	if (ioctl(s, SIOCSIFADDR, &r) < 0)
		fail(device);
	if (*field[3]) {
		put(&r.ifr_netmask, field[3]);
		if (ioctl(s, SIOCSIFNETMASK, &r) < 0)
			fail(field[3]);
	}
	up(s, device);
	if (*field[2]) {
		struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
		put(&route.rt_gateway, field[2]);
		put(&route.rt_dst, "0.0.0.0");
		put(&route.rt_genmask, "0.0.0.0");
		if (ioctl(s, SIOCADDRT, &route) < 0)
			fail(field[2]);
	}
	if (*field[4])
		(void)!sethostname(field[4], strlen(field[4]));
	close(s);
}

/* port opens the virtio port of that name; -1: there is none. */
static int port(const char *name)
{
	const char *class = "/sys/class/virtio-ports";
	int fd = -1;
	DIR *dir = opendir(class);
	for (struct dirent *e; dir && fd < 0 && (e = readdir(dir));) {
		char path[320];
		snprintf(path, sizeof path, "%s/%s/name", class, e->d_name);
		char *is = *e->d_name == '.' ? NULL : slurp(path, NULL);
		if (!is)
			continue;
		is[strcspn(is, "\n")] = 0;
		if (!strcmp(is, name)) {
			snprintf(path, sizeof path, "/dev/%s", e->d_name);
			fd = open(path, O_RDWR | O_CLOEXEC);
		}
		free(is);
	}
	if (dir)
		closedir(dir);
	return fd;
}

/* awaited opens a virtio port that the kernel parameters announce. The device
 * appears some time after the start of the machine. */
static int awaited(const char *name)
{
	for (int ms = 0; ms < PORTS_WAIT_MS; ms++) {
		int fd = port(name);
		if (fd >= 0)
			return fd;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	errno = ENODEV;
	fail(name);
	return -1;
}

struct start {
	char *dir, *argv[MAX_RECORDS], *envp[MAX_RECORDS];
};

/* handed_over reads the records that the host sends; NULL: it sends none. */
static char *handed_over(size_t *size)
{
	char line[32] = { 0 };
	if (control < 0)
		return NULL;
	for (size_t n = 0; n < sizeof line - 1 && !strchr(line, '\n'); n++)
		if (read(control, line + n, 1) != 1)
			fail("reading what to run");
	if (sscanf(line, "start %zu\n", size) != 1 || *size > 1 << 20) {
		errno = EPROTO;
		fail(line);
	}
	char *text = *size ? calloc(1, *size + 1) : NULL;
	for (size_t n = 0; n < *size;) {
		ssize_t got = read(control, text + n, *size - n);
		if (got <= 0)
			fail("reading what to run");
		n += got;
	}
	return text;
}

static void read_start(struct start *to)
{
	size_t size = 0;
	char *text = handed_over(&size);
	if (!text)
		text = slurp("/vitrine/start", &size);
	if (!text)
		fail("/vitrine/start");
	int args = 0, env = 0;
	for (char *at = text; at < text + size; at += strlen(at) + 1) {
		if (*at == 'd')
			to->dir = at + 1;
		else if (*at == 'a' && args < MAX_RECORDS - 1)
			to->argv[args++] = at + 1;
		else if (*at == 'e' && env < MAX_RECORDS - 1)
			to->envp[env++] = at + 1;
	}
	errno = EINVAL;
	if (!args)
		fail("nothing to run");
}

/* enter makes the working folder and its parents, and changes to it. */
static int enter(char *dir)
{
	for (char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(dir, 0755);
		*slash = '/';
	}
	mkdir(dir, 0755);
	return chdir(dir);
}

/* run starts the application with out and err as its output. It does not return
 * in the child. */
static pid_t run(struct start *start, int out, int err)
{
	int failed[2], why = 0;
	if (pipe2(failed, O_CLOEXEC) < 0)
		fail("pipe");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child > 0) {
		close(failed[1]);
		if (read(failed[0], &why, sizeof why) == sizeof why) {
			errno = why;
			fail(start->argv[0]);
		}
		close(failed[0]);
		return child;
	}
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	struct rlimit files = { 1 << 20, 1 << 20 };
	setrlimit(RLIMIT_NOFILE, &files);
	int score = open("/proc/self/oom_score_adj", O_WRONLY);
	(void)!write(score, "0", 1);
	close(score);
	setsid();
	int in = open("/dev/null", O_RDONLY);
	if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0 && (!start->dir || enter(start->dir) == 0)) {
		close(in);
		execvpe(start->argv[0], start->argv, start->envp);
	}
	why = errno;
	(void)!write(failed[1], &why, sizeof why);
	_exit(127);
}

/* pass copies the available output; 0: end of file. */
static int pass(int from, int to)
{
	static char buffer[1 << 16];
	ssize_t n = read(from, buffer, sizeof buffer);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	for (ssize_t done = 0; done < n;) {
		ssize_t wrote = write(to, buffer + done, n - done);
		if (wrote <= 0 && errno != EINTR && errno != EAGAIN)
			return 0;
		done += wrote > 0 ? wrote : 0;
	}
	return n > 0;
}

static int out_of_memory(void)
{
	char *stat = slurp("/proc/vmstat", NULL), *at = stat ? strstr(stat, "\noom_kill ") : NULL;
	return at && atol(at + strlen("\noom_kill ")) > 0;
}

/* reap stores the status of the application and returns 1 if it has ended. */
static int reap(pid_t child, int *status)
{
	int ended = 0, s;
	for (pid_t pid; (pid = waitpid(-1, &s, WNOHANG)) > 0;) {
		if (pid == child) {
			*status = s;
			ended = 1;
		}
	}
	return ended;
}

/* serve copies output and handles commands of the host until the application ends. */
static int serve(pid_t child, int children, struct pollfd *pipes, const int *sinks)
{
	int status = 0;
	struct pollfd fds[4] = { { children, POLLIN, 0 }, { control, POLLIN, 0 }, pipes[0], pipes[1] };
	for (;;) {
		if (poll(fds, 4, -1) < 0)
			continue;
		if (fds[1].revents & POLLIN) {
			char words[256];
			ssize_t n = read(control, words, sizeof words - 1);
			words[n > 0 ? n : 0] = 0;
			if (n <= 0)
				fds[1].fd = -1;
			if (strstr(words, "term"))
				kill(child, SIGTERM);
		} else if (fds[1].revents) {
			fds[1].fd = -1; /* the host closed the port */
		}
		for (int i = 0; i < 2; i++)
			if (fds[2 + i].revents && !pass(fds[2 + i].fd, sinks[i]))
				fds[2 + i].fd = -1;
		if (fds[0].revents & POLLIN) {
			struct signalfd_siginfo info;
			(void)!read(children, &info, sizeof info);
			if (reap(child, &status))
				return status;
		}
	}
}

int main(void)
{
	mounts();
	size_t size;
	char *cmdline = slurp("/proc/cmdline", &size);
	if (!cmdline)
		fail("/proc/cmdline");
	int log = 2, out = 2;
	if (strstr(cmdline, "vitrine.ports")) {
		control = awaited("vitrine.control");
		log = out = awaited("vitrine.log");
	}
	if (strstr(cmdline, "vitrine.ports=out"))
		out = awaited("vitrine.out");
	network(cmdline);
	static struct start start;
	read_start(&start);

	sigset_t chld;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	int children = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	(void)!write(score, "-1000", 5);
	close(score);

	int o[2], e[2];
	if (children < 0 || pipe2(o, O_CLOEXEC) < 0 || pipe2(e, O_CLOEXEC) < 0)
		fail("pipe");
	if (out == log) { /* one pipe keeps the order */
		close(e[0]);
		close(e[1]);
		e[0] = -1;
		e[1] = o[1];
	}
	fcntl(o[0], F_SETFL, O_NONBLOCK);
	if (e[0] >= 0)
		fcntl(e[0], F_SETFL, O_NONBLOCK);
	pid_t child = run(&start, o[1], e[1]);
	tell("running");

	struct pollfd pipes[2] = { { o[0], POLLIN, 0 }, { e[0], POLLIN, 0 } };
	int sinks[2] = { out, log };
	int status = serve(child, children, pipes, sinks);
	kill(-1, SIGKILL); /* processes that outlive the application */
	for (int i = 0; i < 2; i++)
		for (struct pollfd p = pipes[i]; p.fd >= 0 && poll(&p, 1, 0) == 1 && p.revents & POLLIN && pass(p.fd, sinks[i]);)
			;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && out_of_memory())
		tell("memory");
	else if (WIFSIGNALED(status))
		tell("signal %d", WTERMSIG(status));
	else
		tell("exit %d", WEXITSTATUS(status));
	off();
}
