#include "format/layout.h"

#include "base/json.h"
#include "format/format_impl.h"
#include "format/places.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <math.h>

#define MARKER_MAX 512 /* bytes: a few short fields */
#define NAME_ROOM 1100 /* of a tensor: the longest that files may have, and a part's */
#define MARKER ".comfy_quant"
#define METADATA "_quantization_metadata"
#define GROUP_LEAST 4

static const struct layout_kind kinds[] = {
    { .format = "float8_e4m3fn",
      .words = "scaled fp8",
      .codes = DT_F8_E4M3,
      .rows = "weight_scale",
      .pad = 1 },
    { .format = "float8_e5m2",
      .words = "scaled fp8",
      .codes = DT_F8_E5M2,
      .rows = "weight_scale",
      .pad = 1 },
    { .format = "mxfp8",
      .words = "fp8 in blocks",
      .codes = DT_F8_E4M3,
      .blocks = "weight_scale",
      .how = BLOCKS_TIMES,
      .block_type = DT_F8_E8M0,
      .group = 32,
      .swizzled = true,
      .pad = 32 },
    { .format = "nvfp4",
      .words = "4-bit floats in blocks",
      .codes = DT_F4_E2M1,
      .all = "weight_scale_2",
      .blocks = "weight_scale",
      .how = BLOCKS_TIMES,
      .block_type = DT_F8_E4M3,
      .group = 16,
      .swizzled = true,
      .pad = 16 },
    { .format = "int8_tensorwise",
      .words = "8-bit integers",
      .codes = DT_I8,
      .rows = "weight_scale",
      .pad = 1,
      .turn = TURN_TOLD },
    { .format = "convrot_w4a4",
      .words = "4-bit integers",
      .codes = DT_I4,
      .rows = "weight_scale",
      .pad = 1,
      .turn = TURN_ALWAYS },
    { .format = "asym_w4a8_int8",
      .words = "4-bit codes of 8-bit integers",
      .codes = DT_U4,
      .rows = "weight_s_channel",
      .blocks = "weight_s_rel",
      .book = "weight_codebook",
      .unread = "weight_correction",
      .how = BLOCKS_STEPS,
      .block_type = DT_F8_E4M3,
      .group = 16,
      .group_told = true,
      .pad = 1,
      .turn = TURN_ALWAYS },
};

const struct layout_kind *layout_kind_at(size_t i)
{
    return i < ARRAY_LEN(kinds) ? &kinds[i] : NULL;
}

const struct layout_kind *layout_kind_find(const char *format)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].format, format) == 0)
            return &kinds[i];
    return NULL;
}

bool layout_is_plain(const struct weights_layout *l)
{
    uint64_t n;
    return !l->blocks && !l->turn && !l->kind->group && dtype_desc(l->kind->codes)->is_float &&
           (!l->rows || (shape_count(&l->rows->shape, &n) && n == 1));
}

const char *layout_words(const struct weights_layout *l, char buf[LAYOUT_WORDS_MAX])
{
    uint64_t n = 1;
    size_t at = (size_t)snprintf(buf, LAYOUT_WORDS_MAX, "%s (%s)", l->kind->words, l->kind->format);
    if (l->rows && shape_count(&l->rows->shape, &n))
        at += (size_t)snprintf(buf + at, LAYOUT_WORDS_MAX - at, ", %s",
                               n == 1 ? "one scale" : "a scale for each row");
    if (l->group && at < LAYOUT_WORDS_MAX)
        at += (size_t)snprintf(buf + at, LAYOUT_WORDS_MAX - at, ", one for every %u", l->group);
    if (l->turn && at < LAYOUT_WORDS_MAX)
        snprintf(buf + at, LAYOUT_WORDS_MAX - at, ", turned in groups of %u", l->turn);
    return buf;
}

/* ---- one weight ---- */

struct making {
    const struct weights *w;
    const struct weights_entry *e; /* the weight */
    struct weights_layout l;
    uint64_t rows, cols; /* of the weight, padding included */
    berth_err *err;
};

