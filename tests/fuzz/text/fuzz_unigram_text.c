/* Prompts through a small tokenizer of T5's kind: any bytes become ids of its vocabulary, as
 * Hugging Face does it and as SentencePiece does. */
#include "text/unigram_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char json[] =
    "{\"added_tokens\":[{\"id\":1,\"content\":\"</s>\"},{\"id\":9,\"content\":\"<x>\",\"lstrip\":"
    "true,\"rstrip\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
    "\"Replace\",\"pattern\":{\"String\":\"\\n\"},\"content\":\" \"},{\"type\":\"Strip\","
    "\"strip_left\":true,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" "
    "{2,}\"},\"content\":\"\\u2581\"}]},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
    "\"\\u2581\",\"prepend_scheme\":\"first\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":2,"
    "\"vocab\":[[\"<pad>\",0],[\"</s>\",0],[\"<unk>\",0],[\"\\u2581\",-2],[\"a\",-3],[\"ab\",-4],"
    "[\"\\u2581a\",-3.5],[\"\\u00e4\",-6],[\"b\",-5]]}}";
static const char proto[] = "\x0a\x06\x0a\x04</s>"          /* </s> */
                            "\x0a\x09\x0a\x05<unk>\x18\x02" /* unknown */
                            "\x0a\x08\x0a\x01"
                            "a\x15\x00\x00\x80\xbf"
                            "\x0a\x0a\x0a\x03\xe2\x96\x81\x15\x00\x00\x00\xc0"
                            "\x0a\x07\x0a\x03[M]\x18\x04"; /* users defined it */

static void encode(const struct unigram *t, const uint8_t *data, size_t n)
{
    struct vec ids = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    berth_status s = unigram_encode(t, n ? (const char *)data : "", n, &ids, &err);
    if (s != BERTH_OK && s != BERTH_ELIMIT)
        abort();
    for (size_t i = 0; i < ids.n; i++) {
        int32_t id = *(int32_t *)vec_at(&ids, i);
        if (id < 0 || (size_t)id >= t->vocab)
            abort();
    }
    vec_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct unigram *hf, *sp;
    berth_err err = { 0 };
    if (unigram_from_memory(json, sizeof json - 1, &hf, &err))
        abort();
    if (unigram_from_memory(proto, sizeof proto - 1, &sp, &err))
        abort();
    encode(hf, data, n);
    encode(sp, data, n);
    unigram_close(hf);
    unigram_close(sp);
    return 0;
}
