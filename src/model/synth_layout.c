/* synth_layout: synthetic weights in the layouts of quantised files. Linears become codes with what
 * stands beside them; what such files keep in 16 bits stays so. A scale of all follows from the
 * largest value that the rule can give, so that every piece of a tensor can be made on its own. */
#include "model/synth.h"

#include "model/synth_impl.h"

#include "base/str.h"
#include "base/sz.h"
#include "format/layout.h"

#include <math.h>
#include <strings.h>

#define LEAST_SIDE 16   /* of a matrix that is worth codes */
#define LEAST_TURN 16   /* narrower ones are not turned */
#define USUAL_TURN 256  /* of groups of columns */
#define STEPS_GROUP 16  /* columns of a scale of asym_w4a8_int8 */
#define W4A4_COLUMNS 64 /* its columns are a multiple */
#define MARKER_MAX 128

const struct synth_layout synth_layouts[] = {
    { "fp8_scaled", "float8_e4m3fn", false, false },
    { "fp8_e5m2_scaled", "float8_e5m2", false, false },
    { "mxfp8", "mxfp8", false, false },
    { "nvfp4", "nvfp4", false, false },
    { "int8", "int8_tensorwise", false, false },
    { "int8_rowwise", "int8_tensorwise", true, false },
    { "int8_convrot", "int8_tensorwise", true, true },
    { "w4a4", "convrot_w4a4", true, true },
    { "w4a8", "asym_w4a8_int8", true, true },
};
const size_t synth_layouts_n = ARRAY_LEN(synth_layouts);

const struct synth_layout *synth_layout_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(synth_layouts); i++)
        if (strcasecmp(synth_layouts[i].name, name) == 0)
            return &synth_layouts[i];
    return NULL;
}

enum part { PART_PLAIN, PART_CODES, PART_ROWS, PART_ALL, PART_BLOCKS, PART_BOOK, PART_MARKER };

struct synth_item { /* a tensor of the file */
    size_t key;     /* of the weight, or itself */
    enum part part;
    uint32_t turn;
    bool rows; /* its rows have scales */
};

/* ---- which, and what stands beside ---- */

static bool is_table(const struct key *k)
{
    return strstr(k->name, "embed") || str_ends(k->name, k->name_len, "shared.weight");
}

static bool is_sensitive(const struct key *k, const char *const *hiprec)
{
    for (; hiprec && *hiprec; hiprec++)
        if (str_starts(k->name, k->name_len, *hiprec))
            return true;
    return false;
}

static bool fits(const struct layout_kind *kind, const struct key *k, const char *const *hiprec)
{
    const uint64_t *d = k->shape.dim;
    bool columns = kind->codes != DT_I4 || d[1] % W4A4_COLUMNS == 0;
    return k->shape.ndim == 2 && str_ends(k->name, k->name_len, ".weight") &&
           !is_sensitive(k, hiprec) && d[0] >= LEAST_SIDE && d[1] >= LEAST_SIDE && columns &&
           d[0] % kind->pad == 0 && d[1] % kind->pad == 0 &&
           (!kind->group || d[1] % kind->group == 0) &&
           (!is_table(k) || kind->codes == DT_I8 ||
            (!kind->group && kind->pad == 1 && dtype_desc(kind->codes)->is_float));
}

static uint32_t turn_for(const struct synth_layout *l, uint64_t cols)
{
    uint32_t turn = l->turned ? USUAL_TURN : 0;
    while (turn >= LEAST_TURN && cols % turn)
        turn /= 4;
    return turn >= LEAST_TURN ? turn : 0;
}

static struct coded how_of(const struct synth *s, const struct synth_item *x)
{
    const struct layout_kind *kind = layout_kind_find(s->layout->format);
    const struct key *k = &s->keys->at[x->key];
    struct coded c = { .type = kind->codes,
                       .cols = k->shape.dim[1],
                       .scale = 1,
                       .how = kind->how,
                       .block_type = kind->block_type,
                       .group = kind->group,
                       .swizzled = kind->swizzled,
                       .turn = x->turn,
                       .booked = kind->book != NULL };
    if (!x->rows && kind->how != BLOCKS_STEPS)
        c.scale = (float)sqrt(3.0 / (double)c.cols) / coded_most(&c);
    memcpy(c.book, coded_usual_book, sizeof c.book);
    return c;
}

