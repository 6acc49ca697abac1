/* Pickles: PyTorch's .ckpt, .pt, .pth and .bin, read without running them (pickle_impl.h).
 *
 * Two layouts. Since 2020 a ZIP archive, all members stored as they are:
 *     <root>/data.pkl     the pickle; tensors refer to storages by key
 *     <root>/data/<key>   the bytes of a storage
 *     <root>/byteorder    "little"; older files have none and are
 * Before: pickles one behind the other (magic number, version, facts about the machine, the object,
 * the list of storage keys), then each storage as u64 elements and its bytes, in the list's order.
 *
 * A tensor whose elements follow each other is a range of the file, also when others share it. Of
 * others (transposed, expanded, every second row) the index keeps a copy in torch order. */
#include "format/pickle_impl.h"

#include "base/hash.h"
#include "format/format_impl.h"
#include "format/zip_impl.h"

#include <inttypes.h>

enum { DEPTH = 8 };              /* dicts and lists inside each other, above the tensors */
#define ROOM (UINT64_C(1) << 20) /* what tensors of a small file may take, sharing or not */
#define SHARING 4                /* ... and of a larger one, so many times its size */
#define META_TEXT 4096           /* bytes of a text that counts as metadata */
#define PLACES 1024              /* where tensors may be, and SHARING times as many as there are */

struct piece { /* a tensor that was found */
    const char *name;
    size_t len;
    const struct pk_tensor *t;
};

struct reading {
    struct opening *o;
    const struct shard *f;
    struct pk_vm vm;
    struct vec piece;  /* struct piece, in the order of the pickle */
    struct str prefix; /* names of what is around the place the walk is at */
    size_t seen;
    uint64_t names; /* bytes of those of the pieces */
};

static bool is_zip(const uint8_t *head, size_t n)
{
    return n >= 4 && memcmp(head, "PK\3\4", 4) == 0;
}

/* A bare pickle of protocol 2 to 5, which is how torch files before 2020 begin. */
static bool is_pickle(const uint8_t *head, size_t n)
{
    return n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

static bool probe(const uint8_t *head, size_t n)
{
    return is_zip(head, n) || is_pickle(head, n);
}

static berth_status out_of_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "out of memory for the tensors of a pickle");
}

/* ---- archives ---- */

/* The member <root>/<folder><name>, or NULL. All lie in one root, that of the first. */
static const struct zip_member *member(const struct zip *z, const char *folder, const char *name,
                                       size_t n, struct str *path)
{
    const struct zip_member *first = z->member.n ? vec_at(&z->member, 0) : NULL;
    const char *slash = first ? memchr(first->name, '/', first->len) : NULL;
    str_clear(path);
    if (slash)
        str_add(path, first->name, (size_t)(slash - first->name) + 1);
    str_adds(path, folder);
    str_add(path, name, n);
    return path->bad ? NULL : zip_find(z, path->p, path->n);
}

static berth_status check_byte_order(const struct reading *r, const struct zip *z, struct str *path,
                                     berth_err *err)
{
    const struct zip_member *m = member(z, "", "byteorder", 9, path);
    if (m && !str_eq((const char *)r->f->data + m->off, (size_t)m->size, "little"))
        return err_set(err, BERTH_EUNSUPPORTED, "written on a big-endian machine");
    return BERTH_OK;
}

static berth_status place_members(struct reading *r, const struct zip *z, struct str *path,
                                  berth_err *err)
{
    for (size_t i = 0; i < r->vm.store.n; i++) {
        struct pk_storage *s = *(struct pk_storage **)vec_at(&r->vm.store, i);
        const struct zip_member *m = member(z, "data/", s->key, s->len, path);
        if (path->bad)
            return out_of_memory(err);
        if (!m || m->size != s->bytes)
            return err_set(
                err, BERTH_EFORMAT,
                "storage '%s' has %" PRIu64 " bytes in the pickle and %s%" PRIu64 " in the archive",
                excerpt(s->key, s->len).s, s->bytes, m ? "" : "is not there: ", m ? m->size : 0);
        s->off = m->off;
        s->found = true;
    }
    return BERTH_OK;
}

