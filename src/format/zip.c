/* ZIP archives as far as torch.save() writes them (APPNOTE 6.3.10, its sections in brackets). */
#include "format/zip_impl.h"

#include "base/rd.h"
#include "format/format_impl.h"

#include <inttypes.h>

enum {
    END = 22,      /* bytes of the end record without its comment [4.3.16] */
    END64_AT = 20, /* of the locator in front of it [4.3.15] */
    COMMENT_MAX = 0xffff,
    STORED = 0,    /* the method of a member that is not compressed */
    ENCRYPTED = 1, /* flags [4.4.4] */
    SIZES_BEHIND = 8,
};
#define WIDE UINT32_MAX /* "the number is in the ZIP64 field" */

static berth_status cut(berth_err *err)
{
    return err_set(err, BERTH_EFORMAT,
                   "the directory of the ZIP archive is cut short or malformed: download it again");
}

static struct rd rd_at(const uint8_t *data, size_t size, uint64_t at)
{
    struct rd r = rd_init(data, size);
    if (at > size)
        r.bad = true;
    else
        r.p += at;
    return r;
}

struct directory {
    uint64_t off, size, members;
};

/* The end record: behind it only its comment, whose length it gives. */
static bool find_end(const uint8_t *data, size_t size, size_t *at)
{
    for (size_t back = END; back <= size && back <= END + COMMENT_MAX; back++) {
        struct rd r = rd_at(data, size, size - back);
        if (rd_u32le(&r) != UINT32_C(0x06054b50))
            continue;
        rd_take(&r, END - 6);
        if (rd_u16le(&r) == back - END) {
            *at = size - back;
            return true;
        }
    }
    return false;
}

/* [4.3.14], by way of the locator in front of the end record. False: there is none. */
static bool read_end64(const uint8_t *data, size_t size, size_t end, struct directory *d)
{
    struct rd r = rd_at(data, size, end < END64_AT ? UINT64_MAX : end - END64_AT);
    if (rd_u32le(&r) != UINT32_C(0x07064b50))
        return false;
    rd_u32le(&r);
    r = rd_at(data, size, rd_u64le(&r));
    if (rd_u32le(&r) != UINT32_C(0x06064b50))
        return false;
    rd_take(&r, 8 + 2 + 2 + 4 + 4 + 8); /* size, versions, disks, members on this disk */
    d->members = rd_u64le(&r);
    d->size = rd_u64le(&r);
    d->off = rd_u64le(&r);
    return !r.bad;
}

static berth_status find_directory(const uint8_t *data, size_t size, struct directory *d,
                                   berth_err *err)
{
    size_t end;
    if (!find_end(data, size, &end))
        return err_set(err, BERTH_EFORMAT,
                       "a ZIP archive without its directory: it is cut short; download it again");
    struct rd r = rd_at(data, size, end + 4);
    uint16_t disk = rd_u16le(&r), from = rd_u16le(&r), here = rd_u16le(&r);
    d->members = rd_u16le(&r);
    d->size = rd_u32le(&r);
    d->off = rd_u32le(&r);
    bool wide = d->members == UINT16_MAX || d->size == WIDE || d->off == WIDE;
    if (!read_end64(data, size, end, d) && wide)
        return cut(err);
    if (!wide && (disk || from || here != d->members))
        return err_set(err, BERTH_EUNSUPPORTED, "a ZIP archive in several parts");
    if (d->off > end || d->size > end - d->off)
        return err_set(err, BERTH_EFORMAT,
                       "the ZIP archive's directory of %" PRIu64 " bytes at byte %" PRIu64
                       " lies outside the file",
                       d->size, d->off);
    return BERTH_OK;
}

/* The ZIP64 field among the `n` bytes of extra fields at p: gives each number that is WIDE its true
 * value, in this order [4.5.3]. False: one is missing. */
static bool widen(const uint8_t *p, size_t n, uint64_t *const number[], size_t count)
{
    struct rd extra = rd_init(p, n), field = rd_init(p, 0);
    while (rd_left(&extra) >= 4) {
        uint16_t id = rd_u16le(&extra), len = rd_u16le(&extra);
        const uint8_t *at = rd_take(&extra, len);
        if (at && id == 1)
            field = rd_init(at, len);
    }
    for (size_t i = 0; i < count; i++)
        if (*number[i] == WIDE)
            *number[i] = rd_u64le(&field);
    return !field.bad;
}

