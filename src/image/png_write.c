/* PNG, written: filters and chunks are ours, deflate is zlib's. The same picture, level and text
 * give the same bytes.
 *
 * libpng is not used here: a writer is a page of code, has no errors to jump out of, and shares its
 * rows with APNG, which libpng cannot write. */
#include "image/image_impl.h"

#include "base/utf8.h"

#include <limits.h>
#include <math.h>
#include <zlib.h>

#define PIECE 65536 /* most bytes of one IDAT or fdAT chunk */
#define FILTERS 5

/* ---- chunks ---- */

void png_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

void png_chunk_add(struct str *out, const char type[4], const void *a, size_t a_n, const void *b,
                   size_t b_n)
{
    uint8_t word[4];
    uLong crc = crc32_z(0, (const Bytef *)type, 4); /* far faster than base's */
    png_u32(word, (uint32_t)(a_n + b_n));
    str_add(out, (const char *)word, 4);
    str_add(out, type, 4);
    if (a_n) {
        str_add(out, a, a_n);
        crc = crc32_z(crc, a, a_n);
    }
    if (b_n) {
        str_add(out, b, b_n);
        crc = crc32_z(crc, b, b_n);
    }
    png_u32(word, (uint32_t)crc);
    str_add(out, (const char *)word, 4);
}

static void add_header(struct str *out, const struct image *im, bool deep)
{
    uint8_t head[13] = { 0 };
    png_u32(head, im->w);
    png_u32(head + 4, im->h);
    head[8] = deep ? 16 : 8;
    head[9] = im->channels == 4 ? 6 : im->channels == 3 ? 2 : 0;
    str_add(out, PNG_SIGNATURE, PNG_SIGNATURE_LEN);
    png_chunk_add(out, "IHDR", head, sizeof head, NULL, 0);
}

/* ---- text ---- */

/* UTF-8 to Latin-1, runs of ASCII in one piece; false: not all of it can be. */
static bool to_latin1(const char *s, struct str *out)
{
    size_t n = strlen(s), run = 0;
    for (size_t i = 0, step; i < n; i += step) {
        uint8_t c = (uint8_t)s[i];
        step = c < 0x80 ? 1 : utf8_step(s + i, n - i);
        if (step == 1)
            continue;
        if (step != 2 || c > 0xc3)
            return false;
        str_add(out, s + run, i - run);
        str_addc(out, (char)(c << 6 | (s[i + 1] & 0x3f)));
        run = i + 2;
    }
    str_add(out, s + run, n - run);
    return true;
}

/* type: "tEXt", which becomes iTXt where Latin-1 does not hold the value; or another, which then
 * cannot be. */
static berth_status add_text(struct str *out, const char type[4], const struct image_text *t,
                             berth_err *err)
{
    struct str head = { 0 }, value = { 0 };
    bool ok = to_latin1(t->key, &head);
    bool narrow = to_latin1(t->value, &value);
    str_addc(&head, 0);
    if (!narrow && memcmp(type, "tEXt", 4) == 0) {
        str_add(&head, "\0\0\0", 4); /* not packed; no language, no translated keyword */
        png_chunk_add(out, "iTXt", str_c(&head), head.n, t->value, strlen(t->value));
    } else {
        ok = ok && narrow;
        png_chunk_add(out, type, str_c(&head), head.n, str_c(&value), value.n);
    }
    bool bad = head.bad || value.bad;
    str_release(&head);
    str_release(&value);
    if (bad)
        return err_set(err, BERTH_ENOMEM, "text of a PNG");
    return ok ? BERTH_OK : err_set(err, BERTH_EINVAL, "'%.40s' is no Latin-1 text", t->key);
}

/* ---- rows ---- */

static uint8_t paeth(int a, int b, int c)
{
    int pa = abs(b - c), pb = abs(a - c), pc = abs(a + b - 2 * c);
    return (uint8_t)(pa <= pb && pa <= pc ? a : pb <= pc ? b : c);
}

