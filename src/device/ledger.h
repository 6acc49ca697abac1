/* ledger: every live byte of one device by owner and kind (device.h). For device/ alone.
 *
 * Lines are changed by the executor thread; everything is read and written under `lock`, a leaf,
 * together with the pool's statistics of the same moment, so that whoever looks sees sums that
 * agree. A line lives while it is open or has bytes. */
#ifndef DEVICE_LEDGER_H
#define DEVICE_LEDGER_H

#include "device/device.h"

#include <pthread.h>

struct dev_owner { /* one line */
    struct ledger *ledger;
    struct dev_owner *prev, *next;
    enum dev_kind kind;
    unsigned opens;
    uint64_t bytes, requested, count;
    char name[]; /* NUL-terminated */
};

struct ledger {
    struct device *device; /* constant; whose it is */
    pthread_mutex_t lock;  /* of everything below and of the lines */
    struct dev_owner *lines;
    struct dev_stats stats; /* the pool's, as of the last change, plus pinned and retired */
};

berth_status ledger_new(struct device *d, struct ledger **out, berth_err *err);
void ledger_free(struct ledger *l); /* NULL is fine; frees the lines too */

berth_status ledger_line_open(struct ledger *l, const char *name, enum dev_kind kind,
                              struct dev_owner **out, berth_err *err);
void ledger_line_close(struct dev_owner *o);

/* Books n bytes (rounded, as requested) in or out of a line; `pool`, when not NULL, is the new
 * truth about the pool. out: the line may be gone afterwards. */
void ledger_add(struct dev_owner *o, uint64_t bytes, uint64_t requested,
                const struct dev_stats *pool);
void ledger_sub(struct dev_owner *o, uint64_t bytes, uint64_t requested,
                const struct dev_stats *pool);
void ledger_publish(struct ledger *l, const struct dev_stats *pool); /* nothing booked */
void ledger_retired(struct ledger *l, uint64_t add, uint64_t sub);

struct dev_stats ledger_stats(struct ledger *l);
/* in[kind]: bytes. */
void ledger_by_kind(struct ledger *l, uint64_t in[DEV_KIND_COUNT]);
size_t ledger_rows(struct ledger *l, struct dev_ledger_row *row, size_t cap, struct dev_stats *sum);
berth_status ledger_check(struct ledger *l, const struct dev_stats *pool, berth_err *err);

#endif
