/* Runs, event by event: comfyui-api.md 2.5 and 5. */
#include "support/graph_rig.h"
#include "support/oom.h"

static const char simple[] =
    GRAPH(C("1", "5"), NODE("2", "Add", "'a':['1',0]"), NODE("3", "Save", "'value':['2',1]"));

static char *text_of(const json_t *v)
{
    char *s = rig_text(v);
    for (char *p = s; *p; p++)
        *p = *p == '"' ? '\'' : *p;
    return s;
}

static void assert_json(const json_t *v, const char *want)
{
    char *s = text_of(v);
    assert_string_equal(s, want);
    free(s);
}

/* ---- traces ---- */

static void success_then_all_from_the_cache(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    rig_run(rig_quoted(simple), &r);
    assert_string_equal(str_c(&rig.trace), "start\ncached\n"
                                           "begin 1\ndone 1\n"
                                           "begin 2\ndone 2\n"
                                           "begin 3\nexecuted 3 {\"got\":[102]}\ndone 3\n"
                                           "success\n");
    assert_int_equal(r.outcome, EXEC_OK);
    assert_int_equal(r.executed, 3);
    assert_int_equal(r.cached, 0);
    assert_json(r.outputs, "{'3':{'got':[102]}}");
    assert_json(r.meta, "{'3':{'node_id':'3','display_node':'3','parent_node':null,"
                        "'real_node_id':'3'}}");
    assert_json(r.status, "{'status_str':'success','completed':true,'messages':["
                          "['execution_start',{'prompt_id':'p','timestamp':1700000000123}],"
                          "['execution_cached',{'nodes':[],'prompt_id':'p','timestamp':"
                          "1700000000123}],['execution_success',{'prompt_id':'p','timestamp':"
                          "1700000000123}]]}");
    assert_json(r.last_data, "{'prompt_id':'p','timestamp':1700000000123}");
    exec_result_release(&r);

    rig_run(rig_quoted(simple), &r);
    assert_string_equal(str_c(&rig.trace), "start\ncached 1 2 3\n"
                                           "executed 3 {\"got\":[102]}\ndone 3\n"
                                           "success\n");
    assert_json(r.outputs, "{'3':{'got':[102]}}");
    assert_int_equal(r.executed, 0);
    assert_int_equal(r.cached, 3);
    exec_result_release(&r);
    rig_close();
}

/* Names, titles and order do not matter; what the result says is about the new names. */
static void a_renamed_prompt_is_cached_with_its_own_ids(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    rig_run(rig_quoted(simple), &r);
    exec_result_release(&r);
    rig_run(rig_quoted("{'x':{'inputs':{'value':['y',1]},'class_type':'Save','_meta':{'title':'t'}}"
                       ",'y':{'class_type':'Add','inputs':{'a':['z',0]}}," C("z", "5.0") "}"),
            &r);
    assert_string_equal(str_c(&rig.trace),
                        "start\ncached x y z\nexecuted x {\"got\":[102]}\ndone x\nsuccess\n");
    assert_json(r.meta, "{'x':{'node_id':'x','display_node':'x','parent_node':null,"
                        "'real_node_id':'x'}}");
    exec_result_release(&r);
    rig_close();
}

static void partly_cached(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    rig_trace(simple, "start\ncached\nbegin 1\ndone 1\nbegin 2\ndone 2\n"
                      "begin 3\nexecuted 3 {\"got\":[102]}\ndone 3\nsuccess\n");
    /* Another second input for the same first node. */
    rig_trace(GRAPH(C("1", "5"), NODE("2", "Add", "'a':['1',0],'b':1"),
                    NODE("3", "Save", "'value':['2',0]"), NODE("4", "Show", "'value':['1',0]")),
              "start\ncached 1\nbegin 4\ndone 4\nbegin 2\ndone 2\n"
              "begin 3\nexecuted 3 {\"got\":[21]}\ndone 3\nsuccess\n");
    /* An output without ui says null when it comes from the cache. */
    rig_trace(GRAPH(C("1", "5"), NODE("4", "Show", "'value':['1',0]")),
              "start\ncached 1 4\nexecuted 4 null\ndone 4\nsuccess\n");
    rig_close();
}

static void twins_run_once(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    rig_trace(GRAPH(C("1", "5"), C("2", "true"), C("3", "5"),
                    NODE("4", "Add", "'a':['1',0],'b':['3',0]"),
                    NODE("5", "Save", "'value':['4',0]"), NODE("6", "Save", "'value':['4',0]")),
              "start\ncached\nbegin 3\ndone 3\nexecuted 1 null\ndone 1\nbegin 4\ndone 4\n"
              "begin 5\nexecuted 5 {\"got\":[41]}\ndone 5\n"
              "executed 6 {\"got\":[41]}\ndone 6\nsuccess\n");
    rig_close();
    /* Without a cache they are strangers. */
    rig_open(CACHE_NONE, 0, 0);
    rig_trace(GRAPH(C("1", "5"), C("3", "5"), NODE("4", "Add", "'a':['1',0],'b':['3',0]"),
                    NODE("5", "Save", "'value':['4',0]")),
              "start\ncached\nbegin 3\ndone 3\nbegin 1\ndone 1\nbegin 4\ndone 4\n"
              "begin 5\nexecuted 5 {\"got\":[41]}\ndone 5\nsuccess\n");
    rig_close();
}

