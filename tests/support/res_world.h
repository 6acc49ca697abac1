/* res_world: a registry, its devices and an imaginary executor, driven by bytes and held against a
 * naive model of what residency.h promises.
 *
 * Words     sequence  bytes: one record for the machine (devices, settings, faults of the engine),
 *                     then one record per operation. Any bytes are a sequence
 *           record    WORLD_RECORD bytes: which operation, then what to draw from. Taking a record
 *                     out leaves the others what they are, so that a sequence can be made shorter
 *           naive     what the program thinks is there: counted by hand, never by asking the
 *                     registry, except where the header leaves the choice to it (who goes to make
 *                     room): then it learns who went and asserts that they were allowed to go
 * Flow      world_random() or a fuzzer -> world_run(): opens the machine, performs the records,
 *           after each one compares everything and calls res_check(), then closes all of it and
 *           looks for what was left behind. false: *report says what went wrong, after a line per
 *           operation
 * Threads   one world at a time in a process (its weight files are shared).
 * Files     res_world.c machine and sequence, res_world_ops.c the operations, res_world_free.c
 *           frees and prompts, res_world_naive.c comparing, res_world_files.c weight files and
 *           adapters. */
#ifndef SUPPORT_RES_WORLD_H
#define SUPPORT_RES_WORLD_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_RECORD 8    /* bytes */
#define WORLD_RECORDS 256 /* further ones are ignored */

/* Writes the weight files; world_run() does it by itself. For those who fork before. */
void world_prepare(void);

/* data: borrowed for the call. report: emptied first. */
bool world_run(const uint8_t *data, size_t n, struct str *report);

/* The sequence of a seed: 12 to 40 operations. Returns its bytes. */
#define WORLD_RANDOM_MAX (41 * WORLD_RECORD)
size_t world_random(uint64_t seed, uint8_t out[WORLD_RANDOM_MAX]);

/* What world_run() has done so far, for a handler of SIGABRT; "" when none runs. */
const char *world_trace(void);

#endif
