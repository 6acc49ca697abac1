/* err: errors that carry context.
 *
 * The place that notices an error sets it, callers that know more add context:
 *
 *     if (len > lim->max_header)
 *         return err_set(err, BERTH_EFORMAT, "header %zu > %zu bytes", len, lim->max_header);
 *     if (st_open(path, &f, err))
 *         return err_add(err, "loading '%s'", path);   -> "loading 'a.st': header 9 > 8 bytes"
 *
 * What callers must know is in fields, so that nobody searches a message. A text argument that
 * the format quotes ("'%s'") is remembered as a name; err_about() and err_on_device() say the rest.
 *
 * `err` is never NULL. Nothing here allocates. Outside text in a message is the caller's to
 * shorten; control characters and malformed UTF-8 become '?', so that a hostile name cannot drive a
 * terminal.
 * BUG() stops the process: for our own broken invariants only, no input may reach it. */
#pragma once

#include "base/attr.h"
#include "base/banned.h"
#include "berth/berth.h"

#include <stdbool.h>

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

/* What is wrong: a static word that the message begins with now. Returns err->code. */
berth_status err_about(berth_err *err, const char *subject);
/* Where, and how much of it; returns err->code. */
berth_status err_on_device(berth_err *err, const char *device, uint64_t number);
/* Appends to the message. Contexts and fields stay. */
berth_status err_append(berth_err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Another word where the subject stands: "expert_mode_allocations" is --alloc on a command line. */
void err_rename_subject(berth_err *err, const char *name);
/* Is `name` quoted in the message? */
bool err_names(const berth_err *err, const char *name);
/* The message in which files are named without their folders. Appends. */
struct str;
void err_without_folders(const berth_err *err, struct str *out);
/* Appends what was noticed first and then, on a line of its own, what was being done, with '\n'.
 * folders: as err->msg has them, else without. */
void err_cause_first(const berth_err *err, bool folders, struct str *out);

_Noreturn void bug_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
