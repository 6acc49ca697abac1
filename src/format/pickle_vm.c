/* The machine: protocols 1 to 5, as far as torch.save() uses them. Each instruction is in the table
 * at the end; those that are not there are refused. */
#include "format/format_impl.h"
#include "format/pickle_impl.h"

#include <inttypes.h>

struct run { /* one pickle */
    struct pk_vm *m;
    struct rd *r;
    const uint8_t *start;
    size_t arg; /* of the instruction, from the table */
};

void pk_init(struct pk_vm *m, uint64_t seed)
{
    *m = (struct pk_vm) {
        .stack = { .elem = sizeof(struct pk *) },
        .mark = { .elem = sizeof(size_t) },
        .memo = { .elem = sizeof(struct pk *) },
        .store = { .elem = sizeof(struct pk_storage *) },
        .by_key = { .seed = seed },
    };
}

void pk_release(struct pk_vm *m)
{
    vec_release(&m->stack);
    vec_release(&m->mark);
    vec_release(&m->memo);
    vec_release(&m->store);
    map_release(&m->by_key);
    arena_release(&m->mem);
}

/* ---- values ---- */

static berth_status no_memory(const struct pk_vm *m, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "out of memory, %zu values into the pickle", m->values);
}

static berth_status too_many(const char *what, berth_err *err)
{
    return err_set(err, BERTH_ELIMIT, "more than %u %s in the pickle", PK_VALUES_MAX, what);
}

struct pk *pk_new(struct pk_vm *m, enum pk_kind kind, berth_err *err)
{
    if (m->values >= PK_VALUES_MAX) {
        too_many("values", err);
        return NULL;
    }
    struct pk *v = arena_alloc(&m->mem, sizeof *v);
    if (!v) {
        no_memory(m, err);
        return NULL;
    }
    m->values++;
    v->kind = kind;
    return v;
}

bool pk_is_text(const struct pk *v, const char *s)
{
    return v->kind == PK_TEXT && str_eq(v->s, v->len, s);
}

struct pk *pk_get(const struct pk *dict, const char *key)
{
    for (size_t i = 0; dict->kind == PK_DICT && i + 1 < dict->n; i += 2)
        if (pk_is_text(dict->at[i], key))
            return dict->at[i + 1];
    return NULL;
}

static berth_status reserve(struct pk_vm *m, struct pk *to, size_t more, berth_err *err)
{
    size_t want = to->n + more, cap = to->cap ? to->cap * 2 : 4; /* both far below overflow */
    if (want <= to->cap)
        return BERTH_OK;
    if (cap < want)
        cap = want;
    if (cap > 2 * (size_t)PK_VALUES_MAX)
        return too_many("values", err);
    struct pk **at = arena_array(&m->mem, cap, sizeof(struct pk *));
    if (!at)
        return no_memory(m, err);
    if (to->n)
        memcpy(at, to->at, to->n * sizeof(struct pk *));
    to->at = at;
    to->cap = cap;
    return BERTH_OK;
}

berth_status pk_push(struct pk_vm *m, struct pk *to, struct pk *v, berth_err *err)
{
    if (reserve(m, to, 1, err))
        return err->code;
    to->at[to->n++] = v;
    return BERTH_OK;
}

const char *pk_kind_text(const struct pk *v)
{
    static const char *const text[] = {
        [PK_NONE] = "None",       [PK_BOOL] = "a boolean",    [PK_INT] = "an integer",
        [PK_FLOAT] = "a float",   [PK_TEXT] = "a text",       [PK_BYTES] = "bytes",
        [PK_TUPLE] = "a tuple",   [PK_LIST] = "a list",       [PK_DICT] = "a dict",
        [PK_NAME] = "a name",     [PK_STORAGE] = "a storage", [PK_TENSOR] = "a tensor",
        [PK_INERT] = "an object",
    };
    return text[v->kind];
}

/* ---- the stack ---- */

static size_t floor_of(const struct pk_vm *m) /* what lies below belongs to an outer mark */
{
    return m->mark.n ? *(size_t *)vec_at(&m->mark, m->mark.n - 1) : 0;
}

static berth_status underflow(berth_err *err)
{
    return err_set(err, BERTH_EFORMAT, "the pickle takes more from its stack than is there");
}

static berth_status push(struct pk_vm *m, struct pk *v, berth_err *err)
{
    if (m->stack.n >= PK_VALUES_MAX)
        return too_many("values", err);
    return vec_push(&m->stack, &v) ? BERTH_OK : no_memory(m, err);
}

