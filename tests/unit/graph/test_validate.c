/* Every error of comfyui-api.md section 3, with its exact words and shapes. In the tables a back
 * quote stands for a double quote. */
#include "support/graph_rig.h"
#include "support/oom.h"

static json_t *ticks(const char *text)
{
    char *s = strdup(text);
    assert_non_null(s);
    for (char *p = s; *p; p++)
        *p = *p == '`' ? '"' : *p;
    json_t *v = rig_json(s);
    free(s);
    return v;
}

static void same(const json_t *got, const char *want_text, const char *where)
{
    json_t *want = ticks(want_text);
    char *a = rig_text(got), *b = rig_text(want);
    if (strcmp(a, b) != 0)
        fail_msg("%s:\n  got  %s\n  want %s", where, a, b);
    free(a);
    free(b);
    json_decref(want);
}

static void validate(json_t *prompt, const char *targets, struct validation *v)
{
    berth_err err = { 0 };
    json_t *t = targets ? ticks(targets) : NULL;
    assert_ok(graph_validate(&rig.env, prompt, t, v, &err), err);
    assert_true(v->ok == (v->error == NULL));
    assert_true(v->ok == (json_array_size(v->outputs) > 0));
    json_decref(t);
}

/* ---- top-level errors ---- */

static const struct {
    const char *prompt, *targets, *error;
} tops[] = {
    { "{`1`:{`inputs`:{}}}", NULL,
      "{`type`:`missing_node_type`,`message`:`Node 'ID #1' has no class_type. The workflow may be "
      "corrupted or a custom node is missing.`,`details`:`Node ID "
      "'#1'`,`extra_info`:{`node_id`:`1`,`class_type`:null,`node_title`:null}}" },
    { "{`1`:`text`}", NULL,
      "{`type`:`missing_node_type`,`message`:`Node 'ID #1' has no class_type. The workflow may be "
      "corrupted or a custom node is missing.`,`details`:`Node ID "
      "'#1'`,`extra_info`:{`node_id`:`1`,`class_type`:null,`node_title`:null}}" },
    { "{`nodes`:[],`links`:[],`version`:0.4}", NULL,
      "{`type`:`invalid_prompt`,`message`:`Cannot execute: this is the editor's format; in ComfyUI "
      "choose Workflow > Export (API)`,`details`:``,`extra_info`:{}}" },
    /* ids that people chose */
    { "{`nodes`:{`inputs`:{}},`links`:{`inputs`:{}}}", NULL,
      "{`type`:`missing_node_type`,`message`:`Node 'ID #nodes' has no class_type. The workflow may "
      "be corrupted or a custom node is missing.`,`details`:`Node ID "
      "'#nodes'`,`extra_info`:{`node_id`:`nodes`,`class_type`:null,`node_title`:null}}" },
    /* also when nobody needs the node */
    { "{`1`:{`class_type`:`Sink`,`inputs`:{}},`x`:{`class_type`:`Nope`,`inputs`:{}}}", NULL,
      "{`type`:`missing_node_type`,`message`:`Node 'Nope' not found. The custom node may not be "
      "installed.`,`details`:`Node ID "
      "'#x'`,`extra_info`:{`node_id`:`x`,`class_type`:`Nope`,`node_title`:`Nope`}}" },
    { "{`x`:{`class_type`:`Nope`,`_meta`:{`title`:`My node`}},`y`:5}", NULL,
      "{`type`:`missing_node_type`,`message`:`Node 'My node' not found. The custom node may not be "
      "installed.`,`details`:`Node ID "
      "'#x'`,`extra_info`:{`node_id`:`x`,`class_type`:`Nope`,`node_title`:`My node`}}" },
    { "{`12:3`:{`_meta`:{`title`:`My node`}}}", NULL,
      "{`type`:`missing_node_type`,`message`:`Node 'My node' has no class_type. The workflow may "
      "be corrupted or a custom node is missing.`,`details`:`Node ID "
      "'#12:3'`,`extra_info`:{`node_id`:`12:3`,`class_type`:null,`node_title`:`My node`}}" },
    { "{`1`:{`class_type`:null,`inputs`:{}}}", NULL,
      "{`type`:`missing_node_type`,`message`:`Node 'None' not found. The custom node may not be "
      "installed.`,`details`:`Node ID "
      "'#1'`,`extra_info`:{`node_id`:`1`,`class_type`:null,`node_title`:null}}" },
    { "{}", NULL,
      "{`type`:`prompt_no_outputs`,`message`:`Prompt has no "
      "outputs`,`details`:``,`extra_info`:{}}" },
    { "[]", NULL,
      "{`type`:`prompt_no_outputs`,`message`:`Prompt has no "
      "outputs`,`details`:``,`extra_info`:{}}" },
    { "{`1`:{`class_type`:`Const`,`inputs`:{`value`:1}}}", NULL,
      "{`type`:`prompt_no_outputs`,`message`:`Prompt has no "
      "outputs`,`details`:``,`extra_info`:{}}" },
    { "{`1`:{`class_type`:`Sink`,`inputs`:{}}}", "[]",
      "{`type`:`prompt_no_outputs`,`message`:`Prompt has no "
      "outputs`,`details`:``,`extra_info`:{}}" },
    { "{`1`:{`class_type`:`Sink`,`inputs`:{}},`2`:{`class_type`:`Rules`,`inputs`:{}}}",
      "[`2`,`3`,1,null]",
      "{`type`:`prompt_no_outputs`,`message`:`Prompt has no "
      "outputs`,`details`:``,`extra_info`:{}}" },
    { "{`1`:{`class_type`:`Sink`,`inputs`:{}}}", "`1`",
      "{`type`:`invalid_prompt`,`message`:`partial_execution_targets must be a list of node ids.`,"
      "`details`:``,`extra_info`:{}}" },
    { "null", NULL,
      "{`type`:`invalid_prompt`,`message`:`Cannot execute because the prompt is not an object.`,"
      "`details`:``,`extra_info`:{}}" },
    { "5", NULL,
      "{`type`:`invalid_prompt`,`message`:`Cannot execute because the prompt is not an object.`,"
      "`details`:``,`extra_info`:{}}" },
};

