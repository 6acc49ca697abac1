/* picture: one finished prompt, large: its pictures, what made them, what the networks did, or
 * why it failed. Fetched when the first one is opened. */
import * as api from './api.js';
import {drawFrom, useSettings} from './compose.js';
import {historyOf, loadJobs, loadMoreJobs} from './data.js';
import * as dialog from './dialog.js';
import {$, button, el, put, show} from './dom.js';
import {bytes, date, gbps, percent, seconds} from './format.js';
import {SHOWN, kindOf, still} from './gallery.js';
import {use} from './later.js';
import {state} from './store.js';
import {seen, toast, trouble} from './toast.js';
import {settingsOf} from './workflow.js';

let shown = null; /* {id, entry, prompt, images, at: which of them} */
let turn = 0;     /* counts openings: only the last one's answer counts */

function imagesOf(entry) {
    return Object.values(entry.outputs || {})
        .flatMap((o) => SHOWN.flatMap((key) => (Array.isArray(o[key]) ? o[key] : [])))
        .filter((i) => typeof i?.filename === 'string');
}

function message(entry, ...types) {
    return (entry.status?.messages || []).find(([type]) => types.includes(type))?.[1] || null;
}

function durationOf(entry) {
    const from = message(entry, 'execution_start')?.timestamp;
    const to =
        message(entry, 'execution_success', 'execution_error', 'execution_interrupted')?.timestamp;
    return from && to ? (to - from) / 1000 : null;
}

/* Made here: a page that is just opened has no need of them. */
$('picture-image').after(
    el('video', {id: 'picture-video', controls: true, loop: true, hidden: true}),
    el('audio', {id: 'picture-sound', controls: true, hidden: true}));

/* The element that shows a kind of file; the others are put away, and silent. */
function stage(kind) {
    for (const [k, id] of [['picture', 'picture-image'], ['video', 'picture-video'],
        ['sound', 'picture-sound']]) {
        const e = $(id);
        show(e, k === kind);
        if (k !== kind && k !== 'picture')
            quiet(e);
    }
}

function quiet(clip) {
    clip.pause();
    clip.removeAttribute('src');
    clip.load(); /* lets go of the file */
}

function choose(at) {
    const image = shown.images[at], {prompt} = shown;
    const kind = kindOf(image.filename);
    shown.at = at;
    stage(kind);
    const e = $({picture: 'picture-image', video: 'picture-video', sound: 'picture-sound'}[kind]);
    e.src = api.viewUrl(image);
    if (kind === 'picture')
        e.alt = prompt ? `Picture made from: ${prompt}` : image.filename;
    else
        e.setAttribute('aria-label', prompt ? `Made from: ${prompt}` : image.filename);
    put($('btn-download'), {href: api.viewUrl(image), download: image.filename});
    show($('btn-from'), kind === 'picture');
    [...$('picture-thumbs').children].forEach(
        (b, i) => put(b, {'aria-pressed': String(i === at)}));
}

function thumbOf(image) {
    const kind = kindOf(image.filename);
    return kind === 'picture' ?
        el('img', {alt: '', src: api.viewUrl(image, {preview: 'webp;60'})}) :
        still(api.viewUrl(image), kind);
}

function showImages(images, at) {
    $('dlg-picture').classList.toggle('wide', images.length > 0);
    stage(images.length ? kindOf(images[at].filename) : null);
    show($('picture-none'), images.length === 0);
    for (const id of ['btn-download', 'btn-from'])
        show($(id), images.length > 0);
    show($('picture-thumbs'), images.length > 1);
    const thumb = (image, i) => button('', 'thumb', () => choose(i),
        {'aria-label': `Picture ${i + 1}`, data: {name: image.filename}}, thumbOf(image));
    $('picture-thumbs').replaceChildren(...images.map(thumb));
    if (images.length)
        choose(at);
}

/* Where a VAE had no room for a whole picture: it is not quite the one it would have been. */
function tilesOf(entry) {
    const cut = (entry.status?.berth?.networks || []).filter((n) => n.tiles);
    const texts = cut.map((n) => `${n.what}d in ${n.tiles} tiles for want of memory: ${
        n.device} was full. It may differ from one ${n.what}d whole.`);
    return texts.length ? [...new Set(texts)].join('\n') : undefined;
}

function showFacts(entry, s) {
    const took = durationOf(entry);
    const facts = [
        ['prompt', 'Prompt', s.prompt],
        ['negative', 'Negative', s.negative],
        ['model', 'Model', s.model],
        ['seed', 'Seed', s.seed],
        ['sampler', 'Sampler', s.sampler],
        ['scheduler', 'Scheduler', s.scheduler],
        ['steps', 'Steps', s.steps],
        ['cfg', 'CFG', s.cfg],
        ['size', 'Size', s.width && s.height ? `${s.width} × ${s.height}` : undefined],
        ['tiles', 'Tiles', tilesOf(entry)],
        ['duration', 'Took', took === null ? undefined : seconds(took)],
        [
            'when', 'When',
            entry.prompt[3]?.create_time ? date(entry.prompt[3].create_time) : undefined
        ],
    ].filter(([, , value]) => value !== undefined && value !== '');
    $('picture-facts').replaceChildren(...facts.flatMap(([key, label,
        value]) => [el('dt', {text: label}), el('dd', {text: String(value), data: {fact: key}})]));
}

