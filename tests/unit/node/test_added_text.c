/* An encoder, a tokenizer and a set that live in tests/families alone, added by one line each: what
 * docs/adding.md promises. Loaders, CLIPTextEncode, adapters, `berth synth` and messages know them
 * without an edit. */
#include "support/loader_rig.h"
#include "toy_text/toy_text.h"

#include "model/arch.h"
#include "model/synth.h"
#include "node/compute.h"

/* An element of one of its tensors. */
static float value(const char *name, uint64_t rows, size_t i)
{
    float v;
    synth_fill(name, strlen(name), &(struct shape) { 2, { rows, TOY_WIDTH } }, i, 1, &v);
    return v;
}

struct scene {
    struct rig r;
    char tokenizers[512];
    const char *folder[1];
};

static void scene_open(struct scene *s)
{
    berth_err err = { 0 };
    *s = (struct scene) { 0 };
    rig_open(&s->r, "cpu=256m");
    preset_write("toy-text", DT_F32, rig_path(&s->r, "text_encoders/toy.safetensors"));
    rig_preset(&s->r, "text_encoders/l.safetensors", "clip-l-tiny");
    snprintf(s->tokenizers, sizeof s->tokenizers, "%s", tmp_path("tokenizers"));
    assert_ok(file_make_dirs(tmp_path("tokenizers/toy"), &err), err);
    tmp_write("tokenizers/toy/toy.txt", "7\n", 2);
    s->folder[0] = s->tokenizers;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
}

static void scene_close(struct scene *s)
{
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
}

static const char load[] = "{\"clip_name\": \"toy.safetensors\", \"type\": \"ovis\"}";

/* z of one token, computed here. */
static float z_of(int32_t id, size_t x)
{
    float sum = 0;
    for (size_t k = 0; k < TOY_WIDTH; k++)
        sum += value(TOY_MIX ".weight", TOY_WIDTH, x * TOY_WIDTH + k) *
               value(TOY_TABLE ".weight", TOY_VOCAB, (size_t)id * TOY_WIDTH + k);
    return sum;
}

static void encodes_a_prompt(void **state)
{
    struct scene s;
    struct call clip, x;
    berth_err err = { 0 };
    /* "a(b:2)": two bytes, shifted by 7; the end; pads up to min_length */
    static const int32_t id[5] = { 'a' + 7, 'b' + 7, TOY_END, 0, 0 }, empty[5] = { TOY_END };
    (void)state;
    scene_open(&s);
    assert_ok(rig_run(&s.r, &clip, "CLIPLoader", load, &err), err);
    rig_call(&s.r, &x, "CLIPTextEncode", "{\"text\": \"a(b:2)\"}");
    call_give(&x, "clip", clip.out[0].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    const struct conditioning *c = x.out[0].at[0]->object.obj;
    const struct htensor *cond = c->at[0].cond, *pooled = c->at[0].pooled;
    assert_true(cond->shape.dim[1] == 5 && cond->shape.dim[2] == TOY_WIDTH);
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < TOY_WIDTH; k++) {
            float z = z_of(id[i], k), e = z_of(empty[i], k);
            float want = i == 1 ? (z - e) * 2 + e : z; /* and the join turns the rows round */
            assert_float_equal(cond->data[(4 - i) * TOY_WIDTH + k], want, 1e-5);
        }
    for (size_t k = 0; k < TOY_WIDTH; k++)
        assert_float_equal(pooled->data[k], z_of(TOY_END, k), 1e-5);
    call_release(&x);
    call_release(&clip);
    scene_close(&s);
}

/* Its blocks in the order of the pass, and its table known as one: nothing else tells. */
static void is_placed_by_its_pass(void **state)
{
    struct scene s;
    struct weights *w;
    struct blocks b;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    assert_ok(weights_open(rig_path(&s.r, "text_encoders/toy.safetensors"), NULL, &w, &err), err);
    assert_ok(blocks_from_weights(w, NULL, arch_blocks(w, NULL), &b, &err), err);
    assert_true(b.n == 2 && b.at[0].embedding && !b.at[1].embedding);
    assert_string_equal(b.at[0].name, TOY_TABLE);
    assert_string_equal(b.at[1].name, TOY_MIX);
    assert_true(b.at[1].work > 0);
    blocks_release(&b);
    weights_close(w);
    scene_close(&s);
}