static void prompts_that_cannot_be_looked_at(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
        struct validation v;
        json_t *prompt = ticks(tops[i].prompt);
        validate(prompt, tops[i].targets, &v);
        assert_false(v.ok);
        same(v.error, tops[i].error, tops[i].prompt);
        same(v.node_errors, "{}", tops[i].prompt);
        validation_release(&v);
        json_decref(prompt);
    }
    json_t *none = validation_no_prompt(NULL);
    same(none,
         "{`error`:{`type`:`no_prompt`,`message`:`No prompt provided`,`details`:`No prompt "
         "provided`,`extra_info`:{}},`node_errors`:{}}",
         "no prompt");
    json_decref(none);
    json_t *editors = ticks("{`nodes`:[],`links`:[]}");
    none = validation_no_prompt(editors);
    same(json_object_get(none, "error"),
         "{`type`:`no_prompt`,`message`:`No prompt provided`,`details`:`This is a workflow by "
         "itself, "
         "and this is the editor's format; in ComfyUI choose Workflow > Export (API)`,"
         "`extra_info`:{}}",
         "no prompt, the editor's format");
    json_decref(none);
    json_decref(editors);
}

/* ---- errors of one input of an output node ---- */

#define CFG_I "[`INT`,{`default`:20,`min`:16,`max`:64}]"
#define CFG_F "[`FLOAT`,{`default`:1.0,`min`:0.0,`max`:2.5}]"

