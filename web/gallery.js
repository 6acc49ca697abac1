/* gallery: finished prompts, newest first. The list itself is small; what a picture shows is
 * asked for when its card comes into view, so that a long history costs nothing. */
import {viewUrl} from './api.js';
import {graphOf, historyOf, loadMoreJobs} from './data.js';
import {$, button, el, keyed, put, show} from './dom.js';
import {count, date, short} from './format.js';
import {use} from './later.js';
import {LIMITS, on, state} from './store.js';
import {settingsOf} from './workflow.js';

export const openPicture = (id) =>
    use('picture', 'The large view', (picture) => picture.openPicture(id));

const learned = new Map(); /* prompt id -> {text, cached}; null while it is asked for */

export const kindOf = (name) => /\.(mp4|mov|webm|mkv)$/i.test(name) ? 'video' :
    /\.(flac|mp3|opus|ogg|wav)$/i.test(name) ? 'sound' : 'picture';

export const SHOWN = ['images', 'gifs', 'video', 'audio']; /* keys of outputs */

export const still = (src, kind) => (kind === 'sound' ?
    el('span', {class: 'failed', text: '\u266a'}) :
    el('video', {src, preload: 'metadata'}));

const isShown = (o) => o && SHOWN.includes(o.mediaType) && typeof o.filename === 'string';

const textOf = (job) => learned.get(job.id)?.text || '';

/* Somebody stopped it: nothing was wrong. */
const wasInterrupted = (job) => job.status === 'cancelled';

const didNotFinish = (job) => job.status !== 'completed';

function labelOf(job) {
    const text = textOf(job) || (job.create_time ? date(job.create_time) : job.id);
    const parts = [text];
    if (didNotFinish(job))
        parts[0] = `${wasInterrupted(job) ? 'Interrupted' : 'Failed'}: ${text}`;
    if (job.outputs_count > 1)
        parts.push(count(job.outputs_count, 'picture'));
    if (learned.get(job.id)?.cached)
        parts.push('from cache');
    return parts.join(', ');
}

const fileOf = (job) => (isShown(job?.preview_output) ? viewUrl(job.preview_output) : null);

/* Nothing was computed: every node that gave something was answered from the cache. Then it gave
 * the file of an earlier prompt: the history, which is long, is only asked about those. */
async function fromCache(id) {
    const file = fileOf(state.jobs.find((j) => j.id === id));
    if (!file || !state.jobs.some((j) => j.id !== id && fileOf(j) === file))
        return false;
    const entry = await historyOf(id);
    const nodes =
        (entry?.status?.messages || []).find(([type]) => type === 'execution_cached')?.[1]?.nodes;
    const gave = Object.keys(entry?.outputs || {});
    return gave.length > 0 && Array.isArray(nodes) && gave.every((n) => nodes.includes(n));
}

async function learn(id, node) {
    if (learned.has(id))
        return;
    learned.set(id, null);
    try {
        const graph = await graphOf(id);
        if (graph)
            learned.set(id, {
                text: short(settingsOf(graph).prompt || '', 200),
                cached: await fromCache(id)
            });
    } catch {
        learned.delete(id); /* next time it comes into view */
    }
    const job = state.jobs.find((j) => j.id === id);
    if (job && node.isConnected)
        patchCard(node, job);
}

const watcher = new IntersectionObserver((entries) => {
    for (const e of entries)
        if (e.isIntersecting) {
            watcher.unobserve(e.target);
            learn(e.target.dataset.promptId, e.target);
        }
});

function failure(job) {
    const e = job.execution_error || {};
    return wasInterrupted(job) ?
        el('span', {class: 'failed'}, el('strong', {text: 'Interrupted'}),
            el('span', {data: {test: 'interrupted-prompt'}})) :
        el('span', {class: 'failed'},
            el('strong', {text: `Failed in ${e.node_type || 'a node'}`}),
            el('span', {text: short((e.exception_message || '').trim(), 160)}));
}

function makeCard(job) {
    const o = job.preview_output;
    const kind = isShown(o) && kindOf(o.filename);
    const image = kind === 'picture' ?
        el('img',
            {loading: 'lazy', decoding: 'async', alt: '', src: viewUrl(o, {preview: 'webp;50'})}) :
        kind ? still(viewUrl(o), kind) : null;
    const none =
        didNotFinish(job) ? failure(job) : el('span', {class: 'failed', text: 'No picture'});
    const many = job.outputs_count > 1 ?
        el('span', {class: 'many', text: `×${job.outputs_count}`, 'aria-hidden': 'true'}) :
        null;
    const cached = el('span', {class: 'cached', text: 'from cache', 'aria-hidden': 'true',
        hidden: true, data: {test: 'from-cache'}});
    const open = button('', 'open', () => openPicture(job.id), {}, image || none, many, cached,
        image ? el('span', {class: 'caption', 'aria-hidden': 'true'}) : null);
    const li = el('li', {data: {test: 'card', promptId: job.id, status: job.status}}, open);
    watcher.observe(li);
    return li;
}

function patchCard(li, job) {
    const label = labelOf(job);
    put(li.firstElementChild, {'aria-label': label, title: label});
    show(li.querySelector('.cached'), Boolean(learned.get(job.id)?.cached));
    const caption = li.querySelector('.caption, [data-test=interrupted-prompt]');
    if (caption)
        put(caption, {text: textOf(job)});
}

function draw() {
    keyed($('gallery-list'), state.jobs, (j) => j.id, makeCard, patchCard);
    show($('gallery-empty'), state.jobs.length === 0);
    put($('gallery-count'), {text: state.picturesTotal ? String(state.picturesTotal) : ''});
    show($('btn-more'), state.jobs.length < Math.min(state.jobsTotal, LIMITS.jobs));
    show($('gallery-rest'), state.jobsTotal > LIMITS.jobs && state.jobs.length >= LIMITS.jobs);
    put($('gallery-rest'), {
        text: `The newest ${LIMITS.jobs}. The other ${
            state.jobsTotal - LIMITS.jobs} are in the history and in the output folder.`
    });
    const known = new Set(state.jobs.map((j) => j.id));
    for (const id of learned.keys())
        if (!known.has(id))
            learned.delete(id);
}

export function start() {
    on('jobs', draw);
    $('btn-more').addEventListener('click', loadMoreJobs);
}
