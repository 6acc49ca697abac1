/* main: the page's beginning. Each part draws what it is about when its topic changes; messages and
 * answers only ever go into the store. docs/architecture.md lists the parts. */
import * as api from './api.js';
import * as compose from './compose.js';
import * as data from './data.js';
import * as devices from './devices.js';
import * as dialog from './dialog.js';
import {$, put} from './dom.js';
import * as drop from './drop.js';
import * as free from './free.js';
import * as gallery from './gallery.js';
import * as models from './models.js';
import * as queue from './queue.js';
import * as run from './run.js';
import {connect, onMessage, onOpen} from './socket.js';
import {changed, on, state} from './store.js';
import * as strips from './strips.js';
import * as timeline from './timeline.js';
import {answersAgain, failed, toast} from './toast.js';

function drawConnection() {
    const lost = !state.connected;
    put($('connection'), {
        text: lost ? (state.attempts ? 'Reconnecting' : 'Connecting') : 'Live',
        data: {state: lost ? (state.attempts ? 'lost' : 'connecting') : 'live'},
    });
    document.documentElement.dataset.connected = lost ? '0' : '1';
    /* What is shown of queue and devices is of then: layout.css dims it. */
    document.documentElement.toggleAttribute('data-lost', lost && Boolean(state.attempts));
    if (!lost)
        answersAgain();
}

async function loadVersion() {
    try {
        put($('version'), {text: (await api.get('/berth/health')).version});
    } catch { /* the connection's light says it */
    }
}

/* At the start, and after every reconnect: what was missed is asked for. */
async function loadAll() {
    await Promise.all([
        data.loadModels(), data.loadDevices(), data.loadQueue(), data.loadJobs(), data.loadEvents(),
        loadVersion()
    ]);
    document.documentElement.dataset.ready = '1';
}

/* A prompt that failed in the background should not only be found by looking for it. */
function fellOver(d) {
    failed(d.prompt_id,
        `Failed in ${d.node_type || 'a node'}${d.node_id ? ` (node ${d.node_id})` : ''}`,
        (d.exception_message || '').trim());
}

function wireMessages() {
    onMessage('status', () => data.loadQueue());
    onMessage('berth.residency', (d) => {
        free.heard(d.receipt);
        data.takeModels(d.models || []);
        data.takeDevices(d.devices || []);
        data.loadEvents();
    });
    onMessage('berth.memory', data.takeMemory);
    onMessage('execution_success', data.loadJobs);
    onMessage('execution_error', fellOver);
    onMessage('execution_interrupted', () => toast('info', 'Interrupted'));
}

/* A prompt that leaves the queue is in the history: whoever sent it, its picture is shown. The
 * count tells of one so quick that nobody saw it run; a history that is full keeps its count. */
let last = null;
function watchEnds() {
    if (state.queue.history === null)
        return; /* not loaded yet */
    const now = `${state.queue.running?.id} ${state.queue.history}`;
    if (last !== null && now !== last)
        data.loadJobs();
    last = now;
}

/* The token opened the page and is a cookie by now: it need not stand where others can read it. */
function hideToken() {
    const url = new URL(location.href);
    if (url.searchParams.has('token')) {
        url.searchParams.delete('token');
        history.replaceState(null, '', url);
    }
}

hideToken();
on('connection', drawConnection);
on('models', data.loadBlocks);
new IntersectionObserver((entries, watcher) => {
    if (entries.some((e) => e.isIntersecting)) {
        watcher.disconnect();
        data.wantBlocks();
    }
}).observe($('memory'));
on('queue', watchEnds);
for (const part of [dialog, devices, strips, timeline, run, queue, models, gallery, compose, drop,
         free])
    part.start();
wireMessages();
let opened = false;
onOpen(() => {
    if (opened) {
        loadAll();
        compose.loadChoices();
    }
    opened = true;
});
changed('connection', 'models', 'devices', 'queue', 'jobs', 'timeline', 'receipts');
loadAll();
connect();