static berth_status read_zip(struct reading *r, const struct zip *z, struct str *path,
                             struct pk **root, berth_err *err)
{
    const struct zip_member *m = member(z, "", "data.pkl", 8, path);
    if (path->bad)
        return out_of_memory(err);
    if (!m)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a ZIP archive without data.pkl: not what torch.save() writes");
    if (member(z, "", "constants.pkl", 13, path))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a TorchScript archive: a program with its weights, which Berth does not "
                       "run");
    if (m->size > r->o->lim.max_header)
        return err_set(err, BERTH_ELIMIT,
                       "a pickle of %" PRIu64 " bytes is over the limit of %" PRIu64, m->size,
                       r->o->lim.max_header);
    const uint8_t *data = r->f->data + m->off;
    if (m->crc && crc32_of(0, data, (size_t)m->size) != m->crc)
        return err_set(err, BERTH_EFORMAT, "data.pkl is damaged: download it again");
    struct rd in = rd_init(data, (size_t)m->size);
    if (check_byte_order(r, z, path, err) || pk_run(&r->vm, &in, root, err))
        return err->code;
    return place_members(r, z, path, err);
}

static berth_status open_zip(struct reading *r, struct pk **root, berth_err *err)
{
    struct zip z = { .by_name.seed = r->o->meta_key.seed };
    struct str path = { 0 };
    berth_status s = zip_init(&z, r->f->data, r->f->size, r->o->lim.max_tensors, err);
    if (!s)
        s = read_zip(r, &z, &path, root, err);
    str_release(&path);
    zip_release(&z);
    return s;
}

/* ---- files from before 2020 ---- */

static berth_status check_start(struct reading *r, struct rd *in, berth_err *err)
{
    static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    struct pk *v, *version, *facts;
    if (pk_run(&r->vm, in, &v, err))
        return err->code;
    if (v->kind != PK_BYTES || !str_eq(v->s, v->len, magic))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Python pickle, but not one that torch.save() wrote");
    if (pk_run(&r->vm, in, &version, err) || pk_run(&r->vm, in, &facts, err))
        return err->code;
    if (version->kind != PK_INT || version->i != 1001)
        return err_set(err, BERTH_EUNSUPPORTED, "a PyTorch file of another version than 1001");
    const struct pk *little = pk_get(facts, "little_endian");
    if (!little || little->kind != PK_BOOL || !little->i)
        return err_set(err, BERTH_EUNSUPPORTED, "written on a big-endian machine");
    return BERTH_OK;
}

static berth_status place_next(struct reading *r, const struct pk *key, struct rd *in,
                               berth_err *err)
{
    uint64_t at;
    if (key->kind != PK_TEXT || !map_get(&r->vm.by_key, key->s, key->len, &at))
        return err_set(err, BERTH_EFORMAT, "the file has a storage that no tensor is in");
    struct pk_storage *s = *(struct pk_storage **)vec_at(&r->vm.store, (size_t)at);
    const struct excerpt name = excerpt(s->key, s->len);
    uint64_t count = rd_u64le(in);
    size_t left = rd_left(in);
    if (in->bad || s->bytes > left)
        return err_set(err, BERTH_EFORMAT,
                       "storage '%s' takes %" PRIu64 " bytes, but only %zu are there: the file is "
                       "cut short, or its header lies; download it again",
                       name.s, s->bytes, left);
    if (s->found || count != s->count)
        return err_set(err, BERTH_EFORMAT,
                       "storage '%s' has %" PRIu64 " elements in the pickle and %" PRIu64
                       " behind it, or appears twice",
                       name.s, s->count, count);
    s->off = (uint64_t)(in->p - r->f->data);
    s->found = true;
    rd_take(in, (size_t)s->bytes);
    return BERTH_OK;
}

