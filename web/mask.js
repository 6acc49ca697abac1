/* mask: painting over a picture what should be redrawn; with a mouse, a pen, a finger, or keys.
 * Fetched when somebody wants to paint. Strokes are kept, so that each can be taken back. */
import {button, el, put, show} from './dom.js';
import {fieldError} from './fields.js';

const COLOUR = '#e0218a'; /* of the paint; no photograph has much of it */

let canvas, at, ring, undo, wrong; /* elements; the canvas has a picture's own size in pixels */
let strokes = []; /* {erase, width, points: [[x, y]]}, {all: true}, {all: false}, {image} */
let cursor = null;          /* where the keys' brush is */
let changes = 0;            /* counts them, for whoever keeps what was made of it */

const erasing = () => tools.querySelector('[data-test=mask-erase]').ariaPressed === 'true';
const diameter = () =>
    Math.max(1, tools.querySelector('input').value / 100 * Math.max(canvas.width, canvas.height));

/* From the n-th point on: a stroke grows while it is drawn. */
function paint(s, from = 0) {
    at.globalCompositeOperation = s.erase || s.all === false ? 'destination-out' : 'source-over';
    at.fillStyle = at.strokeStyle = COLOUR;
    if (s.image) {
        at.drawImage(s.image, 0, 0);
        return;
    }
    if (s.all !== undefined) {
        at.fillRect(0, 0, canvas.width, canvas.height);
        return;
    }
    const points = s.points.slice(Math.max(0, from - 1));
    at.beginPath();
    at.arc(...points[0], s.width / 2, 0, 2 * Math.PI); /* a dot, if that is all */
    at.fill();
    at.lineWidth = s.width;
    at.lineCap = at.lineJoin = 'round';
    at.beginPath();
    for (const p of points)
        at.lineTo(...p);
    at.stroke();
}

function changed() {
    changes++;
    fieldError('mask', '');
    undo.disabled = strokes.length === 0;
}

function addStroke(s) {
    strokes.push(s);
    paint(s);
    changed();
}

function takeBack() {
    strokes.pop();
    at.clearRect(0, 0, canvas.width, canvas.height);
    strokes.forEach((s) => paint(s));
    changed();
}

/* ---- pointers: one finger draws, and the page does not scroll under it ---- */

function wirePointer() {
    let now = null, id = null;
    const where = (e) => {
        const r = canvas.getBoundingClientRect();
        return [(e.clientX - r.left) * canvas.width / r.width,
            (e.clientY - r.top) * canvas.height / r.height];
    };
    canvas.addEventListener('pointerdown', (e) => {
        if (now || e.button !== 0)
            return;
        e.preventDefault();
        canvas.focus({preventScroll: true, focusVisible: false});
        show(ring, false);
        id = e.pointerId;
        try {
            canvas.setPointerCapture(id);
        } catch { /* it was lifted already */
        }
        now = {erase: erasing(), width: diameter(), points: [where(e)]};
        addStroke(now);
    });
    canvas.addEventListener('pointermove', (e) => {
        if (!now || e.pointerId !== id)
            return;
        const from = now.points.length, all = e.getCoalescedEvents?.() || [];
        now.points.push(...(all.length ? all : [e]).map(where));
        paint(now, from);
    });
    for (const end of ['pointerup', 'pointercancel'])
        canvas.addEventListener(end, (e) => {
            if (e.pointerId === id)
                now = id = null;
        });
}

/* ---- keys ---- */

const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};

function drawRing() {
    const [x, y] = cursor, {width, height} = canvas;
    show(ring, true);
    Object.assign(ring.style, {
        left: `${100 * x / width}%`,
        top: `${100 * y / height}%`,
        width: `${100 * diameter() / width}%`,
    });
}

function key(e) {
    const {width, height} = canvas;
    if ((e.ctrlKey || e.metaKey) && e.key === 'z') {
        e.preventDefault();
        if (strokes.length)
            takeBack();
        return;
    }
    const step = ARROWS[e.key];
    if (!step && e.key !== ' ')
        return;
    e.preventDefault();
    const from = cursor || [width / 2, height / 2], far = diameter() / 2;
    cursor = step ? [Math.min(width, Math.max(0, from[0] + step[0] * far)),
                        Math.min(height, Math.max(0, from[1] + step[1] * far))] :
                    from;
    if (!step || e.shiftKey)
        addStroke({erase: erasing(), width: diameter(), points: [from, cursor]});
    drawRing();
}