static void an_error_ends_the_prompt(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    rig_run(rig_quoted(GRAPH(C("1", "5"), NODE("2", "Save", "'value':['1',0]"),
                             NODE("3", "Fail", "'value':['1',0],'how':'value'"),
                             NODE("4", "Save", "'value':['3',0]"), NODE("9", "Rules", "'i':[1]"))),
            &r);
    assert_string_equal(str_c(&rig.trace), "start\ncached\nbegin 1\ndone 1\n"
                                           "begin 2\nexecuted 2 {\"got\":[5]}\ndone 2\n"
                                           "begin 3\nerror 3\n");
    assert_int_equal(r.outcome, EXEC_FAILED);
    assert_int_equal(r.code, BERTH_EINVAL);
    assert_false(r.out_of_memory);
    assert_json(r.last_data,
                "{'prompt_id':'p','node_id':'3','node_type':'Fail','executed':['1','2'],"
                "'exception_message':'no good\\n','exception_type':'ValueError',"
                "'traceback':['  Node 4 (Save), input value\\n','  Node 3 (Fail)\\n'],"
                "'current_inputs':{'value':[5],'how':['value']},'current_outputs':['1','2','3','4',"
                "'9'],'timestamp':1700000000123}");
    assert_json(r.outputs, "{'2':{'got':[5]}}"); /* what was there stays */
    assert_string_equal(json_string_value(json_object_get(r.status, "status_str")), "error");
    assert_true(json_is_false(json_object_get(r.status, "completed")));
    assert_int_equal(json_array_size(json_object_get(r.status, "messages")), 3);
    exec_result_release(&r);
    /* What finished is cached. */
    rig_trace(GRAPH(C("1", "5"), NODE("2", "Save", "'value':['1',0]"),
                    NODE("3", "Fail", "'value':['1',0],'how':''"),
                    NODE("4", "Save", "'value':['3',0]")),
              "start\ncached 1 2\nexecuted 2 {\"got\":[5]}\ndone 2\nbegin 3\ndone 3\n"
              "begin 4\nexecuted 4 {\"got\":[5]}\ndone 4\nsuccess\n");
    rig_close();
}

#define TIPS                                                                                       \
    "This error means that a device has no memory left for what was to go there.\n\nTIPS: A pass " \
    "takes less for a smaller picture or batch. Models that are kept leave only when told to: "    \
    "`berth free --force NAME#ID`, or POST /free with \"models\" and \"force\". Else give the "    \
    "device a larger budget (--devices; of cpu --ram-budget), or this model another allocation."

static void kinds_of_errors(void **state)
{
    (void)state;
    static const struct {
        const char *how, *type, *message;
        bool oom;
    } t[] = {
        { "device", "torch.OutOfMemoryError", "12 bytes on null:0\n" TIPS, true },
        { "full", "torch.OutOfMemoryError",
          "null:0 is full: needs 1 B\nstep 1: a pass on null:0\n" TIPS, true },
        { "memory", "MemoryError", "12 bytes\n", false },
        { "nothing", "ValueError", "Fail gave 0 values for output 0 in 1 calls\n", false },
    };
    rig_open(CACHE_NONE, 0, 0);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct str text = { 0 };
        struct exec_result r;
        str_addf(&text,
                 "{'3':{'class_type':'Fail','inputs':{'value':1,'how':'%s'}},'4':{"
                 "'class_type':'Save','inputs':{'value':['3',0]}}}",
                 t[i].how);
        rig_run(rig_quoted(str_c(&text)), &r);
        assert_int_equal(r.outcome, EXEC_FAILED);
        assert_true(r.out_of_memory == t[i].oom);
        assert_string_equal(json_string_value(json_object_get(r.last_data, "exception_type")),
                            t[i].type);
        assert_string_equal(json_string_value(json_object_get(r.last_data, "exception_message")),
                            t[i].message);
        assert_int_equal(json_array_size(json_object_get(r.last_data, "current_outputs")), 0);
        exec_result_release(&r);
        str_release(&text);
    }
    rig_close();
}

