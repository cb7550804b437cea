// NextEPC buffers what it prints, so that a daemon that is killed leaves no log.
// Preloaded, this makes it print line by line.

#include <stdio.h>

__attribute__((constructor)) static void print_lines(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
}
