/* SentencePiece's BPE, as Gemma has it: merging by score, pieces of users, bytes, ComfyUI's added
 * tokens, and the way back. What real texts become is in tests/golden/text. */
#include "lmbpe_files.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "format/weights.h"
#include "text/chat.h"
#include "text/stand_in.h"
#include "text/unigram_impl.h"

#define META "\xe2\x96\x81"

/* ids: 0 <pad>  1 <eos>  2 <bos>  3 <unk>  4 <start_of_turn>, of users  5 _ 6 a 7 b 8 c 9 ab 10 bc
 *      11 _a 12 aa 13 </s>, an ordinary one */
static const struct proto_piece pieces[] = {
    { "<pad>", 0, 3 },
    { "<eos>", 0, 3 },
    { "<bos>", 0, 3 },
    { "<unk>", 0, 2 },
    { "<start_of_turn>", 0, 4 },
    { META, -9, 1 },
    { "a", -10, 1 },
    { "b", -11, 1 },
    { "c", -12, 1 },
    { "ab", -2, 1 },
    { "bc", -1, 1 },
    { META "a", -3, 1 },
    { "aa", -4, 1 },
    { "</s>", -5, 1 },
};

/* kind: of the model; number: of the byte fallback. */
static void put_model(struct str *out, unsigned kind, bool bytes, bool prefix, bool squeeze)
{
    struct str trainer = { 0 }, normal = { 0 };
    put_pieces(out, pieces, ARRAY_LEN(pieces));
    for (unsigned b = 0; bytes && b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        put_pieces(out, &(struct proto_piece) { text, 0, 6 }, 1);
    }
    put_number(&trainer, 3, kind);
    put_number(&trainer, 35, bytes);
    put_number(&normal, 3, prefix);
    put_number(&normal, 4, squeeze);
    put_bytes(out, 2, trainer.p, trainer.n);
    put_bytes(out, 3, normal.p, normal.n);
    str_release(&trainer);
    str_release(&normal);
}

static void *opened(const struct tokenizer *is, unsigned kind, bool bytes, bool prefix,
                    bool squeeze)
{
    struct str model = { 0 };
    void *t;
    berth_err err = { 0 };
    put_model(&model, kind, bytes, prefix, squeeze);
    assert_ok(is->open(tmp_write("tokenizer.model", model.p, model.n), &t, &err), err);
    str_release(&model);
    return t;
}

/* ids: ends with -1 */
static void tokens_are(const struct tokenizer *is, const void *t, const char *text, size_t n,
                       const int32_t *ids)
{
    struct vec got = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    size_t want = 0;
    while (ids[want] >= 0)
        want++;
    assert_ok(is->encode(t, text, n, &got, &err), err);
    if (got.n != want || (want && memcmp(got.p, ids, want * sizeof *ids) != 0)) {
        for (size_t i = 0; i < got.n; i++)
            print_message("%d ", *(int32_t *)vec_at(&got, i));
        fail_msg("'%s': %zu tokens", text, got.n);
    }
    vec_release(&got);
}
#define IDS(is, t, text, ...)                                                                      \
    tokens_are(is, t, text, sizeof(text) - 1, (int32_t[]) { __VA_ARGS__, -1 })
#define BYTE(b) (14 + (b))

static void merging(void **state)
{
    (void)state;
    const struct tokenizer *is = &tokenizer_gemma3;
    void *t = opened(is, 2, true, false, false);
    IDS(is, t, "", -1);
    IDS(is, t, "ab", 9);
    IDS(is, t, "abc", 6, 10); /* "bc" scores better than "ab" */
    IDS(is, t, " ab", 5, 9);
    IDS(is, t, "  a", 5, 11);
    IDS(is, t, "aaa", 12, 6); /* the leftmost of two that are equal */
    IDS(is, t,
        "aQ\xc3\xa9"
        "b",
        6, BYTE('Q'), BYTE(0xc3), BYTE(0xa9), 7);
    IDS(is, t, "a<start_of_turn>b", 6, 4, 7);
    IDS(is, t, "a<bos>", 6, BYTE('<'), 7, BYTE('o'), BYTE('s'), BYTE('>')); /* controls are text */
    IDS(is, t, "\xff", BYTE(0xef), BYTE(0xbf), BYTE(0xbd));
    assert_int_equal(is->ids(t).start, 2);
    assert_int_equal(is->ids(t).end, -1);
    assert_int_equal(is->ids(t).pad, 0);
    assert_int_equal(is->find(t, "<start_of_turn>"), 4);
    assert_int_equal(is->find(t, "nothing"), -1);
    is->close(t);
    t = opened(is, 2, false, true, true);
    IDS(is, t, "  ab  a ", 5, 9, 11); /* a prefix, blanks squeezed */
    IDS(is, t, "aQQb", 11, 3, 7);     /* neighbours that are unknown are one */
    is->close(t);
}

