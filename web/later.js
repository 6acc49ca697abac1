/* later: parts of the page that are fetched when they are needed, so that it is light to open. */
import {ApiError} from './api.js';
import {trouble} from './toast.js';

const failed = new Map(); /* name -> how often it could not be fetched */

/* The module of that name. A browser may remember that it could not be had: it is then asked for by
 * another address. */
export async function later(name) {
    const n = failed.get(name) || 0;
    try {
        return await import(`./${name}.js${n ? `?again=${n}` : ''}`);
    } catch (e) {
        if (!(e instanceof TypeError))
            throw e; /* a mistake in it */
        failed.set(name, n + 1);
        throw new ApiError('the server does not answer', 0, null);
    }
}

/* Does something with it; that it could not be had is told. what: as people call the part. */
export async function use(name, what, fn) {
    let part;
    try {
        part = await later(name);
    } catch (e) {
        trouble(`${what} could not be loaded`, e);
        return;
    }
    await fn(part);
}