/* ---- the editor ---- */

let tools = null;

function makeTools() {
    const mode = (text, test, erase) => button(text, test, () => {
        for (const b of tools.querySelectorAll('.switch button'))
            put(b, {'aria-pressed': String((b.dataset.test === 'mask-erase') === erase)});
    }, {class: 'small', 'aria-pressed': String(!erase)});
    undo = button('Undo', 'mask-undo', takeBack, {class: 'small', disabled: true});
    const size =
        el('input', {type: 'range', min: 1, max: 50, value: 10, 'aria-label': 'Brush size'});
    size.addEventListener('input', () => ring.hidden || drawRing());
    return el('div', {class: 'mask-tools'},
        el('div', {class: 'switch', role: 'group', 'aria-label': 'Brush'},
            mode('Paint', 'mask-paint', false), mode('Erase', 'mask-erase', true)),
        size, undo,
        button('All', 'mask-all', () => addStroke({all: true}), {class: 'small'}),
        button('None', 'mask-none', () => addStroke({all: false}), {class: 'small'}),
        el('p', {class: 'quiet hint keys',
            text: 'Keys: arrows move the brush, Space paints, Shift and arrows draw a line.'}));
}

/* Over `frame`, which holds a picture of this size; the tools follow it. Nothing is painted yet. */
export function open(frame, width, height) {
    close();
    strokes = [];
    cursor = null;
    canvas = el('canvas', {id: 'f-mask', width, height, tabindex: 0, role: 'application',
        'aria-label': 'Mask: what is painted is redrawn', 'aria-describedby': 'err-mask',
        data: {test: 'mask'}});
    wrong = el('p', {id: 'err-mask', class: 'field-error', hidden: true});
    at = canvas.getContext('2d');
    ring = el('span', {class: 'ring', hidden: true});
    tools = makeTools();
    frame.append(canvas, ring);
    frame.after(wrong, tools);
    wirePointer();
    canvas.addEventListener('keydown', key);
    canvas.addEventListener('blur', () => show(ring, false));
    changed();
}

export const isOpen = () => Boolean(canvas);

export function reveal(yes) {
    for (const node of canvas ? [canvas, tools] : [])
        show(node, yes);
    if (canvas)
        fieldError('mask', ''); /* what was said of it was of another choice */
}

export function close() {
    for (const node of [canvas, ring, wrong, tools])
        node?.remove();
    canvas = null;
}

/* What was painted before, from a PNG of blob()'s. */
export async function restore(src) {
    const image = el('img', {src}), {width, height} = canvas;
    await image.decode();
    const to = el('canvas', {width, height}).getContext('2d');
    to.drawImage(image, 0, 0, width, height);
    const pixels = to.getImageData(0, 0, width, height), {data} = pixels;
    const colour = [1, 3, 5].map((i) => parseInt(COLOUR.slice(i, i + 2), 16));
    for (let i = 0; i < data.length; i += 4)
        data.set([...colour, data[i]], i);
    to.putImageData(pixels, 0, 0);
    addStroke({image: to.canvas});
}

/* A number that is another one after every change; null: nothing is painted. */
export function version() {
    const {data} = at.getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 3; i < data.length; i += 4)
        if (data[i])
            return changes;
    return null;
}

/* White where it is painted, black elsewhere: a PNG. */
export function blob() {
    const {width, height} = canvas;
    const to = el('canvas', {width, height}).getContext('2d');
    to.drawImage(canvas, 0, 0);
    to.globalCompositeOperation = 'source-in';
    to.fillStyle = '#fff';
    to.fillRect(0, 0, width, height);
    to.globalCompositeOperation = 'destination-over';
    to.fillStyle = '#000';
    to.fillRect(0, 0, width, height);
    return new Promise((resolve) => to.canvas.toBlob(resolve, 'image/png'));
}
