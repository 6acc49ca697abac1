/* arch: what a file is, what a pass does with its tensors and in which order, and what they are
 * called outside of the file: all that placement needs to know of a network.
 *
 * Words   family: networks with the same tensor names ("flux"); part, lead, root: format/places.h;
 *         key: a tensor's name as ComfyUI has it, whatever the file put in front of it
 * Flow    arch_detect() asks every family whether the file has its tensors; the answer's `base`
 *         goes to blocks_from_weights(), which asks it for a trace.
 * Trace   The forward pass runs dry over the file's shapes (net.h, Traces): the order of the
 *         layers, which of them are lookups and what each costs is what the pass does. Nothing is
 *         written down a second time.
 * Threads Tables and pure functions: any.
 * Adding  a diffusion model: families.h; a text encoder: encoder.h; a VAE: vae.h; an encoder of
 *         pictures: vision.h; a style model: style.h; an upscaler: upscaler.h.
 * Files   arch.c detection, traces; arch_nets.c keys. */
#pragma once

#include "format/places.h"
#include "format/weights.h"
#include "plan/blocks.h"

struct arch;
struct arch_net;
struct lora_table;
struct preset;

struct arch {
    struct block_arch base; /* name, about, trace(), aliases() */
    /* "unet", "clip", "vae", "vision", "style", "upscale"; NULL: a file that holds several
     * networks */
    const char *role;
    /* Are these its tensors? root: exactly what stands in front of the names ("" for none). */
    bool (*detect)(const struct weights *w, const char *root);
    /* What a pass does (net.h, Traces), of the network behind root. An error leaves the tensors it
     * did not come to as they were. */
    berth_status (*trace)(const struct arch *arch, const struct weights *w, const char *root,
                          struct block_trace *out, berth_err *err);
    /* What adapter files call its tensors (lora_names_impl.h). NULL: adapters are not known. */
    void (*lora)(struct lora_table *t, const struct weights *w, const struct arch_net *net);
    const struct preset *presets; /* ends with a name of NULL; NULL: none */
    bool holds_parts;             /* place_parts[], all that are there */
};

size_t arch_count(void); /* of all networks: diffusion models, text encoders, VAEs; checkpoints */
const struct arch *arch_at(size_t i);

/* prefix: NULL or "": the whole file. NULL: none of the families. */
const struct arch *arch_detect(const struct weights *w, const char *prefix);
/* The same for residency: what blocks_from_weights() asks. */
const struct block_arch *arch_blocks(const struct weights *w, const char *prefix);
/* A prefix longer than this is in front of no network we know. */
#define ARCH_ROOT_MAX PLACE_ROOT_MAX
/* Is it this family behind the prefix? root (may be NULL): prefix and the lead that is there. */
bool arch_is(const struct arch *arch, const struct weights *w, const char *prefix,
             char root[ARCH_ROOT_MAX]);
/* The network of that part, behind the prefix; NULL: it is not there, or none we know. */
const struct arch *arch_of_part(const struct weights *w, const char *prefix,
                                const struct place_part *part);
/* Index in place_parts of the part a block is of, or PLACE_PARTS; *rest (may be NULL): where its
 * name inside of the part begins. Tensors right below a prefix make a block called like the prefix
 * without its dot. */
size_t arch_part_of(const char *block, size_t n, size_t *rest);
/* The prefix of the part that holds a network of this role, in a file that holds several; NULL:
 * none does. */
const char *arch_part_with(const struct weights *w, const struct arch *arch, const char *role);

/* ---- keys ---- */

/* One network of a file, and what ComfyUI calls it. */
struct arch_net {
    struct block_alias alias; /* its root in the file, and what stands there in keys */
    const struct arch *family;
    unsigned te; /* of text encoders: LORA_TE*, the numbers adapters have for it (lora_names.h) */
};
#define ARCH_NETS_MAX 48
/* The networks of a file that stand at places we know, or the one it is altogether; `part` (NULL or
 * "": all) takes those that are in it or around it. Returns how many, 0: none we know. */
size_t arch_nets(const struct weights *w, const char *part, struct arch_net out[ARCH_NETS_MAX]);
/* The same for residency: block_arch.aliases of every family. */
size_t arch_aliases(const struct weights *w, const char *part, struct block_alias *out, size_t cap);

/* ---- for families ---- */

/* block_arch.trace of every family: its own trace, or those of the parts of a file that holds
 * several. */
berth_status arch_trace(const struct block_arch *arch, const struct weights *w, const char *part,
                        struct block_trace *out, berth_err *err);
/* The tensor <root><name>, or NULL. */
const struct weights_entry *arch_find(const struct weights *w, const char *root, const char *name);
/* One of its dimensions; 0: it has no such, or e is NULL. */
uint64_t arch_dim(const struct weights_entry *e, int i);
/* One more than the highest number N of tensors <root><list>.<N>.<anything>; 0: none. So a layer
 * with only some of its tensors counts, and so does a gap between layers: the pass will say what is
 * missing. */
uint32_t arch_layers(const struct weights *w, const char *root, const char *list);
