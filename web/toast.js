/* toast: short messages at the edge, in a region that screen readers listen to. Errors stay until they are closed; the others go by
 * themselves, but not while the pointer or the focus is on them. */
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
    box.append(node);
    while (box.children.length > MOST)
        box.firstElementChild.remove();
    if (kind !== 'error')
        setTimeout(() => leave(node), extra.stay || STAY_MS);
    return node;
}

/* What failed, in the server's own words. */
export const trouble = (what, error) => toast('error', what, error.message);
