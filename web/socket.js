/* socket: the WebSocket, kept open. Text messages go to handlers by type, previews to onPreview().
 *
 * The client id stays the same over reconnects and reloads of this tab: messages about its prompts
 * find it again. It is in the tab's storage only while no page is there: a tab that is duplicated
 * copies the storage, and two with one id would take each other's messages. Binary frames are
 * big-endian: u32 kind; kind 1: u32 format (1 JPEG, 2 PNG), picture; kind 4: u32 length, JSON of
 * that length, picture; kind 3: u32 length, a node's id of that length, text. */
import {changed, state} from './store.js';

const KEY = 'berth.client';
const WAIT_MS = [300, 600, 1200, 2500, 5000]; /* between attempts; the last one for ever */

function makeId() {
    const b = crypto.getRandomValues(new Uint8Array(16));
    return [...b].map((x) => x.toString(16).padStart(2, '0')).join('');
}

function stored(method, ...args) {
    try {
        return sessionStorage[method](KEY, ...args);
    } catch {
        return null; /* a browser that keeps nothing: each page is a new client */
    }
}

export const clientId = stored('getItem') || makeId();
stored('removeItem');
addEventListener('pagehide', () => stored('setItem', clientId));
addEventListener('pageshow', () => stored('removeItem')); /* also by going back */
document.documentElement.dataset.client = clientId;

const handlers = new Map();
let previewHandler = () => {};
let noteHandler = () => {};
let openHandler = () => {};
let failures = 0;

export const onMessage = (type, fn) => handlers.set(type, fn);
export const onPreview = (fn) => {
    previewHandler = fn;
};
/* Of a node that runs: {nodeId, text}. */
export const onNote = (fn) => {
    noteHandler = fn;
};
export const onOpen = (fn) => {
    openHandler = fn;
};

/* {promptId or null, nodeId or null, blob}; null for frames that are none, or cut short. */
function readFrame(buffer) {
    const view = new DataView(buffer);
    if (buffer.byteLength < 8)
        return null;
    const kind = view.getUint32(0);
    const second = view.getUint32(4);
    if (kind === 1) {
        const type = second === 2 ? 'image/png' : 'image/jpeg';
        return {promptId: null, nodeId: null, blob: new Blob([buffer.slice(8)], {type})};
    }
    if (kind !== 4 || second > buffer.byteLength - 8)
        return null;
    let about;
    try {
        about = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, second)));
    } catch {
        return null;
    }
    const type = about.image_type === 'image/png' ? 'image/png' : 'image/jpeg';
    return {
        promptId: about.prompt_id ?? null,
        nodeId: about.node_id ?? null,
        blob: new Blob([buffer.slice(8 + second)], {type})
    };
}

function readNote(buffer) {
    const view = new DataView(buffer);
    if (buffer.byteLength < 8 || view.getUint32(0) !== 3)
        return null;
    const length = view.getUint32(4), decoder = new TextDecoder();
    if (length > buffer.byteLength - 8)
        return null;
    return {
        nodeId: decoder.decode(new Uint8Array(buffer, 8, length)),
        text: decoder.decode(new Uint8Array(buffer, 8 + length))
    };
}

function receive(event) {
    if (typeof event.data !== 'string') {
        const frame = readFrame(event.data), note = frame ? null : readNote(event.data);
        if (frame)
            previewHandler(frame);
        if (note)
            noteHandler(note);
        return;
    }
    let message;
    try {
        message = JSON.parse(event.data);
    } catch {
        return;
    }
    handlers.get(message?.type)?.(message.data ?? {});
}

function setConnected(yes) {
    state.connected = yes;
    state.attempts = failures;
    changed('connection');
}

export function connect() {
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(`${scheme}//${location.host}/ws?clientId=${clientId}`);
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => {
        socket.send(JSON.stringify(
            {type: 'feature_flags', data: {
                berth: true,
                supports_preview_metadata: true,
                supports_progress_text_metadata: true
            }}));
        failures = 0;
        setConnected(true);
        openHandler();
    };
    socket.onmessage = receive;
    socket.onclose = () => {
        failures++;
        setConnected(false);
        setTimeout(connect, WAIT_MS[Math.min(failures, WAIT_MS.length) - 1]);
    };
}