/* <layer>.<called>; NULL: there is none. */
static const struct weights_entry *part_of(const struct weights *w, const struct weights_entry *e,
                                           const char *called)
{
    char name[NAME_ROOM];
    size_t stem = e->name_len;
    while (stem && e->name[stem - 1] != '.')
        stem--;
    int n = called ? snprintf(name, sizeof name, "%.*s%s", (int)stem, e->name, called) : -1;
    return n > 0 && (size_t)n < sizeof name ? weights_find(w, name, (size_t)n) : NULL;
}

static berth_status wrong(const struct making *m, const struct weights_entry *part,
                          const char *want)
{
    char text[SHAPE_TEXT_MAX];
    return err_set(m->err, BERTH_EFORMAT, "'%s' is %s %s, which %s does not fit: %s",
                   excerpt(part->name, part->name_len).s, dtype_name(part->dtype),
                   shape_text(&part->shape, text), m->l.kind->format, want);
}

static berth_status missing(const struct making *m, const char *called)
{
    return err_set(m->err, BERTH_EFORMAT, "'%s' is stored in the layout '%s' without a '%s'",
                   excerpt(m->e->name, m->e->name_len).s, m->l.kind->format, called);
}

static uint64_t numbers_in(const struct weights_entry *e)
{
    uint64_t n;
    return shape_count(&e->shape, &n) ? n : 0;
}

/* The weight's own bytes as rows of codes. */
static berth_status take_codes(struct making *m)
{
    const struct weights_layout *was = m->e->layout;
    const struct layout_kind *k = m->l.kind;
    const struct dtype_desc *codes = dtype_desc(k->codes);
    char text[SHAPE_TEXT_MAX];
    m->l.raw = was ? was->raw : m->e->stored;
    m->l.raw_shape = was ? was->raw_shape : m->e->shape;
    const struct shape *s = &m->l.raw_shape;
    bool one_byte = m->l.raw == DT_U8 || m->l.raw == DT_I8;
    if (m->l.raw != k->codes && !one_byte)
        return err_set(m->err, BERTH_EFORMAT, "'%s' is %s, and stored in the layout '%s'",
                       excerpt(m->e->name, m->e->name_len).s, dtype_name(m->l.raw), k->format);
    bool many = codes->is_float && k->pad == 1 && s->ndim > 2; /* convolutions in scaled fp8 */
    if ((s->ndim != 2 && !many) || !s->dim[0] || !s->dim[1] ||
        __builtin_mul_overflow(s->dim[1], codes->elems, &m->cols))
        return err_set(m->err, BERTH_EFORMAT, "'%s' is %s: the layout '%s' is for matrices",
                       excerpt(m->e->name, m->e->name_len).s, shape_text(s, text), k->format);
    m->rows = s->dim[0];
    if (m->rows % k->pad || m->cols % k->pad)
        return err_set(
            m->err, BERTH_EFORMAT, "'%s' is %s, and the layout '%s' pads rows and columns to %u",
            excerpt(m->e->name, m->e->name_len).s, shape_text(s, text), k->format, k->pad);
    return BERTH_OK;
}

static berth_status take_number(struct making *m, const char *called,
                                const struct weights_entry **part)
{
    *part = part_of(m->w, m->e, called);
    if (!*part)
        return missing(m, called);
    if (numbers_in(*part) != 1 || !dtype_desc((*part)->stored)->is_float)
        return wrong(m, *part, "it is one number");
    return BERTH_OK;
}

/* One number, or one for each row. */
static berth_status take_rows(struct making *m)
{
    const char *called = m->l.kind->rows;
    const struct weights_entry *p = part_of(m->w, m->e, called);
    if (!p && dtype_desc(m->l.kind->codes)->is_float) { /* as scaled fp8 once had it; or none */
        p = part_of(m->w, m->e, "scale_weight");
        if (!p)
            return BERTH_OK;
    }
    if (!p)
        return missing(m, called);
    uint64_t n = numbers_in(p);
    if (n == 1 && dtype_desc(p->stored)->is_float) {
        m->l.rows = p;
        return BERTH_OK;
    }
    bool column = p->shape.ndim == 1 || (p->shape.ndim == 2 && p->shape.dim[1] == 1);
    if (n != m->rows || !column || p->stored != DT_F32)
        return wrong(m, p, "it is one number, or F32 for each row");
    if (m->l.raw_shape.ndim != 2)
        return wrong(m, p, "convolutions have one scale");
    m->l.rows = p;
    return BERTH_OK;
}

