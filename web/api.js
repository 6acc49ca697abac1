/* api: requests to the server that sent this page. A failure throws an ApiError that carries the
 * server's own words. Seeds go up to 2^64-1, more than a double holds, so integers that would lose
 * digits are read and written as BigInt. */

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
        return [e.message, e.details].filter(Boolean).join(': ');
    return text.slice(0, 400).trim() || `the server answered ${status}`;
}

async function request(method, path, body) {
    let answer, text;
    try {
        answer = await fetch(path, {
            method,
            headers: body === undefined ? {} : {'Content-Type': 'application/json'},
            body,
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

export const get = (path) => request('GET', path);
export const post = (path, body) => request('POST', path, stringify(body));
export const postText = (path, text) => request('POST', path, text);
export const patch = (path, body) => request('PATCH', path, stringify(body));
export const remove = (path) => request('DELETE', path);

const query = (o) => new URLSearchParams(o).toString();

export const viewUrl = (image, extra = {}) => `/view?${query({
    filename: image.filename,
    subfolder: image.subfolder || '',
    type: image.type || 'output',
    ...extra
})}`;

export const metadataUrl = (folder, name) =>
    `/view_metadata/${encodeURIComponent(folder)}?${query({filename: name, berth: 1})}`;
