/* picture: one finished prompt, large: its pictures, what made them, what the networks did, or
 * why it failed. */
import * as api from './api.js';
import {useSettings} from './compose.js';
import {historyOf, loadJobs} from './data.js';
import * as dialog from './dialog.js';
import {$, button, el, put, show} from './dom.js';
import {bytes, date, gbps, percent, seconds} from './format.js';
import {seen, toast, trouble} from './toast.js';
import {settingsOf} from './workflow.js';
import {openWorkflow} from './workflowview.js';

let shown = null; /* {id, entry} */

function imagesOf(entry) {
    return Object.values(entry.outputs || {})
        .flatMap((o) => (Array.isArray(o.images) ? o.images : []))
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

function choose(image, prompt) {
    const img = $('picture-image');
    img.src = api.viewUrl(image);
    img.alt = prompt ? `Picture made from: ${prompt}` : image.filename;
    put($('btn-download'), {href: api.viewUrl(image), download: image.filename});
    for (const b of $('picture-thumbs').children)
        put(b, {'aria-pressed': String(b.dataset.name === image.filename)});
}

function showImages(images, prompt) {
    $('dlg-picture').classList.toggle('wide', images.length > 0);
    show($('picture-image'), images.length > 0);
    show($('picture-none'), images.length === 0);
    show($('btn-download'), images.length > 0);
    show($('picture-thumbs'), images.length > 1);
    const thumb = (image, i) => button('', 'thumb', () => choose(image, prompt),
        {'aria-label': `Picture ${i + 1}`, data: {name: image.filename}},
        el('img', {alt: '', src: api.viewUrl(image, {preview: 'webp;60'})}));
    $('picture-thumbs').replaceChildren(...images.map(thumb));
    if (images.length)
        choose(images[0], prompt);
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

export async function openPicture(id) {
    let entry;
    try {
        entry = await historyOf(id);
    } catch (e) {
        trouble('The history did not answer', e);
        return;
    }
    if (!entry) {
        toast('info', 'This prompt is no longer in the history');
        loadJobs();
        return;
    }
    shown = {id, entry};
    const s = settingsOf(entry.prompt[2]);
    const failed = entry.status?.status_str === 'error';
    put($('picture-title'), {text: failed ? 'Prompt that did not finish' : 'Picture'});
    showImages(imagesOf(entry), s.prompt);
    showFacts(entry, s);
    showNetworks(entry);
    showError(entry);
    seen(id);
    dialog.open('dlg-picture');
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

export function start() {
    $('btn-picture-close').addEventListener('click', () => dialog.close('dlg-picture'));
    $('btn-delete').addEventListener('click', forget);
    $('btn-use').addEventListener('click', () => {
        dialog.close('dlg-picture');
        useSettings(settingsOf(shown.entry.prompt[2]));
    });
    $('btn-load-workflow').addEventListener('click', () => {
        dialog.close('dlg-picture');
        openWorkflow(shown.entry.prompt[2], 'From the history');
    });
}
