/* Memory of cards: plain, reserved and mapped, and of the host: pinned, registered. */
#include "support/fake_cuda/impl.h"

#include <stdlib.h>
#include <sys/mman.h>

struct memory { /* of cuMemCreate */
    struct memory *next;
    int card;
    size_t n;
    bool handle, mapped;
};

struct mapping {
    struct mapping *next;
    uint64_t addr;
    size_t n;
    struct memory *memory; /* NULL: plain or pinned */
    bool access[FAKE_CARDS];
    bool host; /* pinned host memory, of this card's context; registered: without a base */
    int card;
    void *base; /* what munmap wants, of plain ones */
    size_t base_n;
};

struct reservation {
    struct reservation *next;
    uint64_t addr;
    size_t n;
    void *base;
    size_t base_n;
};

#define PAGE 4096

static struct memory *memories;
static struct mapping *mappings;
static struct reservation *reservations;

void fake_memory_reset(void)
{
    while (mappings) {
        struct mapping *m;
        POP(mappings, m);
        if (m->base)
            munmap(m->base, m->base_n);
        free(m);
    }
    while (memories) {
        struct memory *m;
        POP(memories, m);
        free(m);
    }
    while (reservations) {
        struct reservation *a;
        POP(reservations, a);
        munmap(a->base, a->base_n);
        free(a);
    }
}

static bool take(int card, size_t n)
{
    if (n > fake_machine.total - fake_machine.used[card])
        return false;
    fake_machine.used[card] += n;
    return true;
}

