/* text_overlay.c: TextOverlay: text over pictures. */
#include "node/draw.h"

#include <math.h>
#include <string.h>

struct overlay {
    size_t w, h;
    int margin;
    unsigned size, stroke;
    struct text_lines lines;
    int pitch;  /* from line to line */
    int box[4]; /* of the block around (0, 0) */
    uint8_t rgba[4];
    char align; /* 'l', 'c', 'r' */
};

static void line_box(const struct overlay *o, size_t i, int box[4])
{
    const struct str *s = &o->lines.at[i];
    font_box(str_c(s), s->n, o->size, o->stroke, box);
    box[1] += (int)i * o->pitch;
    box[3] += (int)i * o->pitch;
}

/* Lines in this size. */
static berth_status lay_out(struct node_call *c, struct overlay *o, const char *text, bool outline,
                            berth_err *err)
{
    struct wrapping w = { .size = o->size, .width = (int)o->w - 2 * o->margin, .cut = true };
    w.width = w.width > 1 ? w.width : 1;
    double soft = nearbyint(o->size * 0.04);
    o->stroke = !outline ? 0 : soft > 1 ? (unsigned)soft : 1;
    o->pitch = (int)nearbyint(o->size * 1.2);
    text_lines_release(&o->lines);
    if (wrap_text(c, text, &w, &o->lines, err))
        return err->code;
    return BERTH_OK;
}

/* The box around all lines. */
static berth_status measure(struct node_call *c, struct overlay *o, berth_err *err)
{
    int box[4];
    memset(o->box, 0, sizeof o->box);
    for (size_t i = 0; i < o->lines.n; i++) {
        if (call_check(c, err))
            return err->code;
        line_box(o, i, box);
        for (int k = 0; k < 4; k++)
            o->box[k] =
                !i || (k < 2 ? box[k] < o->box[k] : box[k] > o->box[k]) ? box[k] : o->box[k];
    }
    return BERTH_OK;
}

/* Smaller until it fits, but not too small to read. */
static berth_status fit(struct node_call *c, struct overlay *o, const char *text, bool outline,
                        double percent, berth_err *err)
{
    double size = nearbyint(percent / 100 * (double)o->h), least = nearbyint(0.02 * (double)o->h);
    least = least > 10 ? least : 10;
    o->size = size < 1 ? 1 : size > FONT_SIZE_MAX ? FONT_SIZE_MAX : (unsigned)size;
    unsigned floor_size = o->size < (unsigned)least ? o->size : (unsigned)least;
    int room = (int)o->h - 2 * o->margin;
    room = room > 1 ? room : 1;
    for (;;) {
        bool last = o->size <= floor_size;
        berth_status s = lay_out(c, o, text, outline, err);
        if (s && (s != BERTH_ELIMIT || last))
            return s;
        /* Lines that are too many by far need not be measured. */
        bool far = s || (o->lines.n > 3 && ((int)o->lines.n - 3) * o->pitch > room);
        if ((!far || last) && measure(c, o, err))
            return err->code;
        if (last || (!far && o->box[3] - o->box[1] <= room))
            return BERTH_OK;
        unsigned next = (unsigned)(o->size * 0.9);
        o->size = next > floor_size ? next : floor_size;
    }
}

static berth_status draw_lines(struct node_call *c, const struct overlay *o, bool stroke, int top,
                               struct image *layer, berth_err *err)
{
    static const uint8_t black[4] = { 0, 0, 0, 255 };
    berth_status s = BERTH_OK;
    int reach = 2 * (int)o->size + (int)o->stroke; /* no character goes further down */
    for (size_t i = 0; !s && i < o->lines.n; i++) {
        const struct str *line = &o->lines.at[i];
        int y = top + (int)i * o->pitch;
        if (y - (int)o->stroke - (int)o->size > (int)o->h)
            break;
        if (y + reach < 0)
            continue;
        int w = font_width(str_c(line), line->n, o->size);
        struct font_at at = { .y = y, .size = o->size, .stroke = stroke ? o->stroke : 0 };
        at.x = o->align == 'l'   ? o->margin
               : o->align == 'r' ? (int)o->w - o->margin - w
                                 : ((int)o->w - w) / 2;
        s = call_check(c, err);
        if (!s)
            s = layer_text(layer, str_c(line), line->n, at, stroke ? black : o->rgba, err);
    }
    return s;
}

static void lay_over(const struct htensor *t, const struct image *layer, struct htensor *o)
{
    size_t px = (size_t)layer->w * layer->h, c = dim(t, 3);
    for (size_t i = 0, n = htensor_count(t); i < n; i++) {
        const uint8_t *p = layer->px + i / c % px * 4;
        float alpha = (float)p[3] / 255.0f;
        o->data[i] = t->data[i] * (1.0f - alpha) + (float)p[c == 1 ? 0 : i % c] / 255.0f * alpha;
    }
}

