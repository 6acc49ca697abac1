/* dom: making and patching elements. Names of models, prompts and errors come from outside and may
 * hold anything: here they only ever become text or attribute values, never markup. */

export const $ = (id) => document.getElementById(id);

const BLOB_MS = 10000;

/* An element may still be loading a blob that nothing names any more: give it back a while later,
 * or the browser complains of a picture that is not there. */
export const releaseBlob = (url) => setTimeout(() => URL.revokeObjectURL(url), BLOB_MS);

const SVG = 'http://www.w3.org/2000/svg';

/* put(node, {class, text, data: {..}, on: {..}, attribute: value}): undefined leaves an attribute
 * alone, null and false take it away. */
export function put(node, what = {}) {
    for (const [key, value] of Object.entries(what)) {
        if (value === undefined)
            continue;
        if (key === 'text') {
            const text = String(value);
            if (node.textContent !== text)
                node.textContent = text;
        } else if (key === 'data') {
            for (const [k, v] of Object.entries(value))
                if (v !== undefined && node.dataset[k] !== String(v))
                    node.dataset[k] = v;
        } else if (key === 'on') {
            for (const [event, fn] of Object.entries(value))
                node.addEventListener(event, fn);
        } else if (value === null || value === false) {
            node.removeAttribute(key);
        } else {
            const text = value === true ? '' : String(value);
            if (node.getAttribute(key) !== text)
                node.setAttribute(key, text);
        }
    }
    return node;
}

export function el(tag, what, ...children) {
    const node = put(document.createElement(tag), what);
    node.append(...children.filter((c) => c !== null && c !== undefined));
    return node;
}

/* `test` becomes data-test: what tests, and nothing else, look for. */
export function button(text, test, click, what = {}, ...children) {
    const node =
        el('button', {type: 'button', text, ...what, data: {test, ...what.data}}, ...children);
    node.addEventListener('click', click);
    return node;
}

export function svg(tag, what, ...children) {
    const node = put(document.createElementNS(SVG, tag), what);
    node.append(...children);
    return node;
}

export function show(node, visible) {
    if (node.hidden === visible)
        node.hidden = !visible;
}

/* A select's options; what was chosen stays where it can, and so does an open list of the same
 * names. */
export function options(select, names) {
    if (select.options.length === names.length &&
        names.every((n, i) => select.options[i].value === n))
        return;
    const before = select.value;
    select.replaceChildren(...names.map((n) => el('option', {value: n, text: n})));
    if (names.includes(before))
        select.value = before;
}

const FOCUSABLE = 'button:not(:disabled), a[href], input:not(:disabled), [tabindex]';

/* Keyboard users go on where they were: on the element itself, if it was only moved; else on the
 * same control of the one that took its place; else on the heading of the list. */
function refocus(node, was, index) {
    if (document.activeElement === was && !was.disabled)
        return;
    const child = [...node.children].find((c) => c.contains(was)) ||
        node.children[Math.min(index, node.children.length - 1)];
    const heading = node.closest('section')?.querySelector('h2');
    const test = was.dataset.test;
    let to = heading;
    if (node.contains(was) && !was.disabled)
        to = was;
    else if (child)
        to = child.dataset.test === test && child.matches('[tabindex]') ? child :
            child.querySelector(`[data-test="${test}"]:not(:disabled)`) ||
                (child.matches(FOCUSABLE) ? child : child.querySelector(FOCUSABLE)) || heading;
    if (to && to === heading)
        put(heading, {tabindex: -1});
    to?.focus({preventScroll: true});
}

/* Makes node's children one per item, in order, keeping those whose key was there before: hover and
 * loaded pictures survive an update, and the focus does not fall off the page. make(item) builds a
 * child, patch(child, item) updates it. */
export function keyed(node, items, key, make, patch) {
    const focus = node.contains(document.activeElement) ? document.activeElement : null;
    const index = focus ? [...node.children].findIndex((c) => c.contains(focus)) : -1;
    const keys = new Set(items.map((item) => String(key(item))));
    const old = new Map();
    for (const child of [...node.children])
        if (keys.has(child.dataset.key))
            old.set(child.dataset.key, child);
        else
            child.remove(); /* first: then nobody else has to move */
    let at = node.firstElementChild;
    for (const item of items) {
        const k = String(key(item));
        let child = old.get(k);
        old.delete(k);
        if (!child) {
            child = make(item);
            child.dataset.key = k;
        }
        if (child === at)
            at = at.nextElementSibling;
        else
            node.insertBefore(child, at);
        if (patch)
            patch(child, item);
    }
    for (const child of old.values())
        child.remove(); /* of two with one key the second */
    if (index >= 0)
        refocus(node, focus, index);
}
