/* What bash needs: plain functions, so that nothing else must be loaded. */
#include "app/describe.h"

static const char head[] =
    "# bash completion for berth; 'berth completion bash' printed it\n"
    "\n"
    "_berth_devices() # the host, and the cards that NVIDIA's driver shows\n"
    "{\n"
    "    local card\n"
    "    echo cpu\n"
    "    for card in /dev/nvidia[0-9]*; do\n"
    "        [[ -e $card ]] && echo \"cuda:${card#/dev/nvidia}\"\n"
    "    done\n"
    "}\n"
    "\n"
    "_berth_offer() # $1: what, and for a list its words. Completes $cur\n"
    "{\n"
    "    local before=\n"
    "    case $1 in\n"
    "    files) compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -f -- "
    "\"$cur\") "
    ";;\n"
    "    dirs) compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") "
    ";;\n"
    "    list\\ *) mapfile -t COMPREPLY < <(IFS=' '; compgen -W \"${1#list }\" -- \"$cur\") ;;\n"
    "    devices) # one, or several with commas between them\n"
    "        [[ $cur == *,* ]] && before=${cur%,*},\n"
    "        compopt -o nospace 2> /dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$(_berth_devices)\" -- "
    "\"${cur##*,}\") ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "_berth_words() # $1: the line. Sets words, without their quotes, and quote: where in the "
    "last\n"
    "{              # word one was opened that is not closed yet; '': nowhere\n"
    "    local rest=$1 word= begun= in= c\n"
    "    words=() quote=\n"
    "    while [[ $rest ]]; do\n"
    "        c=${rest:0:1} rest=${rest:1}\n"
    "        if [[ $c == \\\\ && $in != \\' ]]; then\n"
    "            word+=${rest:0:1} rest=${rest:1} begun=1\n"
    "        elif [[ $in && $c == \"$in\" ]]; then\n"
    "            in= quote=\n"
    "        elif [[ ! $in && $c == [\\'\\\"] ]]; then\n"
    "            in=$c quote=${#word} begun=1\n"
    "        elif [[ ! $in && $c == [[:space:]] ]]; then\n"
    "            [[ $begun ]] && words+=(\"$word\")\n"
    "            word= begun=\n"
    "        else\n"
    "            word+=$c begun=1\n"
    "        fi\n"
    "    done\n"
    "    words+=(\"$word\")\n"
    "}\n"
    "\n"
    "_berth_command() # $1: command, or ''. Sets names, args and, if option $2 takes one, value\n"
    "{\n"
    "    case $1 in\n";

static const char tail[] =
    "    esac\n"
    "}\n"
    "\n"
    "_berth()\n"
    "{\n"
    "    # bash cuts words at = and :, which lie inside ours: --port=9000, cuda:0. So the line is\n"
    "    # cut at blanks, and what bash keeps by itself is taken off the answers at the end.\n"
    "    local words quote cur option= command= names= args= value= kept= before= cuts i\n"
    "    _berth_words \"${COMP_LINE:0:COMP_POINT}\"\n"
    "    cur=${words[${#words[@]}-1]} cuts=${COMP_WORDBREAKS//[^=:]/}\n"
    "    if [[ $quote ]]; then\n"
    "        kept=${cur:0:quote} # it cuts at a quote, and nowhere behind\n"
    "    elif [[ $cuts ]]; then\n"
    "        kept=${cur%\"${cur##*[$cuts]}\"}\n"
    "    fi\n"
    "    for ((i = 1; i < ${#words[@]} - 1; i++)); do\n"
    "        value=\n"
    "        _berth_command \"$command\" \"${words[i]}\"\n"
    "        option=${value:+${words[i]}}\n"
    "        if [[ $option ]]; then\n"
    "            ((i++)) # its value; the last word is then one\n"
    "        elif [[ ! $command && ${words[i]} != -* ]]; then\n"
    "            command=${words[i]}\n"
    "        fi\n"
    "    done\n"
    "    [[ $option && $i -eq ${#words[@]} ]] || option=\n"
    "    [[ $cur == --*=* ]] && option=${cur%%=*} before=${cur%%=*}= cur=${cur#*=}\n"
    "    names= args= value=\n"
    "    _berth_command \"$command\" \"$option\"\n"
    "    COMPREPLY=()\n"
    "    if [[ $option ]]; then\n"
    "        _berth_offer \"$value\"\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        _berth_offer \"list $names\"\n"
    "    else\n"
    "        _berth_offer \"$args\"\n"
    "    fi\n"
    "    COMPREPLY=(\"${COMPREPLY[@]/#/\"$before\"}\")\n"
    "    COMPREPLY=(\"${COMPREPLY[@]#\"$kept\"}\")\n"
    "}\n"
    "\n"
    "complete -F _berth berth\n";

/* "list a b", "files", "nothing". */
static void offer(struct str *out, const char *value)
{
    static const char *const names[] = { [WORDS_NONE] = "nothing",
                                         [WORDS_FILES] = "files",
                                         [WORDS_DIRS] = "dirs",
                                         [WORDS_DEVICES] = "devices",
                                         [WORDS_LIST] = "list " };
    enum words kind;
    struct str list = { 0 };
    value_words(value, &kind, &list);
    str_addf(out, "'%s%s'", names[kind], str_c(&list));
    out->bad |= list.bad;
    str_release(&list);
}

static void names(struct str *out, const struct opts *o)
{
    const char *blank = "";
    str_adds(out, "        names='");
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++) {
            str_addf(out, "%s--%s", blank, o->at[i].name);
            blank = " ";
            if (o->at[i].letter)
                str_addf(out, " -%c", o->at[i].letter);
        }
    str_adds(out, "'\n");
}

static void values(struct str *out, const struct opts *o)
{
    str_adds(out, "        case $2 in\n");
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++) {
            const struct opt *t = &o->at[i];
            if (t->kind == OPT_FLAG)
                continue;
            str_addf(out, "        --%s", t->name);
            if (t->letter)
                str_addf(out, "|-%c", t->letter);
            str_adds(out, ") value=");
            offer(out, t->value);
            str_adds(out, " ;;\n");
        }
    str_adds(out, "        esac ;;\n");
}

static void one_case(struct str *out, const char *pattern, const char *args, const struct opts *o)
{
    str_addf(out, "    %s)\n", pattern);
    names(out, o);
    str_adds(out, "        args=");
    offer(out, args);
    str_addc(out, '\n');
    values(out, o);
}

static void begin(struct str *out, const struct opts *globals)
{
    str_adds(out, head);
    one_case(out, "''", "COMMAND", globals);
}

static void command(struct str *out, const struct command *c, const struct opts *o)
{
    one_case(out, c->name, c->args, o);
}

const struct shell shell_bash = { .name = "bash",
                                  .use = "source <(berth completion bash)",
                                  .begin = begin,
                                  .command = command,
                                  .end = tail };