static int marker_of(const struct synth *s, const struct synth_item *x, char text[MARKER_MAX])
{
    const struct layout_kind *kind = layout_kind_find(s->layout->format);
    if (!x->turn)
        return snprintf(text, MARKER_MAX, "{\"format\": \"%s\"}", kind->format);
    return snprintf(text, MARKER_MAX, "{\"format\": \"%s\", %s\"convrot_groupsize\": %u}",
                    kind->format, kind->codes == DT_I8 ? "\"convrot\": true, " : "", x->turn);
}

static berth_status add(struct synth *s, const struct synth_item *x, const char *called,
                        enum dtype t, struct shape shape, berth_err *err)
{
    const struct key *k = &s->keys->at[x->key];
    size_t stem = k->name_len - strlen("weight"), len = stem + strlen(called ? called : "weight");
    char *name = called ? arena_array(&s->mem, len + 1, 1) : NULL;
    uint64_t count, bytes;
    if (called && !name)
        return err_set(err, BERTH_ENOMEM, "list of %zu tensors", s->n);
    if (called)
        snprintf(name, len + 1, "%.*s%s", (int)stem, k->name, called);
    if (!shape_count(&shape, &count) || !dtype_bytes(t, count, &bytes) ||
        __builtin_add_overflow(s->bytes, bytes, &s->bytes))
        return err_set(err, BERTH_ELIMIT, "'%.80s': too large", k->name);
    s->item[s->n] = *x;
    s->spec[s->n++] =
        (struct weights_spec) { .name = called ? name : k->name, .dtype = t, .shape = shape };
    return BERTH_OK;
}

static berth_status add_coded(struct synth *s, struct synth_item x, berth_err *err)
{
    const struct layout_kind *kind = layout_kind_find(s->layout->format);
    const struct shape *w = &s->keys->at[x.key].shape;
    const struct coded c = how_of(s, &x);
    const uint64_t elems = dtype_desc(kind->codes)->elems, rows = w->dim[0];
    struct shape stored = { 2, { rows, w->dim[1] / elems } }, one = { 0 };
    char text[MARKER_MAX];
    enum dtype raw = elems == 1 ? kind->codes : kind->codes == DT_F4_E2M1 ? DT_U8 : DT_I8;
#define PART(p, called, t, ...)                                                                    \
    (x.part = (p), add(s, &x, (called), (t), (struct shape) { __VA_ARGS__ }, err))
    x.part = PART_CODES;
    if (add(s, &x, NULL, raw, stored, err))
        return err->code;
    const uint64_t tall = kind->swizzled ? (rows + 127) / 128 * 128 : rows;
    if (kind->blocks && PART(PART_BLOCKS, kind->blocks, kind->block_type, 2,
                             { tall, coded_blocks_stored(&c, rows) / tall }))
        return err->code;
    if (kind->all && PART(PART_ALL, kind->all, DT_F32, .ndim = 0))
        return err->code;
    if (kind->rows && x.rows &&
        PART(PART_ROWS, kind->rows, DT_F32, kind->codes == DT_I8 ? 2 : 1, { rows, 1 }))
        return err->code;
    x.part = PART_ALL;
    if (kind->rows && !x.rows && add(s, &x, kind->rows, DT_F32, one, err))
        return err->code;
    if (kind->book && PART(PART_BOOK, kind->book, DT_F32, 1, { CODED_BOOK }))
        return err->code;
    return PART(PART_MARKER, "comfy_quant", DT_U8, 1, { (uint64_t)marker_of(s, &x, text) });
#undef PART
}

berth_status synth_layout_init(struct synth *s, const struct keys *keys,
                               const struct synth_layout *layout, const char *const *hiprec,
                               const atomic_bool *cancel, berth_err *err)
{
    enum { PARTS = 5 }; /* most tensors that a weight becomes */
    *s = (struct synth) { .keys = keys, .cancel = cancel, .layout = layout };
    const struct layout_kind *kind = layout_kind_find(layout->format);
    size_t most, bytes;
    berth_status st = BERTH_OK;
    if (!sz_mul(keys->n ? keys->n : 1, PARTS, &most) || !sz_mul(most, sizeof *s->spec, &bytes) ||
        !(s->spec = malloc(bytes)) || !(s->item = arena_array(&s->mem, most, sizeof *s->item)))
        st = err_set(err, BERTH_ENOMEM, "list of %zu tensors", keys->n);
    for (size_t i = 0; !st && i < keys->n; i++) {
        const struct key *k = &keys->at[i];
        struct synth_item x = { .key = i, .rows = layout->rows };
        bool codes = fits(kind, k, hiprec);
        x.turn = codes ? turn_for(layout, k->shape.dim[1]) : 0;
        if (codes && kind->turn == TURN_ALWAYS && !x.turn)
            codes = false; /* such layouts are turned, or there is none */
        st = codes ? add_coded(s, x, err) : add(s, &x, NULL, DT_BF16, k->shape, err);
    }
    if (st)
        synth_release(s);
    return st;
}