/* "\n" and "\t" of two characters become one. */
static void unescape(const char *text, struct str *out)
{
    for (; *text; text++)
        if (*text == '\\' && (text[1] == 'n' || text[1] == 't'))
            str_addc(out, *++text == 'n' ? '\n' : '\t');
        else
            str_addc(out, *text);
}

/* "#rgb", "#rgba", "#rrggbb", "#rrggbbaa", and the names people use. */
static bool parse_color(const char *text, uint8_t rgba[4])
{
    static const struct {
        const char *name;
        uint32_t rgb;
    } named[] = { { "black", 0 },         { "white", 0xffffff },  { "red", 0xff0000 },
                  { "lime", 0x00ff00 },   { "green", 0x008000 },  { "blue", 0x0000ff },
                  { "yellow", 0xffff00 }, { "cyan", 0x00ffff },   { "magenta", 0xff00ff },
                  { "orange", 0xffa500 }, { "gray", 0x808080 },   { "grey", 0x808080 },
                  { "silver", 0xc0c0c0 }, { "purple", 0x800080 }, { "pink", 0xffc0cb },
                  { "brown", 0xa52a2a },  { "gold", 0xffd700 },   { "navy", 0x000080 },
                  { "teal", 0x008080 } };
    char wide[9] = "";
    size_t n = strlen(text);
    rgba[3] = 255;
    for (size_t i = 0; i < ARRAY_LEN(named); i++)
        if (!strcasecmp(named[i].name, text)) {
            for (int k = 0; k < 3; k++)
                rgba[k] = (uint8_t)(named[i].rgb >> (16 - 8 * k));
            return true;
        }
    if (*text != '#')
        return false;
    if (n == 4 || n == 5)
        for (size_t i = 0; i < 2 * (n - 1); i++)
            wide[i] = text[1 + i / 2];
    else if (n == 7 || n == 9)
        memcpy(wide, text + 1, n - 1);
    return *wide && parse_hex_color(wide, strlen(wide) / 2, rgba);
}

static berth_status in_overlay(struct node_call *c, const struct htensor *t, struct overlay *o,
                               berth_err *err)
{
    const struct value *v = in_value(c, "color");
    const char *align, *color = v && v->kind == V_STRING ? v->s.p : "#ffffff";
    if (in_text(c, "align", &align, err))
        return err->code;
    if (!parse_color(color, o->rgba))
        return err_set(err, BERTH_EINVAL, "unknown color specifier: '%.40s'", color);
    o->h = dim(t, 1);
    o->w = dim(t, 2);
    if (o->w > SIDE_MAX || o->h > SIDE_MAX || dim(t, 3) > 3)
        return err_set(err, BERTH_EINVAL,
                       "text cannot be drawn over pictures of %zux%zu with %zu channels", o->w,
                       o->h, dim(t, 3));
    o->margin = (int)nearbyint(0.01 * (double)(o->w < o->h ? o->w : o->h));
    o->align = *align;
    return BERTH_OK;
}

static berth_status overlay_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *out = NULL;
    struct overlay o = { 0 };
    struct image layer = { 0 };
    struct str plain = { 0 };
    const char *text, *position;
    double percent;
    bool outline;
    if (in_image(c, "images", &t, err) || in_text(c, "text", &text, err) ||
        in_f64(c, "font_size", &percent, err) || in_text(c, "position", &position, err) ||
        in_bool(c, "outline", &outline, err))
        return err->code;
    if (!text[strspn(text, " \t\r\n\f\v")])
        return out_tensor(c, 0, htensor_ref(t), err);
    berth_status s = in_overlay(c, t, &o, err);
    unescape(text, &plain);
    if (!s && plain.bad)
        s = err_set(err, BERTH_ENOMEM, "a text");
    if (!s)
        s = fit(c, &o, str_c(&plain), outline, percent, err);
    if (!s)
        s = layer_init(&layer, o.w, o.h, err);
    int top = *position == 'b' ? (int)o.h - o.margin - o.box[3] : o.margin - o.box[1];
    if (!s && outline)
        s = draw_lines(c, &o, true, top, &layer, err);
    if (!s)
        s = draw_lines(c, &o, false, top, &layer, err);
    if (!s)
        s = htensor_new(&t->shape, &out, err);
    if (!s)
        lay_over(t, &layer, out);
    text_lines_release(&o.lines);
    str_release(&plain);
    image_release(&layer);
    return give_tensor(c, s, out, err);
}

NODE_CLASS(TextOverlay, .display = "Draw Text Overlay", .category = "text", V3("text_overlay"),
           .description = "Draws text over pictures.",
           INS(SOCKET("images", "IMAGE"), TEXT_IN("text", "", .more = MULTILINE),
               FLOAT_IN("font_size", 5.0, 0.5, 50.0, 0.5), COLOR_IN("color", "#ffffff"),
               COMBO_IN("position", CHOICES("top", "bottom"), .sdef = "top"),
               COMBO_IN("align", CHOICES("left", "center", "right"), .sdef = "left"),
               BOOL_IN("outline", true)),
           OUTS({ .type = "IMAGE", .name = "images" }), .run = overlay_run);
