/* Adapters in model references: what is collected, for whom, and that residency takes it. */
#include "support/loader_rig.h"
#include "support/lora_files.h"

#include "merge/adapter.h"

#include <math.h>

struct loaded {
    struct rig r;
    struct call ckpt;
};

static void load_all(struct loaded *l)
{
    berth_err err = { 0 };
    rig_open(&l->r, "cpu=512m,null:0=128m");
    rig_preset(&l->r, "checkpoints/sd15.safetensors", "sd15-tiny");
    assert_ok(rig_run(&l->r, &l->ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"sd15.safetensors\"}", &err),
              err);
    lora_file(rig_path(&l->r, "loras/sub/a.safetensors"), call_model(&l->ckpt, 0)->part[0],
              call_model(&l->ckpt, 1)->part[0]);
}

static void unload_all(struct loaded *l)
{
    call_release(&l->ckpt);
    rig_close(&l->r);
}

static void both_get_it(void **state)
{
    struct loaded l;
    struct call a, b;
    berth_err err = { 0 };
    uint64_t before, after;
    (void)state;
    load_all(&l);
    rig_call(&l.r, &a, "LoraLoader",
             "{\"lora_name\": \"sub/a.safetensors\", \"strength_model\": 0.5, \"strength_clip\": "
             "2}");
    call_give(&a, "model", l.ckpt.out[0].at[0]);
    call_give(&a, "clip", l.ckpt.out[1].at[0]);
    assert_ok(a.c.cls->run(&a.c, &err), err);
    const struct model_ref *m = call_model(&a, 0), *clip = call_model(&a, 1);
    assert_int_equal(m->patches, 1);
    assert_true(m->patch[0].strength == 0.5f && clip->patch[0].strength == 2.0f);
    assert_ptr_equal(m->patch[0].adapter, clip->patch[0].adapter); /* read once */
    assert_ptr_equal(m->part[0], call_model(&l.ckpt, 0)->part[0]);
    assert_int_equal(call_model(&l.ckpt, 0)->patches, 0); /* values do not change */
    /* A second one on top. */
    rig_call(&l.r, &b, "LoraLoaderModelOnly",
             "{\"lora_name\": \"sub/a.safetensors\", \"strength_model\": -1}");
    call_give(&b, "model", a.out[0].at[0]);
    assert_ok(b.c.cls->run(&b.c, &err), err);
    assert_int_equal(call_model(&b, 0)->patches, 2);
    assert_true(call_model(&b, 0)->patch[1].strength == -1);
    json_t *one = value_describe(a.out[0].at[0]), *two = value_describe(b.out[0].at[0]);
    assert_non_null(strstr(json_string_value(one), " with 1 adapter"));
    assert_null(strstr(json_string_value(one), "adapters"));
    assert_non_null(strstr(json_string_value(two), " with 2 adapters"));
    json_decref(one);
    json_decref(two);
    /* What computes later does: the weights change, of each. */
    const struct model_ref *each[2] = { m, clip };
    for (int i = 0; i < 2; i++) {
        struct res_load_result got;
        assert_ok(res_checksum(each[i]->part[0], &before, &err), err);
        assert_ok(res_set_patches(each[i]->part[0], each[i]->patch, each[i]->patches, &err), err);
        assert_ok(res_load(each[i]->part[0], NULL, &got, &err), err);
        assert_ok(res_checksum(each[i]->part[0], &after, &err), err);
        assert_true(before != after);
    }
    call_release(&a);
    call_release(&b);
    unload_all(&l);
}

/* ---- kinds: what a file says is what the weights are, from the loader to the block ---- */

static double value(uint64_t i) /* as lora_fill() has it, in every tensor */
{
    return (double)(int)(i % 11) / 8 - 0.5;
}

static double product(uint64_t row, uint64_t col, uint64_t cols, uint64_t rank)
{
    double sum = 0;
    for (uint64_t k = 0; k < rank; k++)
        sum += value(row * rank + k) * value(k * cols + col);
    return sum;
}

typedef void change_fn(double *w, uint64_t rows, uint64_t cols, double strength);

static void loha(double *w, uint64_t rows, uint64_t cols, double strength)
{
    for (uint64_t i = 0; i < rows * cols; i++) {
        double one = product(i / cols, i % cols, cols, 2);
        double two = product(i / cols, i % cols, cols, 3);
        w[i] += strength * one * two;
    }
}