static uint64_t pages(void *near, size_t n, size_t align, void **base, size_t *base_n)
{
    *base_n = align > PAGE ? n + align : (n + PAGE - 1) / PAGE * PAGE;
    *base = mmap(near, *base_n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *base == MAP_FAILED ? 0
                               : ((uint64_t)(uintptr_t)*base + align - 1) & ~(uint64_t)(align - 1);
}

static size_t granularity(void)
{
    return fake_machine.granularity ? fake_machine.granularity : (size_t)2 << 20;
}

CUresult cuMemGetInfo(size_t *unused, size_t *total)
{
    ENTER_CONTEXT();
    *total = fake_machine.total;
    *unused = fake_machine.total - fake_machine.used[c->card];
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemAlloc(CUdeviceptr *out, size_t n)
{
    ENTER_CONTEXT();
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    if (!take(c->card, n)) {
        free(m);
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    m->addr = pages(NULL, n + PAGE, granularity(), &m->base, &m->base_n);
    m->addr += fake_machine.misaligned ? PAGE : 0;
    m->n = n;
    m->access[c->card] = true;
    mprotect(m->base, m->base_n, PROT_READ | PROT_WRITE);
    m->next = mappings;
    mappings = m;
    fake_machine.plain++;
    *out = m->addr;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemFree(CUdeviceptr addr)
{
    ENTER_CONTEXT();
    struct mapping **at = &mappings, *m;
    while (*at && ((*at)->addr != addr || (*at)->memory || (*at)->host))
        at = &(*at)->next;
    m = *at;
    CHECK(m, CUDA_ERROR_INVALID_VALUE);
    *at = m->next;
    munmap(m->base, m->base_n);
    fake_machine.used[c->card] -= m->n;
    fake_machine.plain--;
    free(m);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p,
                                       CUmemAllocationGranularity_flags flags)
{
    (void)p, (void)flags;
    ENTER();
    *out = granularity();
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t n, size_t align, CUdeviceptr hint,
                             unsigned long long flags)
{
    (void)hint, (void)flags;
    ENTER();
    CHECK(n && n % granularity() == 0, CUDA_ERROR_INVALID_VALUE);
    struct reservation *a = calloc(1, sizeof *a);
    CHECK(a, CUDA_ERROR_OUT_OF_MEMORY);
    a->addr = pages(NULL, n, align, &a->base, &a->base_n);
    a->n = n;
    if (!a->addr) {
        free(a);
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    a->next = reservations;
    reservations = a;
    fake_machine.reservations++;
    *out = a->addr;
    return fake_leave(CUDA_SUCCESS);
}

static bool overlaps(uint64_t a, size_t n, uint64_t b, size_t m)
{
    return a < b + m && b < a + n;
}

static bool is_mapped(uint64_t addr, size_t n) /* any of it */
{
    for (struct mapping *m = mappings; m; m = m->next)
        if (overlaps(addr, n, m->addr, m->n))
            return true;
    return false;
}

CUresult cuMemAddressFree(CUdeviceptr addr, size_t n)
{
    ENTER();
    struct reservation **at = &reservations, *a;
    while (*at && (*at)->addr != addr)
        at = &(*at)->next;
    a = *at;
    CHECK(a && a->n == n && !is_mapped(addr, n), CUDA_ERROR_INVALID_VALUE);
    *at = a->next;
    munmap(a->base, a->base_n);
    free(a);
    fake_machine.reservations--;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t n, const CUmemAllocationProp *p,
                     unsigned long long flags)
{
    (void)flags;
    ENTER();
    CHECK(n && n % granularity() == 0 && p->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
              p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
              p->location.id < fake_machine.cards,
          CUDA_ERROR_INVALID_VALUE);
    CHECK(!fake_context[p->location.id].lost, (CUresult)fake_context[p->location.id].lost);
    struct memory *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    if (!take(p->location.id, n)) {
        free(m);
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *m = (struct memory) { .next = memories, .card = p->location.id, .n = n, .handle = true };
    memories = m;
    fake_machine.handles++;
    fake_machine.creates++;
    *out = (uintptr_t)m;
    return fake_leave(CUDA_SUCCESS);
}

static void memory_unref(struct memory *m)
{
    struct memory **at = &memories;
    if (m->handle || m->mapped)
        return;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    fake_machine.used[m->card] -= m->n;
    free(m);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
    ENTER();
    struct memory *m = (struct memory *)(uintptr_t)h;
    CHECK(m->handle, CUDA_ERROR_INVALID_VALUE);
    m->handle = false;
    fake_machine.handles--;
    memory_unref(m);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemMap(CUdeviceptr addr, size_t n, size_t offset, CUmemGenericAllocationHandle h,
                  unsigned long long flags)
{
    (void)flags;
    ENTER();
    struct memory *mem = (struct memory *)(uintptr_t)h;
    struct reservation *a = reservations;
    while (a && !(addr >= a->addr && n <= a->n && addr - a->addr <= a->n - n))
        a = a->next;
    CHECK(a && !offset && n == mem->n && !mem->mapped && !is_mapped(addr, n),
          CUDA_ERROR_INVALID_VALUE);
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    *m = (struct mapping) { .next = mappings, .addr = addr, .n = n, .memory = mem };
    mappings = m;
    mem->mapped = true;
    fake_machine.mappings++;
    fake_machine.maps++;
    return fake_leave(CUDA_SUCCESS);
}

/* Bytes of [addr, addr+n) in mappings that lie wholly inside; false: one sticks out. */
static bool whole(uint64_t addr, size_t n, size_t *bytes)
{
    *bytes = 0;
    for (struct mapping *m = mappings; m; m = m->next) {
        if (!overlaps(addr, n, m->addr, m->n))
            continue;
        if (m->addr < addr || m->addr + m->n > addr + n)
            return false;
        *bytes += m->n;
    }
    return true;
}

CUresult cuMemUnmap(CUdeviceptr addr, size_t n)
{
    ENTER();
    size_t bytes;
    CHECK(whole(addr, n, &bytes) && bytes == n, CUDA_ERROR_INVALID_VALUE);
    for (struct mapping **at = &mappings, *m = *at; m; m = *at) {
        if (!overlaps(addr, n, m->addr, m->n)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        mmap((void *)(uintptr_t)m->addr, m->n, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        m->memory->mapped = false;
        memory_unref(m->memory);
        free(m);
        fake_machine.mappings--;
    }
    fake_machine.unmaps++;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr addr, size_t n, const CUmemAccessDesc *desc, size_t count)
{
    ENTER();
    size_t bytes;
    CHECK(whole(addr, n, &bytes) && bytes == n && count, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        CHECK(!fake_context[desc[i].location.id].lost,
              (CUresult)fake_context[desc[i].location.id].lost);
    for (struct mapping *m = mappings; m; m = m->next)
        for (size_t i = 0; i < count && overlaps(addr, n, m->addr, m->n); i++)
            m->access[desc[i].location.id] = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    mprotect((void *)(uintptr_t)addr, n, PROT_READ | PROT_WRITE);
    fake_machine.accesses++;
    return fake_leave(CUDA_SUCCESS);
}

/* One lies right behind the other, if that can be had: whoever copies beyond the end of one gets
 * into the next. */
static void *behind_the_last(void)
{
    const size_t hole = (size_t)1 << 30;
    for (const struct mapping *m = mappings; m; m = m->next)
        if (m->host && m->base)
            return (char *)m->base + m->base_n;
    void *at = mmap(NULL, hole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    munmap(at, hole);
    return at;
}

CUresult cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    ENTER_CONTEXT();
    CHECK(flags == CU_MEMHOSTALLOC_PORTABLE && n <= fake_machine.host_total - fake_machine.pinned,
          flags == CU_MEMHOSTALLOC_PORTABLE ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    m->addr = pages(behind_the_last(), n, PAGE, &m->base, &m->base_n);
    m->n = n;
    m->host = true;
    m->card = c->card;
    mprotect(m->base, m->base_n, PROT_READ | PROT_WRITE);
    m->next = mappings;
    mappings = m;
    fake_machine.pinned += n;
    fake_machine.hosts++;
    *out = (void *)(uintptr_t)m->addr;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemFreeHost(void *p)
{
    ENTER_CONTEXT();
    struct mapping **at = &mappings, *m;
    while (*at && !((*at)->host && (*at)->base && (*at)->addr == (uintptr_t)p))
        at = &(*at)->next;
    m = *at;
    CHECK(m, CUDA_ERROR_INVALID_VALUE);
    *at = m->next;
    munmap(m->base, m->base_n);
    fake_machine.pinned -= m->n;
    fake_machine.hosts--;
    free(m);
    return fake_leave(CUDA_SUCCESS);
}

/* Every page has to be there and writable: the real one would get them itself, slowly. */
CUresult cuMemHostRegister(void *p, size_t n, unsigned flags)
{
    ENTER_CONTEXT();
    unsigned char page = 0;
    CHECK(flags == CU_MEMHOSTREGISTER_PORTABLE && n && (uintptr_t)p % PAGE == 0 && n % PAGE == 0,
          CUDA_ERROR_INVALID_VALUE);
    for (const struct mapping *m = mappings; m; m = m->next)
        CHECK(!m->host || !overlaps((uintptr_t)p, n, m->addr, m->n),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    for (size_t i = 0; i < n; i += PAGE)
        CHECK(!mincore((char *)p + i, PAGE, &page) && (page & 1), CUDA_ERROR_INVALID_VALUE);
    CHECK(n <= fake_machine.host_total - fake_machine.pinned, CUDA_ERROR_OUT_OF_MEMORY);
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    *m = (struct mapping) { mappings, .addr = (uintptr_t)p, .n = n, .host = true, .card = c->card };
    mappings = m;
    fake_machine.pinned += n;
    fake_machine.hosts++;
    fake_machine.registered++;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *p)
{
    ENTER_CONTEXT();
    struct mapping **at = &mappings, *m;
    while (*at && !((*at)->host && !(*at)->base && (*at)->addr == (uintptr_t)p))
        at = &(*at)->next;
    m = *at;
    CHECK(m, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    *at = m->next;
    fake_machine.pinned -= m->n;
    fake_machine.hosts--;
    free(m);
    return fake_leave(CUDA_SUCCESS);
}

void fake_free_pinned(int card)
{
    for (struct mapping **at = &mappings, *m = *at; m; m = *at) {
        if (!m->host || m->card != card) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        if (m->base)
            munmap(m->base, m->base_n);
        fake_machine.pinned -= m->n;
        fake_machine.hosts--;
        free(m);
    }
}

/* Plain memory is one allocation; mapped memory may be several mappings of one reservation. */
static bool same_allocation(const struct mapping *a, const struct mapping *b)
{
    if (!a->memory || !b->memory)
        return a == b;
    for (const struct reservation *r = reservations; r; r = r->next)
        if (overlaps(a->addr, a->n, r->addr, r->n))
            return overlaps(b->addr, b->n, r->addr, r->n);
    return false;
}

bool fake_reachable(int card, uint64_t addr, size_t n)
{
    const struct mapping *first = NULL;
    while (n) {
        const struct mapping *m = mappings;
        while (m && !(addr >= m->addr && addr - m->addr < m->n))
            m = m->next;
        first = first ? first : m;
        if (!m || m->host || !m->access[card] || !same_allocation(first, m))
            return false;
        size_t here = m->n - (size_t)(addr - m->addr);
        here = here < n ? here : n;
        addr += here;
        n -= here;
    }
    return true;
}

bool fake_host_whole(const void *ptr, size_t n)
{
    uint64_t at = (uintptr_t)ptr;
    for (const struct mapping *m = mappings; m; m = m->next)
        if (m->host && overlaps(at, n, m->addr, m->n) &&
            !(m->addr <= at && at + n <= m->addr + m->n))
            return false;
    return true;
}