static const struct {
    const char *class, *inputs, *errors;
} nodes[] = {
    { "Needy", "{}",
      "[{`type`:`required_input_missing`,`message`:`Required input is missing`,`details`:`im`,"
      "`extra_info`:{`input_name`:`im`}},{`type`:`required_input_missing`,`message`:`Required "
      "input "
      "is missing`,`details`:`group.x`,`extra_info`:{`input_name`:`group.x`}}]" },
    { "NeedyV3", "{`im`:5}",
      "[{`type`:`required_input_missing`,`message`:`Required input is missing`,`details`:`x`,"
      "`extra_info`:{`input_name`:`group.x`}}]" },
    { "Sink", "{`im`:[`s`]}",
      "[{`type`:`bad_linked_input`,`message`:`Bad linked input, must be a length-2 list of "
      "[node_id, "
      "slot_index]`,`details`:`im`,`extra_info`:{`input_name`:`im`,`input_config`:[`IMAGE`,{}],"
      "`received_value`:[`s`]}}]" },
    { "Sink", "{`i`:[]}",
      "[{`type`:`bad_linked_input`,`message`:`Bad linked input, must be a length-2 list of "
      "[node_id, "
      "slot_index]`,`details`:`i`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I
      ",`received_value`:[]}}]" },
    { "Sink", "{`im`:[`s`,1]}",
      "[{`type`:`return_type_mismatch`,`message`:`Return type mismatch between linked nodes`,"
      "`details`:`im, received_type(MASK) mismatch input_type(IMAGE)`,`extra_info`:{`input_name`:"
      "`im`,`input_config`:[`IMAGE`,{}],`received_type`:`MASK`,`linked_node`:[`s`,1]}}]" },
    { "Sink", "{`two`:[`s`,2]}",
      "[{`type`:`return_type_mismatch`,`message`:`Return type mismatch between linked nodes`,"
      "`details`:`two, received_type(LATENT) mismatch input_type(IMAGE, MASK)`,`extra_info`:{"
      "`input_name`:`two`,`input_config`:[`IMAGE, "
      "MASK`,{}],`received_type`:`LATENT`,`linked_node`:["
      "`s`,2]}}]" },
    { "Sink", "{`c`:[`s`,2]}",
      "[{`type`:`return_type_mismatch`,`message`:`Return type mismatch between linked nodes`,"
      "`details`:`c, received_type(LATENT) mismatch input_type(['a', \\`b'c\\`])`,`extra_info`:{"
      "`input_name`:`c`,`input_config`:[[`a`,`b'c`],{}],`received_type`:`LATENT`,`linked_node`:[`s`"
      ","
      "2]}}]" },
    { "Sink", "{`i`:`abc`}",
      "[{`type`:`invalid_input_type`,`message`:`Failed to convert an input value to a INT value`,"
      "`details`:`i, abc, invalid literal for int() with base 10: "
      "'abc'`,`extra_info`:{`input_name`:"
      "`i`,`input_config`:" CFG_I
      ",`received_value`:`abc`,`exception_message`:`invalid literal for "
      "int() with base 10: 'abc'`}}]" },
    { "Sink", "{`i`:null}",
      "[{`type`:`invalid_input_type`,`message`:`Failed to convert an input value to a INT value`,"
      "`details`:`i, None, int() argument must be a string, a bytes-like object or a real number, "
      "not 'NoneType'`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I
      ",`received_value`:null,"
      "`exception_message`:`int() argument must be a string, a bytes-like object or a real number, "
      "not 'NoneType'`}}]" },
    { "Sink", "{`f`:{`a`:[true]}}",
      "[{`type`:`invalid_input_type`,`message`:`Failed to convert an input value to a FLOAT value`,"
      "`details`:`f, {'a': [True]}, float() argument must be a string or a real number, not "
      "'dict'`,"
      "`extra_info`:{`input_name`:`f`,`input_config`:" CFG_F ",`received_value`:{`a`:[true]},"
      "`exception_message`:`float() argument must be a string or a real number, not 'dict'`}}]" },
    { "Sink", "{`i`:{`__value__`:[1,2]}}",
      "[{`type`:`invalid_input_type`,`message`:`Failed to convert an input value to a INT value`,"
      "`details`:`i, [1, 2], int() argument must be a string, a bytes-like object or a real "
      "number, "
      "not 'list'`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:[1,2],"
      "`exception_message`:`int() argument must be a string, a bytes-like object or a real number, "
      "not 'list'`}}]" },
    { "Sink", "{`free`:`99999999999999999999999`}",
      "[{`type`:`invalid_input_type`,`message`:`Failed to convert an input value to a INT value`,"
      "`details`:`free, 99999999999999999999999, Python int too large to convert to C long`,"
      "`extra_info`:{`input_name`:`free`,`input_config`:[`INT`,{`default`:0}],`received_value`:"
      "`99999999999999999999999`,`exception_message`:`Python int too large to convert to C "
      "long`}}]" },
    { "Sink", "{`i`:`5`}",
      "[{`type`:`value_smaller_than_min`,`message`:`Value 5 smaller than min of 16`,`details`:`i`,"
      "`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:5}}]" },
    { "Sink", "{`i`:65.9}",
      "[{`type`:`value_bigger_than_max`,`message`:`Value 65 bigger than max of 64`,`details`:`i`,"
      "`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:65}}]" },
    { "Sink", "{`i`:1e30}",
      "[{`type`:`value_bigger_than_max`,`message`:`Value 1000000000000000019884624838656 bigger "
      "than "
      "max of 64`,`details`:`i`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I
      ",`received_value`:1e+30}}]" },
    { "Sink", "{`f`:-1}",
      "[{`type`:`value_smaller_than_min`,`message`:`Value -1.0 smaller than min of 0.0`,`details`:"
      "`f`,`extra_info`:{`input_name`:`f`,`input_config`:" CFG_F ",`received_value`:-1.0}}]" },
    { "Sink", "{`f`:`1e400`}",
      "[{`type`:`value_bigger_than_max`,`message`:`Value inf bigger than max of 2.5`,`details`:`f`,"
      "`extra_info`:{`input_name`:`f`,`input_config`:" CFG_F ",`received_value`:`1e400`}}]" },
    { "Sink", "{`c`:`z`}",
      "[{`type`:`value_not_in_list`,`message`:`Value not in list`,`details`:`c: 'z' not in ['a', "
      "\\`b'c\\`]`,`extra_info`:{`input_name`:`c`,`input_config`:[[`a`,`b'c`],{}],`received_value`:"
      "`z`}}]" },
    { "Sink", "{`c`:5}",
      "[{`type`:`value_not_in_list`,`message`:`Value not in list`,`details`:`c: 5 not in ['a', "
      "\\`b'c\\`]`,`extra_info`:{`input_name`:`c`,`input_config`:[[`a`,`b'c`],{}],`received_value`:"
      "5}}]" },
    { "Sink", "{`lots`:`z`}",
      "[{`type`:`value_not_in_list`,`message`:`Value not in list`,`details`:`lots: 'z' not in "
      "(list "
      "of length "
      "21)`,`extra_info`:{`input_name`:`lots`,`input_config`:null,`received_value`:`z`}}]" },
    { "Sink", "{`file`:`z`}",
      "[{`type`:`value_not_in_list`,`message`:`Value not in list`,`details`:`file: 'z' not in "
      "['x.safetensors', 'sub/y.safetensors']`,`extra_info`:{`input_name`:`file`,`input_config`:[["
      "`x.safetensors`,`sub/y.safetensors`],{}],`received_value`:`z`}}]" },
    { "Sink", "{`gone`:`z`}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`folder is gone`,`extra_info`:{`exception_type`:`OSError`,`traceback`:[]}}]" },
    /* all bad inputs are told */
    { "Sink", "{`i`:1,`f`:9,`c`:`z`}",
      "[{`type`:`value_smaller_than_min`,`message`:`Value 1 smaller than min of 16`,`details`:`i`,"
      "`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:1}},{`type`:"
      "`value_bigger_than_max`,`message`:`Value 9.0 bigger than max of 2.5`,`details`:`f`,"
      "`extra_info`:{`input_name`:`f`,`input_config`:" CFG_F ",`received_value`:9.0}},{`type`:"
      "`value_not_in_list`,`message`:`Value not in list`,`details`:`c: 'z' not in ['a', "
      "\\`b'c\\`]`,`extra_info`:{`input_name`:`c`,`input_config`:[[`a`,`b'c`],{}],`received_value`:"
      "`z`}}]" },
    /* the validator answers for "image", and is asked although "i" is bad */
    { "Picture", "{`image`:`no.png`,`i`:10}",
      "[{`type`:`value_bigger_than_max`,`message`:`Value 10 bigger than max of 9`,`details`:`i`,"
      "`extra_info`:{`input_name`:`i`,`input_config`:[`INT`,{`default`:0,`min`:0,`max`:9}],"
      "`received_value`:10}},{`type`:`custom_validation_failed`,`message`:`Custom validation "
      "failed "
      "for node`,`details`:`image - Invalid image file: no.png`,`extra_info`:{`input_name`:"
      "`image`}}]" },
    { "Picture", "{`image`:`mute.png`}",
      "[{`type`:`custom_validation_failed`,`message`:`Custom validation failed for node`,`details`:"
      "`image`,`extra_info`:{`input_name`:`image`}}]" },
    /* what Python raises in the middle of a node replaces its errors */
    { "Sink", "{`i`:1,`im`:[`99`,0]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`'99'`,`extra_info`:{`exception_type`:`KeyError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[1,0]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`1`,`extra_info`:{`exception_type`:`KeyError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[null,0]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`None`,`extra_info`:{`exception_type`:`KeyError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[[],0]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`unhashable type: 'list'`,`extra_info`:{`exception_type`:`TypeError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[{},0]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`unhashable type: 'dict'`,`extra_info`:{`exception_type`:`TypeError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[`s`,4]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`tuple index out of range`,`extra_info`:{`exception_type`:`IndexError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[`s`,-1]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`tuple index out of range`,`extra_info`:{`exception_type`:`IndexError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[`s3`,18446744073709551615]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`list index out of range`,`extra_info`:{`exception_type`:`IndexError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[`s`,0.0]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`tuple indices must be integers or slices, not float`,`extra_info`:{`exception_type`:"
      "`TypeError`,`traceback`:[]}}]" },
    { "Sink", "{`im`:[`s3`,`0`]}",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`list indices must be integers or slices, not "
      "str`,`extra_info`:{`exception_type`:`TypeError`,"
      "`traceback`:[]}}]" },
    { "Sink", "[]", /* nothing is missing: Python would run it */
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`list indices must be integers or slices, not str`,`extra_info`:{`exception_type`:"
      "`TypeError`,`traceback`:[]}}]" },
    { "Needy", "[]",
      "[{`type`:`required_input_missing`,`message`:`Required input is missing`,`details`:`im`,"
      "`extra_info`:{`input_name`:`im`}},{`type`:`required_input_missing`,`message`:`Required "
      "input is missing`,`details`:`group.x`,`extra_info`:{`input_name`:`group.x`}}]" },
    { "Needy", "`abc`",
      "[{`type`:`required_input_missing`,`message`:`Required input is missing`,`details`:`im`,"
      "`extra_info`:{`input_name`:`im`}},{`type`:`required_input_missing`,`message`:`Required "
      "input is missing`,`details`:`group.x`,`extra_info`:{`input_name`:`group.x`}}]" },
    { "Needy", "[7,`im`]",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`list indices must be integers or slices, not str`,`extra_info`:{`exception_type`:"
      "`TypeError`,`traceback`:[]}}]" },
    { "Needy", "`time`",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`string indices must be integers, not 'str'`,`extra_info`:{`exception_type`:`TypeError`,"
      "`traceback`:[]}}]" },
    { "Sink", "{`im`:[`s`,true]}", /* slot 1 */
      "[{`type`:`return_type_mismatch`,`message`:`Return type mismatch between linked nodes`,"
      "`details`:`im, received_type(MASK) mismatch input_type(IMAGE)`,`extra_info`:{`input_name`:"
      "`im`,`input_config`:[`IMAGE`,{}],`received_type`:`MASK`,`linked_node`:[`s`,true]}}]" },
    { "Sink", "null",
      "[{`type`:`exception_during_validation`,`message`:`Exception when validating node`,`details`:"
      "`argument of type 'NoneType' is not iterable`,`extra_info`:{`exception_type`:`TypeError`,"
      "`traceback`:[]}}]" },
};

/* Takes tracebacks out of the errors; the last line is about the node itself. */
static void take_traces(json_t *errors, const char *id)
{
    for (size_t i = 0; i < json_array_size(errors); i++) {
        json_t *trace =
            json_object_get(json_object_get(json_array_get(errors, i), "extra_info"), "traceback");
        size_t n = json_array_size(trace);
        char line[64];
        if (!trace)
            continue;
        snprintf(line, sizeof line, "  Node %s (", id);
        assert_true(n > 0);
        assert_memory_equal(json_string_value(json_array_get(trace, n - 1)), line, strlen(line));
        json_array_clear(trace);
    }
}

static void errors_of_an_output_node(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        struct str text = { 0 }, where = { 0 };
        str_addf(&text,
                 "{`o`:{`class_type`:`%s`,`inputs`:%s},`s`:{`class_type`:`Source`,`inputs`:{}},"
                 "`s3`:{`class_type`:`SourceV3`,`inputs`:{}}}",
                 nodes[i].class, nodes[i].inputs);
        str_addf(&where, "%s %s", nodes[i].class, nodes[i].inputs);
        json_t *prompt = ticks(str_c(&text));
        struct validation v;
        validate(prompt, NULL, &v);
        assert_false(v.ok);
        const json_t *o = json_object_get(v.node_errors, "o");
        take_traces(json_object_get(o, "errors"), "o");
        same(json_object_get(o, "errors"), nodes[i].errors, str_c(&where));
        same(json_object_get(o, "dependent_outputs"), "[`o`]", str_c(&where));
        assert_string_equal(json_string_value(json_object_get(o, "class_type")), nodes[i].class);
        assert_int_equal(json_object_size(v.node_errors), 1);
        /* A4 tells them again, one a line */
        struct str details = { 0 };
        const json_t *errors = json_object_get(o, "errors");
        for (size_t k = 0; k < json_array_size(errors); k++)
            str_addf(&details, "%s%s: %s", k ? "\n" : "",
                     json_string_value(json_object_get(json_array_get(errors, k), "message")),
                     json_string_value(json_object_get(json_array_get(errors, k), "details")));
        assert_string_equal(json_string_value(json_object_get(v.error, "type")),
                            "prompt_outputs_failed_validation");
        assert_string_equal(json_string_value(json_object_get(v.error, "message")),
                            "Prompt outputs failed validation");
        assert_string_equal(json_string_value(json_object_get(v.error, "details")),
                            str_c(&details));
        str_release(&details);
        str_release(&text);
        str_release(&where);
        validation_release(&v);
        json_decref(prompt);
    }
}

/* ---- what is fine, and what is stored back ---- */

static const struct {
    const char *inputs, *stored;
} fine[] = {
    { "{}", "{}" },
    { "{`i`:` 2_0 `,`f`:`1e0`,`s`:5,`b`:`false`}", "{`i`:20,`f`:1.0,`s`:`5`,`b`:true}" },
    { "{`f`:0}", "{`f`:0.0}" },
    { "{`i`:16,`f`:2.5,`s`:null,`b`:null}", "{`i`:16,`f`:2.5,`s`:`None`,`b`:false}" },
    { "{`i`:64.9,`f`:true,`s`:{`a`:[1.0]},`b`:0.0}",
      "{`i`:64,`f`:1.0,`s`:`{'a': [1.0]}`,`b`:false}" },
    { "{`big`:18446744073709551615,`ff`:-1e300,`free`:-9}",
      "{`big`:18446744073709551615,`ff`:-1e+300,`free`:-9}" },
    { "{`big`:`18446744073709551615`}", "{`big`:18446744073709551615}" },
    { "{`c`:`b'c`,`lots`:`20`,`file`:`sub/y.safetensors`}",
      "{`c`:`b'c`,`lots`:`20`,`file`:`sub/y.safetensors`}" },
    { "{`im`:[`s`,0],`two`:[`s`,1],`any`:[`s`,2]}", "{`im`:[`s`,0],`two`:[`s`,1],`any`:[`s`,2]}" },
    { "{`c`:[`s`,3]}", "{`c`:[`s`,3]}" },
    /* a socket takes a constant, whatever it is; the node will say */
    { "{`im`:5,`any`:{`a`:1}}", "{`im`:5,`any`:{`a`:1}}" },
    { "{`s`:{`__value__`:[1,2]},`i`:{`__value__`:17},`any`:{`__value__`:3}}",
      "{`s`:`[1, 2]`,`i`:17,`any`:3}" },
    /* unwrapped it would be a link for the next reader */
    { "{`any`:{`__value__`:[`s`,0]}}", "{`any`:{`__value__`:[`s`,0]}}" },
    /* undeclared: nobody looks */
    { "{`what`:[`nowhere`],`i`:`20`}", "{`what`:[`nowhere`],`i`:20}" },
};

static void values_are_converted_and_stored(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
        struct str text = { 0 };
        str_addf(&text,
                 "{`s`:{`class_type`:`Source`,`inputs`:{}},`o`:{`class_type`:`Sink`,`inputs`:%s}}",
                 fine[i].inputs);
        json_t *prompt = ticks(str_c(&text));
        for (int again = 0; again < 2; again++) { /* and what is stored is as valid */
            struct validation v;
            validate(prompt, NULL, &v);
            same(v.node_errors, "{}", fine[i].inputs);
            assert_true(v.ok);
            same(v.outputs, "[`o`]", fine[i].inputs);
            same(json_object_get(json_object_get(prompt, "o"), "inputs"), fine[i].stored,
                 fine[i].inputs);
            validation_release(&v);
        }
        str_release(&text);
        json_decref(prompt);
    }
    struct validation v;
    json_t *prompt =
        ticks("{`1`:{`class_type`:`Picture`,`inputs`:{`image`:`there.png`,`im`:[`2`,1]}"
              "},`2`:{`class_type`:`Source`,`inputs`:{}}}");
    validate(prompt, NULL, &v); /* not in its list, MASK for IMAGE: the class takes both over */
    assert_true(v.ok);
    validation_release(&v);
    json_decref(prompt);
}

/* ---- whole graphs ---- */

static const struct {
    const char *what, *prompt, *targets, *outputs, *details, *node_errors;
} graphs[] = {
#define NEVER                                                                                      \
    "{`type`:`node_cannot_run`,`message`:`Node cannot be computed`,`details`:`Never cannot be "    \
    "computed yet`,`extra_info`:{}}"
    { "what cannot be computed is refused, and the node that it is",
      "{`1`:{`class_type`:`Never`,`inputs`:{}},`2`:{`class_type`:`Add`,`inputs`:{`a`:[`1`,0]}},"
      "`3`:{`class_type`:`Save`,`inputs`:{`value`:[`2`,0]}}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[" NEVER "],`dependent_outputs`:[`3`],`class_type`:`Never`}}" },
    { "two of them in a row, and an output that needs none of them",
      "{`1`:{`class_type`:`Never`,`inputs`:{}},`2`:{`class_type`:`Never`,`inputs`:{`value`:[`1`,0]}"
      "}"
      ",`3`:{`class_type`:`Save`,`inputs`:{`value`:[`2`,0]}},`4`:{`class_type`:`Sink`,`inputs`:{}}"
      "}",
      NULL, "[`4`]", NULL,
      "{`1`:{`errors`:[" NEVER "],`dependent_outputs`:[`3`],`class_type`:`Never`},"
      "`2`:{`errors`:[" NEVER "],`dependent_outputs`:[`3`],`class_type`:`Never`}}" },
    { "behind a lazy input it may never be asked for",
      "{`1`:{`class_type`:`Never`,`inputs`:{}},`2`:{`class_type`:`Add`,`inputs`:{`a`:[`1`,0]}},"
      "`3`:{`class_type`:`Pick`,`inputs`:{`which`:0,`a`:1,`b`:[`2`,0]}},`4`:{`class_type`:`Save`,"
      "`inputs`:{`value`:[`3`,0]}}}",
      NULL, "[`4`]", NULL, "{}" },
    { "the same, and another output that does need it",
      "{`1`:{`class_type`:`Never`,`inputs`:{}},"
      "`3`:{`class_type`:`Pick`,`inputs`:{`which`:0,`a`:1,`b`:[`1`,0]}},`4`:{`class_type`:`Save`,"
      "`inputs`:{`value`:[`3`,0]}},`5`:{`class_type`:`Save`,`inputs`:{`value`:[`1`,0]}}}",
      NULL, "[`4`]", NULL,
      "{`1`:{`errors`:[" NEVER "],`dependent_outputs`:[`5`],`class_type`:`Never`}}" },
    { "nobody wants it",
      "{`1`:{`class_type`:`Never`,`inputs`:{}},`2`:{`class_type`:`Sink`,`inputs`:{}}}", NULL,
      "[`2`]", NULL, "{}" },
    { "an error upstream: the output itself has none, so details are empty",
      "{`1`:{`class_type`:`Rules`,`inputs`:{`i`:1}},`2`:{`class_type`:`Sink`,`inputs`:{`i`:[`1`,0]}"
      "}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[{`type`:`value_smaller_than_min`,`message`:`Value 1 smaller than min of 16`,"
      "`details`:`i`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:1}}],"
      "`dependent_outputs`:[`2`],`class_type`:`Rules`}}" },
    { "one good output runs",
      "{`1`:{`class_type`:`Rules`,`inputs`:{`i`:1}},`2`:{`class_type`:`Sink`,`inputs`:{`i`:[`1`,0]}"
      "},"
      "`3`:{`class_type`:`Sink`,`inputs`:{}},`0`:{`class_type`:`Sink`,`inputs`:{}}}",
      NULL, "[`3`,`0`]", NULL,
      "{`1`:{`errors`:[{`type`:`value_smaller_than_min`,`message`:`Value 1 smaller than min of 16`,"
      "`details`:`i`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:1}}],"
      "`dependent_outputs`:[`2`],`class_type`:`Rules`}}" },
    { "only the targets count",
      "{`1`:{`class_type`:`Sink`,`inputs`:{`i`:1}},`2`:{`class_type`:`Sink`,`inputs`:{}},`3`:{"
      "`class_type`:`Sink`,`inputs`:{}}}",
      "[`3`,`9`,`3`]", "[`3`]", NULL, "{}" },
    { "true dependants",
      "{`a`:{`class_type`:`Rules`,`inputs`:{`i`:1}},`b`:{`class_type`:`Rules`,`inputs`:{`i`:99}},"
      "`m`:{`class_type`:`Rules`,`inputs`:{`i`:[`a`,0]}},`x`:{`class_type`:`Sink`,`inputs`:{`i`:["
      "`m`,0]}},`y`:{`class_type`:`Sink`,`inputs`:{`i`:[`b`,0],`big`:[`a`,0]}},`z`:{`class_type`:"
      "`Sink`,`inputs`:{`i`:[`b`,0]}}}",
      NULL, "[]", "",
      "{`a`:{`errors`:[{`type`:`value_smaller_than_min`,`message`:`Value 1 smaller than min of 16`,"
      "`details`:`i`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:1}}],"
      "`dependent_outputs`:[`x`,`y`],`class_type`:`Rules`},`b`:{`errors`:[{`type`:"
      "`value_bigger_than_max`,`message`:`Value 99 bigger than max of "
      "64`,`details`:`i`,`extra_info`:{"
      "`input_name`:`i`,`input_config`:" CFG_I ",`received_value`:99}}],`dependent_outputs`:[`y`,"
      "`z`],`class_type`:`Rules`}}" },
    { "a link to nowhere is told on the node that has it, seen from the input that led there",
      "{`1`:{`class_type`:`Rules`,`inputs`:{`i`:[`99`,0]}},`2`:{`class_type`:`Sink`,`inputs`:{`i`:["
      "`1`,0]}}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[{`type`:`exception_during_inner_validation`,`message`:`Exception when "
      "validating "
      "inner node`,`details`:`'99'`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I
      ",`exception_message`:`'99'`,`exception_type`:`KeyError`,`traceback`:[`  Node 2 (Sink), "
      "input i\\n`,`  Node 1 (Rules)\\n`],"
      "`linked_node`:[`1`,0]"
      "}}],"
      "`dependent_outputs`:[`2`],`class_type`:`Rules`}}" },
    { "a node without inputs",
      "{`1`:{`class_type`:`Rules`},`2`:{`class_type`:`Sink`,`inputs`:{`i`:[`1`,0]}}}", NULL, "[]",
      "",
      "{`1`:{`errors`:[{`type`:`exception_during_inner_validation`,`message`:`Exception when "
      "validating "
      "inner node`,`details`:`'inputs'`,`extra_info`:{`input_name`:`i`,`input_config`:" CFG_I
      ",`exception_message`:`'inputs'`,`exception_type`:`KeyError`,`traceback`:[`  Node 2 (Sink), "
      "input i\\n`,`  Node 1 (Rules)\\n`],`linked_node`:[`"
      "1`,"
      "0]}}],`dependent_outputs`:[`2`],`class_type`:`Rules`}}" },
    { "behind a wrong type nobody looks",
      "{`1`:{`class_type`:`Rules`,`inputs`:{`i`:1}},`2`:{`class_type`:`Sink`,`inputs`:{`im`:[`1`,0]"
      "}}}",
      NULL, "[]",
      "Return type mismatch between linked nodes: im, received_type(INT) mismatch "
      "input_type(IMAGE)",
      "{`2`:{`errors`:[{`type`:`return_type_mismatch`,`message`:`Return type mismatch between "
      "linked "
      "nodes`,`details`:`im, received_type(INT) mismatch "
      "input_type(IMAGE)`,`extra_info`:{`input_name`:"
      "`im`,`input_config`:[`IMAGE`,{}],`received_type`:`INT`,`linked_node`:[`1`,0]}}],"
      "`dependent_outputs`:[`2`],`class_type`:`Sink`}}" },
    { "a cycle",
      "{`1`:{`class_type`:`Rules`,`inputs`:{`i`:[`2`,0]}},`2`:{`class_type`:`Rules`,`inputs`:{`i`:["
      "`1`,"
      "0]}},`3`:{`class_type`:`Sink`,`inputs`:{`i`:[`1`,0]}}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[{`type`:`dependency_cycle`,`message`:`Dependency cycle "
      "detected`,`details`:`1 (Rules) -> 2 (Rules) -> 1 "
      "(Rules)`,`extra_info`:{`node_id`:`1`,`cycle_nodes`:[`1`,`2`]}}],`dependent_outputs`:[`3`],`"
      "class_type`:`Rules`},"
      "`2`:{`errors`:[{`type`:`dependency_cycle`,`message`:`Dependency cycle "
      "detected`,`details`:`1 (Rules) -> 2 (Rules) -> 1 "
      "(Rules)`,`extra_info`:{`node_id`:`2`,`cycle_nodes`:[`1`,`2`]}}],`dependent_outputs`:[`3`],`"
      "class_type`:`Rules`}}" },
    { "two cycles that share a node, and another error beside them",
      "{`1`:{`class_type`:`Rules`,`inputs`:{`i`:[`2`,0],`s`:`x`,`big`:-1}},`2`:{`class_type`:`"
      "Rules`,`inputs`:{`i`:[`1`,0],`big`:[`4`,0]}},"
      "`4`:{`class_type`:`Rules`,`inputs`:{`i`:[`2`,0]}},`3`:{`class_type`:`Sink`,`inputs`:{`i`:[`"
      "1`,0]}}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[{`type`:`dependency_cycle`,`message`:`Dependency cycle "
      "detected`,`details`:`1 (Rules) -> 2 (Rules) -> 1 "
      "(Rules)`,`extra_info`:{`node_id`:`1`,`cycle_nodes`:[`1`,`2`]}},{`type`:`value_smaller_than_"
      "min`,`message`:`Value -1 smaller than min of "
      "0`,`details`:`big`,`extra_info`:{`input_name`:`big`,`input_config`:[`INT`,{`default`:0,`min`"
      ":0,`max`:18446744073709551615}],`received_value`:-1}}],`dependent_outputs`:[`3`],`class_"
      "type`:`Rules`},"
      "`2`:{`errors`:[{`type`:`dependency_cycle`,`message`:`Dependency cycle "
      "detected`,`details`:`1 (Rules) -> 2 (Rules) -> 1 "
      "(Rules)`,`extra_info`:{`node_id`:`2`,`cycle_nodes`:[`1`,`2`]}}],`dependent_outputs`:[`3`],`"
      "class_type`:`Rules`},"
      "`4`:{`errors`:[{`type`:`dependency_cycle`,`message`:`Dependency cycle "
      "detected`,`details`:`2 (Rules) -> 4 (Rules) -> 2 "
      "(Rules)`,`extra_info`:{`node_id`:`4`,`cycle_nodes`:[`2`,`4`]}}],`dependent_outputs`:[`3`],`"
      "class_type`:`Rules`}}" },
    { "a node that wants itself", "{`1`:{`class_type`:`Through`,`inputs`:{`value`:[`1`,0]}}}", NULL,
      "[]", "Dependency cycle detected: 1 (Through) -> 1 (Through)",
      "{`1`:{`errors`:[{`type`:`dependency_cycle`,`message`:`Dependency cycle "
      "detected`,`details`:`1 (Through) -> 1 "
      "(Through)`,`extra_info`:{`node_id`:`1`,`cycle_nodes`:[`1`]}}],`dependent_outputs`:[`1`],`"
      "class_type`:`Through`}}" },
    { "a cycle beside a good output",
      "{`1`:{`class_type`:`Through`,`inputs`:{`value`:[`1`,0]}},`2`:{`class_type`:`Sink`,`inputs`:{"
      "}}}",
      NULL, "[`2`]", NULL,
      "{`1`:{`errors`:[{`type`:`dependency_cycle`,`message`:`Dependency cycle "
      "detected`,`details`:`1 (Through) -> 1 "
      "(Through)`,`extra_info`:{`node_id`:`1`,`cycle_nodes`:[`1`]}}],`dependent_outputs`:[`1`],`"
      "class_type`:`Through`}}" },
    { "a cycle that nobody needs",
      "{`1`:{`class_type`:`Rules`,`inputs`:{`i`:[`1`,0]}},`2`:{`class_type`:`Sink`,`inputs`:{}}}",
      NULL, "[`2`]", NULL, "{}" },
    { "dynamic inputs: a member and an input of the choice are missing",
      "{`1`:{`class_type`:`Mode`,`inputs`:{`mode`:`two`}},`2`:{`class_type`:`Save`,`inputs`:{`"
      "value`:[`1`,0]}}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[{`type`:`required_input_missing`,`message`:`Required input is "
      "missing`,`details`:`x`,`extra_info`:{`input_name`:`mode.x`}},"
      "{`type`:`required_input_missing`,`message`:`Required input is "
      "missing`,`details`:`v0`,`extra_info`:{`input_name`:`values.v0`}}],`dependent_outputs`:[`2`],"
      "`class_type`:`Mode`}}" },
    { "dynamic inputs: no such choice, and what it would bring is not looked at",
      "{`1`:{`class_type`:`Mode`,`inputs`:{`mode`:`six`,`mode.x`:77,`values.v0`:1,`values.v9`:[`9`,"
      "0]}},`2`:{`class_type`:`Save`,`inputs`:{`value`:[`1`,0]}}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[{`type`:`value_not_in_list`,`message`:`Value not in list`,`details`:`mode: "
      "'six' not in ['one', "
      "'two']`,`extra_info`:{`input_name`:`mode`,`input_config`:[`COMFY_DYNAMICCOMBO_V3`,{`options`"
      ":[{`key`:`one`,`inputs`:{`required`:{}}},{`key`:`two`,`inputs`:{`required`:{`x`:[`INT`,{`"
      "default`:0,`min`:0,`max`:9}]}}}]}],`received_value`:`six`}}],`dependent_outputs`:[`2`],`"
      "class_type`:`Mode`}}" },
    { "dynamic inputs: a range of the choice, a type of a member",
      "{`1`:{`class_type`:`Mode`,`inputs`:{`mode`:`two`,`mode.x`:10,`values.v0`:[`3`,0]}},`2`:{`"
      "class_type`:`Save`,`inputs`:{`value`:[`1`,0]}},`3`:{`class_type`:`Source`,`inputs`:{}}}",
      NULL, "[]", "",
      "{`1`:{`errors`:[{`type`:`value_bigger_than_max`,`message`:`Value 10 bigger than max of "
      "9`,`details`:`mode.x`,`extra_info`:{`input_name`:`mode.x`,`input_config`:[`INT`,{`default`:"
      "0,`min`:0,`max`:9}],`received_value`:10}},"
      "{`type`:`return_type_mismatch`,`message`:`Return type mismatch between linked "
      "nodes`,`details`:`values.v0, received_type(IMAGE) mismatch "
      "input_type(INT)`,`extra_info`:{`input_name`:`values.v0`,`input_config`:[`INT`,{}],`received_"
      "type`:`IMAGE`,`linked_node`:[`3`,0]}}],`dependent_outputs`:[`2`],`class_type`:`Mode`}}" },
    { "dynamic inputs: without a mode nothing is wrong yet",
      "{`1`:{`class_type`:`Mode`,`inputs`:{`values.v0`:1}},`2`:{`class_type`:`Save`,`inputs`:{`"
      "value`:[`1`,0]}}}",
      NULL, "[`2`]", NULL, "{}" },
    { "an output upstream of an output",
      "{`1`:{`class_type`:`Through`,`inputs`:{}},`2`:{`class_type`:`Save`,`inputs`:{`value`:[`1`,0]"
      "}}}",
      NULL, "[]", "Required input is missing: value",
      "{`1`:{`errors`:[{`type`:`required_input_missing`,`message`:`Required input is "
      "missing`,`details`:"
      "`value`,`extra_info`:{`input_name`:`value`}}],`dependent_outputs`:[`1`,`2`],`class_type`:"
      "`Through`}}" },
};

static void whole_graphs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(graphs); i++) {
        struct validation v;
        json_t *prompt = ticks(graphs[i].prompt);
        validate(prompt, graphs[i].targets, &v);
        same(v.outputs, graphs[i].outputs, graphs[i].what);
        same(v.node_errors, graphs[i].node_errors, graphs[i].what);
        if (graphs[i].details)
            assert_string_equal(json_string_value(json_object_get(v.error, "details")),
                                graphs[i].details);
        else
            assert_true(v.ok);
        validation_release(&v);
        json_decref(prompt);
    }
}