static berth_status open_stream(struct reading *r, struct pk **root, berth_err *err)
{
    struct rd in = rd_init(r->f->data, r->f->size);
    struct pk *keys;
    if (check_start(r, &in, err) || pk_run(&r->vm, &in, root, err) ||
        pk_run(&r->vm, &in, &keys, err))
        return err->code;
    if (keys->kind != PK_LIST || keys->n != r->vm.store.n)
        return err_set(err, BERTH_EFORMAT, "the pickle names %zu storages, the list behind it %zu",
                       r->vm.store.n, keys->kind == PK_LIST ? keys->n : 0);
    for (size_t i = 0; i < keys->n; i++)
        if (place_next(r, keys->at[i], &in, err))
            return err->code;
    return BERTH_OK;
}

/* ---- which tensors there are ---- */

static bool has_tensor(const struct pk *dict)
{
    for (size_t i = 1; i < dict->n; i += 2)
        if (dict->at[i]->kind == PK_TENSOR)
            return true;
    return false;
}

static struct pk *inner(const struct pk *v)
{
    /* What ComfyUI takes, then where programs that train upscalers put theirs. */
    static const char *const known[] = { "state_dict", "model_state_dict", "params_ema",
                                         "params-ema", "params",           "model",
                                         "net" };
    struct pk *c = pk_get(v, known[0]);
    if (c && c->kind == PK_DICT)
        return c;
    if (v->kind == PK_DICT && v->n == 2 && v->at[1]->kind == PK_DICT)
        return v->at[1];
    for (size_t i = 1; v->kind == PK_DICT && !has_tensor(v) && i < ARRAY_LEN(known); i++)
        if ((c = pk_get(v, known[i])) && c->kind == PK_DICT)
            return c;
    return NULL;
}

static berth_status add_piece(struct reading *r, const struct pk *v, berth_err *err)
{
    const struct str *name = &r->prefix;
    if (name_check(name->p, name->n, r->o->lim.max_name, "tensor name", err))
        return err->code;
    if (r->piece.n >= r->o->lim.max_tensors)
        return err_set(err, BERTH_ELIMIT, "more than %" PRIu64 " tensors", r->o->lim.max_tensors);
    if (r->piece.n >= PLACES + SHARING * r->vm.tensors)
        return err_set(err, BERTH_ELIMIT, "%zu tensors in more than %zu places of the pickle",
                       r->vm.tensors, r->piece.n);
    if ((r->names += name->n) > r->o->lim.max_header)
        return err_set(err, BERTH_ELIMIT, "names of tensors that take more than %" PRIu64 " bytes",
                       r->o->lim.max_header);
    struct piece *p = vec_add(&r->piece);
    if (!p || !(p->name = open_text(r->o, name->p, name->n)))
        return out_of_memory(err);
    p->len = name->n;
    p->t = v->tensor;
    return BERTH_OK;
}

static berth_status walk(struct reading *r, const struct pk *v, int depth, berth_err *err);

/* v under `key`, or under number i where there is none. */
static berth_status visit(struct reading *r, const struct pk *key, size_t i, const struct pk *v,
                          int depth, berth_err *err)
{
    size_t was = r->prefix.n;
    if (v->kind != PK_TENSOR && v->kind != PK_DICT && v->kind != PK_LIST && v->kind != PK_TUPLE)
        return BERTH_OK;
    if (was)
        str_addc(&r->prefix, '.');
    if (!key || key->kind == PK_INT)
        str_addf(&r->prefix, "%" PRId64, key ? key->i : (int64_t)i);
    else if (key->kind == PK_TEXT)
        str_add(&r->prefix, key->s, key->len);
    else
        str_adds(&r->prefix, pk_kind_text(key));
    berth_status s =
        r->prefix.bad          ? out_of_memory(err)
        : v->kind == PK_TENSOR ? add_piece(r, v, err)
        : r->prefix.n > r->o->lim.max_name
            ? err_set(err, BERTH_ELIMIT, "names inside each other of more than %u bytes",
                      r->o->lim.max_name)
            : walk(r, v, depth + 1, err);
    r->prefix.n = was;
    return s;
}