static bool is_power_of(uint64_t n, unsigned of)
{
    while (n > 1 && n % of == 0)
        n /= of;
    return n == 1;
}

static berth_status take_blocks(struct making *m)
{
    const struct layout_kind *k = m->l.kind;
    const struct weights_entry *p = part_of(m->w, m->e, k->blocks);
    if (!p)
        return missing(m, k->blocks);
    if (!is_power_of(m->l.group, 2) || m->l.group < GROUP_LEAST || m->l.group > CODED_TURN_MAX ||
        m->cols % m->l.group)
        return err_set(m->err, BERTH_EUNSUPPORTED,
                       "'%s': groups of %u of %" PRIu64 " columns cannot be computed",
                       excerpt(m->e->name, m->e->name_len).s, m->l.group, m->cols);
    bool wide = p->stored == DT_F32 && k->group_told;
    if (p->stored != k->block_type && p->stored != DT_U8 && !wide)
        return wrong(m, p, "its type is another");
    m->l.block_type = wide ? DT_F32 : k->block_type;
    const struct coded c = { .cols = m->cols, .group = m->l.group, .swizzled = k->swizzled };
    if (numbers_in(p) != coded_blocks_stored(&c, m->rows))
        return wrong(m, p, "there are not as many blocks");
    m->l.blocks = p;
    return BERTH_OK;
}

static berth_status take_others(struct making *m)
{
    const struct layout_kind *k = m->l.kind;
    const struct weights_entry *p = k->unread ? part_of(m->w, m->e, k->unread) : NULL;
    if (p)
        return err_set(m->err, BERTH_EUNSUPPORTED, "'%s': layers with it cannot be computed",
                       excerpt(p->name, p->name_len).s);
    m->l.book = k->book ? part_of(m->w, m->e, k->book) : NULL;
    if (m->l.book && (numbers_in(m->l.book) != CODED_BOOK || m->l.book->stored != DT_F32))
        return wrong(m, m->l.book, "it is 16 numbers of F32");
    m->l.pre = k->codes == DT_F4_E2M1 ? part_of(m->w, m->e, "pre_quant_scale") : NULL;
    uint64_t n = m->l.pre ? numbers_in(m->l.pre) : 0;
    if (m->l.pre && (n > m->cols || n + k->pad <= m->cols || m->l.pre->shape.ndim != 1 ||
                     !dtype_desc(m->l.pre->stored)->is_float))
        return wrong(m, m->l.pre, "it is a number for each column");
    return BERTH_OK;
}

/* A number that a marker may have at its top, or in "params". */
static berth_status told_number(const struct making *m, const json_t *o, const char *key,
                                uint32_t *out)
{
    const json_t *v = json_object_get(o, key);
    uint64_t n;
    v = v ? v : json_object_get(json_object_get(o, "params"), key);
    if (!v)
        return BERTH_OK;
    if (!js_get_u64(v, &n) || n > UINT32_MAX)
        return err_set(m->err, BERTH_EFORMAT, "'%s': its marker's '%s' is no size",
                       excerpt(m->e->name, m->e->name_len).s, key);
    *out = (uint32_t)n;
    return BERTH_OK;
}

static berth_status take_turn(struct making *m, const json_t *marker)
{
    const json_t *v = json_object_get(marker, "convrot");
    v = v ? v : json_object_get(json_object_get(marker, "params"), "convrot");
    if (m->l.kind->turn == TURN_NEVER || (m->l.kind->turn == TURN_TOLD && !json_is_true(v)))
        return BERTH_OK;
    m->l.turn = 256;
    if (told_number(m, marker, "convrot_groupsize", &m->l.turn))
        return m->err->code;
    if (m->l.turn < 4 || m->l.turn > CODED_TURN_MAX || !is_power_of(m->l.turn, 4) ||
        m->cols % m->l.turn)
        return err_set(m->err, BERTH_EFORMAT,
                       "'%s': %" PRIu64 " columns turned in groups of %u, which are no power of 4 "
                       "up to %d that divides them",
                       excerpt(m->e->name, m->e->name_len).s, m->cols, m->l.turn, CODED_TURN_MAX);
    return BERTH_OK;
}

