/* Reads files at a fixed rate and drops what it read: the least cost of
   monitoring. Standard input lists the files, one per line:

     every turn namespace path

   It reads path in each sample whose number modulo `every` is `turn`, and opens
   it in the network namespace ("-": that of this process). Arguments: the
   interval in microseconds, and the number of samples. It prints that number. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct { int fd, every, turn; } files[4096];

int main(int argc, char **argv)
{
	static char buffer[1 << 16];
	char namespace[512], path[512];
	int n = 0, every, turn;

	if (argc != 3)
		return 2;
	while (n < 4096 && scanf("%d %d %511s %511s", &every, &turn, namespace, path) == 4) {
		if (strcmp(namespace, "-") != 0) {
			int ns = open(namespace, O_RDONLY | O_CLOEXEC);
			if (ns < 0 || setns(ns, CLONE_NEWNET) < 0) {
				perror(namespace);
				return 1;
			}
			close(ns);
		}
		files[n].fd = open(path, O_RDONLY | O_CLOEXEC);
		if (files[n].fd < 0) {
			perror(path);
			return 1;
		}
		files[n].every = every;
		files[n++].turn = turn;
	}

	long interval = atol(argv[1]) * 1000, samples = atol(argv[2]);
	struct timespec due;
	clock_gettime(CLOCK_MONOTONIC, &due);
	for (long sample = 0; sample < samples; sample++) {
		for (int i = 0; i < n; i++)
			if (sample % files[i].every == files[i].turn &&
			    pread(files[i].fd, buffer, sizeof buffer, 0) < 0) {
				perror("pread");
				return 1;
			}
		due.tv_nsec += interval;
		while (due.tv_nsec >= 1000000000) {
			due.tv_nsec -= 1000000000;
			due.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
	}
	printf("%ld\n", samples);
	return 0;
}