/* ---- filling ---- */

struct row { /* being coded */
    struct coded how;
    float *x;
    uint8_t *codes, *blocks;
    struct coded_row out;
};

static berth_status row_open(struct row *r, const struct synth *s, const struct synth_item *x,
                             berth_err *err)
{
    *r = (struct row) { .how = how_of(s, x) };
    size_t cols = (size_t)r->how.cols;
    r->x = malloc((cols + 1) * sizeof *r->x);
    r->codes = malloc(cols + 1);
    r->blocks = malloc(cols + 1);
    r->out = (struct coded_row) { .codes = r->codes, .blocks = r->blocks };
    return r->x && r->codes && r->blocks ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a row");
}

static void row_close(struct row *r)
{
    free(r->x);
    free(r->codes);
    free(r->blocks);
}

static void row_make(struct row *r, const struct synth *s, const struct synth_item *x, uint64_t row)
{
    const struct key *k = &s->keys->at[x->key];
    synth_fill(k->name, k->name_len, &k->shape, row * r->how.cols, (size_t)r->how.cols, r->x);
    coded_encode(&r->how, x->rows, r->x, &r->out);
}

/* What of src, which belongs at `at`, lies in the n bytes from off on that dst is for. */
static void put(void *dst, uint64_t off, size_t n, uint64_t at, const void *src, size_t size)
{
    uint64_t from = at > off ? at : off, to = at + size < off + n ? at + size : off + n;
    if (from < to)
        memcpy((char *)dst + (from - off), (const char *)src + (from - at), (size_t)(to - from));
}

static berth_status fill_rows(const struct synth *s, const struct synth_item *x, uint64_t off,
                              void *dst, size_t n, berth_err *err)
{
    const uint64_t rows = s->keys->at[x->key].shape.dim[0];
    struct row r;
    berth_status st = row_open(&r, s, x, err);
    const size_t codes = (size_t)(r.how.cols / dtype_desc(r.how.type)->elems),
                 each = x->part == PART_CODES ? codes : sizeof(float);
    const bool blocks = x->part == PART_BLOCKS;
    if (blocks)
        memset(dst, 0, n);
    for (uint64_t i = blocks ? 0 : off / each; !st && i < rows; i++) {
        if (!blocks && i * each >= off + n)
            break;
        if (s->cancel && atomic_load_explicit(s->cancel, memory_order_relaxed)) {
            st = err_set(err, BERTH_ECANCELED, "stopped");
            break;
        }
        row_make(&r, s, x, i);
        if (x->part == PART_CODES)
            put(dst, off, n, i * each, r.codes, each);
        else if (!blocks)
            put(dst, off, n, i * each, &r.out.scale, each);
        for (uint64_t b = 0; blocks && b < r.how.cols / r.how.group; b++)
            put(dst, off, n, coded_block_at(&r.how, i, b), &r.blocks[b], 1);
    }
    row_close(&r);
    return st;
}

berth_status synth_layout_fill(const struct synth *s, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    const struct synth_item *x = &s->item[i];
    const struct coded c = how_of(s, x);
    char text[MARKER_MAX];
    switch (x->part) {
    case PART_ALL:
        put(dst, off, n, 0, &c.scale, sizeof c.scale);
        return BERTH_OK;
    case PART_BOOK:
        put(dst, off, n, 0, c.book, sizeof c.book);
        return BERTH_OK;
    case PART_MARKER:
        put(dst, off, n, 0, text, (size_t)marker_of(s, x, text));
        return BERTH_OK;
    default:
        return fill_rows(s, x, off, dst, n, err);
    }
}

size_t synth_key_of(const struct synth *s, size_t i, bool *plain)
{
    *plain = !s->layout || s->item[i].part == PART_PLAIN;
    return s->layout ? s->item[i].key : i;
}
