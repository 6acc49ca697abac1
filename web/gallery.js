/* gallery: finished prompts, newest first. The list itself is small; what a picture shows is
 * asked for when its card comes into view, so that a long history costs nothing. */
import {viewUrl} from './api.js';
import {graphOf, loadMoreJobs} from './data.js';
import {$, button, el, keyed, put, show} from './dom.js';
import {count, date, short} from './format.js';
import {openPicture} from './picture.js';
import {LIMITS, on, state} from './store.js';
import {settingsOf} from './workflow.js';

const texts = new Map(); /* prompt id -> what it says; null while it is asked for */

const isPicture = (o) => o && o.mediaType === 'images' && typeof o.filename === 'string';

function labelOf(job) {
    const text = texts.get(job.id) || (job.create_time ? date(job.create_time) : job.id);
    return job.status === 'failed' ? `Failed: ${text}` : text;
}

async function learn(id, node) {
    if (texts.has(id))
        return;
    texts.set(id, null);
    try {
        const graph = await graphOf(id);
        if (graph)
            texts.set(id, short(settingsOf(graph).prompt || '', 200));
    } catch {
        texts.delete(id); /* next time it comes into view */
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
    const e = job.execution_error;
    return el('span', {class: 'failed'},
        el('strong', {text: e ? `Failed in ${e.node_type || 'a node'}` : 'Interrupted'}),
        e ? el('span', {text: short((e.exception_message || '').trim(), 160)}) : null);
}

function makeCard(job) {
    const o = job.preview_output;
    const image = isPicture(o) ?
        el('img',
            {loading: 'lazy', decoding: 'async', alt: '', src: viewUrl(o, {preview: 'webp;50'})}) :
        null;
    const none =
        job.status === 'failed' ? failure(job) : el('span', {class: 'failed', text: 'No picture'});
    const many = job.outputs_count > 1 ?
        el('span', {class: 'many', text: `×${job.outputs_count}`, 'aria-hidden': 'true'}) :
        null;
    const open = button('', 'open', () => openPicture(job.id), {}, image || none, many,
        image ? el('span', {class: 'caption', 'aria-hidden': 'true'}) : null);
    const li = el('li', {data: {test: 'card', promptId: job.id, status: job.status}}, open);
    watcher.observe(li);
    return li;
}

function patchCard(li, job) {
    const label = labelOf(job);
    put(li.firstElementChild, {
        'aria-label':
            `${label}${job.outputs_count > 1 ? `, ${count(job.outputs_count, 'picture')}` : ''}`,
        title: label
    });
    const caption = li.querySelector('.caption');
    if (caption)
        put(caption, {text: texts.get(job.id) || ''});
}

function draw() {
    keyed($('gallery-list'), state.jobs, (j) => j.id, makeCard, patchCard);
    show($('gallery-empty'), state.jobs.length === 0);
    put($('gallery-count'), {text: state.jobsTotal ? String(state.jobsTotal) : ''});
    show($('btn-more'), state.jobs.length < Math.min(state.jobsTotal, LIMITS.jobs));
    show($('gallery-rest'), state.jobsTotal > LIMITS.jobs && state.jobs.length >= LIMITS.jobs);
    put($('gallery-rest'), {
        text: `The newest ${LIMITS.jobs}. The other ${
            state.jobsTotal - LIMITS.jobs} are in the history and in the output folder.`
    });
    const known = new Set(state.jobs.map((j) => j.id));
    for (const id of texts.keys())
        if (!known.has(id))
            texts.delete(id);
}

export function start() {
    on('jobs', draw);
    $('btn-more').addEventListener('click', loadMoreJobs);
}
