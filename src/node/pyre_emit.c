/* pyre_emit: the tree of a regular expression to instructions. */
#include "node/pyre_tree.h"

struct emitter {
    struct pyre *p;
    bool full, no_memory;
    struct pyre_code nowhere; /* what is written then */
};

static size_t emit(struct emitter *e, struct pyre_code c)
{
    e->full = e->full || e->p->code.n >= PYRE_CODE_MAX;
    e->no_memory = e->no_memory || (!e->full && !vec_push(&e->p->code, &c));
    return e->full || e->no_memory ? 0 : e->p->code.n - 1;
}

static struct pyre_code *code_at(struct emitter *e, size_t i)
{
    return e->full || e->no_memory ? &e->nowhere : vec_at(&e->p->code, i);
}

static size_t here(const struct emitter *e)
{
    return e->p->code.n;
}

static void emit_tree(struct emitter *e, const struct tree *t);

/* kid* : the rest of a repeat without end. */
static void emit_star(struct emitter *e, const struct tree *t)
{
    uint64_t low, high;
    re_width(t->kid, &low, &high);
    bool may_be_empty = low == 0;
    uint32_t reg = may_be_empty ? e->p->loops++ : 0;
    size_t split = emit(e, (struct pyre_code) { .op = RE_SPLIT }), leave = SIZE_MAX;
    if (may_be_empty)
        emit(e, (struct pyre_code) { .op = RE_LOOP, .c = reg });
    emit_tree(e, t->kid);
    if (may_be_empty)
        leave = emit(e, (struct pyre_code) { .op = RE_PROGRESS, .c = reg });
    emit(e, (struct pyre_code) { .op = RE_JUMP, .x = split });
    size_t body = split + 1, end = here(e);
    code_at(e, split)->x = t->how == LAZY ? end : body;
    code_at(e, split)->y = t->how == LAZY ? body : end;
    if (may_be_empty)
        code_at(e, leave)->x = end;
}

static void emit_repeat(struct emitter *e, const struct tree *t)
{
    size_t atomic = t->how == POSSESSIVE ? emit(e, (struct pyre_code) { .op = RE_ATOMIC }) : 0;
    for (uint32_t i = 0; i < t->min && !e->full && !e->no_memory; i++)
        emit_tree(e, t->kid);
    if (t->max == MANY) {
        emit_star(e, t);
    } else { /* (kid(kid)?)?: all of them leave to the same end */
        size_t first = here(e), n = t->max - t->min;
        for (size_t i = 0; i < n && !e->full && !e->no_memory; i++) {
            emit(e, (struct pyre_code) { .op = RE_SPLIT });
            emit_tree(e, t->kid);
        }
        size_t end = here(e), left = n;
        for (size_t i = first; i < end && left && !e->full && !e->no_memory;) {
            /* The splits of ours are the ones at equal distances. */
            size_t step = (end - first) / n;
            code_at(e, i)->x = t->how == LAZY ? end : i + 1;
            code_at(e, i)->y = t->how == LAZY ? i + 1 : end;
            i += step;
            left--;
        }
    }
    if (t->how == POSSESSIVE) {
        emit(e, (struct pyre_code) { .op = RE_DONE });
        code_at(e, atomic)->x = here(e);
    }
}

static void emit_alternatives(struct emitter *e, const struct tree *t)
{
    size_t last = SIZE_MAX; /* jumps to the end, chained by y until it is known */
    for (const struct tree *k = t->kid; k; k = k->next) {
        size_t split = k->next ? emit(e, (struct pyre_code) { .op = RE_SPLIT }) : 0;
        emit_tree(e, k);
        if (!k->next)
            break;
        last = emit(e, (struct pyre_code) { .op = RE_JUMP, .y = last });
        code_at(e, split)->x = split + 1;
        code_at(e, split)->y = here(e);
    }
    while (last != SIZE_MAX && !e->full && !e->no_memory) {
        size_t before = code_at(e, last)->y;
        code_at(e, last)->x = here(e);
        last = before;
    }
}

static void emit_condition(struct emitter *e, const struct tree *t)
{
    size_t cond = emit(e, (struct pyre_code) { .op = RE_COND, .c = t->c });
    emit_tree(e, t->kid);
    if (t->kid->next) {
        size_t jump = emit(e, (struct pyre_code) { .op = RE_JUMP });
        code_at(e, cond)->x = here(e);
        emit_tree(e, t->kid->next);
        code_at(e, jump)->x = here(e);
    } else {
        code_at(e, cond)->x = here(e);
    }
}

static void emit_tree(struct emitter *e, const struct tree *t)
{
    struct pyre_code c = {
        .fold = t->flags & PYRE_IGNORECASE, .ascii = t->flags & PYRE_ASCII, .c = t->c, .set = t->set
    };
    size_t at;
    if (e->full || e->no_memory)
        return;
    switch (t->kind) {
    case T_EMPTY:
        break;
    case T_CHAR:
        c.op = RE_CHAR;
        c.x = pyre_fold(t->c);
        emit(e, c);
        break;
    case T_ANY:
        c.op = RE_ANY;
        c.flag = t->flags & PYRE_DOTALL;
        emit(e, c);
        break;
    case T_SET:
        c.op = RE_SET;
        emit(e, c);
        break;
    case T_BACK:
        c.op = RE_GROUP;
        emit(e, c);
        break;
    case T_AT:
        c.op = RE_AT;
        emit(e, c);
        break;
    case T_CAT:
        for (const struct tree *k = t->kid; k; k = k->next)
            emit_tree(e, k);
        break;
    case T_ALT:
        emit_alternatives(e, t);
        break;
    case T_REPEAT:
        emit_repeat(e, t);
        break;
    case T_GROUP:
        if (t->c)
            emit(e, (struct pyre_code) { .op = RE_MARK, .c = 2 * t->c });
        emit_tree(e, t->kid);
        if (t->c)
            emit(e, (struct pyre_code) { .op = RE_MARK, .c = 2 * t->c + 1 });
        break;
    case T_LOOK:
    case T_ATOMIC:
        c.op = t->kind == T_LOOK ? RE_LOOK : RE_ATOMIC;
        c.flag = t->inverse;
        c.behind = t->behind;
        at = emit(e, c);
        emit_tree(e, t->kid);
        emit(e, (struct pyre_code) { .op = RE_DONE });
        code_at(e, at)->x = here(e);
        break;
    case T_COND:
        emit_condition(e, t);
        break;
    }
}

berth_status pyre_emit(struct pyre *p, const struct tree *t, berth_err *err)
{
    struct emitter e = { .p = p };
    emit_tree(&e, t);
    emit(&e, (struct pyre_code) { .op = RE_MATCH });
    if (e.no_memory)
        return err_set(err, BERTH_ENOMEM, "a regular expression");
    if (e.full)
        return err_set(err, BERTH_ELIMIT,
                       "the regular expression repeats too much: more than %d instructions",
                       PYRE_CODE_MAX);
    return BERTH_OK;
}