static berth_status walk(struct reading *r, const struct pk *v, int depth, berth_err *err)
{
    bool dict = v->kind == PK_DICT;
    if (depth > DEPTH)
        return err_set(err, BERTH_ELIMIT, "more than %d dicts and lists inside each other", DEPTH);
    for (size_t i = 0; i < v->n; i += dict ? 2 : 1) {
        if (++r->seen > PK_VALUES_MAX)
            return err_set(err, BERTH_ELIMIT, "more than %u values in the pickle", PK_VALUES_MAX);
        if (visit(r, dict ? v->at[i] : NULL, i, v->at[i + (dict ? 1 : 0)], depth, err))
            return err->code;
    }
    return BERTH_OK;
}

/* Numbers and texts beside the tensors are metadata: hypernetworks say so what they are. Those that
 * are none for us are passed over. */
static berth_status add_metadata(struct reading *r, const struct pk *dict, berth_err *err)
{
    berth_err unread = { 0 };
    for (size_t i = 0; dict->kind == PK_DICT && i + 1 < dict->n; i += 2) {
        const struct pk *key = dict->at[i], *v = dict->at[i + 1];
        bool text = v->kind == PK_TEXT && !name_check(v->s, v->len, META_TEXT, "text", &unread);
        if (key->kind != PK_TEXT || (!text && v->kind != PK_BOOL && v->kind != PK_INT) ||
            name_check(key->s, key->len, r->o->lim.max_name, "metadata key", &unread) ||
            r->o->meta.n >= r->o->lim.max_kv || map_get(&r->o->meta_key, key->s, key->len, NULL))
            continue;
        const char *name = open_text(r->o, key->s, key->len);
        const char *s = text ? open_text(r->o, v->s, v->len) : NULL;
        if (!name || (text && !s))
            return out_of_memory(err);
        struct weights_meta *m = open_meta(r->o, name, key->len, err);
        if (!m)
            return err->code;
        m->kind = text ? META_STRING : v->kind == PK_BOOL ? META_BOOL : META_INT;
        m->str = s;
        m->str_len = text ? v->len : 0;
        if (v->kind == PK_BOOL)
            m->b = v->i != 0;
        else if (v->kind == PK_INT)
            m->i = v->i;
    }
    return BERTH_OK;
}

static berth_status find_pieces(struct reading *r, struct pk *root, berth_err *err)
{
    static const struct pk alone = { .kind = PK_TEXT, .s = "tensor", .len = 6 };
    struct pk *in;
    for (int i = 0; i < DEPTH && (in = inner(root)); i++)
        root = in;
    bool many = root->kind == PK_DICT || root->kind == PK_LIST || root->kind == PK_TUPLE;
    if (many ? walk(r, root, 0, err) : visit(r, &alone, 0, root, 0, err))
        return err->code;
    if (!r->piece.n)
        return err_set(err, BERTH_EFORMAT, "%s without a tensor in it", pk_kind_text(root));
    r->o->w->first = ((struct piece *)vec_at(&r->piece, 0))->name;
    return add_metadata(r, root, err);
}

/* ---- entries ---- */

static bool is_dense(const struct pk_tensor *t)
{
    uint64_t want = 1, count;
    if (!shape_count(&t->shape, &count) || !count)
        return true;
    for (int i = t->shape.ndim - 1; i >= 0; i--) {
        if (t->shape.dim[i] > 1 && t->stride[i] != want)
            return false;
        want *= t->shape.dim[i];
    }
    return true;
}

/* Elements in torch order, those of `axis` from `from` on. Returns the end of what it wrote. */
static uint8_t *gather(const struct pk_tensor *t, int axis, const uint8_t *from, uint8_t *to)
{
    size_t each = dtype_desc(t->dtype)->bytes;
    if (axis == t->shape.ndim) {
        memcpy(to, from, each);
        return to + each;
    }
    for (uint64_t i = 0; i < t->shape.dim[axis]; i++)
        to = gather(t, axis + 1, from + i * t->stride[axis] * each, to);
    return to;
}

