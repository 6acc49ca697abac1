/* null_hooks: what tests do to null devices (device/null/null.h): make calls fail, run what is
 * queued step by step, count hazards. */
#ifndef SUPPORT_NULL_HOOKS_H
#define SUPPORT_NULL_HOOKS_H

#include "device/null/null.h"

/* d: a null device; BUG otherwise. Engine-wide ones act on all null devices of d's set. */

/* The k-th call of this kind on d's phys from now fails (1: the next). 0: none does. */
void null_fail(struct device *d, enum null_call call, uint64_t k);
uint64_t null_calls(const struct device *d, enum null_call call); /* so far, failed ones included */
void null_seed(struct device *d, uint64_t seed);
bool null_step(struct device *d);           /* runs one queued operation; false: none is queued */
void null_run(struct device *d);            /* until nothing is queued */
size_t null_queued(const struct device *d); /* operations, marks and waits included */
uint64_t null_hazards(const struct device *d); /* found so far, all kinds */
uint64_t null_hazards_of(const struct device *d, enum null_hazard kind);
const char *null_last_hazard(const struct device *d); /* text of the latest; "" if none */

#endif
