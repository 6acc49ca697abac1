/* workflowview: a workflow that was dropped or loaded: what it is made of, what is missing here,
 * and the button that queues it. Fetched when the first one comes. */
import * as api from './api.js';
import {useSettings} from './compose.js';
import * as dialog from './dialog.js';
import {$, el, put, releaseBlob, show} from './dom.js';
import {count} from './format.js';
import {submit} from './submit.js';
import {toast} from './toast.js';
import {choicesOf, modelsIn, nodeErrors, settingsOf, titleOf} from './workflow.js';

const SHOWN = 400; /* nodes in the list */
const TOLD = 10;   /* reasons in one message */

let graph = null;
let turn = 0;

/* What this server lacks: [{what, name, node}]. */
function missing(g, info) {
    const list = [];
    const kindOf = (id) => String(g[id]?.class_type);
    for (const id of Object.keys(g))
        if (!Object.hasOwn(info, kindOf(id)))
            list.push({what: 'node', name: kindOf(id), node: id});
    for (const m of modelsIn(g)) {
        const choices = choicesOf(info[kindOf(m.node)], m.input);
        if (choices && !choices.includes(m.name))
            list.push({what: 'model', name: m.name, node: m.node});
    }
    return list;
}

function showMissing(list) {
    show($('workflow-missing'), list.length > 0);
    $('workflow-missing')
        .replaceChildren(el('strong', {text: 'Missing here: '}),
            ...list.slice(0, 20).flatMap((m, i) => [i ? ', ' : '', el('span', {
                text: `${m.what} ${m.name} (node ${m.node})`,
                data: {test: 'missing', name: m.name}
            })]),
            list.length > 20 ? ` and ${list.length - 20} more` : '');
}

function showNodes(g) {
    const nodes = Object.entries(g);
    const rows = nodes.slice(0, SHOWN).map(
        ([id, n]) => el('tr', {data: {test: 'workflow-node', node: id}}, el('td', {text: id}),
            el('td', {text: String(n?.class_type)}),
            el('td', {class: 'quiet', text: titleOf(n) === n?.class_type ? '' : titleOf(n)})));
    $('workflow-nodes')
        .replaceChildren(el('table', {},
            el('thead', {},
                el('tr', {},
                    ...['Node', 'Class', 'Title'].map((t) => el('th', {scope: 'col', text: t})))),
            el('tbody', {}, ...rows)));
}

function showFacts(s) {
    const facts = [['prompt', 'Prompt', s.prompt], ['seed', 'Seed', s.seed]].filter(
        ([, , value]) => value !== undefined && value !== '');
    $('workflow-facts')
        .replaceChildren(...facts.flatMap(([key, label, value]) => [
            el('dt', {text: label}), el('dd', {text: String(value), data: {fact: key}})]));
    show($('workflow-facts'), facts.length > 0);
}

export async function openWorkflow(g, from) {
    const mine = ++turn;
    graph = g;
    const settings = settingsOf(g);
    const models = [...new Set(modelsIn(g).map((m) => m.name))];
    put($('workflow-kind'),
        {text: `${from}: an API workflow of ${count(Object.keys(g).length, 'node')}.`});
    $('workflow-models')
        .replaceChildren(el('p', {}, models.length ? 'Models: ' : 'It names no model.',
            ...models.flatMap((m, i) => [i ? ' ' : '', el('code', {text: m})])));
    showFacts(settings);
    showNodes(g);
    show($('workflow-error'), false);
    show($('workflow-missing'), false);
    show($('btn-workflow-use'), settings.prompt !== undefined);
    dialog.open('dlg-workflow');
    $('btn-workflow-queue').focus();
    try {
        const info = await api.get('/object_info'); /* each time: models come and go */
        if (mine === turn)
            showMissing(missing(g, info));
    } catch (e) {
        if (mine === turn)
            fail(e.message);
    }
}

function fail(text) {
    put($('workflow-error'), {text});
    show($('workflow-error'), true);
}

let busy = false;

async function queueIt() {
    if (busy)
        return;
    busy = true;
    const mine = turn;
    try {
        const answer = await submit(graph);
        if (mine === turn)
            dialog.close('dlg-workflow');
        const wrong = reasons({body: answer});
        if (wrong.length) /* stays until it is closed: something is not as it was asked for */
            toast('error', 'Queued, but not all of it can run', [
                'Left out, with the outputs that need it:', ...wrong
            ].join('\n'));
        else
            toast('done', 'Queued', '');
    } catch (e) {
        fail([e.message, ...reasons(e)].join('\n'));
    }
    busy = false;
}

/* Of each node that cannot run: one line. */
function reasons(e) {
    const all = nodeErrors(e).map((n) => `${n.kind} (node ${n.node}): ${n.text}`);
    return all.length <= TOLD ? all : [...all.slice(0, TOLD), `and ${all.length - TOLD} more`];
}

function save() {
    const url =
        URL.createObjectURL(new Blob([api.stringify(graph, 2)], {type: 'application/json'}));
    el('a', {href: url, download: 'workflow-api.json'}).click();
    releaseBlob(url);
}

function wire() {
    $('btn-workflow-queue').addEventListener('click', queueIt);
    $('btn-workflow-close').addEventListener('click', () => dialog.close('dlg-workflow'));
    $('btn-workflow-save').addEventListener('click', save);
    $('btn-workflow-use').addEventListener('click', () => {
        dialog.close('dlg-workflow');
        useSettings(settingsOf(graph));
    });
}

wire();