static void an_interrupt_ends_it_within_one_step(void **state)
{
    (void)state;
    static const char prompt[] =
        GRAPH(NODE("1", "Slow", "'steps':4"), NODE("2", "Save", "'value':['1',0]"), C("3", "1"),
              NODE("4", "Save", "'value':['3',0]"));
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    rig.cancel_at_value = 3;
    rig_run(rig_quoted(prompt), &r);
    assert_string_equal(str_c(&rig.trace), "start\ncached\nbegin 1\nprogress 1 1/4\n"
                                           "progress 1 2/4\ninterrupted 1\n");
    assert_int_equal(r.outcome, EXEC_STOPPED);
    assert_json(r.last_data, "{'prompt_id':'p','node_id':'1','node_type':'Slow','executed':[],"
                             "'timestamp':1700000000123}");
    assert_string_equal(json_string_value(json_object_get(r.status, "status_str")), "error");
    exec_result_release(&r);
    /* Before a call: the node began and was not called. */
    rig.cancel_at_value = -1;
    rig.cancel_at_call = 0;
    rig_run(rig_quoted(prompt), &r);
    assert_string_equal(str_c(&rig.trace), "start\ncached\nbegin 1\ninterrupted 1\n");
    exec_result_release(&r);
    rig.cancel_at_call = -1;
    rig_trace(prompt, "start\ncached\nbegin 1\nprogress 1 1/4\nprogress 1 2/4\nprogress 1 3/4\n"
                      "progress 1 4/4\ndone 1\nbegin 2\nexecuted 2 {\"got\":[4]}\ndone 2\n"
                      "begin 3\ndone 3\nbegin 4\nexecuted 4 {\"got\":[1]}\ndone 4\nsuccess\n");
    /* All cached: there is nothing to interrupt. */
    rig.cancel_at_call = 0;
    rig_trace(prompt, "start\ncached 1 2 3 4\nexecuted 2 {\"got\":[4]}\ndone 2\n"
                      "executed 4 {\"got\":[1]}\ndone 4\nsuccess\n");
    rig_close();
}

static void looks_and_words_follow_their_step(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    rig_trace(GRAPH(NODE("1", "Peek", "'steps':2"), NODE("2", "Show", "'value':['1',0]")),
              "start\ncached\nbegin 1\nprogress 1 1/2 png\ntext 1 word\ndone 1\n"
              "begin 2\ndone 2\nsuccess\n");
    rig_close();
}

static void between_the_calls_of_a_list_too(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    rig.cancel_at_call = 2; /* Many, the first Add, and in the second the flag is set */
    rig_run(rig_quoted(GRAPH(NODE("1", "Many", "'n':5"), NODE("2", "Add", "'a':['1',0]"),
                             NODE("3", "Save", "'value':['2',0]"))),
            &r);
    assert_string_equal(str_c(&rig.order), "1 2 2");
    assert_int_equal(r.outcome, EXEC_STOPPED);
    assert_json(json_object_get(r.last_data, "executed"), "['1']");
    exec_result_release(&r);
    rig_close();
}

/* ---- lists ---- */

static void lists_repeat_their_last_value(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    rig_trace(GRAPH(NODE("1", "Many", "'n':3"), NODE("2", "Many", "'n':2"),
                    NODE("3", "Add", "'a':['1',0],'b':['2',0]"),
                    NODE("4", "Save", "'value':['3',0]"), NODE("5", "Count", "'value':['3',1]"),
                    NODE("6", "Save", "'value':['5',0]")),
              "start\ncached\nbegin 2\ndone 2\nbegin 1\ndone 1\nbegin 3\ndone 3\n"
              "begin 4\nexecuted 4 {\"got\":[1,9,12]}\ndone 4\n"
              "begin 5\ndone 5\nbegin 6\nexecuted 6 {\"got\":[3]}\ndone 6\nsuccess\n");
    rig_close();
}

static void list_outputs_are_joined(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    /* Many called for 0, 1, 2 gives nothing, [0], [0, 1]. */
    rig_trace(GRAPH(NODE("1", "Many", "'n':3"), NODE("2", "Many", "'n':['1',0]"),
                    NODE("3", "Save", "'value':['2',0]")),
              "start\ncached\nbegin 1\ndone 1\nbegin 2\ndone 2\n"
              "begin 3\nexecuted 3 {\"got\":[0,0,1]}\ndone 3\nsuccess\n");
    rig_close();
}

static void an_empty_list_feeds_nobody(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    rig_run(rig_quoted(GRAPH(NODE("1", "Many", "'n':0"), NODE("2", "Save", "'value':['1',0]"))),
            &r);
    assert_int_equal(r.outcome, EXEC_FAILED);
    assert_string_equal(json_string_value(json_object_get(r.last_data, "exception_message")),
                        "input 'value' got an empty list\n");
    assert_json(json_object_get(r.last_data, "current_inputs"), "{'value':[]}");
    exec_result_release(&r);
    rig_trace(GRAPH(NODE("1", "Many", "'n':0"), NODE("2", "Count", "'value':['1',0]"),
                    NODE("3", "Save", "'value':['2',0]")),
              "start\ncached 1\nbegin 2\ndone 2\nbegin 3\nexecuted 3 {\"got\":[0]}\ndone 3\n"
              "success\n");
    rig_close();
}

/* ---- lazy inputs ---- */

