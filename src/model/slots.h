/* slots: what enters an encoder in one pass: chunks as rows of the table of tokens. For
 * encoders alone.
 *
 * Vectors of embedding files lie on the host. Where a prompt has some, another row is looked up in
 * their place first; then all rows come to the host, get the vectors and go back. Prompts without
 * them stay where the table is. */
#pragma once

#include "net/net.h"
#include "text/tokenizer.h"

struct slots { /* n chunks of len */
    size_t n, len;
    uint64_t width;
    int32_t *id;          /* [n * len] */
    const float **vector; /* [n * len]; NULL: the token's row */
    float *row;           /* [n * len, width]; NULL: nothing is changed on the host */
    bool fix;             /* NaNs of the table become 0 */
    float scale;          /* of the table's rows; 0: 1 */
};
/* BERTH_EINVAL: no chunks, too many, of several lengths or of none, or tokens beyond the
 * vocabulary. */
berth_status slots_check(const struct chunks *in, uint64_t vocab, berth_err *err);
/* Chunks from .. from + n of in, which slots_check() saw. Vectors of another width move out, pads
 * come in at the end of the chunk; *dropped counts them. fix: NaNs of the table become 0. Release
 * it whatever this returns. */
berth_status slots_init(struct slots *s, const struct chunks *in, size_t from, size_t n,
                        uint64_t width, bool fix, size_t *dropped, berth_err *err);
/* One slot that holds token 0: for dry runs. */
berth_status slots_init_one(struct slots *s, uint64_t width, berth_err *err);
void slots_release(struct slots *s);
/* [n, len, width] */
struct act slots_embed(struct net_run *r, const struct slots *s, const char *layer);