static void lokr(double *w, uint64_t rows, uint64_t cols, double strength)
{
    for (uint64_t i = 0; i < rows * cols; i++)
        w[i] += strength * value(i / cols / (rows / 2)) *
                product(i / cols % (rows / 2), i % cols, cols, 2);
}

static void dora(double *w, uint64_t rows, uint64_t cols, double strength)
{
    for (uint64_t c = 0; c < cols; c++) {
        double norm = 0;
        for (uint64_t r = 0; r < rows; r++) {
            double x = w[r * cols + c] + product(r, c, cols, 4);
            norm += x * x;
        }
        for (uint64_t r = 0; r < rows; r++) {
            double *x = &w[r * cols + c], to = *x + product(r, c, cols, 4);
            *x += strength * (to * value(c) / sqrt(norm) - *x);
        }
    }
}

static const struct kind {
    const char *name, *tensor;
    bool clip;
    change_fn *change;
} kinds[] = {
    { "lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q",
      "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q.weight", false,
      loha },
    { "lora_unet_input_blocks_1_0_in_layers_2",
      "model.diffusion_model.input_blocks.1.0.in_layers.2.weight", false, lokr },
    { "lora_te_text_model_encoder_layers_0_self_attn_q_proj",
      "cond_stage_model.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight", true,
      dora },
};

static void write_kinds(const char *path, struct res_model *const m[2])
{
    struct weights_spec spec[12];
    char name[12][96];
    size_t n = 0;
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        const struct weights_entry *e =
            weights_find(res_weights(m[k->clip]), k->tensor, strlen(k->tensor));
        uint64_t rows, cols;
        assert_true(e && merge_matrix(&e->shape, &rows, &cols));
        const struct {
            change_fn *of;
            const char *suffix;
            struct shape shape;
        } parts[] = { { loha, "hada_w1_a", { 2, { rows, 2 } } },
                      { loha, "hada_w1_b", { 2, { 2, cols } } },
                      { loha, "hada_w2_a", { 2, { rows, 3 } } },
                      { loha, "hada_w2_b", { 2, { 3, cols } } },
                      { lokr, "lokr_w1", { 2, { 2, 1 } } },
                      { lokr, "lokr_w2_a", { 2, { rows / 2, 2 } } },
                      { lokr, "lokr_w2_b", { 2, { 2, cols } } },
                      { dora, "lora_up.weight", { 2, { rows, 4 } } },
                      { dora, "lora_down.weight", { 2, { 4, cols } } },
                      { dora, "dora_scale", { 2, { 1, cols } } } };
        for (size_t p = 0; p < ARRAY_LEN(parts); p++)
            if (parts[p].of == k->change) {
                snprintf(name[n], sizeof name[n], "%s.%s", k->name, parts[p].suffix);
                spec[n] = (struct weights_spec) { name[n], DT_F32, parts[p].shape };
                n++;
            }
    }
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = n, .fill = lora_fill
    };
    assert_ok(weights_write(&args, &err), err);
}

/* The tensor as it is in memory: F16. */
static void read_tensor(struct res_model *m, const char *name, float *out, size_t n)
{
    berth_err err = { 0 };
    const struct blocks *b = res_blocks(m);
    for (size_t i = 0; i < b->n; i++)
        for (uint32_t k = 0; k < b->at[i].n; k++) {
            const struct weights_entry *e = b->tensor[b->at[i].first + k].entry;
            if (!e || strcmp(e->name, name) != 0)
                continue;
            uint16_t *raw = malloc(n * sizeof *raw);
            assert_true(raw && res_tensor_at(m, i, k).dtype == DT_F16);
            assert_ok(res_tensor_read(m, i, k, raw, n * sizeof *raw, &err), err);
            dtype_desc(DT_F16)->to_f32(raw, out, n);
            free(raw);
            return;
        }
    fail_msg("no tensor '%s'", name);
}

