/* data: from the server into the store. Every loader may be called as often as somebody thinks
 * something changed: while one request is under way at most one more waits behind it. */
import * as api from './api.js';
import {changed, forgetSlots, LIMITS, NO_STREAM, slotOf, state} from './store.js';
import {trouble} from './toast.js';

const AGAIN_MS = 250; /* at most four lists a second, whatever happens */
const PAGE = 9;       /* pictures at a time */

/* One at a time; calls meanwhile become one more, a little later. Resolves when a run that began
 * after the call has ended. */
function coalesce(fn) {
    let running = null, next = null;
    const begin = () => {
        running = fn().catch((e) => {
                          if (e.status !== 0) /* 0: away, as the connection's own light says */
                              trouble('A list could not be loaded', e);
                      })
                      .then(() => new Promise((r) => setTimeout(r, AGAIN_MS)))
                      .finally(() => {
                          running = null;
                      });
        return running;
    };
    return () => {
        if (!running)
            return begin();
        next = next || running.then(() => {
            next = null;
            return begin();
        });
        return next;
    };
}

/* ---- memory ---- */

export function takeModels(models) {
    state.models = models;
    forgetSlots(models.map((m) => m.id));
    for (const m of models)
        slotOf(m.id);
    changed('models');
}

export function takeDevices(devices) {
    state.devices = devices;
    changed('devices');
    addPoint(Date.now(), devices.map((d) => ({name: d.name, by: d.tiers})), state.stream.gb_per_s);
}

export function takeMemory(data) {
    const told = new Map((data.devices || []).map((d) => [d.name, d]));
    for (const d of state.devices) {
        const now = told.get(d.name);
        if (now)
            Object.assign(d, {tiers: now.by, budget: now.budget});
    }
    if (data.stream)
        state.stream = data.stream;
    if (data.time)
        state.skew = Date.now() - data.time;
    addPoint(Date.now(), data.devices || [], data.stream?.gb_per_s || 0);
    changed('devices', 'stream');
}

function addPoint(time, devices, gbps) {
    const point = {time, gbps, by: {...state.points.at(-1)?.by}};
    for (const d of devices)
        point.by[d.name] = d.by;
    state.points.push(point);
    if (state.points.length > LIMITS.points)
        state.points.splice(0, state.points.length - LIMITS.points);
    changed('timeline');
}

export const loadModels = coalesce(async () => takeModels((await api.get('/berth/models')).models));
export const loadDevices = coalesce(async () => {
    const {started, devices} = await api.get('/berth/devices');
    takeServer(started);
    takeDevices(devices);
});

/* Another server at this address, or the same one started again: what was measured and what blocks
 * were listed are of the one before. */
function takeServer(started) {
    if (state.started !== null && state.started !== started) {
        state.points = [];
        state.stream = {...NO_STREAM};
        seen.clear();
    }
    state.started = started;
}

/* What frees did, whoever asked for them. */
export const loadReceipts = coalesce(async () => {
    state.receipts = (await api.get('/berth/receipts')).receipts;
    changed('receipts');
});

/* The journal measures the machine, not our ledgers: its notes become marks on the timeline. */
export const loadEvents = coalesce(async () => {
    const memory = await api.get(`/berth/memory?limit=${LIMITS.events}`);
    state.events =
        memory.timeline.map((e) => ({time: Date.parse(e.time), text: `${e.tag} ${e.identifier}`}));
    changed('timeline');
});

/* ---- blocks ---- */

const seen = new Map(); /* model id -> signature of what `blocks` was fetched for */

/* A list of blocks may be long: a page whose memory column is not in view does without. */
let wanted = false;
export function wantBlocks() {
    wanted = true;
    loadBlocks();
}

export const loadBlocks = coalesce(async () => {
    for (const m of wanted ? [...state.models] : []) {
        const signature = JSON.stringify([m.state, m.devices, m.plan, m.demoted, m.loads, m.moved]);
        if (seen.get(m.id) === signature)
            continue;
        const [full] = (await api.get(`/berth/models?id=${m.id}&blocks=1`)).models;
        if (!full)
            continue; /* gone meanwhile */
        state.blocks.set(m.id, full.blocks.slice(0, LIMITS.blocks));
        seen.set(m.id, signature);
        changed('blocks');
    }
    const known = new Set(state.models.map((m) => m.id));
    for (const id of state.blocks.keys())
        if (!known.has(id)) {
            state.blocks.delete(id);
            seen.delete(id);
        }
});

/* ---- the queue ---- */

/* A prompt may have megabytes and ten thousand may wait: the list has no graphs, and of a long
 * queue its beginning. */
export const loadQueue = coalesce(async () => {
    const [counts, list] =
        await Promise.all([api.get('/berth/queue'), api.get('/berth/queue/waiting')]);
    const item = (i) => ({id: i.prompt_id, number: i.number, created: i.create_time});
    state.queue = {
        running: list.running ? item(list.running) : null,
        pending: list.waiting.map(item),
        total: list.total,
        paused: counts.paused,
        history: counts.history,
    };
    const known = new Set([state.queue.running, ...state.queue.pending].map((i) => i?.id));
    for (const id of state.graphs.keys())
        if (!known.has(id))
            state.graphs.delete(id);
    changed('queue');
});

/* The graph of a prompt, wherever that is by now; null when it is gone. */
export const graphOf = async (id) =>
    (await api.get(`/berth/prompts/${encodeURIComponent(id)}`)).prompt;

/* Of one that runs or waits: asked for once, kept while it is listed. */
export async function learnGraph(id) {
    if (state.graphs.has(id))
        return;
    state.graphs.set(id, null);
    try {
        state.graphs.set(id, await graphOf(id));
        changed('queue');
    } catch {
        state.graphs.delete(id); /* next time */
    }
}

/* ---- finished prompts ---- */

async function page(offset, limit) {
    const [list, pictures] = await Promise.all([
        api.get('/api/jobs?status=completed,failed,cancelled&sort_order=desc' +
            `&limit=${limit}&offset=${offset}`),
        api.get('/api/jobs?status=completed&limit=1')
    ]);
    state.jobsTotal = list.pagination.total;
    state.picturesTotal = pictures.pagination.total;
    return list;
}

/* From the newest on, as many as are shown. */
export const loadJobs = coalesce(async () => {
    const list = await page(0, Math.min(LIMITS.jobs, Math.max(PAGE, state.jobs.length)));
    state.jobs = list.jobs;
    changed('jobs');
});

export const loadMoreJobs = coalesce(async () => {
    const list = await page(state.jobs.length, PAGE);
    const have = new Set(state.jobs.map((j) => j.id)); /* others may have ended meanwhile */
    state.jobs = [...state.jobs, ...list.jobs.filter((j) => !have.has(j.id))].slice(0, LIMITS.jobs);
    changed('jobs');
});

/* One entry of the history with all it says; null when it is gone. */
export async function historyOf(id) {
    return (await api.get(`/history/${encodeURIComponent(id)}`))[id] || null;
}
