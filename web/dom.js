/* dom: making and patching elements. Names of models, prompts and errors come from outside and may
 * hold anything: here they only ever become text or attribute values, never markup. */

export const $ = (id) => document.getElementById(id);

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
        } else if (key === 'vars') {
            for (const [k, v] of Object.entries(value))
                node.style.setProperty(k, v);
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

/* Makes node's children one per item, in order, keeping those whose key was there before: focus,
 * hover and loaded pictures survive an update. make(item) builds a child, patch(child, item)
 * updates it. */
export function keyed(node, items, key, make, patch) {
    const old = new Map();
    for (const child of node.children)
        old.set(child.dataset.key, child);
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
        child.remove();
}