/* Its own words in what people read: the type, what is missing, which tokenizer was looked for. */
static void messages_know_it(void **state)
{
    struct scene s;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    rig_preset(&s.r, "text_encoders/t5.safetensors", "t5-tiny");
    assert_fails(rig_run(&s.r, &x, "CLIPLoader",
                         "{\"clip_name\": \"t5.safetensors\", \"type\": \"ovis\"}", &err),
                 err, BERTH_EINVAL, "type 'ovis' wants Toy: Toy is missing, what is here is T5");
    call_release(&x);
    assert_fails(rig_run(&s.r, &x, "DualCLIPLoader",
                         "{\"clip_name1\": \"toy.safetensors\", \"clip_name2\": "
                         "\"l.safetensors\", \"type\": \"sdxl\"}",
                         &err),
                 err, BERTH_EINVAL, "CLIP-G is missing, what is here is CLIP-L and Toy");
    call_release(&x);
    s.r.env.tokenizers_n = 0;
    assert_fails(rig_run(&s.r, &x, "CLIPLoader", load, &err), err, BERTH_ENOTFOUND,
                 "no toy tokenizer (toy.txt)");
    call_release(&x);
    scene_close(&s);
}

/* The env keeps the one that was opened last; the one before lives as long as somebody holds it. */
static void a_tokenizer_in_use_stays_open(void **state)
{
    struct scene s;
    struct asset *first, *second, *again;
    struct vec id = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    char other[512];
    (void)state;
    scene_open(&s);
    assert_ok(file_make_dirs(tmp_path("other/toy"), &err), err);
    tmp_write("other/toy/toy.txt", "1\n", 2);
    snprintf(other, sizeof other, "%s", tmp_path("other"));
    assert_ok(asset_tokenizer(&s.r.env, &tokenizer_toy, NULL, &first, &err), err);
    s.folder[0] = other;
    assert_ok(asset_tokenizer(&s.r.env, &tokenizer_toy, NULL, &second, &err), err);
    assert_ok(asset_tokenizer(&s.r.env, &tokenizer_toy, NULL, &again, &err), err);
    assert_ptr_not_equal(first, second);
    assert_ptr_equal(second, again); /* kept, not opened again */
    assert_ok(first->kind->encode(first->tok, "a", 1, &id, &err), err);
    assert_ok(second->kind->encode(second->tok, "a", 1, &id, &err), err);
    assert_int_equal(((const int32_t *)id.p)[0], 'a' + 7);
    assert_int_equal(((const int32_t *)id.p)[1], 'a' + 1);
    vec_release(&id);
    asset_unref(first);
    asset_unref(second);
    asset_unref(again);
    scene_close(&s);
}

/* Beside those that ship, and behind them. */
static void the_tables_have_it(void **state)
{
    (void)state;
    size_t e = 0, s = 0, t = 0;
    while (encoder_list[e + 1])
        e++;
    while (text_set_list[s + 1])
        s++;
    while (tokenizer_list[t + 1])
        t++;
    assert_true(e > 0 && s > 0 && t > 0 && encoder_list[0] == &encoder_clip_l);
    assert_ptr_equal(encoder_list[e], &encoder_toy);
    assert_ptr_equal(text_set_list[s], &text_set_toy);
    assert_ptr_equal(tokenizer_list[t], &tokenizer_toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_have_it),
        cmocka_unit_test(encodes_a_prompt),
        cmocka_unit_test(is_placed_by_its_pass),
        cmocka_unit_test(messages_know_it),
        cmocka_unit_test(a_tokenizer_in_use_stays_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