/* Row x filtered five ways into f[]. up: the row above, zeros for the first; c: bytes a pixel. */
static void filter_all(const uint8_t *restrict x, const uint8_t *restrict up, size_t n, size_t c,
                       uint8_t *restrict f[FILTERS])
{
    for (size_t i = 0; i < c; i++) { /* the first pixel has zeros to its left */
        f[1][i] = x[i];
        f[3][i] = (uint8_t)(x[i] - up[i] / 2);
        f[4][i] = (uint8_t)(x[i] - up[i]);
    }
    memcpy(f[0], x, n);
    for (size_t i = c; i < n; i++)
        f[1][i] = (uint8_t)(x[i] - x[i - c]);
    for (size_t i = 0; i < n; i++)
        f[2][i] = (uint8_t)(x[i] - up[i]);
    for (size_t i = c; i < n; i++)
        f[3][i] = (uint8_t)(x[i] - (x[i - c] + up[i]) / 2);
    for (size_t i = c; i < n; i++)
        f[4][i] = (uint8_t)(x[i] - paeth(x[i - c], up[i], up[i - c]));
}

/* The usual guess: the smaller the differences (as signed bytes), the better they pack. */
static int best_filter(uint8_t *const f[FILTERS], size_t n)
{
    int best = 0;
    uint64_t least = UINT64_MAX;
    for (int k = 0; k < FILTERS; k++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += (uint64_t)(f[k][i] < 128 ? f[k][i] : 256 - f[k][i]);
        if (sum < least) {
            least = sum;
            best = k;
        }
    }
    return best;
}

struct packer { /* rows -> filter -> deflate -> chunks */
    z_stream z;
    bool open;
    struct str *out;
    uint32_t *sequence; /* of an APNG: chunks are fdAT and take the next number. NULL: IDAT */
    uint8_t *mem;       /* all of the below */
    uint8_t *zeros, *line[FILTERS], *piece;
    size_t row, piece_n, pixel; /* bytes */
};

