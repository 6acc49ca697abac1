/* tpool: a fixed set of worker threads for data-parallel host work.
 *
 * tpool_for() may be called from any one thread at a time per pool and from
 * inside a task of the same pool (it then runs inline). The caller works too, so a pool of size 1
 * has no extra thread. */
#pragma once

#include "base/err.h"

struct tpool;

/* threads 0: one per core this process may use, a container's CPU quota counts (base/cores.h). At
 * most 1024. BERTH_ELIMIT: the system would not start that many; none is left running then. */
berth_status tpool_new(size_t threads, struct tpool **out, berth_err *err);
void tpool_free(struct tpool *p); /* NULL is fine; waits for the workers to leave */
size_t tpool_size(const struct tpool *p); /* of NULL 1 */

/* Runs fn(user, i, worker) for every i in [0, n), each once, in unspecified order and thread;
 * worker in [0, tpool_size) names the executing thread. Returns when all are done; memory written
 * by the tasks is visible to the caller. p NULL: this thread does all of them, in order. */
typedef void tpool_fn(void *user, size_t i, size_t worker);
void tpool_for(struct tpool *p, size_t n, tpool_fn *fn, void *user);
