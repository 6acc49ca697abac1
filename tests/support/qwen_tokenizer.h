/* qwen_tokenizer: a tokenizer that knows bytes and no words, and of Qwen's own tokens those that
 * matter, for nodes that want one. */
#ifndef SUPPORT_QWEN_TOKENIZER_H
#define SUPPORT_QWEN_TOKENIZER_H

#include "support/test.h"
#include "support/tmp.h"

#include "base/str.h"
#include "paths/paths.h"
#include "text/bpe_impl.h"

/* tokenizers/qwen25 of the program's folder; gives the path of "tokenizers", for node_env. */
static inline const char *qwen_tokenizer_write(void)
{
    static const struct {
        const char *text;
        unsigned id;
    } special[] = { { "<|endoftext|>", 151643 },  { "<|im_start|>", 151644 },
                    { "<|im_end|>", 151645 },     { "<|vision_start|>", 151652 },
                    { "<|vision_end|>", 151653 }, { "<|image_pad|>", 151655 } };
    struct str vocab = { 0 }, config = { 0 };
    berth_err err = { 0 };
    assert_ok(path_make_dirs(tmp_path("tokenizers/qwen25"), &err), err);
    for (unsigned b = 0; b < 256; b++) {
        char symbol[8];
        symbol[bpe_byte_symbol(b, symbol)] = '\0';
        bool escape = !strcmp(symbol, "\"") || !strcmp(symbol, "\\");
        str_addf(&vocab, "%s\"%s%s\": %u", b ? ", " : "{", escape ? "\\" : "", symbol, b);
    }
    str_addf(&vocab, "}");
    str_addf(&config, "{\"added_tokens_decoder\": {");
    for (unsigned i = 0; i < ARRAY_LEN(special); i++)
        str_addf(&config, "%s\"%u\": {\"content\": \"%s\", \"special\": true}", i ? ", " : "",
                 special[i].id, special[i].text);
    str_addf(&config, "}}");
    assert_false(vocab.bad || config.bad);
    tmp_write("tokenizers/qwen25/vocab.json", str_c(&vocab), strlen(str_c(&vocab)));
    tmp_write("tokenizers/qwen25/merges.txt", "#version: 0.2\n", sizeof "#version: 0.2\n" - 1);
    tmp_write("tokenizers/qwen25/tokenizer_config.json", str_c(&config), strlen(str_c(&config)));
    str_release(&vocab);
    str_release(&config);
    return tmp_path("tokenizers");
}

#endif
