/* unigram_proto.c: SentencePiece's ModelProto, and the same out of a GGUF file's metadata.
 *
 * Protocol buffers, what is read of them (field: type):
 *     ModelProto      1: SentencePiece, repeated   2: TrainerSpec   3: NormalizerSpec
 *     SentencePiece   1: text   2: score, float   3: enum piece_type
 *     TrainerSpec     3: kind of model (1 unigram, 2 BPE)   24: blanks behind words
 *                     35: byte fallback
 *     NormalizerSpec  2: character map   3: prefix   4: squeeze blanks   5: U+2581 for blanks
 * A field is a varint (number << 3 | wire type) and its value. Others are passed over. */
#include "text/unigram_impl.h"

#include "base/rd.h"
#include "format/weights.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_I64 = 1, WIRE_BYTES = 2, WIRE_I32 = 5 };

struct field {
    uint32_t number;
    uint32_t wire;    /* enum wire */
    uint64_t u;       /* WIRE_VARINT */
    float f;          /* WIRE_I32 */
    const uint8_t *p; /* WIRE_BYTES */
    size_t n;
};

static uint64_t read_varint(struct rd *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t b = rd_u8(r);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    r->bad = true;
    return 0;
}

/* The next field; false at the end, and when it is malformed (r->bad). */
static bool next_field(struct rd *r, struct field *f)
{
    if (rd_left(r) == 0)
        return false;
    uint64_t tag = read_varint(r), len;
    *f = (struct field) { .number = (uint32_t)(tag >> 3), .wire = tag & 7 };
    switch (f->wire) {
    case WIRE_VARINT:
        f->u = read_varint(r);
        break;
    case WIRE_I64:
        (void)rd_take(r, 8);
        break;
    case WIRE_BYTES:
        len = read_varint(r);
        if (len > rd_left(r)) {
            r->bad = true;
            break;
        }
        f->n = (size_t)len;
        f->p = rd_take(r, f->n);
        break;
    case WIRE_I32:
        f->f = rd_f32le(r);
        break;
    default:
        r->bad = true;
    }
    if (tag >> 32 || f->number == 0)
        r->bad = true;
    return !r->bad;
}

static berth_status malformed(const char *what, berth_err *err)
{
    return err_set(err, BERTH_EFORMAT, "%s is malformed: no SentencePiece model", what);
}

static void note_unknown(struct unigram_load *l, uint32_t type)
{
    if (type == PIECE_UNKNOWN && l->unknown < 0)
        l->unknown = (int64_t)l->piece.n - 1;
}

static berth_status read_piece(struct unigram_load *l, const struct field *in, berth_err *err)
{
    struct rd r = rd_init(in->p, in->n);
    struct field f;
    const uint8_t *text = NULL;
    size_t n = 0;
    float score = 0;
    uint64_t type = PIECE_NORMAL;
    while (next_field(&r, &f)) {
        if (f.number == 1 && f.wire == WIRE_BYTES) {
            text = f.p;
            n = f.n;
        } else if (f.number == 2 && f.wire == WIRE_I32) {
            score = f.f;
        } else if (f.number == 3 && f.wire == WIRE_VARINT) {
            type = f.u;
        }
    }
    if (r.bad || type > PIECE_BYTE)
        return malformed("a piece", err);
    if (unigram_add_piece(l, n ? (const char *)text : "", n, (double)score, (uint32_t)type, err))
        return err->code;
    note_unknown(l, (uint32_t)type);
    return BERTH_OK;
}

static berth_status read_trainer(struct unigram_load *l, const struct field *in, berth_err *err)
{
    struct rd r = rd_init(in->p, in->n);
    struct field f;
    while (next_field(&r, &f)) {
        if (f.wire != WIRE_VARINT)
            continue;
        if (f.number == 3 && f.u != 1 && f.u != 2)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "a SentencePiece model of kind %" PRIu64 ", not unigram (1) or BPE (2)",
                           f.u);
        if (f.number == 3)
            l->t->merges = f.u == 2;
        if (f.number == 24 && f.u)
            return err_set(err, BERTH_EUNSUPPORTED, "a model with blanks behind its words");
        if (f.number == 35)
            l->byte_fallback = f.u;
    }
    return r.bad ? malformed("its trainer_spec", err) : BERTH_OK;
}

static berth_status read_normalizer(struct unigram_load *l, const struct field *in, berth_err *err)
{
    struct rd r = rd_init(in->p, in->n);
    struct field f;
    while (next_field(&r, &f)) {
        if (f.number == 2 && f.wire == WIRE_BYTES) {
            charsmap_release(&l->t->map); /* the last one counts */
            if (charsmap_init(&l->t->map, f.p, f.n, err))
                return err->code;
        }
        if (f.wire != WIRE_VARINT)
            continue;
        if (f.number == 3)
            l->t->dummy_prefix = f.u;
        else if (f.number == 4)
            l->t->squeeze = f.u;
        else if (f.number == 5)
            l->t->escape = f.u;
    }
    return r.bad ? malformed("its normalizer_spec", err) : BERTH_OK;
}

static void sentencepiece_defaults(struct unigram *t)
{
    t->sentencepiece = t->dummy_prefix = t->squeeze = t->escape = true;
}