/* Where an added token occurs, the first id is lost, as in ComfyUI. */
static void added_tokens(void **state)
{
    (void)state;
    void *t = opened(&tokenizer_gemma3, 2, true, false, false);
    IDS(&tokenizer_gemma3, t, "<start_of_turn>ab<end_of_turn>a", 9, 106, 6);
    IDS(&tokenizer_gemma3, t, "<end_of_turn>ab", 9);
    IDS(&tokenizer_gemma3, t, "<end_of_turn>", -1);
    IDS(&tokenizer_gemma3, t, "a<image_soft_token>b<end_of_turn>", 262144, 7, 106);
    IDS(&tokenizer_gemma2, t, "ab<end_of_turn>a", 107, 6);
    assert_int_equal(tokenizer_gemma2.find(t, "<end_of_turn>"), 107);
    assert_int_equal(tokenizer_gemma3.find(t, "<image_soft_token>"), 262144);
    tokenizer_gemma3.close(t);
}

static void decoded_is(const struct tokenizer *is, const void *t, bool special, const int32_t *ids,
                       const char *want)
{
    struct text_decoder d = { .is = is, .tok = t, .special = special };
    struct str out = { 0 };
    for (; *ids >= 0; ids++)
        text_decode(&d, *ids, &out);
    text_decode_end(&d, &out);
    assert_string_equal(str_c(&out), want);
    str_release(&out);
}
#define DECODED(t, special, want, ...)                                                             \
    decoded_is(&tokenizer_gemma3, t, special, (int32_t[]) { __VA_ARGS__, -1 }, want)

static void decoding(void **state)
{
    (void)state;
    void *t = opened(&tokenizer_gemma3, 2, true, false, false);
    DECODED(t, false, " a ab", 2, 11, 5, 9, 1, 106, 262144, 99999);
    DECODED(t, true, "<bos>a<end_of_turn>", 2, 6, 106);
    DECODED(t, false, "<start_of_turn>a \xe2\x81\x87 ", 4, 6, 3);
    DECODED(t, false,
            "\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"
            "a",
            BYTE(0xc3), BYTE(0xa9), BYTE(0xe2), BYTE(0x96), 6);
    tokenizer_gemma3.close(t);
    t = opened(&tokenizer_gemma3, 2, true, true, false);
    DECODED(t, false, "a a", 2, 11, 11); /* the prefix is no part of the text */
    DECODED(t, false, " a", 5, 11);      /* one alone */
    tokenizer_gemma3.close(t);
    t = opened(&tokenizer_gemma3, 2, true, true, true);
    DECODED(t, false, "a a", 5, 11, 11); /* none at the beginning */
    tokenizer_gemma3.close(t);
}

static void refused(void **state)
{
    (void)state;
    struct str model = { 0 };
    void *t;
    berth_err err = { 0 };
    put_model(&model, 1, true, false, false); /* unigram */
    tmp_write("tokenizer.model", model.p, model.n);
    assert_fails(tokenizer_gemma3.open(tmp_dir(), &t, &err), err, BERTH_EFORMAT,
                 "no tokenizer of Gemma");
    assert_null(t);
    tmp_write("spiece.model", model.p, model.n);
    assert_fails(tokenizer_t5.open(tmp_path("spiece.model"), &t, &err), err, BERTH_EFORMAT,
                 "no tokenizer of T5");
    str_clear(&model);
    put_model(&model, 2, true, false, false);
    put_pieces(&model, &(struct proto_piece) { "unused", 0, 5 }, 1);
    tmp_write("tokenizer.model", model.p, model.n);
    assert_fails(tokenizer_gemma2.open(tmp_dir(), &t, &err), err, BERTH_EUNSUPPORTED, "is unused");
    str_clear(&model);
    put_model(&model, 2, true, false, false);
    put_pieces(&model, &(struct proto_piece) { "ab", 0, 1 }, 1);
    tmp_write("tokenizer.model", model.p, model.n);
    assert_fails(tokenizer_gemma2.open(tmp_dir(), &t, &err), err, BERTH_EFORMAT, "twice");
    str_release(&model);
}

