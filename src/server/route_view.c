/* GET /view: a file of the output, input or temp folder, as it is or as a picture made of it. */
#include "server/routes.h"

#include <errno.h>
#include <sys/stat.h>

/* ---- which file ---- */

/* 0, with its path and its name as the client wrote it, maybe a link's. Otherwise the status that
 * says why not. */
static int find_file(const struct http_req *r, struct str *path, struct str *asked)
{
    struct str name = { 0 }, type = { 0 }, sub = { 0 };
    struct stat st;
    int status = 404;
    if (http_query(r, "filename", &name)) {
        bool typed = http_query(r, "type", &type);
        http_query(r, "subfolder", &sub);
        struct file_ref f = { str_c(&name), typed ? str_c(&type) : NULL, str_c(&sub), true };
        status = file_ref_find(r->server, &f, path);
        struct annotated a = path_annotated(f.name, name.n);
        const char *slash = memrchr(a.name, '/', a.n);
        size_t skip = slash ? (size_t)(slash - a.name) + 1 : 0;
        str_add(asked, a.name + skip, a.n - skip);
    }
    if (!status && (stat(path->p, &st) || !S_ISREG(st.st_mode)))
        status = 404;
    str_release(&name);
    str_release(&type);
    str_release(&sub);
    return status;
}

/* ---- pictures made of it ---- */

enum want { WANT_WEBP, WANT_JPEG, WANT_RGB, WANT_ALPHA };

struct conversion {
    struct later base;
    char *path;
    enum want want;
    bool rgb; /* WANT_WEBP without alpha */
    int quality;
};

static void conversion_release(struct later *l)
{
    free(((struct conversion *)l)->path);
}

/* Black, with the picture's alpha. */
static berth_status alpha_only(const struct image *im, struct image *out, berth_err *err)
{
    berth_status st = image_convert(im, 4, out, err);
    for (size_t i = 0; !st && i < (size_t)out->w * out->h; i++)
        memset(out->px + i * 4, 0, 3);
    return st;
}

static berth_status encode(const struct conversion *c, const struct image *im, struct str *out,
                           berth_err *err)
{
    struct image made = { 0 };
    berth_status st = BERTH_OK;
    const struct image_png_args png = { .level = 4 };
    if (c->want == WANT_ALPHA)
        st = alpha_only(im, &made, err);
    else if (c->want == WANT_RGB || c->rgb || im->channels == 1)
        st = image_convert(im, 3, &made, err);
    if (!st) {
        const struct image *use = made.px ? &made : im;
        if (c->want == WANT_JPEG)
            st = image_jpeg(use, c->quality, out, err);
        else if (c->want == WANT_WEBP)
            st = image_webp(use, c->quality, false, out, err);
        else
            st = image_png(use, &png, out, err);
    }
    image_release(&made);
    return st;
}

static void conversion_work(struct later *l)
{
    static const char *const types[] = { "image/webp", "image/jpeg", "image/png", "image/png" };
    struct conversion *c = (struct conversion *)l;
    struct image_file im = { 0 };
    l->failed = picture_read(c->path, &im, &l->err);
    if (!l->failed)
        l->failed = encode(c, &im.frame[0], &l->body, &l->err);
    image_file_release(&im);
    l->type = types[c->want];
}

/* "jpeg;80": the last part counts when it is all digits. */
static int quality_of(const char *text)
{
    const char *semi = strrchr(text, ';');
    const char *digits = semi ? semi + 1 : text;
    uint64_t q;
    if (!str_parse_u64(digits, strlen(digits), &q))
        return 90;
    return q > 100 ? 100 : (int)q;
}

/* False: the file itself is wanted. */
static bool wanted_picture(const struct http_req *r, struct conversion *c)
{
    struct str preview = { 0 }, channel = { 0 };
    bool yes = true;
    bool has_channel = http_query(r, "channel", &channel);
    bool rgb = has_channel && strcmp(str_c(&channel), "rgb") == 0;
    if (http_query(r, "preview", &preview)) {
        size_t n = strcspn(str_c(&preview), ";");
        bool jpeg = str_eq(str_c(&preview), n, "jpeg") && !strchr(str_c(&channel), 'a');
        c->want = jpeg ? WANT_JPEG : WANT_WEBP;
        c->rgb = jpeg || rgb;
        c->quality = quality_of(str_c(&preview));
    } else if (rgb) {
        c->want = WANT_RGB;
    } else if (has_channel && strcmp(str_c(&channel), "a") == 0) {
        c->want = WANT_ALPHA;
    } else {
        yes = false;
    }
    str_release(&preview);
    str_release(&channel);
    return yes;
}

/* ---- the file itself ---- */

void route_view(struct http_req *r)
{
    struct str path = { 0 }, asked = { 0 }, disposition = { 0 };
    struct conversion want = { 0 }, *c = NULL;
    int status = find_file(r, &path, &asked);
    if (status) {
        http_reply_empty(r, status);
        goto done;
    }
    if (!wanted_picture(r, &want)) {
        bool bytes;
        struct http_file f = { .path = path.p, .type = harmless_type(r, str_c(&asked), &bytes) };
        str_adds(&disposition, bytes ? "attachment; " : "");
        disposition_text(str_c(&asked), &disposition);
        f.disposition = str_c(&disposition);
        http_reply_file(r, &f);
        goto done;
    }
    disposition_text(str_c(&asked), &disposition);
    if ((c = later_new(r, sizeof *c, AUX_PICTURES, conversion_work))) {
        want.base = c->base;
        *c = want;
        c->base.release = conversion_release;
        c->base.disposition = str_take(&disposition);
        c->path = str_take(&path);
        later_run(&c->base);
    }
done:
    str_release(&path);
    str_release(&asked);
    str_release(&disposition);
}
