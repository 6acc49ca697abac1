/* log: events to a sink that was handed in.
 *
 *     log_info(l, "res.evict", "model=%s bytes=%zu dev=%s why=budget", ...);
 *
 * A dotted event name, then key=value pairs; a value with spaces is written key="two words". The
 * text sink prints a line for people, the JSON sink one object a line: {"ts","level","event"} plus
 * each pair as a string field. Return an error or log it: the one who handles it logs it, once.
 * A NULL log drops everything. Sinks write each line with one write, so lines never interleave.
 *
 * Times are UTC with milliseconds. Text is cut at 2 KiB and then ends with "...". Control
 * characters never get out: '?' in text, escapes in JSON. Words that are not pairs, repeated keys,
 * and keys that would hide "ts", "level", "event" or "msg" are kept, in order, in the field "msg".
 * A quoted value ends at a quote in front of a space or the end, so put a value from outside last
 * in the format. */
#pragma once

#include "base/attr.h"
#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };

/* One finished event; everything borrowed for the call. Called from any thread. */
typedef void log_write_fn(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                          const char *text);

struct log {
    enum log_level level; /* events below are dropped before formatting */
    log_write_fn *write;
    void *user;
    const struct clock *clock; /* borrowed; NULL: system clock */
};

struct log_file { /* user data of the two sinks below */
    FILE *out;
    bool color;
};

log_write_fn log_write_text; /* user: struct log_file */
log_write_fn log_write_json; /* user: struct log_file */

const char *log_level_name(enum log_level level);
WARN_UNUSED bool log_level_parse(const char *s, size_t n, enum log_level *out);

void log_event(const struct log *l, enum log_level level, const char *event, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
#define log_debug(l, event, ...) log_event(l, LOG_DEBUG, event, __VA_ARGS__)
#define log_info(l, event, ...) log_event(l, LOG_INFO, event, __VA_ARGS__)
#define log_warn(l, event, ...) log_event(l, LOG_WARN, event, __VA_ARGS__)
#define log_error(l, event, ...) log_event(l, LOG_ERROR, event, __VA_ARGS__)