/* The same pieces out of a GGUF file. */
static void put_gemma_gguf(struct str *g)
{
    str_adds(g, "GGUF");
    put_u32(g, 3);
    put_u64(g, 0);
    put_u64(g, 5);
    put_key(g, "tokenizer.ggml.model", 8);
    put_text(g, "llama");
    put_array(g, "tokenizer.ggml.tokens", 8, ARRAY_LEN(pieces));
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        put_text(g, pieces[i].text);
    put_array(g, "tokenizer.ggml.scores", 6, ARRAY_LEN(pieces));
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        put_float(g, pieces[i].score);
    put_array(g, "tokenizer.ggml.token_type", 5, ARRAY_LEN(pieces));
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        put_u32(g, pieces[i].type);
    put_key(g, "tokenizer.ggml.add_space_prefix", 7);
    str_addc(g, 0);
    str_pad(g, 0, (g->n + 31) / 32 * 32);
}

static void model_files(void **state)
{
    (void)state;
    const struct tokenizer *is = &tokenizer_gemma3;
    struct str g = { 0 }, model = { 0 }, file = { 0 };
    struct weights *w;
    void *t;
    berth_err err = { 0 };
    put_gemma_gguf(&g);
    assert_ok(weights_open(tmp_write("g.gguf", g.p, g.n), NULL, &w, &err), err);
    assert_ok(is->spare(w, &t, &err), err);
    IDS(is, t, "  abc", 5, 11, 10); /* blanks stay, none is put in front */
    is->close(t);
    assert_fails(tokenizer_t5.spare(w, &t, &err), err, BERTH_EUNSUPPORTED, "'llama'");
    assert_fails(is->carried(w, &t, &err), err, BERTH_ENOTFOUND, "spiece_model");
    weights_close(w);
    put_model(&model, 2, true, false, false);
    put_safetensors(&file, "spiece_model", model.p, model.n);
    assert_ok(weights_open(tmp_write("g.safetensors", file.p, file.n), NULL, &w, &err), err);
    assert_ok(is->carried(w, &t, &err), err);
    IDS(is, t, "abc", 6, 10);
    is->close(t);
    weights_close(w);
    str_release(&g);
    str_release(&model);
    str_release(&file);
}

static void survives_oom(void **state)
{
    (void)state;
    const struct tokenizer *is = &tokenizer_gemma3;
    struct str model = { 0 };
    void *t = NULL;
    berth_status s = BERTH_ENOMEM;
    put_model(&model, 2, true, false, false);
    tmp_write("tokenizer.model", model.p, model.n);
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = is->open(tmp_path("tokenizer.model"), &t, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !t && err.msg[0]));
    }
    s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct vec out = { .elem = sizeof(int32_t) };
        berth_err err = { 0 };
        oom_after(k);
        s = is->encode(t, "abcab \xff<end_of_turn>a", 21, &out, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        vec_release(&out);
    }
    is->close(t);
    str_release(&model);
}

/* What people without files get: ids of special tokens where models expect them, no words. */
static void stand_ins(void **state)
{
    (void)state;
    static const struct {
        const struct tokenizer *is;
        const char *folder, *text;
        int32_t start, pad, special; /* special: the token "text" begins with */
        size_t n;                    /* ids of the text */
    } kind[] = {
        { &tokenizer_qwen35, "qwen35", "<|im_start|>a \xe7\x8c\xab", -1, 248044, 248045, 6 },
        { &tokenizer_qwen25, "qwen25", "<|im_start|>a \xe7\x8c\xab", -1, 151643, 151644, 6 },
        { &tokenizer_llama3, "llama3", "<|eot_id|>a b", 128000, 128009, 128009, 4 },
        { &tokenizer_tekken, "tekken", "[INST]a b", 1, 11, 3, 4 },
        { &tokenizer_gemma2, "gemma2", "<start_of_turn>a \xe7\x8c\xab", 2, 0, 106, 6 },
        { &tokenizer_gemma3, "gemma3", "<start_of_turn>a b", 2, 0, 105, 4 },
        { &tokenizer_gemma4, "gemma4", "<|turn>a \xe7\x8c\xab", 2, 0, 105, 6 },
    };
    berth_err err = { 0 };
    assert_ok(stand_ins_write(tmp_dir(), &err), err);
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        const struct tokenizer *is = kind[i].is;
        struct vec ids = { .elem = sizeof(int32_t) };
        struct text_decoder d = { .is = is };
        struct str out = { 0 };
        void *t;
        assert_ok(is->open(tmp_path(kind[i].folder), &t, &err), err);
        assert_int_equal(is->ids(t).start, kind[i].start);
        assert_int_equal(is->ids(t).pad, kind[i].pad);
        assert_ok(is->encode(t, kind[i].text, strlen(kind[i].text), &ids, &err), err);
        assert_int_equal(ids.n, kind[i].n);
        assert_int_equal(*(int32_t *)vec_at(&ids, 0), kind[i].special);
        d.tok = t;
        d.special = true;
        for (size_t k = 0; k < ids.n; k++)
            text_decode(&d, *(int32_t *)vec_at(&ids, k), &out);
        assert_string_equal(str_c(&out), kind[i].text);
        str_release(&out);
        vec_release(&ids);
        is->close(t);
    }
    void *t;
    assert_ok(tokenizer_clip.open(tmp_dir(), &t, &err), err);
    tokenizer_clip.close(t);
    assert_ok(tokenizer_t5.open(tmp_dir(), &t, &err), err);
    tokenizer_t5.close(t);
    assert_ok(tokenizer_umt5.open(tmp_path("umt5"), &t, &err), err);
    assert_true(tokenizer_umt5.ids(t).end == 1 && tokenizer_umt5.ids(t).pad == 0);
    tokenizer_umt5.close(t);
    assert_fails(stand_ins_write(tmp_path("nowhere"), &err), err, BERTH_ENOTFOUND, "nowhere");
}