static berth_status add_entry(struct reading *r, const struct piece *p, uint32_t shard,
                              uint64_t off, struct weights_entry **out, berth_err *err)
{
    struct weights_entry *e = open_entry(r->o, shard, err);
    if (!e)
        return err->code;
    e->name = p->name;
    e->name_len = (uint32_t)p->len;
    e->dtype = p->t->dtype;
    e->shape = p->t->shape;
    e->off = off;
    *out = e;
    return entry_measure(e, err);
}

/* A shard of its own behind those that are files. */
static berth_status add_copies(struct reading *r, uint64_t bytes, berth_err *err)
{
    struct weights *w = r->o->w;
    uint8_t *data = arena_alloc(&w->mem, (size_t)bytes + 1), *to = data;
    struct shard *s = data ? vec_add(&w->shard) : NULL;
    if (!s)
        return out_of_memory(err);
    r->f = open_shard_at(r->o, 0); /* it moved */
    *s = (struct shard) { .path = r->f->path, .data = data, .size = (size_t)bytes };
    w->copies = true;
    for (size_t i = 0; i < r->piece.n; i++) {
        const struct piece *p = vec_at(&r->piece, i);
        struct weights_entry *e;
        if (is_dense(p->t))
            continue;
        if (add_entry(r, p, (uint32_t)w->shard.n - 1, (uint64_t)(to - data), &e, err))
            return err->code;
        const size_t each = dtype_desc(e->dtype)->bytes;
        to = gather(p->t, 0, r->f->data + p->t->storage->off + p->t->offset * each, to);
    }
    return BERTH_OK;
}

static berth_status add_pieces(struct reading *r, berth_err *err)
{
    uint64_t sum = 0, copies = 0, most = r->f->size * SHARING + ROOM;
    for (size_t i = 0; i < r->piece.n; i++) {
        const struct piece *p = vec_at(&r->piece, i);
        struct weights_entry *e, tmp = { .dtype = p->t->dtype,
                                         .shape = p->t->shape,
                                         .name = p->name,
                                         .name_len = (uint32_t)p->len };
        uint64_t each = dtype_desc(p->t->dtype)->bytes;
        bool dense = is_dense(p->t);
        if (entry_measure(&tmp, err))
            return err->code;
        if (tmp.size > most - sum)
            return err_set(err, BERTH_ELIMIT,
                           "tensors that share their bytes and take more than %" PRIu64
                           " together, in a file of %zu",
                           most, r->f->size);
        sum += tmp.size;
        copies += dense ? 0 : tmp.size;
        uint64_t off = p->t->storage->off + (tmp.size ? p->t->offset * each : 0);
        if (dense && add_entry(r, p, 0, off, &e, err))
            return err->code;
    }
    if (open_sort(r->o, 0, err))
        return err->code;
    return copies ? add_copies(r, copies, err) : BERTH_OK;
}

static berth_status pickle_open(struct opening *o, uint32_t shard, berth_err *err)
{
    struct reading r = { .o = o, .f = open_shard_at(o, shard) };
    struct pk *root = NULL;
    if (!probe(r.f->data, r.f->size))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "named like a PyTorch pickle, but it does not begin like one");
    if (o->w->format != &format_pickle)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a PyTorch pickle: shards of an index are read as safetensors only");
    r.piece.elem = sizeof(struct piece);
    pk_init(&r.vm, o->meta_key.seed);
    berth_status s =
        is_zip(r.f->data, r.f->size) ? open_zip(&r, &root, err) : open_stream(&r, &root, err);
    if (!s && !(s = find_pieces(&r, root, err)))
        s = add_pieces(&r, err);
    pk_release(&r.vm);
    vec_release(&r.piece);
    str_release(&r.prefix);
    return s;
}

const struct format format_pickle = {
    .name = "pickle",
    .ext = ".ckpt .pt .pth .bin .pkl",
    .shares = true,
    .probe = probe,
    .open = pickle_open,
};
