/* err: errors that carry context.
 *
 * Whoever notices sets it, whoever knows more adds, whoever can act decides:
 *
 *     if (len > lim->max_header)
 *         return err_set(err, BERTH_EFORMAT, "header %zu > %zu bytes", len, lim->max_header);
 *     if (st_open(path, &f, err))
 *         return err_add(err, "loading '%s'", path);   -> "loading 'a.st': header 9 > 8 bytes"
 *
 * `err` is never NULL. Nothing here allocates. Outside text in a message is the caller's to
 * shorten; control characters and malformed UTF-8 become '?', so that a hostile name cannot drive a
 * terminal.
 * BUG() stops the process: for our own broken invariants only, no input may reach it. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/attr.h"
#include "base/banned.h"
#include "berth/berth.h"

berth_status err_set_at(berth_err *err, const char *file, int line, berth_status code, int native,
                        const char *fmt, ...) PRINTF_LIKE(6, 7);

/* Puts "context: " in front of the message; returns err->code. What does not fit is cut at a whole
 * character and marked with "...". */
berth_status err_add(berth_err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define err_set(err, code, ...) err_set_at(err, __FILE__, __LINE__, code, 0, __VA_ARGS__)

/* Like err_set, and appends ": <strerror>" for the errno value `native` (pass errno itself). */
berth_status err_sys_at(berth_err *err, const char *file, int line, berth_status code, int native,
                        const char *fmt, ...) PRINTF_LIKE(6, 7);
#define err_sys(err, code, native, ...)                                                            \
    err_sys_at(err, __FILE__, __LINE__, code, native, __VA_ARGS__)

_Noreturn void bug_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)

#endif
