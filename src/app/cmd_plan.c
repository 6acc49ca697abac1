/* berth plan: which block of a model would live where. Loads nothing. */
#include "app/device_options.h"
#include "app/plan.h"
#include "app/presets.h"
#include "berth/ctx.h"
#include "model/synth.h"
#include "plan/convert.h"

struct options {
    const char *preset, *alloc, *virtual_vram, *donor, *compute, *layout, *part, *dtype, *reserve;
    struct device_options machine; /* of it devices and ram */
    bool automatic, brief;
};

struct request { /* the options, understood */
    const struct options *o;
    const char *file;
    const struct preset *preset; /* instead of the file */
    enum dtype stored;           /* of the preset's weights */
    const char *convert;         /* what weights are converted to; NULL: nothing */
    struct str text;             /* the allocation string to resolve; empty: auto */
    struct alloc alloc;          /* of text */
    struct plan_devices devices;
    enum plan_layout layout;
    uint64_t reserve;
    struct str prefix; /* of the part; ends with a dot, or is empty */
};

/* ---- devices ---- */

/* Which donor is nearer matters to an automatic plan with a choice: only then it is measured. */
static berth_status real_devices(struct app *a, const struct options *o,
                                 const struct app_ctx_args *args, struct plan_devices *d,
                                 berth_err *err)
{
    berth_ctx *ctx;
    if (app_ctx_new(a, args, &ctx, err))
        return err->code;
    bool automatic = !o->alloc && !o->virtual_vram;
    berth_status s =
        ctx_plan_devices(ctx, o->compute, automatic && berth_ctx_device_count(ctx) > 2, d, err);
    berth_ctx_free(ctx);
    return s;
}

/* What alloc_resolve() takes when nobody names a device. */
static const char *default_compute(const struct plan_devices *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (!d->at[i].host)
            return d->at[i].name;
    return d->n ? d->at[0].name : "cpu";
}

/* ---- options ---- */

/* Combinations that mean nothing; 0: fine. */
static int check_usage(struct app *a, const struct options *o)
{
    if (!!o->alloc + !!o->virtual_vram + o->automatic > 1)
        return app_usage(a, "--alloc, --virtual-vram and --auto exclude each other");
    if (o->donor && !o->virtual_vram)
        return app_usage(a, "--donor goes with --virtual-vram");
    if (o->reserve && (o->alloc || o->virtual_vram))
        return app_usage(a, "--reserve goes with --auto: %s says itself how much goes where",
                         o->alloc ? "--alloc" : "--virtual-vram");
    return 0;
}

/* The library speaks of the node input that strings come from; here they come from an option. */
static berth_err *blame_option(const struct options *o, berth_err *err)
{
    if (err->subject)
        err_rename_subject(err, o->alloc          ? "--alloc"
                                : o->virtual_vram ? "--virtual-vram"
                                                  : "--compute");
    return err;
}

/* --preset and --dtype. A file has a type, and can be converted to fp8; a preset has the type one
 * asks for. 0: fine. */
static int read_model(struct app *a, struct request *r)
{
    const struct options *o = r->o;
    bool fp8 = o->dtype && res_convert_type(o->dtype) != DT_NONE;
    int code = o->preset ? app_preset(a, o->preset, &r->preset) : APP_OK;
    r->stored = o->dtype && !fp8 ? dtype_by_name(o->dtype, strlen(o->dtype)) : DT_F16;
    r->convert = fp8 ? o->dtype : NULL;
    if (code)
        return code;
    if (o->dtype && !fp8 && !o->preset)
        return app_usage(a, "--dtype: '%.40s' is neither fp8_e4m3fn nor fp8_e5m2", o->dtype);
    if (r->stored == DT_NONE || !synth_can(r->stored, NULL))
        return app_usage(a,
                         "--dtype: '%.40s' is no type of weights; `berth synth --help` has them "
                         "(a model in one of its layouts is planned from its file)",
                         o->dtype);
    return 0;
}