/* The layout of m->e as the marker says it; marker NULL: scaled fp8 without one. */
static berth_status make(struct making *m, const json_t *marker)
{
    const char *format = json_string_value(json_object_get(marker, "format"));
    const struct layout_kind *k =
        marker ? (format ? layout_kind_find(format) : NULL)
               : layout_kind_find(m->e->stored == DT_F8_E5M2 ? "float8_e5m2" : "float8_e4m3fn");
    if (!k)
        return err_set(m->err, BERTH_EUNSUPPORTED,
                       "'%s' is stored in the layout '%.40s', which cannot be computed yet",
                       excerpt(m->e->name, m->e->name_len).s, format ? format : "?");
    m->l = (struct weights_layout) { .kind = k, .group = k->group, .block_type = k->block_type };
    m->l.exact = json_is_true(json_object_get(marker, "full_precision_matrix_mult"));
    berth_status s = take_codes(m);
    if (!s && k->group_told)
        s = told_number(m, marker, "group_size", &m->l.group);
    if (!s && k->rows)
        s = take_rows(m);
    if (!s && k->all)
        s = take_number(m, k->all, &m->l.all);
    if (!s && k->blocks)
        s = take_blocks(m);
    if (!s)
        s = take_turn(m, marker);
    return s ? s : take_others(m);
}

/* ---- all of a file ---- */

typedef berth_status each_fn(void *user, struct making *m, const json_t *marker, berth_err *err);

static const struct weights_entry *weight_of(const struct weights *w, const char *layer, size_t n,
                                             const char *front)
{
    char name[NAME_ROOM];
    int len = snprintf(name, sizeof name, "%s%.*s.weight", front, (int)n, layer);
    return len > 0 && (size_t)len < sizeof name ? weights_find(w, name, (size_t)len) : NULL;
}

/* Metadata may name layers without what stands in front of them in the file. */
static const struct weights_entry *weight_behind(const struct weights *w, const char *layer)
{
    static const char *const roles[] = { "unet", "clip", "vae", NULL };
    const struct weights_entry *e = weight_of(w, layer, strlen(layer), "");
    char root[PLACE_ROOT_MAX];
    for (size_t i = 0; !e && i < place_count(); i++)
        if (place_root(place_at(i), root))
            e = weight_of(w, layer, strlen(layer), root);
    for (size_t i = 0; !e && i < ARRAY_LEN(roles); i++)
        for (const char *const *lead = place_leads(roles[i]); !e && *lead; lead++)
            e = weight_of(w, layer, strlen(layer), *lead);
    return e;
}

static berth_status each(const struct weights *w, const struct weights_entry *e,
                         const json_t *marker, each_fn *fn, void *user, berth_err *err)
{
    struct making m = { .w = w, .e = e, .err = err };
    return fn(user, &m, marker, err);
}

static berth_status by_metadata(const struct weights *w, each_fn *fn, void *user, berth_err *err)
{
    const struct weights_meta *x = weights_meta_find(w, METADATA);
    json_t *o = NULL, *v;
    const char *layer;
    if (!x || x->kind != META_STRING)
        return BERTH_OK;
    if (js_parse(x->str, x->str_len, NULL, &o, err))
        return err_add(err, METADATA);
    berth_status s = BERTH_OK;
    json_object_foreach(json_object_get(o, "layers"), layer, v)
    {
        const struct weights_entry *e = weight_behind(w, layer);
        if (!s && e && json_is_object(v))
            s = each(w, e, v, fn, user, err);
    }
    json_decref(o);
    return s;
}

static berth_status by_marker(const struct weights *w, const struct weights_entry *marker,
                              each_fn *fn, void *user, berth_err *err)
{
    char text[MARKER_MAX];
    json_t *o = NULL;
    const struct weights_entry *e =
        weight_of(w, marker->name, marker->name_len - strlen(MARKER), "");
    if (!e)
        return BERTH_OK; /* of nothing that is here */
    if (marker->size > sizeof text)
        return err_set(err, BERTH_EFORMAT, "'%s' has %" PRIu64 " bytes",
                       excerpt(marker->name, marker->name_len).s, marker->size);
    if (weights_read(w, marker, 0, text, (size_t)marker->size, err) ||
        js_parse(text, (size_t)marker->size, NULL, &o, err))
        return err_add(err, "'%s'", excerpt(marker->name, marker->name_len).s);
    berth_status s = each(w, e, o, fn, user, err);
    json_decref(o);
    return s;
}

