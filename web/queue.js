/* queue: what runs and how far it is, what waits and in which order. The list has no graphs; what a
 * waiting prompt says is asked for when it comes into view. */
import * as api from './api.js';
import {learnGraph, loadQueue} from './data.js';
import {confirm} from './dialog.js';
import {$, button, el, keyed, put, show} from './dom.js';
import {count, seconds, short} from './format.js';
import {follow, left} from './run.js';
import {on, state} from './store.js';
import {toast, trouble} from './toast.js';
import {settingsOf, titleOf} from './workflow.js';

const titles = new WeakMap(); /* graph -> what a list calls it */

function titleOfItem(item) {
    const graph = state.graphs.get(item.id);
    if (!graph)
        return `Prompt ${item.id.slice(0, 8)}`;
    if (!titles.has(graph))
        titles.set(graph,
            short(settingsOf(graph).prompt?.trim() ||
                    `Workflow of ${count(Object.keys(graph).length, 'node')}`,
                160));
    return titles.get(graph);
}

const watcher = new IntersectionObserver((entries) => {
    for (const e of entries)
        if (e.isIntersecting)
            learnGraph(e.target.dataset.promptId);
});

async function act(what, request) {
    try {
        await request();
        await loadQueue();
        return true;
    } catch (e) {
        trouble(what, e);
        loadQueue();
        return false;
    }
}

/* Nobody answers: what is shown is of then, and no button would do anything. */
const isLost = () => !state.connected && Boolean(state.attempts);

/* ---- waiting ---- */

const placeOf = (id) => state.queue.pending.findIndex((p) => p.id === id);

/* Makes it the one at `index`. */
async function move(id, index) {
    const rest = state.queue.pending.filter((p) => p.id !== id);
    if (index < 0 || index > rest.length || index === placeOf(id))
        return;
    if (index === rest.length && state.queue.total > state.queue.pending.length)
        return; /* others follow that are not listed: this would be behind them all */
    const before = rest[index]?.id ?? null;
    if (await act('The order did not change',
            () => api.post('/berth/queue', {move: {prompt_id: id, before}})))
        say(`Now at place ${placeOf(id) + 1} of ${state.queue.total}`);
}

const cancel = (id) =>
    act('The prompt was not cancelled', () => api.post('/queue', {delete: [id]}));

function say(text) {
    put($('running-live'), {text});
}

let dragged = null;

function wireDrag(li, id) {
    li.addEventListener('dragstart', (e) => {
        dragged = id;
        e.dataTransfer.effectAllowed = 'move';
        e.dataTransfer.setData('text/plain', id);
        li.classList.add('dragged');
    });
    li.addEventListener('dragend', () => {
        dragged = null;
        li.classList.remove('dragged');
    });
    li.addEventListener('dragover', (e) => {
        if (dragged && dragged !== id) {
            e.preventDefault();
            li.classList.add('target');
        }
    });
    li.addEventListener('dragleave', () => li.classList.remove('target'));
    li.addEventListener('drop', (e) => {
        li.classList.remove('target');
        if (!dragged || dragged === id)
            return;
        e.preventDefault();
        e.stopPropagation();
        move(dragged, placeOf(id)); /* takes the place of the one it was dropped on */
    });
}

function makeWaiting(item) {
    const id = item.id;
    const icon = (test, text, label, fn) =>
        button(text, test, fn, {class: 'small icon', 'aria-label': label, title: label});
    const li = el('li', {tabindex: 0, draggable: 'true', data: {test: 'waiting', promptId: id}},
        el('span', {class: 'waiting-text'}),
        el('span', {class: 'waiting-buttons'},
            icon('top', '⤒', 'Move to the top', () => move(id, 0)),
            icon('up', '↑', 'Move up', () => move(id, placeOf(id) - 1)),
            icon('down', '↓', 'Move down', () => move(id, placeOf(id) + 1)),
            icon('cancel', '✕', 'Cancel this prompt', () => cancel(id))));
    li.addEventListener('keydown', (e) => {
        if (e.altKey && (e.key === 'ArrowUp' || e.key === 'ArrowDown')) {
            e.preventDefault();
            move(id, placeOf(id) + (e.key === 'ArrowUp' ? -1 : 1));
        } else if (e.key === 'Delete' && e.target === li) {
            cancel(id);
        }
    });
    wireDrag(li, id);
    watcher.observe(li);
    return li;
}

function patchWaiting(li, item) {
    const at = placeOf(item.id), last = state.queue.pending.length - 1;
    const title = titleOfItem(item);
    put(li,
        {'aria-label': `${at + 1}: ${title}. Alt and arrow keys move it, Delete cancels it.`});
    put(li.querySelector('.waiting-text'), {text: title, title});
    const off = {top: at === 0, up: at === 0, down: at === last};
    for (const b of li.querySelectorAll('button'))
        b.disabled = isLost() || Boolean(off[b.dataset.test]);
}