berth_status unigram_read_proto(struct unigram_load *l, const void *bytes, size_t n, berth_err *err)
{
    struct rd r = rd_init(bytes, n);
    struct field f;
    sentencepiece_defaults(l->t);
    while (next_field(&r, &f)) {
        if (f.wire != WIRE_BYTES)
            continue;
        berth_status s = f.number == 1   ? read_piece(l, &f, err)
                         : f.number == 2 ? read_trainer(l, &f, err)
                         : f.number == 3 ? read_normalizer(l, &f, err)
                                         : BERTH_OK;
        if (s)
            return s;
    }
    return r.bad ? malformed("it", err) : BERTH_OK;
}

/* ---- GGUF ---- */

static const struct weights_meta *array_of(const struct weights *w, const char *key, uint32_t type,
                                           uint64_t count)
{
    const struct weights_meta *m = weights_meta_find(w, key);
    return m && m->kind == META_ARRAY && m->elem_type == type && (!count || m->count == count)
               ? m
               : NULL;
}

static bool flag_of(const struct weights *w, const char *key, bool otherwise)
{
    const struct weights_meta *m = weights_meta_find(w, key);
    return m && m->kind == META_BOOL ? m->b : otherwise;
}

static berth_status read_gguf_pieces(struct unigram_load *l, const struct weights *w,
                                     berth_err *err)
{
    const struct weights_meta *tokens = array_of(w, "tokenizer.ggml.tokens", GGUF_STRING, 0);
    if (!tokens || tokens->count == 0)
        return err_set(err, BERTH_EFORMAT, "tokenizer.ggml.tokens is no list of texts");
    const struct weights_meta *scores =
        array_of(w, "tokenizer.ggml.scores", GGUF_F32, tokens->count);
    const struct weights_meta *types =
        array_of(w, "tokenizer.ggml.token_type", GGUF_I32, tokens->count);
    if (!scores || !types)
        return err_set(err, BERTH_EFORMAT,
                       "tokenizer.ggml.%s is not there for each of its %" PRIu64 " tokens",
                       scores ? "token_type" : "scores", tokens->count);
    struct rd text = rd_init(tokens->raw, tokens->raw_len),
              score = rd_init(scores->raw, scores->raw_len),
              type = rd_init(types->raw, types->raw_len);
    for (uint64_t i = 0; i < tokens->count; i++) {
        uint64_t n = rd_u64le(&text);
        double x = (double)rd_f32le(&score);
        uint32_t kind = rd_u32le(&type);
        const uint8_t *p = n <= UNIGRAM_PIECE_MAX ? rd_take(&text, (size_t)n) : NULL;
        if (!p || score.bad || type.bad)
            return err_set(err, BERTH_EFORMAT, "token %" PRIu64 " of %" PRIu64 " bytes", i, n);
        if (unigram_add_piece(l, (const char *)p, (size_t)n, x, kind, err))
            return err->code;
        note_unknown(l, kind);
    }
    return BERTH_OK;
}

static berth_status read_gguf(struct unigram_load *l, const struct weights *w, berth_err *err)
{
    struct unigram *t = l->t;
    const struct weights_meta *map = array_of(w, "tokenizer.ggml.precompiled_charsmap", GGUF_I8, 0);
    const struct weights_meta *unknown = weights_meta_find(w, "tokenizer.ggml.unknown_token_id");
    if (!map)
        map = array_of(w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 0);
    sentencepiece_defaults(t);
    t->dummy_prefix = flag_of(w, "tokenizer.ggml.add_space_prefix", true);
    t->squeeze = flag_of(w, "tokenizer.ggml.remove_extra_whitespaces", !t->merges);
    l->byte_fallback = true; /* where it has all bytes; nobody writes down whether it is on */
    if (map && charsmap_init(&t->map, map->raw, map->raw_len, err))
        return err->code;
    if (read_gguf_pieces(l, w, err))
        return err->code;
    if (unknown && unknown->kind == META_UINT && unknown->u < l->piece.n)
        l->unknown = (int64_t)unknown->u;
    return weights_check(w, err);
}

berth_status unigram_from_gguf(const struct weights *w, const char *want, struct unigram **out,
                               berth_err *err)
{
    const struct weights_meta *model = weights_meta_find(w, "tokenizer.ggml.model");
    struct unigram_load l;
    *out = NULL;
    if (!model || model->kind != META_STRING || !weights_meta_find(w, "tokenizer.ggml.tokens"))
        return err_set(err, BERTH_ENOTFOUND, "'%s' has no tokenizer in it", weights_path(w));
    if (!str_eq(model->str, model->str_len, want))
        return err_set(err, BERTH_EUNSUPPORTED, "'%s' has a tokenizer '%.40s', not '%s'",
                       weights_path(w), model->str, want);
    if (unigram_load_init(&l, err))
        return err->code;
    l.t->merges = strcmp(want, "llama") == 0;
    berth_status s = unigram_finish(&l, read_gguf(&l, w, err), out, err);
    return s ? err_add(err, "tokenizer in '%s'", weights_path(w)) : BERTH_OK;
}
