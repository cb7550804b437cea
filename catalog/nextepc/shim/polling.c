// NextEPC's threads poll with timeouts of a millisecond or less, so that an idle
// daemon uses a good part of a CPU. Preloaded, this makes the shortest timeout 5 ms.
// An event still ends the wait at once; only NextEPC's timers get coarser.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/select.h>
#include <time.h>

static const long long SHORTEST = 5 * 1000 * 1000; // ns
// A deadline that is longer past than this, in ns, is one of another clock.
static const long long FORGOTTEN = 60 * 1000000000LL;

int select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout)
{
	int (*next)(int, fd_set *, fd_set *, fd_set *, struct timeval *) = (__typeof__(&select))dlsym(RTLD_NEXT, "select");
	struct timeval shortest = {.tv_usec = SHORTEST / 1000};

	if (timeout != NULL && timeout->tv_sec == 0 && timeout->tv_usec < shortest.tv_usec)
		timeout = &shortest;
	return next(count, readable, writable, exceptional, timeout);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
	// The version that NextEPC's libraries are linked to on amd64; others have one only.
	static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	struct timespec now, later;
	long long left;

	if (next == NULL)
		next = (__typeof__(next))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
	if (next == NULL)
		next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	clock_gettime(CLOCK_REALTIME, &now);
	left = (until->tv_sec - now.tv_sec) * 1000000000LL + until->tv_nsec - now.tv_nsec;
	if (left < SHORTEST && left > -FORGOTTEN) {
		later.tv_sec = now.tv_sec + (now.tv_nsec + SHORTEST) / 1000000000LL;
		later.tv_nsec = (now.tv_nsec + SHORTEST) % 1000000000LL;
		until = &later;
	}
	return next(condition, mutex, until);
}
