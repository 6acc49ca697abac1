/* Allocation strings: what is accepted becomes quotas that add up, plans that keep their promises,
 * and a string that gives the same plan again; what is refused says where. */
#include "plan/plan.h"
#include "support/block_specs.h"
#include "support/plan_same.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MIB (UINT64_C(1) << 20)

static const struct plan_devices devices = {
    .at = { { .name = "cuda:0", .total = 24 * MIB, .budget = 20 * MIB },
            { .name = "cuda:1", .total = 16 * MIB, .budget = 16 * MIB },
            { .name = "mps", .total = 8 * MIB, .budget = 8 * MIB },
            { .name = "xpu:3", .total = 0, .budget = 0 },
            { .name = "cpu", .total = 64 * MIB, .budget = 64 * MIB, .host = true } },
    .n = 5,
};

static const struct block_spec spec[] = {
    { "embed", 2 * MIB, true }, { "a", 3 * MIB, false }, { "b", 1, false },
    { "c", 5 * MIB, false },    { "d", 4097, false },    { "e", 3 * MIB, false },
    { "f", 0, false },          { "g", MIB, false },     { "h", 7 * MIB + 13, false },
};

static void must(bool so)
{
    if (!so)
        abort();
}

static void check_plan(const struct blocks *b, const struct quotas *q, enum plan_layout layout)
{
    struct plan p, again;
    struct str text = { 0 };
    berth_err err = { 0 };
    if (plan_make(b, &devices, q, layout, &p, &err)) {
        must(err.code == BERTH_ELIMIT && err.msg[0] && !p.device);
        return;
    }
    uint64_t held[ALLOC_ENTRIES_MAX] = { 0 }, quota[ALLOC_ENTRIES_MAX] = { 0 }, all = 0;
    for (size_t i = 0; i < q->n; i++)
        quota[q->at[i].device] += q->at[i].bytes;
    for (size_t i = 0; i < b->n; i++)
        held[p.device[i]] += b->at[i].bytes;
    for (size_t d = 0; d < devices.n; d++) {
        all += held[d];
        must(held[d] == p.share[d].bytes && held[d] <= devices.at[d].budget);
        must(held[d] <= quota[d] || d == q->orphans || d == q->compute);
    }
    must(all == b->bytes);
    plan_string(&p, &text);
    struct plan_args args = { .alloc = str_c(&text), .layout = layout };
    must(!text.bad && !plan_from_args(b, &devices, &args, &again, &err) && plan_same(&p, &again));
    str_release(&text);
    plan_release(&again);
    plan_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct alloc a;
    struct quotas q;
    struct blocks b;
    berth_err err = { 0 };
    if (alloc_parse((const char *)data, n, &a, &err)) {
        must(strncmp(err.msg, "expert_mode_allocations: ", 25) == 0 && strstr(err.msg, " (entry "));
        must(err.code == BERTH_EINVAL || err.code == BERTH_ELIMIT);
        return 0;
    }
    must(a.n <= ALLOC_ENTRIES_MAX && a.donors <= ALLOC_ENTRIES_MAX);
    must(blocks_from_specs(spec, sizeof spec / sizeof *spec, &b));
    if (!alloc_resolve(&a, &devices, NULL, b.bytes, &q, &err)) {
        uint64_t sum = 0;
        for (size_t i = 0; i < q.n; i++) {
            must(q.at[i].device < devices.n);
            for (size_t k = 0; k < i; k++)
                must(q.at[k].device != q.at[i].device);
            sum += q.at[i].bytes;
        }
        must(sum == b.bytes && q.orphans < devices.n && q.compute < devices.n);
        check_plan(&b, &q, PLAN_TAIL);
        check_plan(&b, &q, PLAN_SPREAD);
    } else {
        must(err.code == BERTH_EINVAL && err.msg[0]);
    }
    blocks_release(&b);
    return 0;
}
