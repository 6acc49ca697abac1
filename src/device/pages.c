/* pages: host memory straight from the kernel, so that giving it back really gives it back. */
#include "device/device_impl.h"

#include <sys/mman.h>
#include <unistd.h>

size_t dev_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *dev_pages_map(size_t n)
{
    return dev_pages_map_near(NULL, n);
}

void *dev_pages_map_near(void *at, size_t n)
{
    /* NORESERVE: budgets decide what fits, and a 24 GiB null device must not need 24 GiB. */
    void *p =
        mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void dev_pages_unmap(void *ptr, size_t n)
{
    if (ptr && munmap(ptr, n))
        BUG("munmap(%p, %zu)", ptr, n);
}

bool dev_pages_discard(void *ptr, size_t n)
{
    return madvise(ptr, n, MADV_DONTNEED) == 0;
}