static void lazy_inputs_run_when_asked(void **state)
{
    (void)state;
    static const enum cache_mode modes[] = { CACHE_CLASSIC, CACHE_NONE };
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        rig_open(modes[i], 0, 0);
        rig_trace(GRAPH(C("1", "1"), C("2", "2"),
                        NODE("3", "Pick", "'which':true,'a':['1',0],'b':['2',0]"),
                        NODE("4", "Save", "'value':['3',0]")),
                  "start\ncached\nbegin 3\nbegin 1\ndone 1\nbegin 3\ndone 3\n"
                  "begin 4\nexecuted 4 {\"got\":[1]}\ndone 4\nsuccess\n");
        /* The other one now; node 1 is not needed any more, and if it is cached nobody cares. */
        rig_trace(GRAPH(C("1", "1"), C("2", "2"),
                        NODE("3", "Pick", "'which':false,'a':['1',0],'b':['2',0]"),
                        NODE("4", "Save", "'value':['3',0]")),
                  modes[i] == CACHE_NONE
                      ? "start\ncached\nbegin 3\nbegin 2\ndone 2\nbegin 3\ndone 3\n"
                        "begin 4\nexecuted 4 {\"got\":[2]}\ndone 4\nsuccess\n"
                      : "start\ncached 1\nbegin 3\nbegin 2\ndone 2\nbegin 3\ndone 3\n"
                        "begin 4\nexecuted 4 {\"got\":[2]}\ndone 4\nsuccess\n");
        /* A constant is there already. */
        rig_trace(GRAPH(NODE("3", "Pick", "'which':true,'a':7,'b':['3b',0]"), C("3b", "9"),
                        NODE("4", "Save", "'value':['3',0]")),
                  "start\ncached\nbegin 3\ndone 3\nbegin 4\nexecuted 4 {\"got\":[7]}\ndone 4\n"
                  "success\n");
        rig_close();
    }
}

/* Many gives 0 1 2; Block stops 1; what is behind it runs for the others. */
static void blockers_stop_what_is_behind_them(void **state)
{
    (void)state;
    struct exec_result r;
    rig_open(CACHE_CLASSIC, 0, 0);
    rig_run(
        rig_quoted(GRAPH(NODE("1", "Many", "'n':3"),
                         NODE("2", "Block", "'value':['1',0],'why':'no odd ones'"),
                         NODE("3", "Add", "'a':['2',0]"), NODE("4", "Save", "'value':['3',1]"))),
        &r);
    assert_string_equal(
        str_c(&rig.trace),
        "start\ncached\nbegin 1\ndone 1\nbegin 2\ndone 2\nbegin 3\nerror 3\ndone 3\n"
        "begin 4\nexecuted 4 {\"got\":[72,84]}\ndone 4\nsuccess\n");
    assert_string_equal(str_c(&rig.order), "1 2 2 2 3 3 4 4");
    assert_int_equal(r.outcome, EXEC_OK);
    exec_result_release(&r);
    /* Silent, and a list that has one of them is not taken at all. */
    rig_trace(GRAPH(NODE("1", "Many", "'n':3"), NODE("2", "Block", "'value':['1',0],'why':''"),
                    NODE("3", "Count", "'value':['2',0]"), NODE("4", "Save", "'value':['3',0]")),
              "start\ncached 1\nbegin 2\ndone 2\nbegin 3\ndone 3\nbegin 4\ndone 4\nsuccess\n");
    rig_close();
}

/* A node that is no output and shows something: again, after everything else, when it is cached. */
static void intermediate_outputs_are_shown_again(void **state)
{
    (void)state;
    struct exec_result r;
    rig_open(CACHE_CLASSIC, 0, 0);
#define CROPPED(how)                                                                               \
    GRAPH(C("1", "1"), NODE("2", "Crop", "'value':['1',0]"),                                       \
          NODE("3", "Fail", "'value':['2',0],'how':'" how "'"),                                    \
          NODE("4", "Save", "'value':['3',0]"))
    rig_trace(CROPPED("a"),
              "start\ncached\nbegin 1\ndone 1\nbegin 2\nexecuted 2 {\"seen\":[true]}\n"
              "done 2\nbegin 3\ndone 3\nbegin 4\nexecuted 4 {\"got\":[1]}\ndone 4\n"
              "success\n");
    rig_run(rig_quoted(CROPPED("b")), &r);
    assert_string_equal(str_c(&rig.trace),
                        "start\ncached 1 2\nbegin 3\ndone 3\nbegin 4\nexecuted 4 {\"got\":[1]}\n"
                        "done 4\nexecuted 2 {\"seen\":[true]}\nsuccess\n");
    assert_non_null(json_object_get(r.outputs, "2"));
    assert_non_null(json_object_get(r.meta, "2"));
    exec_result_release(&r);
    rig_trace(CROPPED("value"), "start\ncached 1 2\nbegin 3\nerror 3\n"); /* not after a failure */
    rig_close();
}

