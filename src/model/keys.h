/* keys: the names and shapes of a model's tensors, in state-dict order.
 *
 * Words   key: the full name of a tensor, with its prefix ("model.diffusion_model.out.2.weight").
 * Flow    A network's folder walks a config layer by layer; keys_enter() and keys_leave() keep the
 *         prefix. A preset (preset.h) is made of one such walk or several. keys_read() takes a list
 *         from a JSON file instead.
 * Errors  Sticky: when memory runs out, `bad` is set and later additions do nothing. Check it at
 *         the end.
 * Threads One owner while it is built; read-only afterwards.
 * Files   keys.c the list and its JSON reader; walks are in presets.c of the networks' folders. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "tensor/shape.h"

#include <stdbool.h>

struct key {
    const char *name; /* NUL-terminated, owned by the list */
    size_t name_len;
    struct shape shape;
    uint64_t count; /* elements */
};

struct keys { /* zeroed is empty */
    struct arena mem;
    struct key *at;
    size_t n, cap;
    uint64_t params; /* sum of counts; fits, because every addition checked it */
    struct str prefix;
    bool bad;
};

void keys_release(struct keys *k); /* empty again */

/* Adds "<prefix>.<fmt...>." to what the next keys start with; returns the mark for keys_leave(). */
size_t keys_enter(struct keys *k, const char *fmt, ...) PRINTF_LIKE(2, 3);
void keys_leave(struct keys *k, size_t mark);

/* One tensor of up to four dimensions; trailing zeros are "no such dimension". */
void keys_tensor(struct keys *k, const char *name, uint64_t d0, uint64_t d1, uint64_t d2,
                 uint64_t d3);

/* One without elements, [0]: a mark that some models have. */
void keys_mark(struct keys *k, const char *name);

/* Layers: name.weight, then name.bias unless it has none. */
enum keys_bias { KEYS_NO_BIAS, KEYS_BIAS };
void keys_linear(struct keys *k, const char *name, uint64_t out, uint64_t in, enum keys_bias bias);
void keys_conv(struct keys *k, const char *name, uint64_t out, uint64_t in, uint64_t side);
/* Of pictures over `frames` of them. */
void keys_conv3d(struct keys *k, const char *name, uint64_t out, uint64_t in, uint64_t frames,
                 uint64_t side);
void keys_norm(struct keys *k, const char *name, uint64_t n); /* with weight and bias */
void keys_shape(struct keys *k, const char *name, const struct shape *s); /* one of any shape */

/* Reads {"name": [dims, outermost first], ...} from a JSON file: hostile until checked. Error names
 * the file and the key. *k must be empty; after a failure it is empty again. */
berth_status keys_read(const char *path, struct keys *k, berth_err *err);
berth_status keys_parse(const char *text, size_t n, struct keys *k, berth_err *err); /* the same */
