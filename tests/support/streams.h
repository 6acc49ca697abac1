/* streams: what the two parsers of the server make of a stream of bytes, as one text, for tests
 * that compare ways to cut it. `cut` says how many bytes come next; it is asked until all have
 * come. */
#ifndef SUPPORT_STREAMS_H
#define SUPPORT_STREAMS_H

#include "server/http1.h"
#include "server/wsframe.h"

typedef size_t stream_cut_fn(void *user); /* at least 1 */

static inline void stream_require(int ok)
{
    if (!ok)
        abort();
}

static inline size_t stream_next(stream_cut_fn *cut, void *user, size_t end, size_t n)
{
    size_t step = cut ? cut(user) : n;
    return n - end < step ? n : end + step;
}

/* Requests until one is refused. */
static inline void stream_http1(const char *p, size_t n, stream_cut_fn *cut, void *user,
                                struct str *out)
{
    struct http1 h;
    http1_init(&h);
    for (size_t at = 0, end = 0; end < n;) {
        enum http1_got got = HTTP1_END;
        end = stream_next(cut, user, end, n);
        while (got != HTTP1_MORE && got != HTTP1_BAD) {
            size_t used, piece_n;
            const char *piece;
            int status;
            got = http1_feed(&h, p + at, end - at, 4096, &used, &piece, &piece_n, &status);
            stream_require(used <= end - at && (got != HTTP1_MORE || at + used == end));
            at += used;
            if (got == HTTP1_HEAD) {
                str_addf(out, "%s|%s|%s|%d%d%d%d%d|%llu", h.method, h.path, h.query, h.http10,
                         h.keep_alive, h.expect_continue, h.chunked, h.upgrade,
                         (unsigned long long)h.length);
                for (size_t i = 0; i < h.fields; i++)
                    str_addf(out, "|%s=%s", h.field[i].name, h.field[i].value);
                str_adds(out, "\n[");
            } else if (got == HTTP1_BODY) {
                stream_require(piece_n > 0 && piece >= p && piece + piece_n <= p + end);
                str_add(out, piece, piece_n);
            } else if (got == HTTP1_END) {
                str_adds(out, "]\n");
                http1_release(&h);
            } else if (got == HTTP1_BAD) {
                stream_require(status >= 400 && status <= 505);
                str_addf(out, "%d at %zu", status, at);
                end = n;
            }
        }
    }
    http1_release(&h);
}

/* Messages until a frame is refused. Frames are unmasked in place: p is a copy's. */
static inline void stream_ws(char *p, size_t n, bool client, stream_cut_fn *cut, void *user,
                             struct str *out)
{
    struct wsframe w = { .max_message = 4096, .client = client };
    for (size_t at = 0, end = 0; end < n;) {
        enum ws_got got = WS_GOT_MESSAGE;
        end = stream_next(cut, user, end, n);
        while (got != WS_GOT_MORE && got != WS_GOT_BAD) {
            size_t used, data_n;
            enum ws_op op;
            const char *data;
            unsigned code;
            got = wsframe_feed(&w, p + at, end - at, &used, &op, &data, &data_n, &code);
            stream_require(used <= end - at && (got != WS_GOT_MORE || at + used == end));
            at += used;
            if (got == WS_GOT_BAD) {
                stream_require(code == 1002 || code == 1007 || code == 1009);
                str_addf(out, "%u", code);
                end = n;
            } else if (got != WS_GOT_MORE) {
                stream_require(data_n <= 4096);
                stream_require(op != WS_TEXT || str_is_utf8(data, data_n));
                str_addf(out, "%d:", (int)op);
                str_add(out, data, data_n);
                str_addc(out, '\n');
            }
        }
    }
    wsframe_release(&w);
}

#endif
