/* unigram.c: T5's pieces with scores (text-encoders.md 5). */
#include "text/tokenizer.h"

static berth_status not_yet(berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "T5's tokenizer: not there yet");
}

berth_status unigram_open(const char *path, struct unigram **out, berth_err *err)
{
    (void)path;
    *out = NULL;
    return not_yet(err);
}

berth_status unigram_from_proto(const void *bytes, size_t n, const char *what, struct unigram **out,
                                berth_err *err)
{
    (void)bytes, (void)n, (void)what;
    *out = NULL;
    return not_yet(err);
}

berth_status unigram_from_gguf(const struct weights *w, struct unigram **out, berth_err *err)
{
    (void)w;
    *out = NULL;
    return not_yet(err);
}

void unigram_close(struct unigram *t)
{
    (void)t;
}

berth_status unigram_write_stand_in(const char *dir, berth_err *err)
{
    (void)dir;
    return not_yet(err);
}

berth_status text_encode_unigram(const void *tok, const char *text, size_t n, struct vec *out,
                                 berth_err *err)
{
    (void)tok, (void)text, (void)n, (void)out;
    return not_yet(err);
}
