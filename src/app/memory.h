/* memory: a limit of the process's own below that of its control group.
 *
 * Memory that is promised comes when it is touched, and a group that is full then ends in a kill:
 * no call has failed, nobody can say anything. So inside a limited group the process may not even be
 * promised more than there is: RLIMIT_DATA counts what is promised (all private writable memory:
 * pools, tensors, what libpng, libwebp or SQLite take), and who asks for more gets an error, which
 * everything here can handle and put into words. */
#ifndef APP_MEMORY_H
#define APP_MEMORY_H

#include "app/app.h"

/* Once, when all threads are there: their stacks are promised in full and hardly touched, so they
 * must not count. Nothing happens where no group limits memory, and with cards, whose driver
 * reserves more than it takes. */
void app_limit_memory(struct app *a, berth_ctx *ctx);

/* The limit for a process that was promised `data` bytes and finds `left` in its group. */
uint64_t app_memory_most(uint64_t data, uint64_t left);

#endif
