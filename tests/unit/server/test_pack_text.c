/* Where the texts of node packs say that their scripts are. */
#include "server/packs.h"
#include "support/test.h"

static void web_directories(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: not known */
    } all[] = {
        { "WEB_DIRECTORY = \"./js\"\n", "./js" },
        { "WEB_DIRECTORY='web/js'", "web/js" },
        { "import os\nif True:\n    if x and not 'A' in os.environ:\n        WEB_DIRECTORY = "
          "\"js\"\n",
          "js" },
        { "WEB_DIRECTORY: str = \"web\"\n", "web" },
        { "WEB_DIRECTORY = r\"web\"\n", "web" },
        { "WEB_DIRECTORY = f\"./web\"\n", "./web" },
        { "WEB_DIRECTORY = f\"./{where}\"\n", NULL },
        { "WEB_DIRECTORY = b\"web\"\n", NULL },
        { "WEB_DIRECTORY = os.path.join(os.path.dirname(os.path.realpath(__file__)), \"web\", "
          "'js')",
          "web/js" },
        { "WEB_DIRECTORY = os.path.join(\n    HERE,  # here\n    \"js\",\n)\nX = \"no\"\n", "js" },
        { "WEB_DIRECTORY = \\\n    \"js\"\n", "js" },
        { "a = 1; WEB_DIRECTORY = \"js\"; b = \"no\"\n", "js" },
        { "WEB_DIRECTORY = \"a\"\nWEB_DIRECTORY = \"b\"\n", "b" },
        { "WEB_DIRECTORY = \"a\"\nWEB_DIRECTORY = None\n", NULL },
        { "WEB_DIRECTORY = \"\"\"web\"\"\"\n", "web" },
        { "WEB_DIRECTORY = \"web\\\\js\"\n", NULL },
        { "\"\"\"\nWEB_DIRECTORY = \"doc\"\n\"\"\"\n", NULL },
        { "x = '''\nWEB_DIRECTORY = \"doc\"\n'''\nWEB_DIRECTORY = \"js\"\n", "js" },
        { "# WEB_DIRECTORY = \"old\"\n", NULL },
        { "WEB_DIRECTORY == \"js\"\n", NULL },
        { "MY_WEB_DIRECTORY = \"js\"\n", NULL },
        { "WEB_DIRECTORY_2 = \"js\"\n", NULL },
        { "__all__ = [\"WEB_DIRECTORY\"]\n", NULL },
        { "f(\nWEB_DIRECTORY = \"js\")\n", NULL },
        { "WEB_DIRECTORY = \"js", NULL },
        { "WEB_DIRECTORY", NULL },
        { "WEB_DIRECTORY =", NULL },
        { "", NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct str got = { 0 };
        bool known = pack_web_directory(all[i].text, strlen(all[i].text), &got);
        if (known != (all[i].want != NULL) || strcmp(str_c(&got), all[i].want ? all[i].want : ""))
            fail_msg("%s: %s", all[i].text, known ? str_c(&got) : "not known");
        str_release(&got);
    }
}

static void projects(void **state)
{
    static const struct {
        const char *text, *name, *web;
    } all[] = {
        { "[project]\nname = \"p\"\n[tool.comfy]\nweb = \"./js\"\n", "p", "./js" },
        { "[tool.comfy]\n  web='js'\n\n[project]\n name='p' # it\n", "p", "js" },
        { "[project]\nname = \"p\"\n[tool.comfy]\nwebsite = \"x\"\n", NULL, NULL },
        { "[project]\nname = \"p\"\n[tool.other]\nweb = \"x\"\n", NULL, NULL },
        { "[project]\nname = \"p\"\n[tool.comfy]\nweb = \"a\\\"b\"\n", NULL, NULL },
        { "[project]\nname = \"\"\n[tool.comfy]\nweb = \"js\"\n", NULL, NULL },
        { "name = \"p\"\nweb = \"js\"\n", NULL, NULL },
        { "", NULL, NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct str name = { 0 }, web = { 0 };
        bool there = pack_project(all[i].text, strlen(all[i].text), &name, &web);
        if (there != (all[i].name != NULL) ||
            (there && (strcmp(name.p, all[i].name) || strcmp(web.p, all[i].web))))
            fail_msg("%s: '%s' '%s'", all[i].text, str_c(&name), str_c(&web));
        str_release(&name);
        str_release(&web);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(web_directories),
        cmocka_unit_test(projects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
