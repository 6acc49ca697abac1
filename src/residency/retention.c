/* retention: who holds a model, and when it goes. Handles, uses and anchors; nothing here moves a
 * byte but by ending a model. */
#include "residency/residency_impl.h"

/* ---- the end of a model ---- */

void res_model_free(struct res_model *m)
{
    for (size_t d = 0; m->owners && d < m->res->n_devices; d++) {
        dev_owner_close(m->owners[d].weights);
        dev_owner_close(m->owners[d].pinned);
    }
    for (size_t i = 0; i < m->patches.n; i++)
        res_adapter_unref(((struct res_patch *)vec_at(&m->patches, i))->adapter);
    vec_release(&m->patches);
    free(m->owners);
    free(m->bytes_on);
    free(m->block);
    free(m->key_text);
    free(m->name);
    free(m->role);
    free(m->path);
    free(m->part);
    free(m->options);
    plan_release(&m->plan);
    blocks_release(&m->blocks);
    weights_close(m->weights);
    free(m);
}

void res_model_gone(struct res_model *m)
{
    struct residency *r = m->res;
    if (m->handles || res_model_busy(m))
        BUG("model '%s' goes with %u handles and %u uses", m->owner, m->handles, m->uses);
    res_drop_all(m);
    *(m->prev ? &m->prev->next : &r->first) = m->next;
    *(m->next ? &m->next->prev : &r->last) = m->prev;
    r->models--;
    log_debug(r->log, "res.gone", "model=%s", m->owner);
    res_model_free(m);
}

bool res_model_held(const struct res_model *m)
{
    bool retained = m->anchor[RES_ANCHOR_KEEP] || m->anchor[RES_ANCHOR_SURVIVED] ||
                    m->anchor[RES_ANCHOR_MARKED] || m->anchor[RES_ANCHOR_PROMPT];
    return m->handles || res_model_busy(m) || m->anchor[RES_ANCHOR_USER] ||
           (retained && m->state == RES_RESIDENT);
}

bool res_model_maybe_gone(struct res_model *m)
{
    if (res_model_held(m))
        return false;
    res_model_gone(m);
    return true;
}

bool res_only_lingers(const struct res_model *m)
{
    return m->anchor[RES_ANCHOR_PROMPT] && !m->handles && !m->anchor[RES_ANCHOR_USER] &&
           !m->anchor[RES_ANCHOR_SURVIVED] && m->retention == RES_AUTO;
}

/* ---- handles ---- */

void res_ref(struct res_model *m)
{
    m->handles++;
}

void res_unref(struct res_model *m)
{
    if (!m)
        return;
    struct residency *r = m->res;
    if (!m->handles)
        BUG("model '%s' has no handle to give back", m->owner);
    m->handles--;
    res_model_maybe_gone(m);
    res_check_now(r);
}

/* ---- uses, anchors, retention ---- */

berth_status res_use_begin(struct res_model *m, berth_err *err)
{
    if (m->state != RES_RESIDENT)
        return err_set(err, BERTH_EINVAL, "model %s is %s: only a resident one can be used",
                       m->owner, res_state_name(m->state));
    if (m->patches_changed)
        return err_set(err, BERTH_EINVAL, "model %s: its adapters changed: load it first",
                       m->owner);
    m->uses++;
    m->used_in_prompt = true;
    res_touch(m);
    return BERTH_OK;
}

void res_use_end(struct res_model *m)
{
    struct residency *r = m->res;
    if (!m->uses)
        BUG("model '%s' is not in use", m->owner);
    m->uses--;
    res_touch(m);
    res_model_maybe_gone(m);
    res_check_now(r);
}

void res_set_retention(struct res_model *m, enum res_retention x)
{
    struct residency *r = m->res;
    if (x != m->retention)
        log_info(r->log, "res.retention", "model=%s was=%s is=%s", m->owner,
                 res_retention_name(m->retention), res_retention_name(x));
    m->retention = x;
    bool said = m->anchor[RES_ANCHOR_KEEP] || m->anchor[RES_ANCHOR_MARKED];
    bool stays = said || m->anchor[RES_ANCHOR_SURVIVED] || m->anchor[RES_ANCHOR_USER];
    m->anchor[RES_ANCHOR_KEEP] = x == RES_KEEP;
    m->anchor[RES_ANCHOR_MARKED] = 0;
    if (x == RES_AUTO && said)
        m->anchor[RES_ANCHOR_SURVIVED] = 1;
    if (x == RES_EJECT) {
        memset(m->anchor, 0, sizeof m->anchor);
        m->anchor[RES_ANCHOR_MARKED] = stays && m->state == RES_RESIDENT && !res_model_held(m);
    }
    res_model_maybe_gone(m);
    res_check_now(r);
}

void res_anchor(struct res_model *m)
{
    if (m->retention == RES_EJECT)
        res_set_retention(m, RES_AUTO);
    m->anchor[RES_ANCHOR_USER]++;
}

void res_unanchor(struct res_model *m)
{
    struct residency *r = m->res;
    if (!m->anchor[RES_ANCHOR_USER])
        return;
    m->anchor[RES_ANCHOR_USER]--;
    res_model_maybe_gone(m);
    res_check_now(r);
}

void res_linger(struct res_model *m)
{
    if (m->res->prompt_running && m->retention == RES_AUTO && m->state == RES_RESIDENT)
        m->anchor[RES_ANCHOR_PROMPT] = 1;
}

void res_linger_end(struct residency *r)
{
    for (struct res_model *m = r->first, *next; m; m = next) {
        next = m->next;
        if (m->anchor[RES_ANCHOR_PROMPT]) {
            m->anchor[RES_ANCHOR_PROMPT] = 0;
            res_model_maybe_gone(m);
        }
    }
}
