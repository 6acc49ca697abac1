/* Guesses what a file that is not a weight file might be, for the error message. */
#include "format/format_impl.h"

#include "base/utf8.h"

#include <ctype.h>

static const struct {
    const char *magic;
    uint8_t len;
    const char *what;
} magics[] = {
    { "version https://git-lfs", 23,
      "a Git LFS pointer: the file itself is fetched by 'git lfs pull'" },
    { "<!doctype html", 14, "a web page: a login or an error page was saved instead of the model" },
    { "<html", 5, "a web page: a login or an error page was saved instead of the model" },
    { "PK\3\4", 4, "a ZIP archive" },
    { "PK\5\6", 4, "an empty ZIP archive" },
    { "\x1f\x8b", 2, "gzip data" },
    { "\x28\xb5\x2f\xfd", 4, "Zstandard data" },
    { "7z\xbc\xaf\x27\x1c", 6, "a 7-Zip archive" },
    { "Rar!", 4, "a RAR archive" },
    { "\x89PNG", 4, "a PNG image" },
    { "\xff\xd8\xff", 3, "a JPEG image" },
    { "II*\0", 4, "a TIFF image" },
    { "MM\0*", 4, "a TIFF image" },
    { "II+\0", 4, "a TIFF image" }, /* BigTIFF */
    { "MM\0+", 4, "a TIFF image" },
    { "\x89HDF", 4, "an HDF5 file (Keras?)" },
    { "\x93NUMPY", 6, "a NumPy array" },
    { "lmgg", 4, "a GGML file from before GGUF" },
    { "tjgg", 4, "a GGML file (GGJT) from before GGUF" },
    { "fmgg", 4, "a GGML file (GGMF) from before GGUF" },
    { "FUGG", 4, "a byte-swapped GGUF file" },
    { "\x7f"
      "ELF",
      4, "a program" },
};

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static bool is_text(const uint8_t *p, size_t n)
{
    const char *s = (const char *)p;
    for (size_t i = 0, step; i < n; i += step) {
        step = utf8_step(s + i, n - i);
        if (step == 0)
            return n - i < 4 && i > 0; /* a character cut at the end */
        if (p[i] < 0x20 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t')
            return false;
    }
    return true;
}

static bool same_letters(const uint8_t *head, const char *magic, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tolower(head[i]) != tolower((uint8_t)magic[i]))
            return false;
    return true;
}

const char *sniff(const uint8_t *head, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(magics); i++)
        if (n >= magics[i].len && same_letters(head, magics[i].magic, magics[i].len))
            return magics[i].what;
    return all_zero(head, n) ? "zero bytes (an unfinished download, perhaps)" : NULL;
}

const char *sniff_raw(const uint8_t *head, size_t n, char buf[SNIFF_MAX])
{
    if (is_text(head, n)) {
        size_t line = 0; /* the first one, as far as it says something */
        while (line < n && line < 40 && head[line] != '\n' && head[line] != '\r')
            line++;
        snprintf(buf, SNIFF_MAX, "text: '%s'", excerpt((const char *)head, line).s);
        return buf;
    }
    size_t at = (size_t)snprintf(buf, SNIFF_MAX, "bytes");
    for (size_t i = 0; i < n && i < 16; i++)
        at += (size_t)snprintf(buf + at, SNIFF_MAX - at, " %02x", head[i]);
    return buf;
}
