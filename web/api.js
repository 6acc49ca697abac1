/* api: requests to the server that sent this page. A failure throws an ApiError that carries the
 * server's own words. Seeds go up to 2^64-1, more than a double holds, so integers that would lose
 * digits are read and written as BigInt.
 *
 * A browser opens six connections to a server, for all its tabs together. What frees or moves
 * memory is answered between prompts, maybe in minutes: those requests go through slow(), two at a
 * time, so that Interrupt always finds a connection. */

import {because} from './format.js';

export class ApiError extends Error {
    constructor(message, status, body) {
        super(message);
        this.status = status; /* 0: the server did not answer */
        this.body = body;     /* parsed, where it was JSON */
    }
}

export function parse(text) {
    return JSON.parse(text,
        (key, value, context) => typeof value === 'number' && !Number.isSafeInteger(value) &&
                /^-?\d+$/.test(context?.source ?? '') ?
            BigInt(context.source) :
            value);
}

export function stringify(value, space) {
    return JSON.stringify(value, (key, v) => {
        if (typeof v !== 'bigint')
            return v;
        return JSON.rawJSON ? JSON.rawJSON(String(v)) : Number(v);
    }, space);
}

/* What an error's body says, in its own words: {"error": text}, ComfyUI's {"error": {...}}, or
 * text. */
function words(body, text, status) {
    const e = body?.error;
    if (typeof e === 'string')
        return e;
    if (e && typeof e === 'object')
        return because(e.message, e.details);
    return text.slice(0, 400).trim() || `the server answered ${status}`;
}

async function request(method, path, body, signal) {
    let answer, text;
    try {
        answer = await fetch(path, {
            method,
            headers: typeof body === 'string' ? {'Content-Type': 'application/json'} : {},
            body,
            signal,
        });
        text = await answer.text();
    } catch {
        throw new ApiError('the server does not answer', 0, null);
    }
    let parsed = null;
    if (text && /json/.test(answer.headers.get('Content-Type') || 'json')) {
        try {
            parsed = parse(text);
        } catch { /* then it is text */
        }
    }
    if (!answer.ok)
        throw new ApiError(words(parsed, text, answer.status), answer.status, parsed);
    return parsed;
}

const SLOW_MOST = 2;
let slowNow = 0;
const slowNext = []; /* resolvers of those that wait for a place */

/* request(...), when fewer than SLOW_MOST others are under way. */
async function slow(...what) {
    if (slowNow === SLOW_MOST)
        await new Promise((resolve) => slowNext.push(resolve)); /* takes over the place */
    else
        slowNow++;
    try {
        return await request(...what);
    } finally {
        if (slowNext.length)
            slowNext.shift()();
        else
            slowNow--;
    }
}

/* signal: of an AbortController; one that was aborted ends with status 0. */
export const get = (path, signal) => request('GET', path, undefined, signal);
export const post = (path, body, signal) => request('POST', path, stringify(body), signal);
/* form: a FormData; the browser says what it is. */
export const upload = (path, form) => request('POST', path, form);
export const slowPost = (path, body, signal) => slow('POST', path, stringify(body), signal);
export const slowPatch = (path, body) => slow('PATCH', path, stringify(body));
export const slowRemove = (path) => slow('DELETE', path);

const query = (o) => new URLSearchParams(o).toString();

export const viewUrl = (image, extra = {}) => `/view?${query({
    filename: image.filename,
    subfolder: image.subfolder || '',
    type: image.type || 'output',
    ...extra
})}`;

export const metadataUrl = (folder, name) =>
    `/view_metadata/${encodeURIComponent(folder)}?${query({filename: name, berth: 1})}`;
