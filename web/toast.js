/* toast: short messages at the edge, in a region that screen readers listen to. Errors stay until
 * they are closed, unless what they say stands elsewhere (extra.stay); the others go by themselves,
 * but not while the pointer or the focus is on them. One that says the same again takes the place of
 * the first. */
import {$, button, el} from './dom.js';

const MOST = 5;
const STAY_MS = 7000;

function leave(node) {
    if (node.matches(':hover, :focus-within'))
        setTimeout(() => leave(node), 1500);
    else
        node.remove();
}

export function toast(kind, title, text, extra = {}) {
    const close = button('✕', 'toast-close', () => node.remove(),
        {class: 'plain icon', 'aria-label': 'Close this message'});
    const node = el('div', {
        class: 'toast',
        data: {test: 'toast', kind, ...extra.data}
    },
        el('div', {}, el('strong', {text: title}), text ? el('p', {text}) : null),
        extra.action || null, close);
    const box = $('toasts');
    for (const old of [...box.children])
        if (old.firstElementChild.textContent === node.firstElementChild.textContent)
            old.remove();
    box.append(node);
    while (box.children.length > MOST)
        box.firstElementChild.remove();
    if (kind !== 'error' || extra.stay)
        setTimeout(() => leave(node), extra.stay || STAY_MS);
    return node;
}

/* Prompts that failed stand in the history: their message need not, and one at a time is enough. */
const FAILED_MS = 20000;

export function failed(id, title, text) {
    document.querySelectorAll('.toast[data-failed]').forEach((t) => t.remove());
    toast('error', title, text, {data: {failed: id}, stay: FAILED_MS});
}

/* Somebody looks at it. */
export const seen = (id) =>
    document.querySelectorAll(`.toast[data-failed="${CSS.escape(id)}"]`).forEach((t) => t.remove());

/* What failed, in the server's own words. */
export const trouble = (what, error) =>
    toast('error', what, error.message, {data: error.status === 0 ? {away: ''} : {}});

/* The server is back: that it did not answer is no news. */
export const answersAgain = () =>
    document.querySelectorAll('.toast[data-away]').forEach((t) => t.remove());
