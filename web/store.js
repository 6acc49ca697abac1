/* store: what the page knows, in one place. Parts read `state`; whoever changes it says which topic
 * changed, and those who listen to it draw once before the next frame, however often it changed. */

export const NO_STREAM = {bytes: 0, seconds: 0, exposed_seconds: 0, gb_per_s: 0};

export const state = {
    connected: false,
    devices: [],       /* /berth/devices; `tiers` follow berth.memory */
    models: [],        /* /berth/models */
    blocks: new Map(), /* model id -> [{name, bytes, device, planned}], execution order */
    queue: {paused: false, running: null, pending: [], total: 0, history: null},
    graphs: new Map(), /* prompt id -> its graph, of what runs and of waiting ones that were seen */
    run: null, /* what the running prompt does, see run.js */
    jobs: [],  /* finished prompts, newest first, as far as they are shown */
    jobsTotal: 0,
    picturesTotal: 0, /* of them those that did not fail and were not interrupted */
    points: [], /* berth.memory, oldest first */
    events: [], /* what the journal noted: {time: the server's clock, text} */
    skew: 0,    /* ms that this clock is ahead of the server's */
    stream: {...NO_STREAM},
    receipts: null, /* newest first; null until somebody looks */
    started: null,  /* which run of the server the points are of */
};

export const LIMITS = {
    points: 1200,
    events: 64,
    blocks: 20000,
    jobs: 600
};

const listeners = new Map();
const dirty = new Set();
let planned = false;

export function on(topic, fn) {
    if (!listeners.has(topic))
        listeners.set(topic, []);
    listeners.get(topic).push(fn);
}

function draw() {
    planned = false;
    const topics = [...dirty];
    dirty.clear();
    const todo = new Set(topics.flatMap((t) => listeners.get(t) || []));
    for (const fn of todo)
        try {
            fn();
        } catch (e) {
            reportError(e); /* the other parts are drawn all the same */
        }
}

export function changed(...topics) {
    for (const t of topics)
        dirty.add(t);
    if (planned)
        return;
    planned = true;
    if (document.hidden)
        setTimeout(draw, 250); /* no frames come while nobody looks */
    else
        requestAnimationFrame(draw);
}

/* ---- a colour and a letter for every model ---- */

const slots = new Map(); /* model id -> number; kept while the model is known */

export function slotOf(id) {
    if (!slots.has(id)) {
        const taken = new Set(slots.values());
        let k = 0;
        while (taken.has(k))
            k++;
        slots.set(id, k);
    }
    return slots.get(id);
}

export function forgetSlots(ids) {
    const known = new Set(ids);
    for (const id of slots.keys())
        if (!known.has(id))
            slots.delete(id);
}

export const PALETTE = 8; /* colours in tokens.css; beyond them patterns tell models apart */

export function letterOf(id) {
    const k = slotOf(id);
    return String.fromCharCode(65 + k % 26) + (k >= 26 ? Math.floor(k / 26) : '');
}

export const modelById = (id) => state.models.find((m) => m.id === id);

/* Three models of one checkpoint have the same name: the role tells them apart. So does the type
 * that
   one file is held in twice. */
export const modelName = (m) => [m.name, m.role, m.converted].filter(Boolean).join(' · ');
