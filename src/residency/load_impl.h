/* load_impl: what the files of a load share. */
#ifndef RESIDENCY_LOAD_IMPL_H
#define RESIDENCY_LOAD_IMPL_H

#include "base/vec.h"
#include "residency/residency_impl.h"

#include <pthread.h>

struct loading { /* owner: executor, except under lock */
    struct res_model *m;
    const struct res_load_args *args; /* never NULL */
    uint64_t *want;                   /* [blocks] patch signatures; NULL: none */
    struct res_load_result got;
    uint64_t promoted;    /* bytes that came home: each move counts itself */
    uint64_t done;        /* bytes of blocks that are where they belong */
    uint64_t room_ns;     /* until all blocks had memory */
    struct vec batch;     /* of pieces that are read straight */
    atomic_bool stop;     /* nobody needs further pieces */
    pthread_mutex_t lock; /* of the next two */
    berth_err first;      /* error of any reader; code 0: none */
    size_t first_block;
};

/* ---- load_read.c ---- */

/* The blocks of one device that come straight from the file. _staged: the host does not see it. */
berth_status load_direct(struct loading *l, size_t device, berth_err *err);
berth_status load_staged(struct loading *l, size_t device, berth_err *err);
uint64_t load_wanted_patch(const struct loading *l, size_t i); /* signature; 0: none */
bool load_canceled(const struct loading *l);
berth_status load_cancel_err(const struct loading *l, berth_err *err);
void load_progress(const struct loading *l);

#endif