/* Turns and channels of Gemma 4; as ComfyUI's regular expressions have it. */
static void tidying(void **state)
{
    (void)state;
    static const char *const text[][2] = {
        { "", "" },
        { " a cat \xe3\x80\x80\n", "a cat" },
        { "<|channel>thought\nhm\nso<channel|>a cat<turn|>", "<think>\nhm\nso</think>a cat" },
        { "<|channel>thought\nhm", "<think>\nhm" },
        { "<|channel>thought\na<channel|><|channel>thought\nb", "<think>\na</think><think>\nb" },
        { "<|channel>final\na<channel|> b", "a b" },
        { "<|channel>final a<|channel>x_1\xc3\xa9\n\nb", "a\nb" },
        { "<|turn>model\n\na<turn|><eos>", "a" },
        { "<|turn>a<b><turn|", "<b><turn|" },
        { "<|channel>thought x", "x" },
        { "<|channel>thought\n<|channel>thought\na<channel|>b<channel|>c",
          "<think>\n<think>\na</think>bc" },
        { "a<channel|><|channel>thought\nb<channel|>c<|channel>thought\nd<channel|>",
          "a<think>\nb</think>c<think>\nd</think>" },
    };
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        struct str got = { 0 };
        tokenizer_gemma4.tidy(text[i][0], strlen(text[i][0]), &got);
        assert_string_equal(str_c(&got), text[i][1]);
        str_release(&got);
    }
    struct str got = { 0 };
    oom_after(0);
    tokenizer_gemma4.tidy("<turn|>a", 8, &got);
    oom_off();
    assert_true(got.bad);
}

static void filled_is(const struct chat_template *t, const char *prompt, const char *want)
{
    struct str got = { 0 };
    chat_fill(t, prompt, strlen(prompt), &got);
    assert_string_equal(str_c(&got), want);
    str_release(&got);
}

static void templates(void **state)
{
    (void)state;
    filled_is(&chat_qwen, "a {} %s cat",
              "<|im_start|>user\na {} %s cat<|im_end|>\n<|im_start|>assistant\n");
    filled_is(&chat_qwen, "<|im_start|>x",
              "<|im_start|>user\n<|im_start|>x<|im_end|>\n<|im_start|>assistant\n");
    filled_is(&chat_qwen_image, "<|im_start|>x", "<|im_start|>x");
    filled_is(&chat_qwen_image, "<|start_header_id|>x", "<|start_header_id|>x");
    filled_is(&chat_gemma3, "<start_of_turn>x", "<start_of_turn>x");
    filled_is(&chat_qwen_quick, "",
              "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    struct str got = { 0 };
    chat_fill(&chat_hunyuan_video15, "", 0, &got);
    assert_non_null(strstr(got.p, "<|im_start|>user\n <|im_end|>")); /* a blank for nothing */
    str_release(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging),   cmocka_unit_test(added_tokens), cmocka_unit_test(decoding),
        cmocka_unit_test(refused),   cmocka_unit_test(model_files),  cmocka_unit_test(survives_oom),
        cmocka_unit_test(templates), cmocka_unit_test(stand_ins),    cmocka_unit_test(tidying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