/* ---- size ---- */

static json_t *chain(size_t n, bool bad)
{
    struct str text = { 0 };
    str_adds(&text, "{`0`:{`class_type`:`Const`,`inputs`:{`value`:");
    str_adds(&text, bad ? "`x`}}" : "1}}");
    for (size_t i = 1; i + 1 < n; i++)
        str_addf(&text, ",`%zu`:{`class_type`:`Add`,`inputs`:{`a`:[`%zu`,0],`b`:[`%zu`,1]}}", i,
                 i - 1, i > 1 ? i - 1 : i - 1);
    str_addf(&text, ",`%zu`:{`class_type`:`Save`,`inputs`:{`value`:[`%zu`,0]}}}", n - 1, n - 2);
    if (n > 1) { /* Const has one output */
        char *at = strstr(text.p, "[`0`,1]");
        if (at)
            at[5] = '0';
    }
    json_t *v = ticks(str_c(&text));
    str_release(&text);
    return v;
}

static void ten_thousand_nodes_in_a_row(void **state)
{
    (void)state;
    struct validation v;
    json_t *prompt = chain(GRAPH_NODES_MAX, false);
    validate(prompt, NULL, &v);
    assert_true(v.ok);
    validation_release(&v);
    json_decref(prompt);
    prompt = chain(GRAPH_NODES_MAX, true);
    validate(prompt, NULL, &v);
    assert_false(v.ok);
    assert_int_equal(json_object_size(v.node_errors), 1);
    same(json_object_get(json_object_get(v.node_errors, "0"), "dependent_outputs"), "[`9999`]",
         "chain");
    validation_release(&v);
    json_decref(prompt);
}

