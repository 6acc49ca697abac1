#include "model/lm/cuts.h"

enum { IM_START = 151644, USER = 872, LINE_END = 198 };

/* The second of the turns that begin, or the only one; without any only the last row is kept, as
 * in the reference, whose index is -1 then. */
size_t lm_cut_qwen(const struct token *token, size_t n)
{
    size_t first = n - 1, turns = 0;
    for (size_t i = 0; i < n && turns < 2; i++)
        if (!token[i].vector && token[i].id == IM_START) {
            first = i;
            turns++;
        }
    bool user =
        turns && n > first + 3 && token[first + 1].id == USER && token[first + 2].id == LINE_END;
    return user ? first + 3 : first;
}

enum { HEADER = 128006, LLAMA_USER = 882, HEADER_END = 128007, TWO_LINES = 271 };

static bool is_token(const struct token *token, size_t n, size_t at, int32_t id)
{
    return at < n && !token[at].vector && token[at].id == id;
}

size_t lm_cut_llama(const struct token *token, size_t n)
{
    size_t at = 0;
    while (at < n && !(is_token(token, n, at, HEADER) && is_token(token, n, at + 1, LLAMA_USER) &&
                       is_token(token, n, at + 2, HEADER_END)))
        at++;
    if (at == n) /* a prompt that is all its own: all of it counts */
        return 0;
    const bool lines = is_token(token, n, at + 3, TWO_LINES) && at + 4 < n;
    return at + (lines ? 4 : 2);
}
