/* journal_impl: what journal.c and journal_json.c share. */
#pragma once

#include "journal/journal.h"

struct journal_json;

/* *out: journal_json_free(). The file is opened with the first record. One that cannot be, and
 * static fields that are no object, are a warning in the log, and for the file an error in the
 * count: a journal without its JSON is better than no journal. log: outlives it. BERTH_ENOMEM
 * only. */
berth_status journal_json_new(const struct journal_config *cfg, const struct log *log,
                              struct journal_json **out, berth_err *err);
void journal_json_free(struct journal_json *x); /* NULL is fine */
/* Would a record of this level be written? Any thread. */
bool journal_json_wants(const struct journal_json *x, int level);
/* Any thread. Failures are counted. */
void journal_json_record(struct journal_json *x, uint64_t wall_ns, int level, const char *message,
                         const char *const *fields);
uint64_t journal_json_errors(const struct journal_json *x);

/* Appends UTC time as ISO 8601 with `digits` (3 or 6) behind the seconds, and a Z. */
void journal_time(struct str *s, uint64_t wall_ns, unsigned digits);
