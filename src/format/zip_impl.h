/* zip: the directory of a ZIP archive whose members are stored as they are, so that each is a range
 * of bytes of the file. Compressed, encrypted and split archives are refused in words.
 *
 * Trust   The directory behind the members and the header in front of each must agree, and members
 *         may not overlap: readers that believe one or the other see the same bytes. Checksums are
 *         kept, not compared: that would read the whole file. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "base/vec.h"

struct zip_member {
    const char *name; /* NUL-terminated, any bytes */
    size_t len;
    uint64_t head;      /* where its own header begins */
    uint64_t off, size; /* its bytes in the file */
    uint32_t crc;
};

struct zip {
    struct arena mem;
    struct vec member;  /* struct zip_member, in the order of the directory */
    struct map by_name; /* -> number in `member`; set its seed before */
};

/* z: zeroed except for by_name.seed. Release it in every case. max: most members. */
berth_status zip_init(struct zip *z, const uint8_t *data, size_t size, uint64_t max,
                      berth_err *err);
void zip_release(struct zip *z);
const struct zip_member *zip_find(const struct zip *z, const char *name, size_t len); /* or NULL */
