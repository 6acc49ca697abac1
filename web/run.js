/* run: how far the running prompt is. Messages tell it for prompts of this page; of others' prompts
 * the server only tells what it is asked for, so it is asked once a second while one runs. */
import * as api from './api.js';
import {releaseBlob} from './dom.js';
import {onMessage, onNote, onPreview} from './socket.js';
import {changed, state} from './store.js';

const ASK_MS = 1000;

function begin(id) {
    if (state.run?.id === id)
        return state.run;
    drop();
    state.run = {
        id,
        node: null,
        note: '', /* what the node says of itself */
        value: 0,
        max: 0,
        since: 0,
        first: 0,
        previews: 0,
        preview: null,
        heard: 0
    };
    return state.run;
}

function drop() {
    if (state.run?.preview)
        releaseBlob(state.run.preview);
    state.run = null;
}

function setNode(run, node) {
    if (run.node !== node)
        Object.assign(run, {node, note: '', value: 0, max: 0, since: performance.now(), first: 0});
}

function setProgress(run, value, max) {
    if (run.value === value && run.max === max)
        return;
    if (!run.max || value < run.value) /* steps before we came are no measure of speed */
        Object.assign(run, {since: performance.now(), first: value});
    Object.assign(run, {value, max});
}

/* Seconds the node still needs if steps go on as they did; null: cannot be said yet. */
export function left(run) {
    const done = run.value - run.first;
    if (done <= 0 || run.max <= run.value)
        return null;
    return (performance.now() - run.since) / 1000 / done * (run.max - run.value);
}

function heard(id) {
    const run = begin(id);
    run.heard = performance.now();
    return run;
}

/* The queue says who runs; a prompt that ended takes its preview along. */
export function follow() {
    const running = state.queue.running;
    if (!running)
        drop();
    else
        begin(running.id);
    changed('run');
}

async function ask() {
    if (!state.run || !state.connected || performance.now() - state.run.heard < ASK_MS * 2)
        return;
    try {
        const {executing} = await api.get('/berth/queue');
        if (executing && state.run?.id === executing.prompt_id) {
            setNode(state.run, executing.display_node ?? executing.node);
            setProgress(state.run, executing.value, executing.max);
            changed('run');
        }
    } catch { /* the connection's light says it */
    }
}

export function start() {
    onMessage('execution_start', (d) => {
        heard(d.prompt_id);
        changed('run');
    });
    onMessage('executing', (d) => {
        if (d.node && (d.prompt_id || state.run)) {
            setNode(heard(d.prompt_id ?? state.run.id), d.display_node ?? d.node);
            changed('run');
        }
    });
    onMessage('progress', (d) => {
        const run = heard(d.prompt_id);
        setNode(run, d.node);
        setProgress(run, d.value, d.max);
        changed('run');
    });
    onPreview((frame) => {
        const id = frame.promptId ?? state.run?.id ?? state.queue.running?.id;
        if (!id)
            return;
        const run = heard(id);
        if (run.preview)
            releaseBlob(run.preview);
        run.preview = URL.createObjectURL(frame.blob);
        run.previews++;
        changed('run');
    });
    onNote(({nodeId, text}) => {
        if (state.run?.node === nodeId) {
            state.run.note = text.trim();
            changed('run');
        }
    });
    setInterval(ask, ASK_MS);
}
