/* arch: networks as far as placement knows them: what a file is, what a pass does with its tensors
 * and in which order, and what they are called outside of the file.
 *
 * Words   family: networks with the same tensor names ("flux"); part, lead, root: format/places.h;
 *         key: a tensor's name as ComfyUI has it, whatever the file put in front of it
 * Flow    arch_detect() asks every family whether the file has its tensors; the answer's `base`
 *         goes to blocks_from_weights(), which asks it for a trace.
 * Trace   Families with a forward pass run it dry over the file's shapes (net.h, Traces): the order
 *         of their layers, which of them are lookups and what each costs is what the pass does.
 *         Nothing is written down a second time.
 * Words   Families that are placed but have no forward here list the words of their names in the
 *         order a pass comes to them (arch_words.c). A name is read as words and numbers from left
 *         to right and compared like that, numbers by value. An entry may span several parts
 *         ("transformer.resblocks"); the longest match counts. At one place the end of a name comes
 *         first, then numbers, then listed words; a word that is not listed ends the comparison,
 *         behind the others: such names are equal, and the file's order stands.
 * Threads Tables and pure functions: any.
 * Adding  a diffusion model: families.h; a VAE: vae.h; a network that is only placed: `const struct
 *         arch arch_<x>` and a line in archs.def.
 * Files   arch.c detection, traces; arch_words.c order by words; arch_<x>.c networks that are only
 *         placed (arch_lm.c two of them); arch_nets.c keys. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "format/places.h"
#include "format/weights.h"
#include "plan/blocks.h"

struct arch;
struct arch_net;
struct lora_table;
struct preset;

struct arch_word {
    const char *text;
    size_t len;
};
#define ARCH_WORD(s)                                                                               \
    {                                                                                              \
        .text = s, .len = sizeof(s) - 1                                                            \
    }

struct arch {
    struct block_arch base; /* name, about, trace(), aliases() */
    const char *role;       /* "unet", "clip", "vae"; NULL: a file that holds several networks */
    /* Are these its tensors? root: exactly what stands in front of the names ("" for none). */
    bool (*detect)(const struct weights *w, const char *root);
    const char *const *lead; /* ends with NULL; NULL: only "" */
    /* What a pass does (net.h, Traces), of the network behind root. An error leaves the tensors it
     * did not come to as they were. NULL: `words` say it. */
    berth_status (*trace)(const struct arch *arch, const struct weights *w, const char *root,
                          struct block_trace *out, berth_err *err);
    const struct arch_word *words; /* those of its names, in the order a pass comes to them */
    size_t words_n;
    bool (*embedding)(const char *block, size_t n); /* with words: is it looked up? NULL: none is */
    /* What adapter files call its tensors (lora_names_impl.h). NULL: adapters are not known. */
    void (*lora)(struct lora_table *t, const struct weights *w, const struct arch_net *net);
    const struct preset *const *presets; /* ends with NULL; NULL: none */
    /* Text encoders in files of their own: ComfyUI's word, and numbers in adapters (LORA_TE*). */
    const char *word;
    unsigned te;
    bool holds_parts; /* place_parts[], all that are there */
};

#define ARCH(x) extern const struct arch arch_##x;
#include "model/archs.def"
#undef ARCH

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
#define ARCH_NETS_MAX 20
/* The networks of a file that stand at places we know, or the one it is altogether; `part` (NULL or
 * "": all) takes those that are in it or around it. Returns how many, 0: none we know. */
size_t arch_nets(const struct weights *w, const char *part, struct arch_net out[ARCH_NETS_MAX]);
/* The same for residency: block_arch.aliases of every family. */
size_t arch_aliases(const struct weights *w, const char *part, struct block_alias *out, size_t cap);
/* What a CLIP is, by its width: root as arch_is() gave it. 0: no CLIP. */
uint64_t arch_clip_width(const struct weights *w, const char *root);
/* Old CLIP files: no "text_model." in front of the names. */
bool arch_clip_is_bare(const struct weights *w, const char *root);

/* ---- for families ---- */

/* block_arch.trace of every family: its own trace or its words, and those of the parts of a file
 * that holds several. */
berth_status arch_trace(const struct block_arch *arch, const struct weights *w, const char *part,
                        struct block_trace *out, berth_err *err);
/* arch->trace of text encoders that text/ computes. */
berth_status arch_trace_text(const struct arch *arch, const struct weights *w, const char *root,
                             struct block_trace *out, berth_err *err);
/* arch->trace by words. BERTH_ENOMEM alone. */
berth_status arch_trace_words(const struct arch *arch, const struct weights *w, const char *root,
                              struct block_trace *out, berth_err *err);
/* What order goes by: names run in the order of their keys, compared number by number, a key that
 * ends before the other first. Returns how many numbers it has and writes the first `cap`. */
size_t arch_key(const struct arch *arch, const char *name, size_t n, uint64_t *out, size_t cap);
/* The tensor <root><name>, or NULL. */
const struct weights_entry *arch_find(const struct weights *w, const char *root, const char *name);
/* One more than the highest number N of tensors <root><list>.<N>.<anything>; 0: none. So a layer
 * that only some tensors are left of, or that is missing between others, counts: whoever computes
 * it says what is not there. */
uint32_t arch_layers(const struct weights *w, const char *root, const char *list);
/* Is the last part of a dotted name this word? */
bool arch_ends_with(const char *name, size_t n, const char *word);

#endif
