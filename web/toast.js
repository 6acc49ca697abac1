/* toast: short messages at the edge, in a region that screen readers listen to. Errors stay until
 * they are closed or another prompt is drawn, unless what they say stands elsewhere (extra.stay);
 * the others go by themselves, but not while the pointer or the focus is on them. One that says the
 * same again takes the place of the first. */
import {$, button, el} from './dom.js';

const MOST = 5;
const STAY_MS = 7000;

/* A finger leaves :hover behind where it tapped last: it says nothing there. */
const held = (node) =>
    node.matches(matchMedia('(hover)').matches ? ':hover, :focus-within' : ':focus-within');

const remove = (which) => document.querySelectorAll(`.toast${which}`).forEach((t) => t.remove());

function leave(node) {
    if (held(node))
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

/* Prompts that failed stand in the history: their message need not, and one at a time is enough.
 * None where the box below the button (now.js) tells it. */
const FAILED_MS = 20000;

export function failed(id, title, text) {
    remove('[data-failed]');
    const box = $('now');
    if (box?.offsetParent && box.dataset.prompt === id)
        return;
    toast('error', title, text, {data: {failed: id}, stay: FAILED_MS});
}

/* Somebody looks at it. */
export const seen = (id) => remove(`[data-failed="${CSS.escape(id)}"]`);

/* Somebody goes on: what went wrong before is no news. */
export const goOn = () => remove('[data-kind=error]');

/* What failed, in the server's own words. */
export const trouble = (what, error) =>
    toast('error', what, error.message, {data: error.status === 0 ? {away: ''} : {}});

/* The server is back: that it did not answer is no news. */
export const answersAgain = () => remove('[data-away]');
