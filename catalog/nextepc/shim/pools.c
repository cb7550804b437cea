// NextEPC's own heap has pools of fixed size, which some dozens of attaches use up:
// then it aborts. These functions take the place of those of libcore and use the
// heap of the C library. Preload it.

#include <stdlib.h>

void *core_malloc(size_t size)
{
	return malloc(size);
}

void *core_calloc(size_t count, size_t size)
{
	return calloc(count, size);
}

void *core_realloc(void *old, size_t size)
{
	return realloc(old, size);
}

int core_free(void *old)
{
	free(old);
	return 0; // CORE_OK
}