/* Half the nodes are outputs and the other half a chain of bad nodes under all of them: what an
 * answer lists is bounded. */
static void ten_thousand_nodes_side_by_side(void **state)
{
    (void)state;
    struct str text = { 0 };
    str_adds(&text, "{`0`:{`class_type`:`Needy`,`inputs`:{}}");
    for (size_t i = 1; i < GRAPH_NODES_MAX / 2; i++)
        str_addf(&text, ",`%zu`:{`class_type`:`Rules`,`inputs`:{`i`:1,`big`:[`%zu`,0],`lots`:`z`}}",
                 i, i > 1 ? i - 1 : 1);
    for (size_t i = GRAPH_NODES_MAX / 2; i < GRAPH_NODES_MAX; i++)
        str_addf(&text, ",`%zu`:{`class_type`:`Save`,`inputs`:{`value`:[`%d`,0]}}", i,
                 GRAPH_NODES_MAX / 2 - 1);
    str_addc(&text, '}');
    json_t *prompt = ticks(str_c(&text));
    struct validation v;
    validate(prompt, NULL, &v);
    assert_false(v.ok);
    size_t listed = 0;
    const char *key;
    json_t *e;
    json_object_foreach(v.node_errors, key, e) listed +=
        json_array_size(json_object_get(e, "dependent_outputs"));
    assert_int_equal(listed, 100000);
    validation_release(&v);
    json_decref(prompt);
    str_release(&text);
}