/* Mistakes in the text of an option; 0: fine. */
static int read_options(struct app *a, struct request *r)
{
    const struct options *o = r->o;
    berth_err err;
    r->reserve = UINT64_MAX;
    if (o->layout && !plan_layout_parse(o->layout, strlen(o->layout), &r->layout))
        return app_usage(a, "--layout: '%.80s' is neither spread nor tail", o->layout);
    if (o->reserve && !str_parse_bytes(o->reserve, strlen(o->reserve), &r->reserve))
        return app_usage(a, "--reserve: '%.80s' is no size; write 1.5g, 512m or bytes", o->reserve);
    if (o->part) {
        str_adds(&r->prefix, o->part);
        if (o->part[0] && !str_ends(o->part, strlen(o->part), "."))
            str_addc(&r->prefix, '.');
    }
    struct app_ctx_args args = { 0 };
    int code = app_devices(a, &o->machine, &args);
    if (code)
        return code;
    if (args.devices && plan_devices_parse(args.devices, strlen(args.devices), &r->devices, &err))
        return app_fail_devices(a, &err);
    if (!args.devices && real_devices(a, o, &args, &r->devices, &err))
        return app_fail(a, &err);
    if (o->virtual_vram)
        str_addf(&r->text, "#%s;%s;%s", o->compute ? o->compute : default_compute(&r->devices),
                 o->virtual_vram, o->donor ? o->donor : "cpu");
    else if (o->alloc)
        str_adds(&r->text, o->alloc);
    if ((o->alloc || o->virtual_vram) && alloc_parse(str_c(&r->text), r->text.n, &r->alloc, &err)) {
        app_fail(a, blame_option(o, &err)); /* a program's --json wants to hear of a bad string */
        return APP_USAGE;
    }
    if (o->alloc && o->compute && r->alloc.compute[0] &&
        plan_device_find(&r->devices, o->compute, strlen(o->compute)) !=
            plan_device_find(&r->devices, r->alloc.compute, strlen(r->alloc.compute)))
        return app_usage(a, "--compute %.80s, but --alloc says #%s", o->compute, r->alloc.compute);
    return 0;
}

/* ---- planning ---- */

/* "..., this file has a., b." for somebody who asked for a part that is not there. */
static berth_status no_such_part(const struct weights *w, berth_err *err)
{
    const struct arch *arch = arch_detect(w, NULL);
    struct str s = { 0 };
    for (size_t i = 0; arch && arch->holds_parts && i < PLACE_PARTS; i++)
        if (arch_of_part(w, NULL, &place_parts[i]))
            str_addf(&s, "%s%s", s.n ? ", " : "", place_parts[i].prefix);
    if (s.n && !s.bad)
        err_append(err, "; its parts are %s", str_c(&s));
    str_release(&s);
    return err->code;
}

static int print_json(struct app *a, const struct planned *x)
{
    struct jsonout j;
    app_json_begin(a, &j);
    jo_open(&j, NULL, '{');
    plan_as_json(x->plan, x->blocks, weights_converted(x->weights), &j);
    jo_close(&j, '}');
    return app_json_end(a, APP_OK);
}

static int plan_blocks(struct app *a, const struct request *r, struct planned *x)
{
    const struct plan_args args = { .alloc = str_c(&r->text),
                                    .compute = r->o->compute,
                                    .layout = r->layout,
                                    .reserve = r->reserve };
    struct plan p;
    berth_err err;
    uint64_t start = clock_mono_ns(a->clock);
    berth_status s = plan_from_args(x->blocks, &r->devices, &args, &p, &err);
    log_info(&a->log, "plan.make", "blocks=%zu ms=%.3f status=%s", x->blocks->n,
             (double)(clock_mono_ns(a->clock) - start) * 1e-6, berth_status_name(s));
    int code = APP_OK;
    x->plan = &p;
    if (s == BERTH_EINVAL && !r->o->machine.devices && err.device[0])
        err_append(&err, "; --devices cuda:0=24g,cpu=64g plans for cards that are not here");
    if (s)
        code = app_fail(a, blame_option(r->o, &err));
    else if (a->json)
        code = print_json(a, x);
    else
        plan_text(a, x);
    plan_release(&p);
    return code;
}