static bool is_fp8(enum dtype t)
{
    return t == DT_F8_E4M3 || t == DT_F8_E5M2;
}

/* The weight that a scale of scaled fp8 stands beside; NULL: it has a marker, or is no such. */
static const struct weights_entry *scaled_weight(const struct weights *w,
                                                 const struct weights_entry *scale)
{
    static const char *const called[] = { ".scale_weight", ".weight_scale" };
    for (size_t i = 0; i < ARRAY_LEN(called); i++) {
        if (!str_ends(scale->name, scale->name_len, called[i]))
            continue;
        const struct weights_entry *e =
            weight_of(w, scale->name, scale->name_len - strlen(called[i]), "");
        bool matrix = e && is_fp8(e->stored) && e->shape.ndim > 1;
        return matrix && !part_of(w, e, MARKER + 1) ? e : NULL;
    }
    return NULL;
}

/* Every weight behind root (NULL: all) that something says a layout of; the file's metadata last,
 * which markers overrule. lenient: what is wrong with one is passed over. */
static berth_status for_each(const struct weights *w, const char *root, bool lenient, each_fn *fn,
                             void *user, berth_err *err)
{
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < w->count; i++) {
        const struct weights_entry *e = &w->entry[i], *scaled;
        if (root && !str_starts(e->name, e->name_len, root))
            continue;
        if (str_ends(e->name, e->name_len, MARKER))
            s = by_marker(w, e, fn, user, err);
        else if ((scaled = scaled_weight(w, e)))
            s = each(w, scaled, NULL, fn, user, err);
        s = lenient && s != BERTH_ENOMEM ? BERTH_OK : s;
    }
    if (!s)
        s = by_metadata(w, fn, user, err);
    return lenient && s != BERTH_ENOMEM ? BERTH_OK : s;
}

static berth_status attach(void *user, struct making *m, const json_t *marker, berth_err *err)
{
    struct weights *w = user;
    struct weights_entry *e = &w->entry[m->e - w->entry];
    if (e->layout && !marker)
        return BERTH_OK;
    berth_err why = { 0 };
    m->err = &why;
    if (make(m, marker)) /* layouts_check() says it */
        return BERTH_OK;
    struct weights_layout *l = arena_alloc(&w->mem, sizeof *l);
    if (!l)
        return err_set(err, BERTH_ENOMEM, "how weights are stored");
    *l = m->l;
    e->layout = l;
    e->dtype = e->stored = l->kind->codes;
    if (e->shape.ndim == 2)
        e->shape.dim[1] = m->cols;
    return BERTH_OK;
}

berth_status layouts_attach(struct weights *w, berth_err *err)
{
    return for_each(w, NULL, true, attach, w, err);
}

/* ---- values ---- */

static berth_status bad_value(const struct weights_entry *e, uint64_t i, float v, berth_err *err)
{
    return err_set(err, BERTH_EFORMAT, "'%s' is %g at %" PRIu64 ", which is no scale",
                   excerpt(e->name, e->name_len).s, (double)v, i);
}

static berth_status read_one(const struct weights *w, const struct weights_entry *e, float *out,
                             berth_err *err)
{
    uint8_t raw[sizeof(double)];
    if (weights_read(w, e, 0, raw, (size_t)e->size, err) ||
        convert(e->dtype, raw, DT_F32, out, 1, err))
        return err->code;
    return isfinite(*out) && *out != 0 ? BERTH_OK : bad_value(e, 0, *out, err);
}

