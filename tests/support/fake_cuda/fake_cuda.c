#include "support/fake_cuda.h"

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct CUctx_st { /* the primary context of a card */
    int card;
    long refs;
    int lost;
    bool peer[FAKE_CARDS]; /* enabled towards */
};

struct op {
    struct op *next;
    CUevent record, wait;
    uint64_t serial; /* of the record, or the one waited for */
    void *dst;
    const void *src;
    size_t n;
    bool spoil;
};

struct CUstream_st {
    CUstream next;
    CUcontext ctx;
    struct op *head, **tail;
};

struct CUevent_st {
    CUevent next;
    CUcontext ctx;
    uint64_t serial, reached; /* of records: the latest queued, the latest that happened */
    uint64_t at;
    bool destroyed;
};

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
#define STACK 8

#define PLAIN .cards = 1, .total = (size_t)256 << 20, .host_total = (size_t)1 << 30
static struct fake_cuda fake = { PLAIN };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st context[FAKE_CARDS];
static CUstream streams;
static CUevent events;
static struct memory *memories;
static struct mapping *mappings;
static struct reservation *reservations;
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth; /* stack[depth] is current */

struct fake_cuda *fake_cuda(void);
void fake_cuda_lose(int card, int with);
void fake_cuda_reset(void);

struct fake_cuda *fake_cuda(void)
{
    return &fake;
}

void fake_cuda_lose(int card, int with)
{
    context[card].lost = with;
}

#define POP(list, x)                                                                               \
    (x) = (list);                                                                                  \
    (list) = (x)->next

void fake_cuda_reset(void) /* what a test left behind goes, too */
{
    while (streams) {
        CUstream s;
        POP(streams, s);
        while (s->head) {
            struct op *o;
            POP(s->head, o);
            free(o);
        }
        free(s);
    }
    while (events) {
        CUevent e;
        POP(events, e);
        free(e);
    }
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
    fake = (struct fake_cuda) { PLAIN };
    memset(context, 0, sizeof context);
    depth = 0;
    stack[0] = NULL;
}

/* ---- every call ---- */

static bool meant(const char *name) /* "cuMemAlloc_v2" is cuMemAlloc */
{
    size_t n = fake.fail_name ? strlen(fake.fail_name) : 0;
    return !fake.fail_name ||
           (!strncmp(fake.fail_name, name, n) && (!name[n] || !strcmp(name + n, "_v2")));
}

static CUresult enter(const char *name)
{
    pthread_mutex_lock(&lock);
    fake.calls++;
    if (!fake.fail_at || !meant(name) || --fake.fail_at)
        return CUDA_SUCCESS;
    fake.failed = name;
    for (int i = 0; i < FAKE_CARDS && fake.fail_with == CUDA_ERROR_ILLEGAL_ADDRESS; i++)
        if (context[i].refs)
            context[i].lost = fake.fail_with;
    return (CUresult)fake.fail_with;
}

static CUresult leave(CUresult r)
{
    pthread_mutex_unlock(&lock);
    return r;
}

static CUresult current(CUcontext *out)
{
    *out = stack[depth];
    if (!*out)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(*out)->refs)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (CUresult)(*out)->lost;
}

#define ENTER()                                                                                    \
    CUresult r = enter(__func__);                                                                  \
    if (r)                                                                                         \
    return leave(r)
#define ENTER_CONTEXT()                                                                            \
    CUcontext c;                                                                                   \
    ENTER();                                                                                       \
    r = current(&c);                                                                               \
    if (r)                                                                                         \
    return leave(r)
#define CHECK(what, error)                                                                         \
    if (!(what))                                                                                   \
    return leave(error)

/* ---- the library ---- */

CUresult cuInit(unsigned flags)
{
    (void)flags;
    ENTER();
    return leave((CUresult)fake.init);
}

CUresult cuDriverGetVersion(int *v)
{
    ENTER();
    *v = 13000;
    return leave(CUDA_SUCCESS);
}

static const struct {
    CUresult r;
    const char *name, *text;
} errors[] = {
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
      "an illegal memory access was encountered" },
    { CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
};