static void dynamic_inputs_reach_their_node(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
#define MODE(inputs)                                                                               \
    GRAPH(C("1", "1"), NODE("2:7", "Mode", inputs), NODE("4", "Save", "'value':['2:7',0]"))
    rig_trace(MODE("'mode':'one','values.v2':['1',0],'values.v0':5"),
              "start\ncached\nbegin 1\ndone 1\nbegin 2:7\ndone 2:7\nbegin 4\n"
              "executed 4 {\"got\":[2]}\ndone 4\nsuccess\n");
    /* What is not declared is in the key, and reaches nobody. */
    rig_trace(MODE("'mode':'one','values.v2':['1',0],'values.v0':5,'values.v7':1"),
              "start\ncached 1\nbegin 2:7\ndone 2:7\nbegin 4\n"
              "executed 4 {\"got\":[2]}\ndone 4\nsuccess\n");
    rig_trace(MODE("'mode':'two','mode.x':['1',0],'values.v0':5"),
              "start\ncached 1\nbegin 2:7\ndone 2:7\nbegin 4\n"
              "executed 4 {\"got\":[1]}\ndone 4\nsuccess\n");
    rig_trace(MODE("'mode':'two','mode.x':['1',0],'values.v0':5"),
              "start\ncached 1 2:7 4\nexecuted 4 {\"got\":[1]}\ndone 4\nsuccess\n");
    rig_trace(MODE("'values.v0':5"), "start\ncached 1\nbegin 2:7\nerror 2:7\n");
    rig_close();
}

