/* extra_model_paths.yaml: what is read, and that everything else is refused with its line. */
#include "paths/yaml.h"

#include "base/str.h"
#include "support/oom.h"
#include "support/test.h"

/* "section.key=value;" of every entry, line ends as '|'. */
static char *read_text(const char *text)
{
    struct yaml_doc d = { 0 };
    struct str out = { 0 };
    berth_err err = { 0 };
    berth_status s = yaml_read(text, strlen(text), "f.yaml", &d, &err);
    if (s)
        str_addf(&out, "!%s", err.msg);
    for (size_t i = 0; !s && i < d.entry.n; i++) {
        const struct yaml_entry *e = vec_at(&d.entry, i);
        str_addf(&out, "%u.%s%s=", e->section, e->key, e->list ? "[]" : "");
        for (const char *p = e->value ? e->value : "(null)"; *p; p++)
            str_addc(&out, *p == '\n' ? '|' : *p);
        str_addc(&out, ';');
    }
    yaml_release(&d);
    return str_take(&out);
}

static void texts(void **state)
{
    static const char *const row[][2] = {
        { "", NULL },
        { "# nothing\n\n   # here\n", NULL },
        { "a:\n  k: v\n", "0.k=v;" },
        { "a:\n  k: v", "0.k=v;" },
        { "---\na:\n  k: v\n...\n", "0.k=v;" },
        { "\xef\xbb\xbf"
          "a:\r\n  k: v\r\n",
          "0.k=v;" },
        { "\xef\xbb\xbf---\n\"a\": {k: v}\n", "0.k=v;" },
        { "a:\nb:\n  k: v\n", "1.k=v;" },
        { "a: null\nb: ~ # c\nc:\n  k: v\n", "2.k=v;" },
        { " a:\n   k: v\n b:\n  j: w\n", "0.k=v;1.j=w;" },
        { "a: # comment\n    # another\n    k: v  # third\n", "0.k=v;" },
        { "a:\n  k: C:\\models\\x\n", "0.k=C:\\models\\x;" },
        { "a:\n  k: some dir/with spaces\n", "0.k=some dir/with spaces;" },
        { "a:\n  k: v#1\n  j: 'it''s # here' # c\n", "0.k=v#1;0.j=it's # here;" },
        { "a:\n  k: \"x\\\\y \\\"q\\\" \\u00e9\\x41\"\n", "0.k=x\\y \"q\" \xc3\xa9"
                                                          "A;" },
        { "a:\n  \"k k\": v\n  'j': w\n  l m : z\n", "0.k k=v;0.j=w;0.l m=z;" },
        { "a:\n  k:\n  j: ~\n  l: \"\"\n  m: null\n", "0.k=(null);0.j=(null);0.l=;0.m=(null);" },
        { "a:\n  k:\n    models/a\n  j: w\n", "0.k=models/a;0.j=w;" },
        { "a:\n  k:\n    \"models/a\" # c\n  j: w\n", "0.k=models/a;0.j=w;" },
        { "a:\n  k: one\n   two\n\n   three\n  j: w\n", "0.k=one two|three;0.j=w;" },
        /* block scalars */
        { "a:\n  k: |\n    x\n    y\n", "0.k=x|y;" },
        { "a:\n  k: |\n    x\n    y", "0.k=x|y;" },
        { "a:\n  k: | # why\n    x # text\n", "0.k=x # text;" },
        { "a:\n  k: |-\n    x\n  j: |+\n    y\n\n  l: v\n", "0.k=x;0.j=y;0.l=v;" },
        { "a:\n  k: |\n    x\n      deeper\n    y \n", "0.k=x|  deeper|y ;" },
        { "a:\n  k: |1\n    x\n   y\n", "0.k= x|y;" },
        { "a:\n  k: |2-\n     x\n    y\n", "0.k= x|y;" },
        { "a:\n  k: |\n\n    x\n\n    y\n\nb:\n  j: v\n", "0.k=|x||y;1.j=v;" },
        { "a:\n  k: |\n  j: v\n", "0.k=;0.j=v;" },
        { "a:\n  k: |\n", "0.k=;" },
        { "a:\n  k: |\n    # text too\n    x\n", "0.k=# text too|x;" },
        { "a:\n  k: |\n    x: y\n    - z\n", "0.k=x: y|- z;" },
        { "a:\n  k: >\n    x\n    y\n\n    z\n", "0.k=x y|z;" },
        { "a:\n  k: |\n    x\r\n    y\r\n", "0.k=x|y;" },
        /* on one line */
        { "a: {k: v, j: 'x, }y', l: } # c\nb:\n  k: w\n", "0.k=v;0.j=x, }y;0.l=(null);1.k=w;" },
        { "a: {}\nb: { k : C:\\x , \"j\":\"\", }\n", "1.k=C:\\x;1.j=;" },
        { "a: {k: ~, j: some dir#1, is_default: 1}", "0.k=(null);0.j=some dir#1;0.is_default=1;" },
        { "a: {k: v,\n  j: w}\n", "0.k=v;0.j=w;" },
        { "a: {k}\n", "0.k=(null);" },
        { "a:\n  k: \"one\n   two\"\n  j: !!str v\n", "0.k=one two;0.j=v;" },
        /* lists */
        { "a:\n  k: [x, 'y z']\n", "0.k[]=x|y z;" },
        { "a:\n  k:\n    - x\n    - y\n  j:\n  - z\n", "0.k[]=x|y;0.j[]=z;" },
        { "a:\n  k: []\n  j: [~, x, '']\n", "0.k[]=;0.j[]=x|;" },
        { "a:\n  k:\n  - |\n    x\n    y\n  - z\n", "0.k[]=x|y|z;" },
        /* anchors, aliases, merges */
        { "a:\n  k: &x v\n  j: *x\n  l: [*x, *x]\n", "0.k=v;0.j=v;0.l[]=v|v;" },
        { "a: &a\n  k: [&x v]\nb: *a\n", "0.k[]=v;1.k[]=v;" },
        { "a: &a {k: v, j: w}\nb:\n  <<: *a\n  k: z\n", "0.k=v;0.j=w;1.k=z;1.j=w;" },
        { "a: &a {k: v}\nb: &b {k: w, j: x}\nc: {<<: [*a, *b]}\n",
          "0.k=v;1.k=w;1.j=x;2.k=v;2.j=x;" },
        /* twice */
        { "a:\n  k: v\na:\n  k: w\n  k: x\n", "0.k=v;1.k=w;1.k=x;" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char *got = read_text(row[i][0]);
        if (strcmp(got ? got : "", row[i][1] ? row[i][1] : "") != 0)
            fail_msg("row %zu: %s", i, got ? got : "(nothing)");
        free(got);
    }
}

static void errors(void **state)
{
    static const char *const row[][2] = {
        { "a:\n\tk: v\n", "line 2: a tab in the indentation" },
        { "a: v\n", "line 1: a section without entries" },
        { "a: [x]\n", "line 1: a section without entries" },
        { "- a\n", "line 1: expected sections" },
        { "a\n", "line 1: expected sections" },
        { "a:\n  k\n", "line 2: a section without entries" },
        { "a:\n  - k\n", "line 2: a section without entries" },
        { "a:\n  k: [[x]]\n", "line 2: a list or mapping inside a list" },
        { "a:\n  k: [{x: y}]\n", "line 2: a list or mapping inside a list" },
        { "a:\n  k: {x: y}\n", "line 2: a mapping inside" },
        { "a:\n  k:\n    j: v\n", "line 3: a mapping inside" },
        { "a:\n  k: *x\n", "line 2: found undefined alias" },
        { "a:\n  <<: v\n", "line 2: '<<' merges mappings" },
        { "a:\n  <<: [v]\n", "line 2: '<<' merges mappings" },
        { "a: &a\n  <<: *a\n", "more than 8 merges" },
        { "a:\n  <<: &l [*l]\n", "more than 8 merges" },
        { "a:\n  k: &l [*l]\n", "line 2: a list or mapping inside a list" },
        { "a: {k: v\n", "line 2: did not find expected ',' or '}'" },
        { "a: {k: v} w\n", "line 1: did not find expected key" },
        { "a: {k: 'v' w}\n", "line 1: did not find expected ',' or '}'" },
        { "a:\n  k: !!int 1\n", "line 2: a tag (tag:yaml.org,2002:int)" },
        { "a: !x {k: v}\n", "line 1: a tag (!x)" },
        { "a:\n  k: x: y\n", "line 2: mapping values are not allowed" },
        { "a:\n  k: v\n j: w\n",
          "line 3: did not find expected key (while parsing a block mapping" },
        { "a:\n  k: \"v\n", "found unexpected end of stream" },
        { "a:\n  k: 'v' w\n", "line 2: did not find expected key" },
        { "a:\n  k: \"\\q\"\n", "line 2: found unknown escape character" },
        { "a:\n  k: \"\\x00\"\n", "line 2: a control character" },
        { "a:\n  \"k\\x01\": v\n", "line 2: a control character" },
        { "a:\n  k: x\x01y\n", "line 2: control characters are not allowed" },
        { "a:\n  k: \xff\n", "line 2: invalid leading UTF-8 octet" },
        { "a:\n  : v\n", "line 2: did not find expected key" },
        { "a: {: v}\n", "line 1: did not find expected node content" },
        { "? [a]\n", "line 1: expected 'name:'" },
        { "---\na: {k: v}\n---\nb: {k: v}\n", "line 3: a second document" },
        { "a: {k: v}\n...\nrubbish: [", "line 3: did not find expected <document start>" },
        { "a:\n  k: v\n\n  \tj: v\n", "line 4: a tab" },
        { "a:\n  k: @v\n", "line 2: found character that cannot start any token" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char *got = read_text(row[i][0]);
        if (!got || got[0] != '!' || !strstr(got, row[i][1]) || !strstr(got, "f.yaml"))
            fail_msg("row %zu: %s", i, got ? got : "(nothing)");
        free(got);
    }
}

static void limits(void **state)
{
    struct yaml_doc d = { 0 };
    struct str text = { 0 };
    berth_err err = { 0 };
    (void)state;
    str_adds(&text, "a:\n");
    for (int i = 0; i <= YAML_ENTRIES_MAX; i++)
        str_addf(&text, "  k%d: v\n", i);
    assert_fails(yaml_read(text.p, text.n, "f", &d, &err), err, BERTH_ELIMIT, "entries");
    yaml_release(&d);
    str_clear(&text); /* merges are looked at again and again */
    str_adds(&text, "a: &a {k: v, j: w}\nb:\n  <<: [");
    for (int i = 0; i < YAML_ENTRIES_MAX; i++)
        str_adds(&text, "*a,");
    str_adds(&text, "]\n");
    assert_fails(yaml_read(text.p, text.n, "f", &d, &err), err, BERTH_ELIMIT, "entries");
    yaml_release(&d);
    str_clear(&text); /* lists of lists, none of which has a key to count */
    str_adds(&text, "a0: &a0 {}\n");
    for (int i = 1; i <= 6; i++) {
        str_addf(&text, "a%d: &a%d [", i, i);
        for (int k = 0; k < 40; k++)
            str_addf(&text, "*a%d,", i - 1);
        str_adds(&text, "]\n");
    }
    str_adds(&text, "<<: [*a6, *a6]\n");
    assert_fails(yaml_read(text.p, text.n, "f", &d, &err), err, BERTH_ELIMIT, "entries");
    yaml_release(&d);
    str_clear(&text); /* a billion laughs: a long text, many times */
    str_adds(&text, "a:\n  k: &x ");
    str_pad(&text, 'x', 5000);
    str_adds(&text, "\n  j: [");
    for (int i = 0; i < 1000; i++)
        str_adds(&text, "*x,");
    str_adds(&text, "]\n");
    assert_fails(yaml_read(text.p, text.n, "f", &d, &err), err, BERTH_ELIMIT, "aliases stand for");
    yaml_release(&d);
    str_clear(&text);
    str_adds(&text, "a:\n  k: ");
    str_pad(&text, '[', 200000);
    assert_fails(yaml_read(text.p, text.n, "f", &d, &err), err, BERTH_ELIMIT, "levels");
    yaml_release(&d);
    str_clear(&text);
    str_adds(&text, "a:\n");
    for (int i = 0; i <= YAML_ANCHORS_MAX; i++)
        str_addf(&text, "  k%d: &a%d v\n", i, i);
    assert_fails(yaml_read(text.p, text.n, "f", &d, &err), err, BERTH_ELIMIT, "anchors");
    yaml_release(&d);
    str_pad(&text, '#', YAML_BYTES_MAX + 1);
    assert_fails(yaml_read(text.p, text.n, "f", &d, &err), err, BERTH_ELIMIT, "bytes");
    yaml_release(&d);
    str_release(&text);
}

static void words(void **state)
{
    bool v;
    (void)state;
    assert_true(yaml_bool("true", &v) && v);
    assert_true(yaml_bool("Yes", &v) && v);
    assert_true(yaml_bool("OFF", &v) && !v);
    assert_true(yaml_bool("1", &v) && v);
    assert_true(yaml_bool("00", &v) && !v);
    assert_true(yaml_bool("10", &v) && v);
    assert_false(yaml_bool("1.5", &v));
    assert_false(yaml_bool("-", &v));
    assert_false(yaml_bool("", &v));
}

static void survives_oom(void **state)
{
    static const char text[] = "a:\n  k: |\n    x\n    y\n  'j': \"z\"\nb:\n  k: one\n   two\n"
                               "c: &c {k: v, 'j': \"\"}\nd: {<<: *c, l: [x, y]}\n";
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        struct yaml_doc d = { 0 };
        berth_err err = { 0 };
        oom_after(k);
        s = yaml_read(text, sizeof text - 1, "f", &d, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        yaml_release(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts), cmocka_unit_test(errors),       cmocka_unit_test(limits),
        cmocka_unit_test(words), cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
