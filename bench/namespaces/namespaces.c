/* Makes named network namespaces on a bridge, which is in a namespace of its
 * own, and removes them. It uses only the necessary system calls and netlink
 * messages: the least work of fabric/bridge and internal/netns.
 *
 * usage: namespaces PREFIX COUNT
 *
 * It prints the seconds of making and the seconds of removing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* A netlink message under construction. */
struct message {
	struct nlmsghdr head;
	char body[1024];
};

static void *append(struct message *m, size_t size)
{
	void *at = (char *)m + NLMSG_ALIGN(m->head.nlmsg_len);

	m->head.nlmsg_len = NLMSG_ALIGN(m->head.nlmsg_len) + size;
	memset(at, 0, size);
	return at;
}

static void begin(struct message *m, int type, int flags, const void *body, size_t size)
{
	memset(m, 0, sizeof *m);
	m->head.nlmsg_len = NLMSG_HDRLEN;
	m->head.nlmsg_type = type;
	m->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	memcpy(append(m, size), body, size);
}

static struct rtattr *put(struct message *m, int type, const void *data, size_t size)
{
	struct rtattr *a = append(m, RTA_LENGTH(size));

	a->rta_type = type;
	a->rta_len = RTA_LENGTH(size);
	if (size)
		memcpy(RTA_DATA(a), data, size);
	return a;
}

static void end(struct message *m, struct rtattr *nest)
{
	nest->rta_len = (char *)m + m->head.nlmsg_len - (char *)nest;
}

static int open_netlink(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		die("netlink");
	return fd;
}

static void call(int fd, struct message *m, const char *what)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[1024];
	} answer;

	if (send(fd, m, m->head.nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
		die(what);
	if (answer.head.nlmsg_type == NLMSG_ERROR && answer.error.error) {
		errno = -answer.error.error;
		die(what);
	}
}

static void raise_link(int fd, int index)
{
	struct ifinfomsg link = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
	struct message m;

	begin(&m, RTM_NEWLINK, 0, &link, sizeof link);
	call(fd, &m, "up");
}

static void make_bridge(int fd)
{
	struct ifinfomsg link = {.ifi_flags = IFF_UP, .ifi_change = IFF_UP};
	struct rtattr *info, *data;
	unsigned char off = 0;
	struct message m;

	begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof link);
	put(&m, IFLA_IFNAME, "br0", 4);
	info = put(&m, IFLA_LINKINFO, NULL, 0);
	put(&m, IFLA_INFO_KIND, "bridge", 6);
	data = put(&m, IFLA_INFO_DATA, NULL, 0);
	put(&m, IFLA_BR_MCAST_SNOOPING, &off, 1);
	end(&m, data);
	end(&m, info);
	call(fd, &m, "bridge");
}

static const unsigned pairs = 1; /* interface group of the outer ends, to remove them in one call */

static void make_pair(int fd, const char *name, int master, int namespace)
{
	struct ifinfomsg link = {.ifi_flags = IFF_UP, .ifi_change = IFF_UP}, none = {0};
	struct rtattr *info, *data, *peer;
	struct message m;

	begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof link);
	put(&m, IFLA_IFNAME, name, strlen(name) + 1);
	put(&m, IFLA_MASTER, &master, sizeof master);
	put(&m, IFLA_GROUP, &pairs, sizeof pairs);
	info = put(&m, IFLA_LINKINFO, NULL, 0);
	put(&m, IFLA_INFO_KIND, "veth", 4);
	data = put(&m, IFLA_INFO_DATA, NULL, 0);
	peer = put(&m, VETH_INFO_PEER, &none, sizeof none);
	put(&m, IFLA_IFNAME, "eth0", 5);
	put(&m, IFLA_NET_NS_FD, &namespace, sizeof namespace);
	end(&m, peer);
	end(&m, data);
	end(&m, info);
	call(fd, &m, "veth");
}

static void remove_pairs(int fd)
{
	struct ifinfomsg link = {0};
	struct message m;

	begin(&m, RTM_DELLINK, 0, &link, sizeof link);
	put(&m, IFLA_GROUP, &pairs, sizeof pairs);
	call(fd, &m, "remove");
}

static int find_link(int fd, const char *name)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
		char rest[8192];
	} answer;
	struct ifinfomsg any = {0};
	struct message m;

	begin(&m, RTM_GETLINK, 0, &any, sizeof any);
	m.head.nlmsg_flags = NLM_F_REQUEST;
	put(&m, IFLA_IFNAME, name, strlen(name) + 1);
	if (send(fd, &m, m.head.nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0 || answer.head.nlmsg_type != RTM_NEWLINK)
		die(name);
	return answer.link.ifi_index;
}

static void give_address(int fd, int index, int number)
{
	struct ifaddrmsg address = {.ifa_family = AF_INET, .ifa_prefixlen = 16, .ifa_index = index};
	unsigned in = htonl(0xc6120000 + number); /* 198.18.0.0 */
	struct message m;

	begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &address, sizeof address);
	put(&m, IFA_LOCAL, &in, 4);
	put(&m, IFA_ADDRESS, &in, 4);
	call(fd, &m, "address");
}

static void set(const char *file, const char *value)
{
	int fd = open(file, O_WRONLY);

	if (fd < 0)
		return; /* as a kernel without it */
	if (write(fd, value, 1) != 1)
		die(file);
	close(fd);
}

/* Makes a named namespace with lo up, and enters it. */
static void make_namespace(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_RDONLY, 0444);

	if (fd < 0)
		die(path);
	close(fd);
	if (unshare(CLONE_NEWNET))
		die("unshare");
	if (mount("/proc/thread-self/ns/net", path, "", MS_BIND, ""))
		die("mount");
	fd = open_netlink();
	raise_link(fd, 1);
	close(fd);
}

static void remove_namespace(const char *path)
{
	if (umount2(path, MNT_DETACH) || unlink(path))
		die(path);
}

int main(int argc, char **argv)
{
	char path[256], name[32];
	double first, second;
	int home, fd, count, bridge;

	if (argc != 3)
		return 2;
	count = atoi(argv[2]);
	home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	first = now();
	snprintf(path, sizeof path, "/run/netns/%s-fabric", argv[1]);
	make_namespace(path);
	set("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
	set("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
	set("/proc/sys/net/bridge/bridge-nf-call-iptables", "0");
	fd = open_netlink();
	make_bridge(fd);
	bridge = find_link(fd, "br0");
	for (int i = 1; i <= count; i++) {
		int inside, namespace, index;

		snprintf(path, sizeof path, "/run/netns/%s-%d", argv[1], i);
		make_namespace(path);
		inside = open_netlink();
		namespace = open(path, O_RDONLY | O_CLOEXEC);
		snprintf(name, sizeof name, "p%d", i);
		make_pair(fd, name, bridge, namespace);
		set("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1");
		index = find_link(inside, "eth0");
		give_address(inside, index, i);
		raise_link(inside, index);
		close(inside);
		close(namespace);
	}
	if (setns(home, CLONE_NEWNET))
		die("setns");
	second = now();
	remove_pairs(fd);
	close(fd);
	snprintf(path, sizeof path, "/run/netns/%s-fabric", argv[1]);
	remove_namespace(path);
	for (int i = 1; i <= count; i++) {
		snprintf(path, sizeof path, "/run/netns/%s-%d", argv[1], i);
		remove_namespace(path);
	}
	printf("%f %f\n", second - first, now() - second);
	return 0;
}