/* The preset's tensors, in the format its type is stored in. */
static berth_status declare_preset(const struct request *r, struct weights **w, berth_err *err)
{
    const struct preset *p = r->preset;
    struct keys keys = { 0 };
    struct synth y = { 0 };
    berth_status s = preset_keys(p, &keys, err);
    if (!s)
        s = synth_init(&y, &keys, r->stored, app_format_of(r->stored), p->hiprec, NULL, err);
    if (!s)
        s = weights_declare(p->name, y.spec, keys.n, w, err);
    synth_release(&y);
    keys_release(&keys);
    return s;
}

static int plan_model(struct app *a, const struct request *r)
{
    struct weights *w;
    berth_err err;
    uint64_t start = clock_mono_ns(a->clock);
    if (r->preset ? declare_preset(r, &w, &err) : weights_open(r->file, NULL, &w, &err))
        return app_fail(a, &err);
    const char *path = weights_path(w);
    struct planned x = {
        .file = path, .prefix = str_c(&r->prefix), .weights = w, .brief = r->o->brief
    };
    struct blocks b = { 0 };
    x.arch = arch_detect(w, x.prefix);
    x.blocks = &b;
    berth_status s = r->convert ? res_convert(w, x.prefix, r->convert, &err) : BERTH_OK;
    if (!s)
        s = blocks_from_weights(w, x.prefix, x.arch ? &x.arch->base : NULL, &b, &err);
    log_info(&a->log, "plan.open", "tensors=%zu blocks=%zu ms=%.3f arch=%s file=\"%s\"",
             weights_count(w), b.n, (double)(clock_mono_ns(a->clock) - start) * 1e-6,
             x.arch ? x.arch->base.name : "-", path);
    if (s == BERTH_ENOTFOUND && x.prefix[0])
        no_such_part(w, &err);
    else if (s == BERTH_ENOTFOUND)
        err_set(&err, s, "'%s' has no tensors", path);
    if (s && !err_names(&err, path))
        err_add(&err, "%s", path);
    int code = s ? app_fail(a, &err) : plan_blocks(a, r, &x);
    blocks_release(&b);
    weights_close(w);
    return code;
}