/* What becomes of an output, as far as it is sure when its node runs: Count and Slow make INTs. */
static void a_node_may_ask_where_its_output_goes(void **state)
{
    static const struct {
        const char *what, *prompt, *leads;
    } row[] = {
        { "shown alone", NODE("b", "Blob", "") "," NODE("s", "Show", "'value':['b',0]"), "" },
        { "counted",
          NODE("b", "Blob", "") "," NODE("c", "Count", "'value':['b',0]") "," NODE(
              "s", "Show", "'value':['c',0]"),
          "b " },
        { "handed on, by its type",
          NODE("b", "Blob", "") "," NODE("d", "Blob", "'value':['b',0]") "," NODE(
              "c", "Count", "'value':['d',0]") "," NODE("s", "Show", "'value':['c',0]"),
          "b d " },
        { "handed on as anything",
          NODE("b", "Blob", "") "," NODE("t", "Through", "'value':['b',0]") "," NODE(
              "c", "Count", "'value':['t',0]") "," NODE("s", "Show", "'value':['c',0]"),
          "b " },
        { "changed, and only shown",
          NODE("b", "Blob", "") "," NODE("d", "Blob", "'value':['b',0]") "," NODE(
              "s", "Show", "'value':['d',0]"),
          "" },
        { "counted by a node that nobody wants",
          NODE("b", "Blob", "") "," NODE("c", "Count", "'value':['b',0]") "," NODE(
              "s", "Show", "'value':['b',0]"),
          "" },
        { "counted where a lazy input is not asked for",
          NODE("b", "Blob", "") "," NODE("c", "Count", "'value':['b',0]") "," NODE(
              "p", "Pick",
              "'which':true,'a':1,'b':['c',0]") "," NODE("s", "Show",
                                                         "'value':['b',0]") "," NODE("q", "Show",
                                                                                     "'value':['p',"
                                                                                     "0]"),
          "" },
        { "another's INT",
          NODE("b", "Blob", "") "," C("i", "1") "," NODE("s", "Show", "'value':['b',0]") "," NODE(
              "q", "Show", "'value':['i',0]"),
          "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct str text = { 0 };
        struct exec_result r;
        rig_open(CACHE_NONE, 0, 0);
        str_addf(&text, "{%s}", row[i].prompt);
        rig_run(rig_quoted(str_c(&text)), &r);
        assert_int_equal(r.outcome, EXEC_OK);
        if (strcmp(str_c(&rig.leads), row[i].leads) != 0)
            fail_msg("%s: '%s', not '%s'", row[i].what, str_c(&rig.leads), row[i].leads);
        exec_result_release(&r);
        str_release(&text);
        rig_close();
    }
}

/* One that is cached or has run already comes without waiting. */
static void a_lazy_input_that_is_there_is_taken(void **state)
{
    (void)state;
    rig_open(CACHE_NONE, 0, 0);
    rig_trace(GRAPH(C("1", "1"), NODE("2", "Save", "'value':['1',0]"),
                    NODE("3", "Pick", "'which':true,'a':['1',0],'b':['9',0]"), C("9", "9"),
                    NODE("4", "Pick", "'which':false,'a':['9',0],'b':['3',0]"),
                    NODE("5", "Add", "'a':['3',0],'b':['4',0]"),
                    NODE("6", "Save", "'value':['5',0]")),
              "start\ncached\nbegin 1\ndone 1\nbegin 2\nexecuted 2 {\"got\":[1]}\ndone 2\n"
              "begin 4\nbegin 3\nbegin 3\ndone 3\nbegin 4\ndone 4\nbegin 5\ndone 5\n"
              "begin 6\nexecuted 6 {\"got\":[9]}\ndone 6\nsuccess\n");
    rig_close();
}

/* ---- order ---- */

static void pictures_come_early(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    struct exec_result r;
    /* Two chains: the short one's output comes before the long chain goes on. */
    rig_run(
        rig_quoted(GRAPH(C("1", "1"), NODE("2", "Add", "'a':['1',0]"),
                         NODE("3", "Add", "'a':['2',0]"), NODE("4", "Add", "'a':['3',0]"),
                         NODE("5", "Save", "'value':['4',0]"), NODE("6", "Save", "'value':['2',0]"),
                         C("7", "3"), NODE("8", "Save", "'value':['7',0]"))),
        &r);
    assert_string_equal(str_c(&rig.order), "7 8 1 2 6 3 4 5");
    exec_result_release(&r);
    /* Two steps before an output comes before three, whoever was discovered first. */
    rig_run(rig_quoted(GRAPH(NODE("1", "Save", "'value':['2',0]"), NODE("2", "Add", "'a':['3',0]"),
                             NODE("3", "Add", "'a':['4',0]"), C("4", "11"),
                             NODE("5", "Save", "'value':['6',0]"), NODE("6", "Add", "'a':['7',0]"),
                             C("7", "12"))),
            &r);
    assert_string_equal(str_c(&rig.order), "7 6 5 4 3 2 1");
    exec_result_release(&r);
    rig_close();
}

static void an_output_upstream_of_another(void **state)
{
    (void)state;
    rig_open(CACHE_NONE, 0, 0);
    rig_trace(GRAPH(C("1", "1"), NODE("2", "Through", "'value':['1',0]"),
                    NODE("3", "Save", "'value':['2',0]"), NODE("x", "Slow", "'steps':0")),
              "start\ncached\nbegin 1\ndone 1\nbegin 2\nexecuted 2 {\"seen\":[true]}\ndone 2\n"
              "begin 3\nexecuted 3 {\"got\":[1]}\ndone 3\nsuccess\n");
    rig_close();
}

/* ---- what nodes see ---- */

static void hidden_and_undeclared_inputs(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    rig.changed = 3;
    struct exec_result r;
    rig_run(rig_quoted("{'1':{'class_type':'Look','inputs':{'value':['2',0],'extra':5}}," NODE(
                "2", "Changing", "'value':'1'") "}"),
            &r);
    exec_result_release(&r);
    assert_string_equal(rig.seen_raw, "{\"value\":[\"2\",0],\"extra\":5}");
    assert_string_equal(
        rig.seen_prompt,
        "{\"1\":{\"class_type\":\"Look\",\"inputs\":{\"value\":[\"2\",0],\"extra\":5}},"
        "\"2\":{\"class_type\":\"Changing\",\"inputs\":{\"value\":1},\"is_changed\":"
        "[\"v3\"]}}");
    assert_string_equal(rig.seen_png, "{\"workflow\":\"w\"}");
    rig_run(rig_quoted("{'1':{'class_type':'Blind','inputs':{'extra':5}}}"), &r);
    exec_result_release(&r);
    assert_string_equal(rig.seen_raw, "-");
    assert_string_equal(rig.seen_prompt, "-");
    assert_string_equal(rig.seen_png, "-");
    rig_close();
}

static void an_array_constant_arrives_as_one(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    rig_trace(GRAPH(NODE("1", "Save", "'value':{'__value__':['2',0]}"), C("2", "1")),
              "start\ncached\nbegin 1\nexecuted 1 {\"got\":[[\"2\",0]]}\ndone 1\nsuccess\n");
    rig_close();
}

/* ---- what validation would have refused ---- */

static void a_prompt_nobody_validated_fails_cleanly(void **state)
{
    (void)state;
    static const struct {
        const char *prompt, *outputs, *message;
    } t[] = {
        { GRAPH(NODE("1", "Save", "'value':['9',0]")), "['1']",
          "node 1 cannot run: class or links are not there\n" },
        { GRAPH(NODE("1", "Save", "'value':['2',-1]"), C("2", "1")), "['1']",
          "node 1 cannot run: class or links are not there\n" },
        { GRAPH(NODE("1", "Nope", "")), "['1']",
          "node 1 cannot run: class or links are not there\n" },
        { "{'1':5}", "['1']", "node 1 cannot run: class or links are not there\n" },
        { GRAPH(C("1", "1")), "['2']", "output '2' is not in the prompt\n" },
        { GRAPH(NODE("1", "Through", "'value':['1',0]")), "['1']", "Dependency cycle detected\n" },
        { GRAPH(NODE("1", "Add", "'a':['2',0]"), NODE("2", "Add", "'a':['1',0]"),
                NODE("3", "Save", "'value':['1',0]")),
          "['3']", "Dependency cycle detected\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        rig_open(i % 2 ? CACHE_NONE : CACHE_CLASSIC, 0, 0);
        berth_err err = { 0 };
        struct exec_result r;
        json_t *prompt = rig_quoted(t[i].prompt), *outputs = rig_quoted(t[i].outputs);
        struct exec_request q = { .prompt_id = "p", .prompt = prompt, .outputs = outputs };
        assert_ok(executor_run(rig.x, &q, &r, &err), err);
        assert_int_equal(r.outcome, EXEC_FAILED);
        assert_string_equal(json_string_value(json_object_get(r.last_data, "exception_message")),
                            t[i].message);
        assert_non_null(r.status);
        exec_result_release(&r);
        json_decref(prompt);
        json_decref(outputs);
        rig_close();
    }
}

/* ---- memory ---- */

/* Without a cache a chain holds two values at a time: what goes in and what comes out. */
static void values_go_when_their_last_user_has_run(void **state)
{
    (void)state;
    struct str text = { 0 };
    str_adds(&text, "{'0':{'class_type':'Blob','inputs':{}}");
    for (int i = 1; i < 200; i++)
        str_addf(&text, ",'%d':{'class_type':'Blob','inputs':{'value':['%d',0]}}", i, i - 1);
    str_adds(&text, ",'s':{'class_type':'Show','inputs':{'value':['199',0]}}}");
    rig_open(CACHE_NONE, 0, 0);
    struct exec_result r;
    rig_run(rig_quoted(str_c(&text)), &r);
    assert_int_equal(r.outcome, EXEC_OK);
    assert_int_equal(rig.calls, 201);
    assert_int_equal(rig.live_max, 2);
    assert_int_equal(rig.live, 0);
    exec_result_release(&r);
    rig_close();
    rig_open(CACHE_CLASSIC, 0, 0);
    rig_run(rig_quoted(str_c(&text)), &r);
    assert_int_equal(rig.live, 200);
    assert_int_equal(executor_info(rig.x).entries, 201);
    assert_int_equal(executor_info(rig.x).bytes >= 200u << 20, 1);
    exec_result_release(&r);
    executor_reset(rig.x);
    assert_int_equal(rig.live, 0);
    assert_int_equal(executor_info(rig.x).entries + executor_info(rig.x).bytes, 0);
    rig_close();
    str_release(&text);
}

/* Neither long nor wide nor lazy graphs cost more than their size. */
static void add_node(struct str *s, int shape, int i)
{
    if (shape == 0)
        str_addf(s, "'%d':{'class_type':'Add','inputs':{'a':['%d',0],'b':['%d',0]}},", i, i - 1,
                 i - 1);
    else if (shape == 1)
        str_addf(s, "'%d':{'class_type':'Pick','inputs':{'which':true,'a':['%d',0],'b':['%d',0]}},",
                 i, i - 1, i - 1);
    else /* all different, and side by side */
        str_addf(s, "'%d':{'class_type':'Save','inputs':{'value':['0',0],'undeclared':%d}},", i, i);
}

static void ten_thousand_nodes(void **state)
{
    (void)state;
    for (int shape = 0; shape < 3; shape++) {
        struct str text = { 0 };
        str_adds(&text, "{");
        for (int i = GRAPH_NODES_MAX - 2; i > 0; i--) /* the one that waits stands first */
            add_node(&text, shape, i);
        str_addf(&text,
                 "'0':{'class_type':'Const','inputs':{'value':1}},'end':{'class_type':'Save',"
                 "'inputs':{'value':['%d',0]}}}",
                 shape == 2 ? 0 : GRAPH_NODES_MAX - 2);
        for (int mode = CACHE_CLASSIC; mode <= CACHE_NONE; mode += CACHE_NONE - CACHE_CLASSIC) {
            struct exec_result r;
            rig_open((enum cache_mode)mode, 0, 0);
            rig_run(rig_quoted(str_c(&text)), &r);
            assert_int_equal(r.outcome, EXEC_OK);
            assert_int_equal(r.executed, GRAPH_NODES_MAX);
            exec_result_release(&r);
            rig_close();
        }
        str_release(&text);
    }
}

/* A lazy branch that is not taken holds nothing back. */
static void what_a_lazy_input_might_have_wanted_goes(void **state)
{
    (void)state;
    rig_open(CACHE_NONE, 0, 0);
    struct exec_result r;
    rig_run(rig_quoted(
                GRAPH(NODE("b", "Blob", ""), NODE("n", "Blob", "'value':['b',0],'tag':1"),
                      NODE("s", "Show", "'value':['b',0]"), NODE("c", "Count", "'value':['n',0]"),
                      NODE("p", "Pick", "'which':true,'a':1,'b':['c',0]"),
                      NODE("e", "Blob", "'tag':['p',0]"), NODE("f", "Show", "'value':['e',0]"))),
            &r);
    assert_int_equal(r.outcome, EXEC_OK);
    assert_int_equal(rig.live_max, 1); /* b is gone before e is made */
    exec_result_release(&r);
    rig_close();
}

/* The client has an output as soon as it is shown; what it gave on goes with the last user. */
static void outputs_that_give_something_on_let_go_too(void **state)
{
    (void)state;
    rig_open(CACHE_NONE, 0, 0);
    struct exec_result r;
    rig_run(
        rig_quoted(GRAPH(NODE("b", "Blob", ""), NODE("t", "Through", "'value':['b',0]"),
                         NODE("c", "Count", "'value':['t',0]"), NODE("e", "Blob", "'tag':['c',0]"),
                         NODE("f", "Show", "'value':['e',0]"))),
        &r);
    assert_int_equal(r.outcome, EXEC_OK);
    assert_int_equal(rig.live_max, 1);
    exec_result_release(&r);
    rig_close();
}

static void a_reset_during_a_run_waits_for_its_end(void **state)
{
    (void)state;
    rig_open(CACHE_CLASSIC, 0, 0);
    static const char prompt[] =
        GRAPH(C("0", "1"), NODE("1", "Reset", "'value':['0',0]"),
              NODE("2", "Add", "'a':['0',0],'b':['1',0]"), NODE("3", "Save", "'value':['2',0]"));
    for (int i = 0; i < 2; i++) {
        struct exec_result r;
        rig_run(rig_quoted(prompt), &r);
        assert_int_equal(r.executed, 4);
        assert_int_equal(r.outcome, EXEC_OK);
        exec_result_release(&r);
        assert_int_equal(executor_info(rig.x).entries, 0);
    }
    rig_close();
}

static void the_executor_survives_exhaustion(void **state)
{
    (void)state;
    static const char prompt[] =
        GRAPH(C("1", "5"), NODE("2", "Many", "'n':3"), NODE("3", "Add", "'a':['1',0],'b':['2',0]"),
              NODE("4", "Pick", "'which':true,'a':['3',0],'b':['1',0]"),
              NODE("5", "Save", "'value':['4',0]"), NODE("6", "Changing", "'value':1"),
              NODE("7", "State", "'value':['6',0]"), NODE("8", "Save", "'value':['7',0]"));
    static const enum cache_mode modes[] = { CACHE_CLASSIC, CACHE_NONE };
    for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
        json_t *outputs = rig_quoted("['5','8']");
        enum exec_outcome last = EXEC_FAILED;
        for (long k = 0; last != EXEC_OK; k++) {
            berth_err err = { 0 };
            struct exec_result r;
            rig_init();
            struct executor_config cfg = { .env = &rig.env, .cache = modes[m] };
            json_t *p = rig_quoted(prompt);
            oom_after(k);
            berth_status s = executor_new(&cfg, &rig.x, &err);
            if (s) {
                oom_off();
                assert_true(s == BERTH_ENOMEM && !rig.x && err.msg[0]);
                json_decref(p);
                continue;
            }
            struct exec_request q = {
                .prompt_id = "p", .prompt = p, .outputs = outputs, .cancel = &rig.cancel
            };
            s = executor_run(rig.x, &q, &r, &err);
            oom_off();
            last = r.outcome;
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
            assert_true(s == BERTH_OK || last == EXEC_FAILED);
            assert_true(s || (r.last_data && r.status && r.outputs && r.meta));
            exec_result_release(&r);
            json_decref(p);
            /* The executor is as good as before. */
            rig_close();
            rig_open(modes[m], 0, 0);
            rig_close();
        }
        json_decref(outputs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blockers_stop_what_is_behind_them),
        cmocka_unit_test(intermediate_outputs_are_shown_again),
        cmocka_unit_test(dynamic_inputs_reach_their_node),
        cmocka_unit_test(success_then_all_from_the_cache),
        cmocka_unit_test(a_renamed_prompt_is_cached_with_its_own_ids),
        cmocka_unit_test(partly_cached),
        cmocka_unit_test(twins_run_once),
        cmocka_unit_test(an_error_ends_the_prompt),
        cmocka_unit_test(kinds_of_errors),
        cmocka_unit_test(an_interrupt_ends_it_within_one_step),
        cmocka_unit_test(looks_and_words_follow_their_step),
        cmocka_unit_test(between_the_calls_of_a_list_too),
        cmocka_unit_test(lists_repeat_their_last_value),
        cmocka_unit_test(list_outputs_are_joined),
        cmocka_unit_test(an_empty_list_feeds_nobody),
        cmocka_unit_test(lazy_inputs_run_when_asked),
        cmocka_unit_test(a_node_may_ask_where_its_output_goes),
        cmocka_unit_test(a_lazy_input_that_is_there_is_taken),
        cmocka_unit_test(pictures_come_early),
        cmocka_unit_test(an_output_upstream_of_another),
        cmocka_unit_test(hidden_and_undeclared_inputs),
        cmocka_unit_test(an_array_constant_arrives_as_one),
        cmocka_unit_test(a_prompt_nobody_validated_fails_cleanly),
        cmocka_unit_test(values_go_when_their_last_user_has_run),
        cmocka_unit_test(ten_thousand_nodes),
        cmocka_unit_test(what_a_lazy_input_might_have_wanted_goes),
        cmocka_unit_test(outputs_that_give_something_on_let_go_too),
        cmocka_unit_test(a_reset_during_a_run_waits_for_its_end),
        cmocka_unit_test(the_executor_survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