static void limits_are_named(void **state)
{
    (void)state;
    struct validation v;
    struct str text = { 0 };
    str_addc(&text, '{');
    for (size_t i = 0; i <= GRAPH_NODES_MAX; i++)
        str_addf(&text, "%s`%zu`:{`class_type`:`Sink`,`inputs`:{}}", i ? "," : "", i);
    str_addc(&text, '}');
    json_t *prompt = ticks(str_c(&text));
    validate(prompt, NULL, &v);
    same(
        v.error,
        "{`type`:`invalid_prompt`,`message`:`Cannot execute because the prompt has 10001 nodes; at "
        "most 10000 are taken.`,`details`:``,`extra_info`:{}}",
        "nodes");
    validation_release(&v);
    json_decref(prompt);

    str_clear(&text);
    str_adds(&text, "{`1`:{`class_type`:`Sink`,`inputs`:{");
    for (size_t i = 0; i <= GRAPH_INPUTS_MAX; i++)
        str_addf(&text, "%s`%zu`:0", i ? "," : "", i);
    str_adds(&text, "}}}");
    prompt = ticks(str_c(&text));
    validate(prompt, NULL, &v);
    same(v.error,
         "{`type`:`invalid_prompt`,`message`:`Cannot execute because a node has 1001 inputs; at "
         "most "
         "1000 are taken.`,`details`:`Node ID '#1'`,`extra_info`:{}}",
         "inputs");
    validation_release(&v);
    json_decref(prompt);

    str_clear(&text);
    str_adds(&text, "{`");
    str_pad(&text, 'n', text.n + GRAPH_ID_MAX + 1);
    str_adds(&text, "`:{`class_type`:`Sink`,`inputs`:{}}}");
    prompt = ticks(str_c(&text));
    validate(prompt, NULL, &v);
    assert_string_equal(
        json_string_value(json_object_get(v.error, "message")),
        "Cannot execute because a node id is 257 bytes long; at most 256 are taken.");
    validation_release(&v);
    json_decref(prompt);
    str_release(&text);
}

