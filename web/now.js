/* now: what became of the prompt that was just drawn, right below the button. Where the queue is
 * beside it (a wide window) CSS hides this. Fetched with the first prompt. */
import * as api from './api.js';
import {$, button, el, put, show} from './dom.js';
import {fieldError} from './fields.js';
import {count, short} from './format.js';
import {openPicture, kindOf} from './gallery.js';
import {drawProgress} from './queue.js';
import {on, state} from './store.js';
import {seen, trouble} from './toast.js';

let mine = null; /* {id, prompt, fields, ended} of the last one sent */

const box = el('div', {id: 'now', role: 'group', 'aria-label': 'Your picture', hidden: true},
    el('div', {class: 'now-line'}, el('p', {id: 'now-text', class: 'num'}),
        button('Stop', 'now-stop', stop, {id: 'btn-now-stop', class: 'small'})),
    el('progress', {id: 'now-progress', 'aria-label': 'Progress of your picture'}),
    el('p', {id: 'now-error', class: 'form-error', hidden: true}),
    button('', 'now-open', () => openPicture(mine.id), {id: 'now-frame', class: 'frame'},
        el('img', {id: 'now-image', alt: '', hidden: true})));

async function stop() {
    try {
        if (state.queue.running?.id === mine.id)
            await api.post('/interrupt', {prompt_id: mine.id});
        else
            await api.post('/queue', {delete: [mine.id]});
    } catch (e) {
        trouble('It was not stopped', e);
    }
}

function showImage(src) {
    const image = $('now-image');
    if (src && image.getAttribute('src') !== src)
        image.src = src;
    show(image, Boolean(src));
}

/* How many are before it; null: it does not wait. */
function placeOf(id) {
    const at = state.queue.pending.findIndex((p) => p.id === id);
    if (at < 0)
        return null;
    return at + (state.queue.running ? 1 : 0);
}

function drawWaiting() {
    const place = placeOf(mine.id);
    put($('now-progress'), {value: place === null ? null : 0, max: 1});
    put($('now-text'), {
        text: state.queue.paused && place !== null ? 'The queue is paused.' :
            place ? `Waiting for ${count(place, 'other prompt')}.` : 'Starting.'
    });
}

/* What the finished job says, as GET /api/jobs has it. */
function drawEnd(job) {
    mine.ended = true;
    const output = job.preview_output, error = job.execution_error;
    const made = job.status === 'completed';
    put($('now-text'), {text: made ? 'Done.' : error ? 'It failed.' : 'Stopped.'});
    show($('now-progress'), false);
    show($('btn-now-stop'), false);
    if (error) {
        const text = (error.exception_message || '').trim();
        put($('now-error'), {text: `${error.node_type || 'A node'}: ${short(text, 600)}`});
        const from = Object.keys(mine.fields).find((k) => k.startsWith(`${error.node_id}.`));
        if (from && /Loader|LoadImage/.test(error.node_type) && $(`err-${mine.fields[from]}`))
            fieldError(mine.fields[from], text);
    }
    show($('now-error'), Boolean(error));
    const picture = made && typeof output?.filename === 'string' && output.mediaType === 'images' &&
        kindOf(output.filename) === 'picture';
    put($('now-image'), {alt: picture ? `Picture made from: ${mine.prompt}` : ''});
    showImage(picture ? api.viewUrl(output) : null);
    show($('now-frame'), picture);
    $('now-frame').disabled = !picture;
}

function draw() {
    if (!mine || mine.ended)
        return;
    const job = state.jobs.find((j) => j.id === mine.id);
    if (job)
        drawEnd(job);
    else if (state.run?.id === mine.id) {
        drawProgress($('now-progress'), $('now-text'), state.run);
        showImage(state.run.preview);
    } else {
        drawWaiting();
    }
}

/* From now on this prompt is shown. s: what it was made from (build.js). */
export function follow(id, s, fields) {
    mine = {id, prompt: s.prompt, fields, ended: false};
    put(box, {data: {prompt: id}});
    showImage(null);
    put($('now-image'), {src: null, alt: 'What the sampler sees at this step'});
    put($('now-frame'), {'aria-label': 'Open the picture', disabled: true});
    $('now-frame').style.aspectRatio = `${s.width} / ${s.height}`;
    for (const part of ['now-progress', 'btn-now-stop', 'now-frame'])
        show($(part), true);
    show($('now-error'), false);
    show(box, true);
    draw();
    /* Whoever pressed the button wants to see this; nobody is moved who sees it already. */
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    if (box.offsetParent) {
        seen(id); /* one that failed before we knew its name */
        box.scrollIntoView({block: 'nearest', behavior: calm ? 'auto' : 'smooth'});
    }
}

$('btn-submit').after(box);
for (const topic of ['queue', 'run', 'jobs'])
    on(topic, draw);