static berth_status packer_open(struct packer *k, const struct image *im, int level, berth_err *err)
{
    k->row = (size_t)im->w * k->pixel;
    uint64_t raw = (uint64_t)(k->row + 1) * im->h;
    k->piece_n = raw + 1024 < PIECE ? (size_t)raw + 1024 : PIECE;
    int window = 9; /* no larger than the data: less to set up for small pictures */
    while (window < 15 && raw > UINT64_C(1) << window)
        window++;
    k->mem = malloc(k->row + FILTERS * (k->row + 1) + k->piece_n);
    if (!k->mem || deflateInit2(&k->z, level, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(k->mem);
        k->mem = NULL;
        return err_set(err, BERTH_ENOMEM, "packing %u x %u pixels", im->w, im->h);
    }
    k->open = true;
    k->zeros = k->mem;
    memset(k->zeros, 0, k->row);
    for (int i = 0; i < FILTERS; i++) {
        k->line[i] = k->mem + k->row + (size_t)i * (k->row + 1);
        k->line[i][0] = (uint8_t)i;
    }
    k->piece = k->mem + k->row + FILTERS * (k->row + 1);
    k->z.next_out = k->piece;
    k->z.avail_out = (uInt)k->piece_n;
    return BERTH_OK;
}

static void packer_close(struct packer *k)
{
    if (k->open)
        deflateEnd(&k->z);
    free(k->mem);
}

static void emit(struct packer *k)
{
    size_t n = k->piece_n - k->z.avail_out;
    if (n && k->sequence) {
        uint8_t number[4];
        png_u32(number, (*k->sequence)++);
        png_chunk_add(k->out, "fdAT", number, 4, k->piece, n);
    } else if (n)
        png_chunk_add(k->out, "IDAT", k->piece, n, NULL, 0);
    k->z.next_out = k->piece;
    k->z.avail_out = (uInt)k->piece_n;
}

static void deflate_bytes(struct packer *k, const uint8_t *p, size_t n, int flush)
{
    k->z.next_in = (Bytef *)(uintptr_t)p;
    k->z.avail_in = (uInt)n; /* a row: far below 4 GiB */
    int r = Z_OK;
    do {
        r = deflate(&k->z, flush);
        if (k->z.avail_out == 0)
            emit(k);
    } while (k->z.avail_in || (flush == Z_FINISH && r == Z_OK));
}

/* The pixels of one picture as IDAT or fdAT chunks. */
static berth_status add_pixels(const struct image *im, bool deep, int level, uint32_t *sequence,
                               const atomic_bool *cancel, struct str *out, berth_err *err)
{
    struct packer k = { .out = out, .sequence = sequence, .pixel = im->channels << deep };
    berth_status s = packer_open(&k, im, level, err);
    if (s)
        return s;
    uint8_t *f[FILTERS];
    for (int i = 0; i < FILTERS; i++)
        f[i] = k.line[i] + 1;
    for (uint32_t y = 0; y < im->h && !(s = image_check(cancel, err)); y++) {
        const uint8_t *x = im->px + y * k.row;
        filter_all(x, y ? x - k.row : k.zeros, k.row, k.pixel, f);
        deflate_bytes(&k, k.line[best_filter(f, k.row)], k.row + 1, Z_NO_FLUSH);
    }
    if (!s) {
        deflate_bytes(&k, NULL, 0, Z_FINISH);
        emit(&k);
    }
    packer_close(&k);
    return s;
}

/* ---- the doors ---- */

static berth_status check(const struct image *im, int level, berth_err *err)
{
    if (!im->px || (im->channels != 1 && im->channels != 3 && im->channels != 4) ||
        im->w > INT32_MAX || im->h > INT32_MAX)
        return err_set(err, BERTH_EINVAL, "a PNG of %u x %u with %u channels", im->w, im->h,
                       im->channels);
    if (level < 0 || level > 9)
        return err_set(err, BERTH_EINVAL, "compression level %d is not within 0 to 9", level);
    return BERTH_OK;
}

berth_status image_png(const struct image *im, const struct image_png_args *args, struct str *out,
                       berth_err *err)
{
    size_t had = out->n;
    berth_status s = check(im, args->level, err);
    if (s)
        return s;
    add_header(out, im, args->deep);
    for (size_t i = 0; !s && i < args->texts; i++)
        s = add_text(out, "tEXt", &args->text[i], err);
    if (!s)
        s = add_pixels(im, args->deep, args->level, NULL, args->cancel, out, err);
    png_chunk_add(out, "IEND", NULL, 0, NULL, 0);
    return image_finish(s, out, had, err);
}

static void add_control(struct str *out, const struct image *im, uint32_t *sequence, unsigned ms)
{
    uint8_t c[26] = { 0 };
    png_u32(c, (*sequence)++);
    png_u32(c + 4, im->w);
    png_u32(c + 8, im->h);
    bool coarse = ms > UINT16_MAX; /* then in seconds: the field has 16 bits */
    unsigned num = coarse ? ms / 1000 : ms, den = coarse ? 1 : 1000;
    c[20] = (uint8_t)(num >> 8);
    c[21] = (uint8_t)num;
    c[22] = (uint8_t)(den >> 8);
    c[23] = (uint8_t)den;
    png_chunk_add(out, "fcTL", c, sizeof c, NULL, 0);
}

berth_status image_anim_png(const struct image *frame, size_t n, const struct image_anim_args *args,
                            struct str *out, berth_err *err)
{
    size_t had = out->n;
    unsigned ms;
    berth_status s = image_anim_check(frame, n, args, &ms, err);
    if (!s)
        s = check(frame, args->level, err);
    if (s)
        return s;
    uint8_t animation[8] = { 0 }; /* frames, and plays: 0 is without end */
    uint32_t sequence = 0;
    png_u32(animation, (uint32_t)n);
    add_header(out, frame, false);
    if (n > 1)
        png_chunk_add(out, "acTL", animation, sizeof animation, NULL, 0);
    for (size_t i = 0; !s && i < n; i++) {
        if (n > 1)
            add_control(out, &frame[i], &sequence, ms);
        s = add_pixels(&frame[i], false, args->level, i ? &sequence : NULL, args->cancel, out, err);
    }
    for (size_t i = 0; !s && i < args->texts; i++)
        s = add_text(out, "comf", &args->text[i], err);
    png_chunk_add(out, "IEND", NULL, 0, NULL, 0);
    return image_finish(s, out, had, err);
}