function drawQueue() {
    const q = state.queue;
    put($('btn-pause'), {text: q.paused ? 'Resume' : 'Pause'});
    const lost = isLost();
    $('btn-pause').disabled = lost;
    $('btn-clear').disabled = lost || q.total === 0;
    const words = [q.paused ? 'paused' : '', q.total ? `${q.total} waiting` : ''];
    put($('queue-count'), {text: words.filter(Boolean).join(', '), data: {count: q.total}});
    keyed($('waiting'), q.pending, (p) => p.id, makeWaiting, patchWaiting);
    show($('queue-empty'), !q.running && q.total === 0);
    put($('queue-empty'),
        {text: q.paused ? 'Paused, and nothing waits.' : 'Nothing runs and nothing waits.'});
    show($('queue-more'), q.total > q.pending.length);
    put($('queue-more'), {text: `The first ${q.pending.length} of ${q.total}.`});
    if (q.running)
        learnGraph(q.running.id);
    follow();
}

/* ---- running ---- */

/* What a screen reader heard last of the running prompt: a quarter at a time is enough. */
let told = '';

function announce(run) {
    const share = run.max > 1 ? Math.floor(4 * run.value / run.max) * 25 : 0;
    const key = `${run.id} ${share}`;
    if (key === told)
        return;
    const same = told.startsWith(run.id);
    told = key;
    say(same ? `${share} percent` : 'A prompt runs');
}

/* A bar and a line of text; gives the percentage, null where the node does not tell. */
export function drawProgress(bar, text, run) {
    const steps = run.max > 1;
    put(bar, steps ? {value: run.value, max: run.max} : {value: null, max: 1});
    const rest = left(run);
    const share = Math.round(100 * run.value / (run.max || 1));
    put(text, {
        text: steps ?
            [
                `step ${run.value} of ${run.max}`, `${share} %`,
                rest === null || isLost() ? '' : `${seconds(rest)} left`
            ].filter(Boolean)
                .join(' · ') :
            'working',
    });
    return steps ? share : null;
}

function drawRun() {
    const item = state.queue.running, run = state.run;
    const visible = Boolean(item && run && run.id === item.id);
    if (!visible && !state.queue.paused && state.queue.total > 0)
        return; /* between two prompts: what follows it in the page need not jump up and down */
    show($('running'), visible);
    if (!visible) {
        put($('running'), {data: {promptId: ''}});
        document.title = 'Berth';
        if (told && !item)
            say('Nothing runs');
        told = item ? told : '';
        return;
    }
    put($('running'), {data: {promptId: item.id}});
    put($('running-prompt'), {text: titleOfItem(item)});
    const node = state.graphs.get(item.id)?.[run.node];
    put($('running-node'), {text: run.node ? `${titleOf(node)} (node ${run.node})` : 'starting'});
    const share = drawProgress($('running-progress'), $('running-text'), run);
    put($('running-note'), {text: run.note});
    show($('running-note'), Boolean(run.note));
    $('btn-interrupt').disabled = isLost();
    announce(run);
    document.title = share !== null && !isLost() ? `${share} % · Berth` : 'Berth';
    const image = $('running-preview');
    if (run.preview && image.src !== run.preview)
        image.src = run.preview;
    show(image, Boolean(run.preview));
    put(image, {data: {count: run.previews}});
    show($('running-blank'), !run.preview);
}

/* ---- buttons ---- */

async function pause() {
    await act(
        'The queue is as it was', () => api.post('/berth/queue', {paused: !state.queue.paused}));
}

async function clear() {
    const n = state.queue.total;
    const one = n === 1;
    const what = one ? 'the waiting prompt' : `all ${n} waiting prompts`;
    if (await confirm(`Remove ${what}? The running one goes on.`, 'Remove',
            one ? 'Keep it' : 'Keep them') &&
        await act('The queue was not cleared', () => api.post('/queue', {clear: true})))
        toast('done', `${count(n, 'prompt')} removed`);
}

async function interrupt() {
    const id = state.queue.running?.id;
    if (id)
        await act('It was not interrupted', () => api.post('/interrupt', {prompt_id: id}));
}

export function start() {
    on('queue', drawQueue);
    on('queue', drawRun);
    on('run', drawRun);
    on('connection', drawQueue);
    on('connection', drawRun);
    $('btn-pause').addEventListener('click', pause);
    $('btn-clear').addEventListener('click', clear);
    $('btn-interrupt').addEventListener('click', interrupt);
}