/* The header in front of the member must agree with the directory. */
static berth_status check_head(const uint8_t *data, uint64_t end, struct zip_member *m,
                               berth_err *err)
{
    struct rd r = rd_at(data, (size_t)end, m->head);
    uint32_t magic = rd_u32le(&r);
    rd_u16le(&r);
    uint16_t flags = rd_u16le(&r), method = rd_u16le(&r);
    rd_u32le(&r);
    uint32_t crc = rd_u32le(&r);
    uint64_t packed = rd_u32le(&r), size = rd_u32le(&r);
    uint16_t name = rd_u16le(&r), extra = rd_u16le(&r);
    const uint8_t *s = rd_take(&r, name), *x = rd_take(&r, extra);
    bool later = flags & SIZES_BEHIND && !packed && !size && !crc;
    if (r.bad || magic != UINT32_C(0x04034b50))
        return err_set(err, BERTH_EFORMAT, "member '%s' of the ZIP archive has no header",
                       excerpt(m->name, m->len).s);
    if (name != m->len || memcmp(s, m->name, name) != 0 || method != STORED || flags & ENCRYPTED ||
        !widen(x, extra, (uint64_t *const[]) { &size, &packed }, 2) ||
        (!later && (size != m->size || packed != m->size || crc != m->crc)))
        return err_set(err, BERTH_EFORMAT,
                       "member '%s' of the ZIP archive is described differently in its header and "
                       "in the directory",
                       excerpt(m->name, m->len).s);
    m->off = (uint64_t)(r.p - data);
    if (m->size > end - m->off)
        return err_set(err, BERTH_EFORMAT,
                       "member '%s' of the ZIP archive takes %" PRIu64 " bytes at byte %" PRIu64
                       ", where only %" PRIu64 " are: it is cut short, or its directory lies",
                       excerpt(m->name, m->len).s, m->size, m->off, end - m->off);
    return BERTH_OK;
}

/* One line of the directory [4.3.12]. */
static berth_status read_member(struct zip *z, struct rd *r, const uint8_t *data, uint64_t end,
                                berth_err *err)
{
    uint32_t magic = rd_u32le(r);
    rd_u32le(r); /* versions */
    uint16_t flags = rd_u16le(r), method = rd_u16le(r);
    rd_u32le(r); /* time */
    uint32_t crc = rd_u32le(r);
    uint64_t packed = rd_u32le(r), size = rd_u32le(r);
    uint16_t name = rd_u16le(r), extra = rd_u16le(r), comment = rd_u16le(r);
    rd_u64le(r); /* disk, attributes */
    uint64_t head = rd_u32le(r);
    const uint8_t *s = rd_take(r, name), *x = rd_take(r, extra);
    rd_take(r, comment);
    if (r->bad || magic != UINT32_C(0x02014b50) ||
        !widen(x, extra, (uint64_t *const[]) { &size, &packed, &head }, 3))
        return cut(err);
    struct zip_member *m = vec_add(&z->member);
    const char *copy = arena_strndup(&z->mem, (const char *)s, name);
    if (!m || !copy)
        return err_set(err, BERTH_ENOMEM, "out of memory for %zu members", z->member.n);
    *m = (struct zip_member) { .name = copy, .len = name, .head = head, .size = size, .crc = crc };
    if (method != STORED || flags & ENCRYPTED || packed != size)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "member '%s' of the ZIP archive is %s; torch.save() stores members as they "
                       "are, and only such are read",
                       excerpt(copy, name).s, flags & ENCRYPTED ? "encrypted" : "compressed");
    if (name_add(&z->by_name, copy, name, z->member.n - 1, "member",
                 "of the ZIP archive occurs twice", err))
        return err->code;
    return check_head(data, end, m, err);
}

static int by_place(const void *a, const void *b)
{
    const struct zip_member *const *x = a, *const *y = b;
    return (*x)->head < (*y)->head ? -1 : (*x)->head > (*y)->head;
}

static berth_status check_overlap(struct zip *z, berth_err *err)
{
    const struct zip_member **m = arena_array(&z->mem, z->member.n + 1, sizeof *m);
    if (!m)
        return err_set(err, BERTH_ENOMEM, "out of memory for %zu members", z->member.n);
    for (size_t i = 0; i < z->member.n; i++)
        m[i] = vec_at(&z->member, i);
    qsort(m, z->member.n, sizeof *m, by_place);
    for (size_t i = 1; i < z->member.n; i++)
        if (m[i]->head < m[i - 1]->off + m[i - 1]->size)
            return err_set(err, BERTH_EFORMAT, "members '%s' and '%s' of the ZIP archive overlap",
                           excerpt(m[i - 1]->name, m[i - 1]->len).s,
                           excerpt(m[i]->name, m[i]->len).s);
    return BERTH_OK;
}

berth_status zip_init(struct zip *z, const uint8_t *data, size_t size, uint64_t max, berth_err *err)
{
    struct directory d = { 0 };
    z->member.elem = sizeof(struct zip_member);
    if (find_directory(data, size, &d, err))
        return err->code;
    if (d.members > max)
        return err_set(err, BERTH_ELIMIT, "more than %" PRIu64 " members in the ZIP archive", max);
    struct rd r = rd_init(data + d.off, (size_t)d.size);
    for (uint64_t i = 0; i < d.members; i++)
        if (read_member(z, &r, data, d.off, err))
            return err->code;
    return check_overlap(z, err);
}

void zip_release(struct zip *z)
{
    vec_release(&z->member);
    map_release(&z->by_name);
    arena_release(&z->mem);
}

const struct zip_member *zip_find(const struct zip *z, const char *name, size_t len)
{
    uint64_t at;
    return map_get(&z->by_name, name, len, &at) ? vec_at(&z->member, (size_t)at) : NULL;
}
