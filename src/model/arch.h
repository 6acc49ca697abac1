/* arch: network families as far as placement knows them: what a file is, in which order its blocks
 * run, which of them are input embeddings, and what its tensors are called outside of the file.
 *
 * Words   family: networks with the same tensor names ("flux"); part: one network inside a file
 *         that holds several, told by its prefix ("first_stage_model."); lead: what may stand
 *         between a prefix and the names of a family ("transformer."); root: prefix and lead;
 *         key: a tensor's name as ComfyUI has it, whatever the file put in front of it
 * Flow    arch_detect() asks every family in archs.def whether the file has its tensors; the
 *         answer's `base` goes to blocks_from_weights(), which asks it back about names.
 * Order   A family lists the words of its names in the order the forward pass comes to them; a name
 *         is read as words and numbers from left to right and compared like that, numbers by value.
 *         An entry may span several parts ("img_attn.qkv"), where the layers of two modules run in
 *         turn; the longest match counts. Behind a word in ARCH_DOWN() the highest number runs
 *         first. At one place the end of a name comes first, then numbers, then listed words; a
 *         word that is not listed ends the comparison, behind the others: such names are equal, and
 *         the file's order stands. So a name has a key that depends on nothing else, and the
 *         relation is a total preorder.
 * Work    A family may tell what a step spends on a block (block_arch.work), so that layouts go by
 *         time. Flux and UNets do; whole checkpoints do not, because their networks run at
 *         different times: loaders open one part, and ask the family of that part.
 * Threads Tables and pure functions: any.
 * Adding  arch_<x>.c with `const struct arch arch_<x>` and a line in archs.def.
 * Files   arch.c detection and order, arch_<family>.c one family each (arch_lm.c two of them),
 *         arch_checkpoint.c files that hold several networks, arch_nets.c keys. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "format/weights.h"
#include "plan/blocks.h"

struct arch;

struct arch_part {
    const char *prefix;        /* of tensor names, ends with a dot */
    const char *role;          /* "clip", "unet", "vae": what residency calls it */
    const struct arch *family; /* what it is when it is there */
};

/* Which names adapter files have for a family's tensors (lora_names.h). */
enum arch_naming { ARCH_NAMELESS, ARCH_DIFFUSION, ARCH_CLIP, ARCH_T5 };

struct arch {
    struct block_arch base; /* name, about, embedding(), order(), key(), work(), aliases() */
    enum arch_naming naming;
    const char *role; /* "unet", "clip", "vae", as arch_part.role; NULL: several networks */
    /* Are these its tensors? root: exactly what stands in front of the names ("" for none). */
    bool (*detect)(const struct weights *w, const char *root);
    const char *const *lead;      /* ends with NULL; NULL: only "" */
    const struct arch_part *part; /* files that hold several networks, in the order they run */
    size_t parts;                 /* 0: it is one network */
};

#define ARCH(x) extern const struct arch arch_##x;
#include "model/archs.def"
#undef ARCH

size_t arch_count(void);
const struct arch *arch_at(size_t i);

/* prefix: NULL or "": the whole file. NULL: none of the families. */
const struct arch *arch_detect(const struct weights *w, const char *prefix);
/* The same for residency: what blocks_from_weights() asks. */
const struct block_arch *arch_blocks(const struct weights *w, const char *prefix);
/* A prefix longer than this is in front of no network we know. */
#define ARCH_ROOT_MAX 128
/* Is it this family behind the prefix? root (may be NULL): prefix and the lead that is there. */
bool arch_is(const struct arch *arch, const struct weights *w, const char *prefix,
             char root[ARCH_ROOT_MAX]);
/* Is that part of the file there, and of that family? */
bool arch_has_part(const struct weights *w, const char *prefix, const struct arch_part *part);
/* Index of the part a block is of, or arch->parts; *rest (may be NULL): where its name inside of
 * the part begins. Tensors right below a prefix make a block called like the prefix without its
 * dot. */
size_t arch_part_of(const struct arch *arch, const char *block, size_t n, size_t *rest);

/* ---- keys ---- */

/* One network of a file, and what ComfyUI calls it. */
struct arch_net {
    struct block_alias alias; /* its root in the file, and what stands there in keys */
    const struct arch *family;
    unsigned te; /* of text encoders: LORA_TE*, the numbers adapters have for it (lora_names.h) */
};
#define ARCH_NETS_MAX 16
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

struct arch_word {
    const char *text;
    size_t len;
    bool down; /* numbers right behind it count down */
};
#define ARCH_WORD(s)                                                                               \
    {                                                                                              \
        .text = s, .len = sizeof(s) - 1                                                            \
    }
#define ARCH_DOWN(s)                                                                               \
    {                                                                                              \
        .text = s, .len = sizeof(s) - 1, .down = true                                              \
    }

/* order() over a word list. */
int arch_order(const struct arch_word *word, size_t words, const char *a, size_t an, const char *b,
               size_t bn);
/* key() over the same list, see struct block_arch. */
size_t arch_key(const struct arch_word *word, size_t words, const char *name, size_t n,
                uint64_t *out, size_t cap);
/* The tensor <root><name>, or NULL. */
const struct weights_entry *arch_find(const struct weights *w, const char *root, const char *name);
/* One more than the highest number N of tensors <root><list>.<N>.<anything>; 0: none. So a layer
 * that only some tensors are left of, or that is missing between others, counts: whoever computes
 * it says what is not there. */
uint32_t arch_layers(const struct weights *w, const char *root, const char *list);
/* Is the last part of a dotted name this word? */
bool arch_ends_with(const char *name, size_t n, const char *word);

#endif
