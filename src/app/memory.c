#include "app/app.h"

#include "base/ktext.h"
#include "device/cpu/meminfo.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>

#define MIB ((uint64_t)1 << 20)

static bool has_card(berth_ctx *ctx)
{
    for (size_t i = 0; i < berth_ctx_device_count(ctx); i++) {
        berth_device_info d;
        berth_err ignored;
        if (berth_ctx_device_info(ctx, i, &d, &ignored) || !strcmp(d.kind, "cuda"))
            return true;
    }
    return false;
}

/* Tables of pages, sockets, and file pages that the program cannot do without are in the group too
 * and are counted nowhere. */
uint64_t app_memory_most(uint64_t data, uint64_t left)
{
    uint64_t kernel = left / 16 > 8 * MIB ? left / 16 : 8 * MIB;
    left -= kernel < left ? kernel : left;
    return data < UINT64_MAX - left ? data + left : UINT64_MAX;
}

void app_limit_memory(struct app *a, berth_ctx *ctx)
{
    struct ktext t;
    struct rlimit lim;
    uint64_t kib, left = meminfo_headroom("");
    if (left == UINT64_MAX || has_card(ctx) || !ktext_read(&t, "/proc/self/status") ||
        !ktext_number_after(&t, "VmData:", &kib) || getrlimit(RLIMIT_DATA, &lim))
        return;
    uint64_t most = app_memory_most(kib * 1024, left);
    if (lim.rlim_cur != RLIM_INFINITY && lim.rlim_cur <= most)
        return; /* somebody meant it to have less */
    lim.rlim_cur = (rlim_t)most;
    if (setrlimit(RLIMIT_DATA, &lim)) {
        log_warn(&a->log, "memory.limit", "why=\"%s\"", strerror(errno));
        return;
    }
    log_info(&a->log, "memory.limit", "left=%" PRIu64 " why=\"its control group limits memory\"",
             most - kib * 1024);
}
