/* multipart: reads multipart/form-data from a stream, without I/O. Fuzzed.
 * At most 64 parts with heads of at most 8 KiB; contents are reported in pieces, never gathered.
 * Content-Disposition: name, filename (quoted, with \" and %22), filename*=UTF-8''. */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct multipart_events { /* each returns false to stop */
    void *user;
    bool (*part)(void *user, const char *name, const char *filename); /* filename NULL: a field */
    bool (*data)(void *user, const char *p, size_t n);                /* of the last part */
};
struct multipart;
/* content_type: the request's. BERTH_EFORMAT: no multipart/form-data or no usable boundary. */
berth_status multipart_new(const char *content_type, const struct multipart_events *ev,
                           struct multipart **out, berth_err *err);
void multipart_free(struct multipart *m); /* NULL is fine */
/* BERTH_EFORMAT, BERTH_ELIMIT; BERTH_ECANCELED: an event returned false. */
berth_status multipart_feed(struct multipart *m, const char *p, size_t n, berth_err *err);
bool multipart_done(const struct multipart *m); /* the closing boundary was seen */