static berth_status peek(struct pk_vm *m, struct pk **out, berth_err *err)
{
    if (m->stack.n <= floor_of(m))
        return underflow(err);
    *out = *(struct pk **)vec_at(&m->stack, m->stack.n - 1);
    return BERTH_OK;
}

static berth_status pop(struct pk_vm *m, struct pk **out, berth_err *err)
{
    if (peek(m, out, err))
        return err->code;
    vec_pop(&m->stack);
    return BERTH_OK;
}

static berth_status push_new(struct pk_vm *m, enum pk_kind kind, struct pk **out, berth_err *err)
{
    *out = pk_new(m, kind, err);
    return *out ? push(m, *out, err) : err->code;
}

/* The n values on top, in their order; borrowed until the next push. */
static berth_status take(struct pk_vm *m, size_t n, struct pk ***at, berth_err *err)
{
    if (m->stack.n - floor_of(m) < n)
        return underflow(err);
    m->stack.n -= n;
    *at = n ? (struct pk **)m->stack.p + m->stack.n : NULL;
    return BERTH_OK;
}

/* All above the last mark, which goes. */
static berth_status take_marked(struct pk_vm *m, struct pk ***at, size_t *n, berth_err *err)
{
    if (!m->mark.n)
        return err_set(err, BERTH_EFORMAT, "the pickle asks for a mark that is not there");
    *n = m->stack.n - floor_of(m);
    if (take(m, *n, at, err))
        return err->code;
    vec_pop(&m->mark);
    return BERTH_OK;
}

/* ---- instructions ---- */

static berth_status op_proto(struct run *x, berth_err *err)
{
    uint8_t version = rd_u8(x->r);
    if (version > 5)
        return err_set(err, BERTH_EUNSUPPORTED, "a pickle of protocol %u, known are 1 to 5",
                       version);
    return BERTH_OK;
}

static berth_status op_skip(struct run *x, berth_err *err) /* the length of a frame */
{
    (void)err;
    rd_take(x->r, x->arg);
    return BERTH_OK;
}

static berth_status op_mark(struct run *x, berth_err *err)
{
    if (x->m->mark.n >= PK_VALUES_MAX)
        return too_many("marks", err);
    return vec_push(&x->m->mark, &x->m->stack.n) ? BERTH_OK : no_memory(x->m, err);
}

static berth_status op_pop(struct run *x, berth_err *err)
{
    struct pk *v;
    if (x->m->mark.n && x->m->stack.n == floor_of(x->m)) {
        vec_pop(&x->m->mark);
        return BERTH_OK;
    }
    return pop(x->m, &v, err);
}

static berth_status op_pop_mark(struct run *x, berth_err *err)
{
    struct pk **at;
    size_t n;
    return take_marked(x->m, &at, &n, err);
}

static berth_status op_dup(struct run *x, berth_err *err)
{
    struct pk *v;
    return peek(x->m, &v, err) ? err->code : push(x->m, v, err);
}

static berth_status push_int(struct pk_vm *m, enum pk_kind kind, int64_t i, berth_err *err)
{
    struct pk *v;
    if (push_new(m, kind, &v, err))
        return err->code;
    v->i = i;
    return BERTH_OK;
}

static berth_status op_bool(struct run *x, berth_err *err)
{
    return push_int(x->m, PK_BOOL, (int64_t)x->arg, err);
}

/* Up to four bytes; all four are a signed number. */
static berth_status op_int(struct run *x, berth_err *err)
{
    uint64_t u = rd_uint_le(x->r, x->arg);
    return push_int(x->m, PK_INT, x->arg == 4 ? (int64_t)(int32_t)(uint32_t)u : (int64_t)u, err);
}

/* A line of text without its end. False: there is none. */
static bool line(struct rd *r, const char **s, size_t *n)
{
    const uint8_t *at = r->p, *end = rd_left(r) ? memchr(at, '\n', rd_left(r)) : NULL;
    *s = (const char *)at;
    *n = end ? (size_t)(end - at) : 0;
    return rd_take(r, *n + 1) && end;
}