static int run(struct app *a, int argc, char **argv)
{
    struct options o = { 0 };
    const struct opt opt[] = {
        opt_letter('p',
                   opt_text("preset", "PRESET",
                            "a built-in model instead of a file; `berth synth --list` shows them",
                            &o.preset)),
        opt_text("alloc", "STRING", "allocation string, see below", &o.alloc),
        opt_text("virtual-vram", "GiB", "this much of the model goes to the donors",
                 &o.virtual_vram),
        opt_text("donor", "DEVICE,...",
                 "devices that take them, first come first filled; default: cpu", &o.donor),
        opt_flag("auto", "fill the compute device, then the others (default)", &o.automatic),
        opt_text("compute", "DEVICE", "device that computes; default: the first that is not cpu",
                 &o.compute),
        opt_text("devices", "SPEC", "plan for a machine that is not here; default: this one",
                 &o.machine.devices),
        opt_text("layout", "LAYOUT", "spread (default): evenly over the model; tail: from its end",
                 &o.layout),
        opt_text("part", "PREFIX", "only the tensors whose names begin with it", &o.part),
        opt_text("dtype", "TYPE",
                 "as if converted: fp8_e4m3fn (or fp8), fp8_e5m2; weight_dtype of loaders; with "
                 "--preset any type that synth writes, but no layout: q8_0, ... (default: f16)",
                 &o.dtype),
        opt_text("reserve", "SIZE", "with --auto: kept free; default: 1.19g, at most a quarter",
                 &o.reserve),
        opt_text("ram-budget", "SIZE", "the most of this machine's memory to plan with",
                 &o.machine.ram),
        opt_flag("brief", "the picture, without the tables", &o.brief),
        opt_flag("json", "print a JSON object", &a->json),
    };
    int n, code;
    if (!app_args(a, &command_plan, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n && o.preset)
        return app_usage(a, "--preset or a file, not both: '%.80s'", argv[0]);
    if (!n && !o.preset)
        return app_usage(a, "which file?");
    if (n > 1)
        return app_usage(a, "one file at a time, '%.80s' is too much", argv[1]);
    if (o.dtype && strcmp(o.dtype, "default") == 0) /* a loader's word for it */
        o.dtype = NULL;
    struct request *r = calloc(1, sizeof *r); /* too large for a stack that is shared with others */
    if (!r)
        return app_no_memory(a);
    r->o = &o;
    r->file = n ? argv[0] : NULL;
    code = check_usage(a, &o);
    if (!code)
        code = read_model(a, r);
    if (!code)
        code = read_options(a, r);
    if (!code && (r->text.bad || r->prefix.bad))
        code = app_no_memory(a);
    if (!code)
        code = plan_model(a, r);
    str_release(&r->text);
    str_release(&r->prefix);
    free(r);
    return code;
}

static const struct opt_guess guesses[] = {
    { "weight-dtype|weight_dtype|fp8|fp8-unet|fp8_e4m3fn-unet|fp8_e5m2-unet",
      "a plan in the sizes of another type is --dtype fp8_e4m3fn, or fp8_e5m2" },
    { 0 }
};

const struct command command_plan = {
    .guesses = guesses,
    .name = "plan",
    .about = "say where every block of a model would live",
    .usage = "(FILE | --preset PRESET) [OPTIONS]",
    .args = "FILE",
    .more = "FILE is a weight file as for inspect. Only its header is read, no weights.\n"
            "--preset plans for a model that is not here yet, without any file.\n\n"
            "A block is a leaf layer: its weight, bias and scales. Blocks under a ten\n"
            "thousandth of the model, and tables that turn tokens into vectors, stay on the\n"
            "compute device; the tables use up its amount first, the small blocks come on\n"
            "top. The bytes of a device are met exactly, to within one block.\n\n"
            "STRING is DEVICE,AMOUNT;... with the device that computes behind a #:\n"
            "  cuda:0,2.5gb;cuda:1,3g;cpu,*   bytes; * takes the rest\n"
            "  cuda:0,25%;cpu,75%#cuda:0      weights in percent\n"
            "  cuda:0,0.5;cpu,0.1             fractions of each device's memory\n"
            "  #cuda:0;4.0;cuda:1,cpu         what --virtual-vram 4 --donor cuda:1,cpu means\n\n"
            "SPEC is NAME=SIZE,...: cuda:0=24g,cuda:1=12g,cpu=64g. cpu is host memory.\n\n"
            "Examples:\n"
            "  berth plan flux-dev.safetensors --devices cuda:0=12g,cpu=64g\n"
            "  berth plan flux-dev.safetensors --devices cuda:0=16g,cpu=64g --dtype fp8\n"
            "  berth plan flux-dev.safetensors --devices cuda:0=24g,cpu=64g --virtual-vram 10\n"
            "  berth plan --preset flux-dev --dtype q8_0 --devices cuda:0=12g,cpu=64g\n"
            "  berth plan sd15.safetensors --part model.diffusion_model --alloc 'cpu,*'\n\n"
            "The strips show the model from the first block that runs to the last. A column\n"
            "is an equal piece of its bytes, the higher the more of it lies on the device;\n"
            "without UTF-8 in tenths, # for all and . for none.\n\n"
            "JSON: total_bytes, converted (a type, or null: as the file has it), compute,\n"
            "devices [{device, bytes, blocks, share}], blocks [{name, bytes, device}] in the\n"
            "order they run, string (the allocation string that means the same), layout,\n"
            "notes [{warning, text}]. share is of the model.\n"
            "Names of blocks are without the --part. A failure, also an allocation string\n"
            "that cannot be understood, is {\"error\": {\"code\", \"message\"}}.\n\n"
            "A plan that cannot be (a device that is not there, more than it holds) is\n"
            "refused with exit code 1; a text that cannot be understood, with 2.\n",
    .run = run,
};