function streamText(s) {
    return s ? `${bytes(s.bytes)}, ${gbps(s.gb_per_s)}, waited ${percent(s.exposed, 1)}` : '–';
}

function showNetworks(entry) {
    const list = entry.status?.berth?.networks || [];
    if (!list.length) {
        $('picture-networks').replaceChildren();
        return;
    }
    const head = ['Network', 'Device', 'Passes', 'Weights', 'Activations', 'Peak', 'Streamed'];
    const row = (n) => [`${n.network} (node ${n.node})`, n.device, n.passes, bytes(n.weights),
        bytes(n.activations), bytes(n.peak), streamText(n.stream)];
    $('picture-networks')
        .replaceChildren(el('h3', {text: 'What the networks did'}),
            el('div', {class: 'scroll'},
                el('table', {},
                    el('thead', {},
                        el('tr', {}, ...head.map((t) => el('th', {scope: 'col', text: t})))),
                    el('tbody', {},
                        ...list.map(
                            (n) => el('tr', {}, ...row(n).map((t) => el('td', {text: t}))))))));
}

function showError(entry) {
    const e = message(entry, 'execution_error'), stopped = message(entry, 'execution_interrupted');
    const at = e || stopped;
    show($('picture-error'), Boolean(at));
    if (at)
        put($('picture-error'), {
            text: `${e ? 'Failed' : 'Interrupted'} in ${at.node_type || 'a node'} (node ${
                at.node_id}).${e ? `\n${(e.exception_message || '').trim()}` : ''}`
        });
}

/* last: beginning with its last picture, for those who come from behind. */
export async function openPicture(id, last = false) {
    const mine = ++turn;
    let entry;
    try {
        entry = await historyOf(id);
    } catch (e) {
        trouble('The history did not answer', e);
        return;
    }
    if (mine !== turn)
        return;
    if (!entry) {
        toast('info', 'This prompt is no longer in the history');
        loadJobs();
        return;
    }
    const s = settingsOf(entry.prompt[2]), images = imagesOf(entry);
    shown = {id, entry, images, prompt: s.prompt, at: 0};
    const failed = entry.status?.status_str === 'error';
    put($('picture-title'), {text: failed ? 'Prompt that did not finish' : 'Picture'});
    showImages(images, last ? images.length - 1 : 0);
    showFacts(entry, s);
    showNetworks(entry);
    showError(entry);
    seen(id);
    dialog.open('dlg-picture');
}

/* To the next picture (1), of this prompt or of the one behind it in the gallery, or back (-1). */
async function go(way) {
    if (shown.images[shown.at + way]) {
        choose(shown.at + way);
        return;
    }
    const here = state.jobs.findIndex((j) => j.id === shown.id);
    if (here >= 0 && here + way === state.jobs.length)
        await loadMoreJobs();
    const job = here < 0 ? null : state.jobs[here + way];
    if (job && $('dlg-picture').open)
        await openPicture(job.id, way < 0);
}

function keys(e) {
    const way = {ArrowLeft: -1, ArrowRight: 1}[e.key];
    if (!way || e.altKey || e.ctrlKey || e.metaKey || e.shiftKey || e.target.closest('.scroll'))
        return;
    e.preventDefault();
    go(way);
}

async function forget() {
    if (!await dialog.confirm(
            'Delete this prompt from the history? Its picture files stay in the output folder.',
            'Delete'))
        return;
    try {
        await api.post('/history', {delete: [shown.id]});
        dialog.close('dlg-picture');
        toast('done', 'Deleted from the history');
    } catch (e) {
        trouble('It was not deleted', e);
    }
    loadJobs();
}

function wire() {
    $('btn-picture-close').addEventListener('click', () => dialog.close('dlg-picture'));
    $('btn-delete').addEventListener('click', forget);
    $('dlg-picture').addEventListener('keydown', keys);
    $('dlg-picture').addEventListener('close', () => {
        turn++;
        quiet($('picture-video'));
        quiet($('picture-sound'));
    });
    $('btn-use').addEventListener('click', () => {
        dialog.close('dlg-picture');
        useSettings(settingsOf(shown.entry.prompt[2]));
    });
    $('btn-from').addEventListener('click', () => {
        const image = shown.images[shown.at];
        dialog.close('dlg-picture');
        drawFrom(api.viewUrl(image), image.filename);
    });
    $('btn-load-workflow').addEventListener('click', () => {
        const graph = shown.entry.prompt[2];
        dialog.close('dlg-picture');
        use('workflowview', 'The workflow view',
            (view) => view.openWorkflow(graph, 'From the history'));
    });
}

wire();
