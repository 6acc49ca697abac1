/* data: from the server into the store. Every loader may be called as often as somebody thinks
 * something changed: while one request is under way at most one more waits behind it. */
import * as api from './api.js';
import {changed, forgetSlots, LIMITS, rememberNames, slotOf, state} from './store.js';
import {trouble} from './toast.js';

const AGAIN_MS = 250;  /* at most four lists a second, whatever happens */
const LIST_MOST = 300; /* waiting prompts that are listed with all they say */
const PAGE = 12;       /* pictures at a time */

/* One at a time; calls meanwhile become one more, a little later. Resolves when a run that began
 * after the call has ended. */
export function coalesce(fn) {
    let running = null, next = null;
    const begin = () => {
        running = fn().catch((e) => {
                          if (e.status !==
                              0) /* a server that is away is told by the connection's own light */
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
    rememberNames(models);
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
    addPoint(data.time || Date.now(), data.devices || [], data.stream?.gb_per_s || 0);
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
export const loadDevices =
    coalesce(async () => takeDevices((await api.get('/berth/devices')).devices));

/* The journal measures the machine, not our ledgers: its notes become marks on the timeline. */
export const loadEvents = coalesce(async () => {
    const memory = await api.get(`/berth/memory?limit=${LIMITS.events}`);
    state.events =
        memory.timeline.map((e) => ({time: Date.parse(e.time), text: `${e.tag} ${e.identifier}`}));
    changed('timeline');
});

/* ---- blocks ---- */

const seen = new Map(); /* model id -> signature of what `blocks` was fetched for */

export const loadBlocks = coalesce(async () => {
    for (const m of [...state.models]) {
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

const item = ([number, id, graph, extra]) => ({number, id, graph, created: extra?.create_time});

/* A prompt may have megabytes and ten thousand may wait: a long queue is listed without its
 * graphs. */
async function longQueue(counts) {
    const list = await api.get('/api/jobs?status=in_progress,pending&sort_order=asc&limit=100');
    const job = (j) => ({number: j.priority, id: j.id, graph: null, created: j.create_time});
    const running = list.jobs.find((j) => j.status === 'in_progress');
    return {
        running: running ? job(running) : null,
        pending: list.jobs.filter((j) => j.status === 'pending').map(job),
        total: counts.pending,
        listed: false,
    };
}

export const loadQueue = coalesce(async () => {
    const counts = await api.get('/berth/queue');
    let queue;
    if (counts.pending > LIST_MOST) {
        queue = await longQueue(counts);
    } else {
        const q = await api.get('/queue');
        const pending = q.queue_pending.map(item);
        queue = {
            running: q.queue_running.map(item)[0] || null,
            pending,
            total: pending.length,
            listed: true
        };
    }
    state.queue = {...queue, paused: counts.paused, history: counts.history};
    changed('queue');
});

/* ---- finished prompts ---- */

async function page(offset, limit) {
    return api.get(
        `/api/jobs?status=completed,failed&sort_order=desc&limit=${limit}&offset=${offset}`);
}

/* From the newest on, as many as are shown. */
export const loadJobs = coalesce(async () => {
    const list = await page(0, Math.min(LIMITS.jobs, Math.max(PAGE, state.jobs.length)));
    state.jobs = list.jobs;
    state.jobsTotal = list.pagination.total;
    changed('jobs');
});

export const loadMoreJobs = coalesce(async () => {
    const list = await page(state.jobs.length, PAGE);
    const have = new Set(state.jobs.map((j) => j.id)); /* others may have ended meanwhile */
    state.jobs = [...state.jobs, ...list.jobs.filter((j) => !have.has(j.id))].slice(0, LIMITS.jobs);
    state.jobsTotal = list.pagination.total;
    changed('jobs');
});

/* One entry of the history with all it says; null when it is gone. */
export async function historyOf(id) {
    return (await api.get(`/history/${encodeURIComponent(id)}`))[id] || null;
}