CUresult cuGetErrorName(CUresult e, const char **out)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].r == e)
            *out = errors[i].name;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult e, const char **out)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].r == e)
            *out = errors[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- cards and contexts ---- */

CUresult cuDeviceGetCount(int *n)
{
    ENTER();
    *n = fake.cards;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    ENTER();
    CHECK(ordinal >= 0 && ordinal < fake.cards, CUDA_ERROR_INVALID_DEVICE);
    *out = ordinal;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int n, CUdevice d)
{
    ENTER();
    snprintf(name, (size_t)n, "Fake %d", d);
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice d)
{
    (void)d;
    ENTER();
    int sm = fake.sm ? fake.sm : 90;
    *out = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR              ? sm / 10
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR            ? sm % 10
           : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                ? 132
           : which == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR      ? 2048
           : which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN   ? 232448
           : which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ? !fake.no_vmm
                                                                              : 0;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b)
{
    ENTER();
    *can = fake.peer && a != b;
    return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
    ENTER();
    if (!context[d].refs++)
        context[d] = (struct CUctx_st) { .card = d, .refs = 1, .lost = context[d].lost };
    fake.contexts++;
    *out = &context[d];
    return leave(CUDA_SUCCESS);
}

/* Pinned memory goes with its context. */
static void free_pinned(int card)
{
    for (struct mapping **at = &mappings, *m = *at; m; m = *at) {
        if (!m->host || m->card != card) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        if (m->base)
            munmap(m->base, m->base_n);
        fake.pinned -= m->n;
        fake.hosts--;
        free(m);
    }
}

CUresult cuDevicePrimaryCtxRelease(CUdevice d)
{
    ENTER();
    CHECK(context[d].refs, CUDA_ERROR_INVALID_CONTEXT);
    if (--context[d].refs == 0) {
        context[d].lost = 0;
        free_pinned(d);
    }
    fake.contexts--;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext c)
{
    ENTER();
    stack[depth] = c;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent(CUcontext c)
{
    ENTER();
    CHECK(depth + 1 < STACK, CUDA_ERROR_INVALID_VALUE);
    stack[++depth] = c;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
    ENTER();
    CHECK(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    *out = stack[depth--];
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxEnablePeerAccess(CUcontext to, unsigned flags)
{
    (void)flags;
    ENTER_CONTEXT();
    CHECK(!to->lost, (CUresult)to->lost);
    CHECK(!c->peer[to->card], CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    c->peer[to->card] = true;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext to)
{
    ENTER_CONTEXT();
    CHECK(c->peer[to->card], CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    c->peer[to->card] = false;
    return leave(CUDA_SUCCESS);
}

/* ---- memory ---- */

static bool take(int card, size_t n)
{
    if (n > fake.total - fake.used[card])
        return false;
    fake.used[card] += n;
    return true;
}

static uint64_t pages(size_t n, size_t align, void **base, size_t *base_n)
{
    *base_n = n + align;
    *base = mmap(NULL, *base_n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *base == MAP_FAILED ? 0
                               : ((uint64_t)(uintptr_t)*base + align - 1) & ~(uint64_t)(align - 1);
}

static size_t granularity(void)
{
    return fake.granularity ? fake.granularity : (size_t)2 << 20;
}

CUresult cuMemGetInfo(size_t *unused, size_t *total)
{
    ENTER_CONTEXT();
    *total = fake.total;
    *unused = fake.total - fake.used[c->card];
    return leave(CUDA_SUCCESS);
}

CUresult cuMemAlloc(CUdeviceptr *out, size_t n)
{
    ENTER_CONTEXT();
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    if (!take(c->card, n)) {
        free(m);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    m->addr = pages(n + PAGE, granularity(), &m->base, &m->base_n);
    m->addr += fake.misaligned ? PAGE : 0;
    m->n = n;
    m->access[c->card] = true;
    mprotect(m->base, m->base_n, PROT_READ | PROT_WRITE);
    m->next = mappings;
    mappings = m;
    fake.plain++;
    *out = m->addr;
    return leave(CUDA_SUCCESS);
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
    fake.used[c->card] -= m->n;
    fake.plain--;
    free(m);
    return leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p,
                                       CUmemAllocationGranularity_flags flags)
{
    (void)p, (void)flags;
    ENTER();
    *out = granularity();
    return leave(CUDA_SUCCESS);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t n, size_t align, CUdeviceptr hint,
                             unsigned long long flags)
{
    (void)hint, (void)flags;
    ENTER();
    CHECK(n && n % granularity() == 0, CUDA_ERROR_INVALID_VALUE);
    struct reservation *a = calloc(1, sizeof *a);
    CHECK(a, CUDA_ERROR_OUT_OF_MEMORY);
    a->addr = pages(n, align, &a->base, &a->base_n);
    a->n = n;
    if (!a->addr) {
        free(a);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    a->next = reservations;
    reservations = a;
    fake.reservations++;
    *out = a->addr;
    return leave(CUDA_SUCCESS);
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
    fake.reservations--;
    return leave(CUDA_SUCCESS);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t n, const CUmemAllocationProp *p,
                     unsigned long long flags)
{
    (void)flags;
    ENTER();
    CHECK(n && n % granularity() == 0 && p->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
              p->location.type == CU_MEM_LOCATION_TYPE_DEVICE && p->location.id < fake.cards,
          CUDA_ERROR_INVALID_VALUE);
    CHECK(!context[p->location.id].lost, (CUresult)context[p->location.id].lost);
    struct memory *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    if (!take(p->location.id, n)) {
        free(m);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *m = (struct memory) { .next = memories, .card = p->location.id, .n = n, .handle = true };
    memories = m;
    fake.handles++;
    fake.creates++;
    *out = (uintptr_t)m;
    return leave(CUDA_SUCCESS);
}

static void memory_unref(struct memory *m)
{
    struct memory **at = &memories;
    if (m->handle || m->mapped)
        return;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    fake.used[m->card] -= m->n;
    free(m);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
    ENTER();
    struct memory *m = (struct memory *)(uintptr_t)h;
    CHECK(m->handle, CUDA_ERROR_INVALID_VALUE);
    m->handle = false;
    fake.handles--;
    memory_unref(m);
    return leave(CUDA_SUCCESS);
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
    fake.mappings++;
    fake.maps++;
    return leave(CUDA_SUCCESS);
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
        fake.mappings--;
    }
    fake.unmaps++;
    return leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr addr, size_t n, const CUmemAccessDesc *desc, size_t count)
{
    ENTER();
    size_t bytes;
    CHECK(whole(addr, n, &bytes) && bytes == n && count, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        CHECK(!context[desc[i].location.id].lost, (CUresult)context[desc[i].location.id].lost);
    for (struct mapping *m = mappings; m; m = m->next)
        for (size_t i = 0; i < count && overlaps(addr, n, m->addr, m->n); i++)
            m->access[desc[i].location.id] = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    mprotect((void *)(uintptr_t)addr, n, PROT_READ | PROT_WRITE);
    fake.accesses++;
    return leave(CUDA_SUCCESS);
}

CUresult cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    ENTER_CONTEXT();
    CHECK(flags == CU_MEMHOSTALLOC_PORTABLE && n <= fake.host_total - fake.pinned,
          flags == CU_MEMHOSTALLOC_PORTABLE ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    m->addr = pages(n, PAGE, &m->base, &m->base_n);
    m->n = n;
    m->host = true;
    m->card = c->card;
    mprotect(m->base, m->base_n, PROT_READ | PROT_WRITE);
    m->next = mappings;
    mappings = m;
    fake.pinned += n;
    fake.hosts++;
    *out = (void *)(uintptr_t)m->addr;
    return leave(CUDA_SUCCESS);
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
    fake.pinned -= m->n;
    fake.hosts--;
    free(m);
    return leave(CUDA_SUCCESS);
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
    CHECK(n <= fake.host_total - fake.pinned, CUDA_ERROR_OUT_OF_MEMORY);
    struct mapping *m = calloc(1, sizeof *m);
    CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    *m = (struct mapping) { mappings, .addr = (uintptr_t)p, .n = n, .host = true, .card = c->card };
    mappings = m;
    fake.pinned += n;
    fake.hosts++;
    fake.registered++;
    return leave(CUDA_SUCCESS);
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
    fake.pinned -= m->n;
    fake.hosts--;
    free(m);
    return leave(CUDA_SUCCESS);
}

/* ---- streams ---- */

static void run_until(CUstream s, const struct op *last); /* all: NULL */

/* A record that did not happen yet is in the queue of a stream: that runs up to it. */
static void reach(CUevent e, uint64_t serial)
{
    if (e->reached >= serial)
        return;
    for (CUstream s = streams; s; s = s->next)
        for (const struct op *o = s->head; o; o = o->next)
            if (o->record == e && o->serial == serial) {
                run_until(s, o);
                return;
            }
}

static void event_done(CUevent e) /* frees what was destroyed and is in no queue any more */
{
    if (!e->destroyed || e->reached < e->serial)
        return;
    for (CUstream s = streams; s; s = s->next)
        for (const struct op *o = s->head; o; o = o->next)
            if (o->wait == e || o->record == e)
                return;
    CUevent *at = &events;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    free(e);
}

static void run_head(CUstream s)
{
    struct op *o = s->head;
    CUevent e = o->record ? o->record : o->wait;
    if (o->wait)
        reach(o->wait, o->serial);
    s->head = o->next;
    if (!s->head)
        s->tail = &s->head;
    if (o->n && !s->ctx->lost) {
        memmove(o->dst, o->src, o->n);
        if (o->spoil)
            *(unsigned char *)o->dst ^= 0x55;
        fake.now += o->n;
    }
    if (o->record && o->serial > o->record->reached) {
        o->record->reached = o->serial;
        o->record->at = fake.now;
    }
    free(o);
    if (e)
        event_done(e);
}

static void run_until(CUstream s, const struct op *last)
{
    bool there = false;
    while (s->head && !there) {
        there = s->head == last;
        run_head(s);
    }
}

static void some_time_passes(void)
{
    for (CUstream s = streams; s && !fake.hold; s = s->next)
        run_until(s, NULL);
}

static CUresult push(CUstream s, const struct op *op)
{
    struct op *o = malloc(sizeof *o);
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o = *op;
    o->next = NULL;
    *s->tail = o;
    s->tail = &o->next;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    ENTER_CONTEXT();
    CHECK(flags == CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    CUstream s = calloc(1, sizeof *s);
    CHECK(s, CUDA_ERROR_OUT_OF_MEMORY);
    s->ctx = c;
    s->tail = &s->head;
    s->next = streams;
    streams = s;
    fake.streams++;
    *out = s;
    return leave(CUDA_SUCCESS);
}

/* Even of a lost card a stream is gone afterwards. */
CUresult cuStreamDestroy(CUstream s)
{
    CUresult r = enter(__func__);
    if (!r && stack[depth] != s->ctx)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r)
        return leave(r);
    run_until(s, NULL);
    CUstream *at = &streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
    fake.streams--;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    run_until(s, NULL);
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    (void)flags;
    ENTER_CONTEXT();
    CHECK(s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    CHECK(!e->ctx->lost, (CUresult)e->ctx->lost);
    return leave(push(s, &(struct op) { .wait = e, .serial = e->serial }));
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    ENTER_CONTEXT();
    CHECK(!(flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_VALUE);
    CUevent e = calloc(1, sizeof *e);
    CHECK(e, CUDA_ERROR_OUT_OF_MEMORY);
    e->ctx = c;
    e->next = events;
    events = e;
    fake.events++;
    *out = e;
    return leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent e)
{
    CUresult r = enter(__func__);
    if (!r && stack[depth] != e->ctx)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r)
        return leave(r);
    e->destroyed = true;
    fake.events--;
    event_done(e);
    return leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(e->ctx == c && s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    r = push(s, &(struct op) { .record = e, .serial = e->serial + 1 });
    e->serial += !r;
    return leave(r);
}

CUresult cuEventQuery(CUevent e)
{
    ENTER_CONTEXT();
    some_time_passes();
    return leave(e->reached == e->serial ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuEventSynchronize(CUevent e)
{
    ENTER_CONTEXT();
    reach(e, e->serial);
    return leave(CUDA_SUCCESS);
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to);
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    ENTER_CONTEXT();
    CHECK(from->serial && to->serial, CUDA_ERROR_INVALID_HANDLE);
    CHECK(from->reached == from->serial && to->reached == to->serial, CUDA_ERROR_NOT_READY);
    *ms = (float)(((double)to->at - (double)from->at) / 1e6);
    return leave(CUDA_SUCCESS);
}

/* ---- copies ---- */

/* May `card` touch all of it? */
static bool reachable(int card, uint64_t addr, size_t n)
{
    while (n) {
        const struct mapping *m = mappings;
        while (m && !(addr >= m->addr && addr - m->addr < m->n))
            m = m->next;
        if (!m || m->host || !m->access[card])
            return false;
        size_t here = m->n - (size_t)(addr - m->addr);
        here = here < n ? here : n;
        addr += here;
        n -= here;
    }
    return true;
}

static void *at(CUdeviceptr p)
{
    return (void *)(uintptr_t)p;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c && reachable(c->card, dst, n), CUDA_ERROR_INVALID_VALUE);
    fake.copies++;
    return leave(push(s, &(struct op) { .dst = at(dst), .src = src, .n = n }));
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c && reachable(c->card, src, n), CUDA_ERROR_INVALID_VALUE);
    fake.copies++;
    return leave(push(s, &(struct op) { .dst = dst, .src = at(src), .n = n }));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c && reachable(c->card, src, n) && reachable(c->card, dst, n),
          CUDA_ERROR_INVALID_VALUE);
    fake.copies++;
    return leave(push(s, &(struct op) { .dst = at(dst), .src = at(src), .n = n }));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n,
                           CUstream s)
{
    ENTER_CONTEXT();
    CHECK(!to->lost, (CUresult)to->lost);
    CHECK(!from->lost, (CUresult)from->lost);
    CHECK(s->ctx == c && reachable(from->card, src, n) && reachable(to->card, dst, n),
          CUDA_ERROR_INVALID_VALUE);
    CHECK(fake.no_vmm || (reachable(c->card, src, n) && reachable(c->card, dst, n)),
          CUDA_ERROR_INVALID_VALUE);
    fake.peer_copies++;
    bool direct = to->peer[from->card] || from->peer[to->card];
    return leave(
        push(s, &(struct op) {
                    .dst = at(dst), .src = at(src), .n = n, .spoil = direct && fake.peer_lies }));
}