static void every_kind_arrives(void **state)
{
    static const double strengths[] = { 1, -0.7, 0.25 };
    struct loaded l;
    (void)state;
    load_all(&l);
    struct res_model *m[2] = { call_model(&l.ckpt, 0)->part[0], call_model(&l.ckpt, 1)->part[0] };
    write_kinds(rig_path(&l.r, "loras/kinds.safetensors"), m);
    for (size_t s = 0; s < ARRAY_LEN(strengths); s++) {
        struct call x;
        berth_err err = { 0 };
        char text[160];
        snprintf(text, sizeof text,
                 "{\"lora_name\": \"kinds.safetensors\", \"strength_model\": %g, "
                 "\"strength_clip\": %g}",
                 strengths[s], strengths[s]);
        rig_call(&l.r, &x, "LoraLoader", text);
        call_give(&x, "model", l.ckpt.out[0].at[0]);
        call_give(&x, "clip", l.ckpt.out[1].at[0]);
        assert_ok(x.c.cls->run(&x.c, &err), err);
        for (int i = 0; i < 2; i++) {
            const struct model_ref *ref = call_model(&x, i ? 1 : 0);
            assert_ok(res_set_patches(ref->part[0], ref->patch, ref->patches, &err), err);
            assert_ok(res_load(ref->part[0], NULL, NULL, &err), err);
        }
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
            const struct kind *k = &kinds[i];
            const struct weights_entry *e =
                weights_find(res_weights(m[k->clip]), k->tensor, strlen(k->tensor));
            uint64_t rows, cols;
            assert_true(merge_matrix(&e->shape, &rows, &cols));
            size_t n = (size_t)(rows * cols);
            float *f = malloc(n * sizeof *f);
            double *want = malloc(n * sizeof *want);
            assert_true(f && want && e->dtype == DT_F16);
            dtype_desc(DT_F16)->to_f32(weights_data(res_weights(m[k->clip]), e), f, n);
            for (size_t at = 0; at < n; at++)
                want[at] = (double)f[at];
            k->change(want, rows, cols, strengths[s]);
            read_tensor(m[k->clip], k->tensor, f, n);
            for (size_t at = 0; at < n; at++)
                if (!(fabs((double)f[at] - want[at]) <= 0x1p-10 * fabs(want[at]) + 1e-6))
                    fail_msg("%s, strength %g: element %zu is %g, should be %g", k->name,
                             strengths[s], at, (double)f[at], want[at]);
            free(f);
            free(want);
        }
        call_release(&x);
    }
    unload_all(&l);
}

static void strengths_of_zero(void **state)
{
    struct loaded l;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    load_all(&l);
    /* All of them: through as it came, not even the file is looked for. */
    rig_call(&l.r, &x, "LoraLoader",
             "{\"lora_name\": \"gone.safetensors\", \"strength_model\": 0, \"strength_clip\": 0}");
    call_give(&x, "model", l.ckpt.out[0].at[0]);
    call_give(&x, "clip", l.ckpt.out[1].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    assert_int_equal(call_model(&x, 0)->patches + call_model(&x, 1)->patches, 0);
    call_release(&x);
    rig_call(&l.r, &x, "LoraLoader",
             "{\"lora_name\": \"sub/a.safetensors\", \"strength_model\": 0, \"strength_clip\": 1}");
    call_give(&x, "model", l.ckpt.out[0].at[0]);
    call_give(&x, "clip", l.ckpt.out[1].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    assert_int_equal(call_model(&x, 0)->patches, 0);
    assert_int_equal(call_model(&x, 1)->patches, 1);
    call_release(&x);
    unload_all(&l);
}

static void what_is_refused(void **state)
{
    struct loaded l;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    load_all(&l);
    rig_call(&l.r, &x, "LoraLoaderModelOnly", "{\"lora_name\": \"gone.safetensors\"}");
    call_give(&x, "model", l.ckpt.out[0].at[0]);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_ENOTFOUND, "gone.safetensors");
    call_release(&x);
    rig_call(&l.r, &x, "LoraLoaderModelOnly",
             "{\"lora_name\": \"sub/a.safetensors\", \"strength_model\": 1e300}");
    call_give(&x, "model", l.ckpt.out[0].at[0]);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "strength_model");
    call_release(&x);
    rig_call(&l.r, &x, "LoraLoaderModelOnly", "{\"lora_name\": \"sub/a.safetensors\"}");
    call_give(&x, "model", l.ckpt.out[2].at[0]); /* a VAE: nobody knows adapters of such */
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EUNSUPPORTED, "sub/a.safetensors");
    call_release(&x);
    unload_all(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_get_it),
        cmocka_unit_test(every_kind_arrives),
        cmocka_unit_test(strengths_of_zero),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