/* Protocol 1: "I01" and "I00" are booleans, others decimal numbers, an L behind long ones. */
static berth_status op_decimal(struct run *x, berth_err *err)
{
    const char *s;
    size_t n;
    char text[24] = { 0 };
    uint64_t u;
    if (!line(x->r, &s, &n) || n >= sizeof text)
        return err_set(err, BERTH_EFORMAT, "a number in the pickle is too long");
    memcpy(text, s, n);
    if (!x->arg && n == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1'))
        return push_int(x->m, PK_BOOL, text[1] == '1', err);
    if (x->arg && n && text[n - 1] == 'L')
        n--;
    size_t minus = n && text[0] == '-';
    if (!str_parse_u64(text + minus, n - minus, &u) || u > INT64_MAX)
        return err_set(err, BERTH_EFORMAT, "'%s' in the pickle is no number", excerpt(text, n).s);
    return push_int(x->m, PK_INT, minus ? -(int64_t)u : (int64_t)u, err);
}

/* A copy of the next n bytes. */
static berth_status push_text(struct run *x, enum pk_kind kind, uint64_t n, berth_err *err)
{
    struct pk *v;
    if (n > PK_TEXT_MAX)
        return err_set(err, BERTH_ELIMIT,
                       "a text of %" PRIu64 " bytes in the pickle, the limit is %u", n,
                       PK_TEXT_MAX);
    const uint8_t *p = rd_take(x->r, (size_t)n);
    if (!p)
        return BERTH_OK; /* the loop reports the end of the file */
    if (push_new(x->m, kind, &v, err))
        return err->code;
    if (!(v->s = arena_strndup(&x->m->mem, (const char *)p, (size_t)n)))
        return no_memory(x->m, err);
    v->len = (size_t)n;
    return BERTH_OK;
}

static berth_status op_text(struct run *x, berth_err *err)
{
    return push_text(x, PK_TEXT, rd_uint_le(x->r, x->arg), err);
}

static berth_status op_bytes(struct run *x, berth_err *err)
{
    return push_text(x, PK_BYTES, rd_uint_le(x->r, x->arg), err);
}

/* Two's complement of any length. */
static berth_status op_long(struct run *x, berth_err *err)
{
    uint64_t n = rd_uint_le(x->r, x->arg);
    if (n > 8)
        return push_text(x, PK_BYTES, n, err);
    uint64_t u = rd_uint_le(x->r, (size_t)n);
    unsigned shift = (unsigned)(64 - 8 * n);
    if (n && n < 8)
        u = (uint64_t)((int64_t)(u << shift) >> shift);
    return push_int(x->m, PK_INT, (int64_t)u, err);
}

static berth_status op_float(struct run *x, berth_err *err)
{
    const uint8_t *p = rd_take(x->r, x->arg);
    uint64_t u = 0;
    struct pk *v;
    for (size_t i = 0; p && i < x->arg; i++)
        u = u << 8 | p[i];
    if (push_new(x->m, PK_FLOAT, &v, err))
        return err->code;
    memcpy(&v->f, &u, sizeof v->f);
    return BERTH_OK;
}

static berth_status op_empty(struct run *x, berth_err *err)
{
    struct pk *v;
    return push_new(x->m, (enum pk_kind)x->arg, &v, err);
}

/* n values that were taken off the stack become v, which takes their place. */
static berth_status gather(struct pk_vm *m, enum pk_kind kind, struct pk **at, size_t n,
                           berth_err *err)
{
    struct pk *v = pk_new(m, kind, err);
    if (!v || reserve(m, v, n, err))
        return err->code;
    if (n)
        memcpy(v->at, at, n * sizeof(struct pk *));
    v->n = n;
    return push(m, v, err);
}

static berth_status op_tuple(struct run *x, berth_err *err)
{
    struct pk **at;
    return take(x->m, x->arg, &at, err) ? err->code : gather(x->m, PK_TUPLE, at, x->arg, err);
}

static berth_status op_marked(struct run *x, berth_err *err)
{
    struct pk **at;
    size_t n;
    return take_marked(x->m, &at, &n, err) ? err->code
                                           : gather(x->m, (enum pk_kind)x->arg, at, n, err);
}

/* n values to the list or dict below them. */
static berth_status extend(struct pk_vm *m, enum pk_kind kind, struct pk **at, size_t n,
                           berth_err *err)
{
    struct pk *to;
    if (peek(m, &to, err))
        return err->code;
    if (to->kind != kind || (kind == PK_DICT && n % 2))
        return err_set(err, BERTH_EFORMAT, "the pickle adds %zu values to %s", n, pk_kind_text(to));
    if (reserve(m, to, n, err))
        return err->code;
    if (n)
        memcpy(to->at + to->n, at, n * sizeof(struct pk *));
    to->n += n;
    return BERTH_OK;
}

static berth_status op_extend(struct run *x, berth_err *err)
{
    struct pk **at;
    size_t n;
    return take_marked(x->m, &at, &n, err) ? err->code
                                           : extend(x->m, (enum pk_kind)x->arg, at, n, err);
}

static berth_status op_add(struct run *x, berth_err *err)
{
    struct pk **at;
    size_t n = x->arg == PK_DICT ? 2 : 1;
    return take(x->m, n, &at, err) ? err->code : extend(x->m, (enum pk_kind)x->arg, at, n, err);
}

/* ---- the memo ---- */

/* Python counts up, so that a number is below that of the bytes in front of it. */
static berth_status memo_put(const struct run *x, uint64_t at, berth_err *err)
{
    struct pk_vm *m = x->m;
    struct pk *v;
    if (peek(m, &v, err))
        return err->code;
    if (at >= PK_VALUES_MAX)
        return too_many("memo entries", err);
    if (at > (uint64_t)(x->r->p - x->start))
        return err_set(err, BERTH_EFORMAT, "the pickle numbers a value %" PRIu64 ", far too high",
                       at);
    if (at >= m->memo.cap && !vec_reserve(&m->memo, at < 1024 ? 1024 : (size_t)at * 2))
        return no_memory(m, err);
    if (at >= m->memo.n) { /* numbers may be left out */
        memset((struct pk **)m->memo.p + m->memo.n, 0, (at + 1 - m->memo.n) * sizeof(struct pk *));
        m->memo.n = (size_t)at + 1;
    }
    *(struct pk **)vec_at(&m->memo, (size_t)at) = v;
    return BERTH_OK;
}

static berth_status op_put(struct run *x, berth_err *err)
{
    return memo_put(x, rd_uint_le(x->r, x->arg), err);
}

static berth_status op_memoize(struct run *x, berth_err *err)
{
    return memo_put(x, x->m->memo.n, err);
}

static berth_status op_get(struct run *x, berth_err *err)
{
    uint64_t at = rd_uint_le(x->r, x->arg);
    struct pk *v = at < x->m->memo.n ? *(struct pk **)vec_at(&x->m->memo, (size_t)at) : NULL;
    return v ? push(x->m, v, err)
             : err_set(err, BERTH_EFORMAT, "the pickle refers to value %" PRIu64 " before it is",
                       at);
}

/* ---- names and calls ---- */

/* A class by name; with an arg it would be called at once, with what is on the stack. */
static berth_status op_global(struct run *x, berth_err *err)
{
    const char *module, *name;
    size_t mlen, nlen;
    struct pk *v;
    if (!line(x->r, &module, &mlen) || !line(x->r, &name, &nlen))
        return err_set(err, BERTH_EFORMAT, "a name in the pickle has no end");
    if (x->arg)
        return err_set(err, BERTH_EUNSUPPORTED, "wants %s.%s, which Berth does not run",
                       excerpt(module, mlen).s, excerpt(name, nlen).s);
    return pk_find_name(x->m, module, mlen, name, nlen, &v, err) ? err->code : push(x->m, v, err);
}

static berth_status op_stack_global(struct run *x, berth_err *err)
{
    struct pk **at, *v;
    if (take(x->m, 2, &at, err))
        return err->code;
    if (at[0]->kind != PK_TEXT || at[1]->kind != PK_TEXT)
        return err_set(err, BERTH_EFORMAT, "the pickle imports %s from %s", pk_kind_text(at[1]),
                       pk_kind_text(at[0]));
    return pk_find_name(x->m, at[0]->s, at[0]->len, at[1]->s, at[1]->len, &v, err)
               ? err->code
               : push(x->m, v, err);
}

static berth_status op_call(struct run *x, berth_err *err)
{
    struct pk **at, *v;
    if (take(x->m, 2, &at, err))
        return err->code;
    if (at[0]->kind != PK_NAME || at[1]->kind != PK_TUPLE)
        return err_set(err, BERTH_EFORMAT, "the pickle calls %s with %s", pk_kind_text(at[0]),
                       pk_kind_text(at[1]));
    return pk_call(x->m, at[0], at[1], &v, err) ? err->code : push(x->m, v, err);
}

/* State of an object: attributes, of which only a module's parameters are tensors. */
static berth_status op_build(struct run *x, berth_err *err)
{
    struct pk *state, *to;
    if (pop(x->m, &state, err) || peek(x->m, &to, err))
        return err->code;
    if (to->kind != PK_DICT && to->kind != PK_TENSOR && to->kind != PK_INERT)
        return err_set(err, BERTH_EUNSUPPORTED, "the pickle sets attributes of %s",
                       pk_kind_text(to));
    if (to->kind != PK_DICT || !to->holder || state->kind != PK_DICT)
        return BERTH_OK;
    x->m->steps += state->n; /* looked through one by one */
    struct pk *held = pk_get(state, "_parameters");
    if (!held || held->kind != PK_DICT || held == to)
        return BERTH_OK;
    return extend(x->m, PK_DICT, held->at, held->n, err);
}

static berth_status op_persistent(struct run *x, berth_err *err)
{
    struct pk *id, *v;
    return pop(x->m, &id, err) || pk_persistent(x->m, id, &v, err) ? err->code : push(x->m, v, err);
}

static const struct {
    berth_status (*run)(struct run *x, berth_err *err);
    size_t arg;
} ops[256] = {
    [0x80] = { op_proto },
    [0x95] = { op_skip, 8 },
    ['('] = { op_mark },
    ['0'] = { op_pop },
    ['1'] = { op_pop_mark },
    ['2'] = { op_dup },
    ['N'] = { op_empty, PK_NONE },
    [0x88] = { op_bool, true },
    [0x89] = { op_bool, false },
    ['I'] = { op_decimal, false },
    ['L'] = { op_decimal, true },
    ['J'] = { op_int, 4 },
    ['K'] = { op_int, 1 },
    ['M'] = { op_int, 2 },
    [0x8a] = { op_long, 1 },
    [0x8b] = { op_long, 4 },
    ['G'] = { op_float, 8 },
    ['T'] = { op_text, 4 },
    ['U'] = { op_text, 1 },
    ['X'] = { op_text, 4 },
    [0x8c] = { op_text, 1 },
    [0x8d] = { op_text, 8 },
    ['B'] = { op_bytes, 4 },
    ['C'] = { op_bytes, 1 },
    [0x8e] = { op_bytes, 8 },
    [0x96] = { op_bytes, 8 },
    ['}'] = { op_empty, PK_DICT },
    [']'] = { op_empty, PK_LIST },
    [')'] = { op_empty, PK_TUPLE },
    [0x8f] = { op_empty, PK_LIST },
    [0x85] = { op_tuple, 1 },
    [0x86] = { op_tuple, 2 },
    [0x87] = { op_tuple, 3 },
    ['t'] = { op_marked, PK_TUPLE },
    [0x91] = { op_marked, PK_LIST },
    ['a'] = { op_add, PK_LIST },
    ['s'] = { op_add, PK_DICT },
    ['e'] = { op_extend, PK_LIST },
    [0x90] = { op_extend, PK_LIST },
    ['u'] = { op_extend, PK_DICT },
    ['q'] = { op_put, 1 },
    ['r'] = { op_put, 4 },
    [0x94] = { op_memoize },
    ['h'] = { op_get, 1 },
    ['j'] = { op_get, 4 },
    ['c'] = { op_global, false },
    [0x93] = { op_stack_global },
    ['i'] = { op_global, true },
    ['R'] = { op_call },
    [0x81] = { op_call },
    ['b'] = { op_build },
    ['Q'] = { op_persistent },
};

static berth_status run_ops(struct run *x, berth_err *err)
{
    for (;;) {
        uint8_t op = rd_u8(x->r);
        if (x->r->bad)
            break;
        if (op == '.')
            return BERTH_OK;
        if (!ops[op].run)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "the pickle has an instruction, 0x%02x, that tensors do not need", op);
        x->arg = ops[op].arg;
        if (ops[op].run(x, err))
            return err->code;
        if (x->r->bad)
            break;
        if (++x->m->steps > PK_STEPS_MAX || x->m->mem.used > PK_MEMORY_MAX)
            return err_set(err, BERTH_ELIMIT,
                           "a pickle of more than %u steps, or that takes more than %u bytes",
                           PK_STEPS_MAX, PK_MEMORY_MAX);
    }
    return err_set(err, BERTH_EFORMAT, "the pickle is cut short: download it again");
}

berth_status pk_run(struct pk_vm *m, struct rd *r, struct pk **out, berth_err *err)
{
    struct run x = { m, r, r->p, 0 };
    m->stack.n = m->mark.n = m->memo.n = 0;
    if (run_ops(&x, err))
        return err->code;
    if (m->mark.n)
        return err_set(err, BERTH_EFORMAT, "the pickle ends inside a collection");
    return pop(m, out, err);
}
