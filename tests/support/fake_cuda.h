/* fake_cuda: a libcuda for tests, over host memory. Built as a shared library that the driver opens
 * instead of the real one; the test finds its controls in the same library.
 *
 * Cards      up to FAKE_CARDS, each with `total` bytes. Virtual memory management is checked as the
 *            real one is: whole mappings are unmapped, memory without access is not touched.
 * Work       Copies and events are queued in their stream and take effect when somebody waits, or
 *            asks unless `hold` is set; copies move the card's time by a nanosecond a byte.
 * Kernels    are those of modules that a test has named (fake_cuda_modules, for which cuda_simt/
 *            has ours); they run in their stream's turn. Other modules do not load.
 * Graphs     keep the kernels of a captured stream; anything else that is queued there meanwhile,
 *            or a wait for it, spoils the capture.
 * Contexts   A call that needs one fails when none is current, or that of another card than its
 *            stream's or event's.
 * Failing    fail_at: that call from now on, of any function or of `fail_name`, answers fail_with.
 *            An illegal address (all cards), or lose(): a context answers everything with that
 *            until it is released, so do calls of other cards that it has part in, and what is
 *            queued does not happen.
 * Threads    One lock around everything. */
#ifndef SUPPORT_FAKE_CUDA_H
#define SUPPORT_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_CARDS 4

struct fake_cuda { /* zero is the plain case; written by the test while no call runs */
    /* ---- what the machine is ---- */
    int init; /* what cuInit answers */
    int cards;
    size_t total;      /* bytes of each */
    size_t host_total; /* bytes that may be pinned */
    int sm;            /* 0: 90 */
    bool no_vmm;
    bool misaligned;    /* plain allocations lie at odd places */
    bool peer;          /* cards offer access to each other */
    bool peer_lies;     /* and deliver rubbish */
    size_t granularity; /* 0: 2 MiB */
    /* ---- failures ---- */
    const char *fail_name; /* NULL: any function */
    long fail_at;          /* 1: the next; 0: none */
    int fail_with;
    bool hold; /* asking does not make anything happen */
    /* ---- what happened ---- */
    uint64_t now; /* ns, of all cards; the test may move it on */
    long calls;
    long graph_launches;
    long creates, maps, accesses, unmaps, copies, peer_copies, registered;
    const char *failed; /* the function that was told to */
    /* ---- what is there ---- */
    size_t used[FAKE_CARDS];
    size_t pinned;
    long contexts, streams, events, handles, mappings, reservations, plain, hosts, modules,
        graphs;
};

/* A kernel that runs on the host. */
struct fake_kernel {
    const char *name;
    const size_t *bytes;       /* of its arguments, up to a 0 */
    void (*call)(void **args); /* one thread of it; args as cuLaunchKernel gets them */
    unsigned threads;          /* the most of a block */
    long launches;             /* that ran */
};
struct fake_module {
    const void *image; /* it is loaded from */
    const char *name;
    struct fake_kernel *kernel;
    size_t kernels;
};
struct fake_launch {
    const struct fake_module *module;
    const struct fake_kernel *kernel;
    unsigned grid[3], block[3];
    void **args;
};
typedef void fake_run_fn(const struct fake_launch *l); /* runs all of its blocks */

typedef struct fake_cuda *fake_cuda_fn(void);       /* "fake_cuda": the one struct */
typedef void fake_cuda_lose_fn(int card, int with); /* "fake_cuda_lose" */
typedef void fake_cuda_reset_fn(void);              /* "fake_cuda_reset": to one plain card */
/* "fake_cuda_modules": these are there, until the reset; borrowed. */
typedef void fake_cuda_modules_fn(struct fake_module *const *m, size_t n, fake_run_fn *run);

#endif
