/* where: the device that golden tests run their networks on, and the type of its activations.
 *
 *     BERTH_TEST_DEVICE   cpu (the default), cuda:0, ...
 *     BERTH_TEST_ACT      f32 (the default), bf16, f16
 *
 *     where_or_skip();                                  skips, saying why, when there is none
 *     struct where at = where_from_env();
 *     net_rig_open(&g, at.devices, path, part, NULL);   automatic plans compute on the card
 *     args.act = at.act;
 *     assert_near(what, got, want, n, where_limit(&at, WHERE_MODULE, "unet_sd15_tiny", "0/out"));
 *
 * Limits are relative to the largest value of the reference, those of 16 bits to its norm. F32 on
 * the cpu: 1e-4 for a module, 1e-3 for a whole run; F32 on a card, whose products may go through
 * other sums: 1e-3; BF16 and F16: 2e-2. Networks that compute in F32 whatever is asked for (text
 * encoders): where_limit_f32().
 *
 * BF16 has cases that are beyond 2e-2 in ComfyUI itself (97 of 113; in 48 rounding the operands of
 * products alone is, in one the weights alone: guidance multiplies it by about 9).
 * bf16.json of the golden folder, or else tests/golden/data/bf16.json, has how far ComfyUI's own
 * BF16 is from its F32 (`bf16`), measured by tools/golden/bf16.py: there the limit is that, never
 * worse than ComfyUI. A case that is not in the file has 2e-2, as all others. Ours keeps sums of
 * UNets in F32 and has room: of those 97 it is at 0.88 times ComfyUI's at most on an H200, at 0.67
 * in the middle. */
#ifndef SUPPORT_WHERE_H
#define SUPPORT_WHERE_H

#include "base/json.h"
#include "support/devices.h"
#include "support/golden.h"
#include "support/json_file.h"
#include "tensor/dtype.h"

#include <unistd.h>

struct where {
    const char *device; /* "cpu", "cuda:0" */
    bool card;          /* it is not the cpu */
    char devices[64];   /* text of a set that has it; its automatic plans compute on it */
    enum dtype act;
};
enum where_what { WHERE_MODULE, WHERE_RUN };

static inline struct where where_from_env(void)
{
    static const struct {
        const char *name;
        enum dtype type;
    } act[] = { { "f32", DT_F32 }, { "bf16", DT_BF16 }, { "f16", DT_F16 } };
    const char *device = getenv("BERTH_TEST_DEVICE"), *type = getenv("BERTH_TEST_ACT");
    struct where w = { .device = device && *device ? device : "cpu", .act = DT_NONE };
    w.card = strcmp(w.device, "cpu") != 0;
    int n = w.card ? snprintf(w.devices, sizeof w.devices, "cpu=4g,%s=8g", w.device)
                   : snprintf(w.devices, sizeof w.devices, "cpu=2g");
    if (n < 0 || (size_t)n >= sizeof w.devices)
        fail_msg("BERTH_TEST_DEVICE is '%s'", w.device);
    for (size_t i = 0; i < ARRAY_LEN(act); i++)
        if (strcmp(type && *type ? type : "f32", act[i].name) == 0)
            w.act = act[i].type;
    if (w.act == DT_NONE)
        fail_msg("BERTH_TEST_ACT is '%s', not f32, bf16 or f16", type);
    return w;
}

/* Can its devices be opened? If not, why. */
static inline bool where_is(const struct where *w, berth_err *err)
{
    static const struct dev_env none;
    struct devset *set;
    berth_status s = w->card ? try_devices(w->devices, &none, &set, err) : BERTH_OK;
    if (w->card && !s)
        devset_close(set);
    return !s;
}

#define where_or_skip()                                                                            \
    do {                                                                                           \
        struct where where_ = where_from_env();                                                    \
        berth_err err_ = { 0 };                                                                    \
        if (!where_is(&where_, &err_)) {                                                           \
            print_message("skipped: no device %s: %s\n", where_.device, err_.msg);                 \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

static inline double where_limit_f32(const struct where *w, enum where_what what)
{
    return w->card || what == WHERE_RUN ? 1e-3 : 1e-4;
}

/* What ComfyUI's own BF16 is off, of the golden folder's cases where it says so. */
static inline json_t *where_measured(void)
{
    const char *own = BERTH_SOURCE_DIR "/tests/golden/data/bf16.json", *path = own;
    json_t *all = NULL;
    berth_err err = { 0 };
    if (access(golden_path("bf16.json"), R_OK) == 0)
        path = golden_path("bf16.json");
    assert_ok(js_parse_file(path, NULL, &all, &err), err);
    return all;
}

/* Of BF16 in this case of a golden file. */
static inline double where_limit_bf16(const char *file, const char *tensor)
{
    const double bar = 2e-2;
    json_t *all = where_measured();
    const json_t *one = json_object_get(json_object_get(all, file), tensor);
    double theirs = json_number_value(json_object_get(one, "bf16"));
    json_decref(all);
    return theirs > bar ? theirs : bar;
}

/* Of a tensor of a golden file. The cpu computes in F32 whatever is asked for. */
static inline double where_limit(const struct where *w, enum where_what what, const char *file,
                                 const char *tensor)
{
    if (!w->card || w->act == DT_F32)
        return where_limit_f32(w, what);
    return w->act == DT_BF16 ? where_limit_bf16(file, tensor) : 2e-2;
}

#endif