berth_status layout_coded(const struct weights *w, const struct weights_entry *e, struct coded *out,
                          berth_err *err)
{
    const struct weights_layout *l = e->layout;
    *out = (struct coded) { .type = e->dtype,
                            .cols = e->shape.dim[1],
                            .scale = 1,
                            .how = l->kind->how,
                            .block_type = l->block_type,
                            .group = l->group,
                            .swizzled = l->kind->swizzled,
                            .turn = l->turn,
                            .booked = l->book != NULL };
    const struct weights_entry *one = l->all ? l->all : l->rows;
    if (one && numbers_in(one) == 1 && read_one(w, one, &out->scale, err))
        return err->code;
    if (!l->book)
        return BERTH_OK;
    if (weights_read(w, l->book, 0, out->book, sizeof out->book, err))
        return err->code;
    for (size_t i = 0; i < CODED_BOOK; i++)
        if (!isfinite(out->book[i]))
            return bad_value(l->book, i, out->book[i], err);
    return BERTH_OK;
}

berth_status layout_mapped(const struct weights *w, const struct weights_entry *e,
                           struct coded *out, berth_err *err)
{
    const struct weights_layout *l = e->layout;
    if (layout_coded(w, e, out, err))
        return err->code;
    out->codes = weights_stored(w, e);
    out->blocks = l->blocks ? weights_stored(w, l->blocks) : NULL;
    out->rows = l->rows && numbers_in(l->rows) > 1 ? weights_stored(w, l->rows) : NULL;
    return BERTH_OK;
}

berth_status layout_values(const struct weights *w, const struct weights_entry *e, float *dst,
                           berth_err *err)
{
    struct coded c;
    const uint64_t rows = e->shape.dim[0], cols = e->shape.dim[1];
    if (layout_mapped(w, e, &c, err))
        return err->code;
    for (uint64_t r = 0; r < rows; r++)
        coded_expand(&c, r, 0, (size_t)cols, dst + r * cols);
    return weights_check(w, err);
}

const struct weights_entry *layout_owner(const struct weights *w, const struct weights_entry *e)
{
    const struct weights_entry *weight = part_of(w, e, "weight");
    const struct weights_layout *l = weight && weight != e ? weight->layout : NULL;
    bool part = l && (e == l->rows || e == l->all || e == l->blocks || e == l->book ||
                      e == l->pre || str_ends(e->name, e->name_len, MARKER) ||
                      str_ends(e->name, e->name_len, ".input_scale"));
    return part ? weight : NULL;
}

/* Every number of a vector. */
static berth_status check_numbers(const struct weights *w, const struct weights_entry *e,
                                  bool is_scale, berth_err *err)
{
    float some[512];
    uint64_t n = numbers_in(e);
    for (uint64_t i = 0; i < n; i += ARRAY_LEN(some)) {
        size_t now = n - i < ARRAY_LEN(some) ? (size_t)(n - i) : ARRAY_LEN(some);
        uint8_t raw[sizeof some];
        const size_t each_one = dtype_desc(e->dtype)->bytes;
        if (each_one > sizeof *some)
            return err_set(err, BERTH_EUNSUPPORTED, "'%s' is %s", excerpt(e->name, e->name_len).s,
                           dtype_name(e->dtype));
        if (weights_read(w, e, i * each_one, raw, now * each_one, err) ||
            convert(e->dtype, raw, DT_F32, some, now, err))
            return err->code;
        for (size_t k = 0; k < now; k++)
            if (!isfinite(some[k]) || (is_scale && some[k] == 0))
                return bad_value(e, i + k, some[k], err);
    }
    return BERTH_OK;
}

struct checking {
    const char *root;
    bool values;
};

static berth_status check(void *user, struct making *m, const json_t *marker, berth_err *err)
{
    const struct checking *c = user;
    struct coded ignored;
    if (c->root && !str_starts(m->e->name, m->e->name_len, c->root))
        return BERTH_OK;
    if (make(m, marker))
        return err->code;
    const struct weights_layout *l = m->e->layout;
    if (!l) /* made now, but not when the file was opened: it changed meanwhile */
        return weights_check(m->w, err);
    if (!c->values)
        return BERTH_OK;
    if (layout_coded(m->w, m->e, &ignored, err))
        return err->code;
    if (l->rows && check_numbers(m->w, l->rows, true, err))
        return err->code;
    return l->pre ? check_numbers(m->w, l->pre, false, err) : BERTH_OK;
}

berth_status layouts_check(const struct weights *w, const char *root, bool values, berth_err *err)
{
    return for_each(w, root, false, check, &(struct checking) { root, values }, err);
}