static void validation_survives_exhaustion(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(graphs); i++) {
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            json_t *prompt = ticks(graphs[i].prompt);
            struct validation v;
            berth_err err = { 0 };
            oom_after(k);
            s = graph_validate(&rig.env, prompt, NULL, &v, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0] && !v.outputs));
            validation_release(&v);
            json_decref(prompt);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            struct str text = { 0 };
            str_addf(&text,
                     "{`o`:{`class_type`:`%s`,`inputs`:%s},`s`:{`class_type`:`Source`,"
                     "`inputs`:{}}}",
                     nodes[i].class, nodes[i].inputs);
            json_t *prompt = ticks(str_c(&text));
            struct validation v;
            berth_err err = { 0 };
            oom_after(k);
            s = graph_validate(&rig.env, prompt, NULL, &v, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
            validation_release(&v);
            json_decref(prompt);
            str_release(&text);
        }
    }
}

static int setup(void **state)
{
    (void)state;
    rig_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_that_cannot_be_looked_at),
        cmocka_unit_test(errors_of_an_output_node),
        cmocka_unit_test(values_are_converted_and_stored),
        cmocka_unit_test(whole_graphs),
        cmocka_unit_test(ten_thousand_nodes_in_a_row),
        cmocka_unit_test(ten_thousand_nodes_side_by_side),
        cmocka_unit_test(limits_are_named),
        cmocka_unit_test(validation_survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
