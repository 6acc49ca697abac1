/* files: the picture files that tools/golden/image.py wrote, and what Pillow made of them. */
#ifndef GOLDEN_IMAGE_FILES_H
#define GOLDEN_IMAGE_FILES_H

#include "support/test.h"

#include "image/image.h"

#define DATA BERTH_SOURCE_DIR "/tests/golden/image/data/"

struct golden_file {
    char name[48], format[8];
    uint32_t w, h;
    unsigned frames, alpha;
    uint8_t *bytes; /* exactly n of them: ASan sees a step too far */
    size_t n;
    uint8_t *rgba; /* expected; frames * w * h * 4 */
};

static inline uint8_t *golden_read(const char *name, size_t *n)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", DATA, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*n);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

/* Calls fn for every file; returns how many there were. */
static inline size_t golden_each(void (*fn)(const struct golden_file *))
{
    size_t n, at = 0, count = 0;
    uint8_t *all = golden_read("expected.bin", &n);
    FILE *index = fopen(DATA "index.txt", "r");
    assert_non_null(index);
    struct golden_file g;
    while (fscanf(index, "%47s %7s %u %u %u %u", g.name, g.format, &g.w, &g.h, &g.frames,
                  &g.alpha) == 6) {
        g.rgba = all + at;
        at += (size_t)g.w * g.h * g.frames * 4;
        assert_true(at <= n);
        g.bytes = golden_read(g.name, &g.n);
        fn(&g);
        free(g.bytes);
        count++;
    }
    assert_int_equal(at, n);
    fclose(index);
    free(all);
    return count;
}

#endif
