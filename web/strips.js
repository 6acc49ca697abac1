/* strips: for each model the order in which its blocks run, from left to right, a lane for each
 * device: a block is drawn in the lane of the device it lives on, as wide as its bytes. A block
 * that is not where the plan wants it is an outline in the planned lane. */
import * as tip from './blocktip.js';
import {paint} from './devices.js';
import {$, el, keyed, put, show, svg} from './dom.js';
import {bytes, count, percent} from './format.js';
import {letterOf, modelName, on, state} from './store.js';

const WIDE = 10000; /* units across */

/* Rectangles of all blocks that `mine` takes; neighbours become one. */
function path(blocks, all, mine) {
    let at = 0, from = null, d = '';
    const x = (n) => Math.round(WIDE * n / all);
    const end = () => {
        if (from !== null)
            d += `M${x(from)} 0H${Math.max(x(at), x(from) + 8)}V10H${x(from)}z`;
        from = null;
    };
    for (const b of blocks) {
        if (mine(b) && from === null)
            from = at;
        else if (!mine(b))
            end();
        at += b.bytes;
    }
    end();
    return d;
}

function lanesOf(blocks, order) {
    const used = new Set(blocks.flatMap((b) => [b.device, b.planned]).filter(Boolean));
    return order.filter((name) => used.has(name)).map((name) => {
        const here = blocks.filter((b) => b.device === name);
        return {device: name, blocks: here.length, bytes: here.reduce((n, b) => n + b.bytes, 0)};
    });
}

export function drawLanes(box, blocks, order) {
    const all = blocks.reduce((n, b) => n + b.bytes, 0) || 1;
    keyed(box, lanesOf(blocks, order), (l) => l.device,
        (l) => el('div', {class: 'lane', data: {test: 'lane', device: l.device}},
            el('span', {class: 'lane-name', text: l.device}),
            svg('svg',
                {viewBox: `0 0 ${WIDE} 10`, preserveAspectRatio: 'none', 'aria-hidden': 'true'},
                svg('path', {class: 'lives'}), svg('path', {class: 'planned'})),
            el('span', {class: 'lane-bytes num'})),
        (node, l) => {
            put(node, {data: {blocks: l.blocks, bytes: l.bytes}});
            put(node.querySelector('.lives'), {d: path(blocks, all, (b) => b.device === l.device)});
            put(node.querySelector('.planned'),
                {d: path(blocks, all, (b) => b.planned === l.device && b.device !== l.device)});
            put(node.lastElementChild, {text: percent(l.bytes, all)});
        });
}

function makeStrip(m) {
    const lanes = el('div', {class: 'lanes', tabindex: 0});
    const node = el('div', {class: 'strip', data: {test: 'strip', model: m.id}},
        el('p', {class: 'strip-line'}, el('span', {class: 'badge', 'aria-hidden': 'true'}),
            el('strong', {class: 'name'}), el('span', {class: 'quiet num about'})),
        lanes);
    /* The names and numbers beside a lane are not part of the order: look at the drawing's own
     * box. */
    tip.attach(lanes, () => state.blocks.get(m.id) || [], () => modelName(m),
        () => lanes.querySelector('svg') || lanes);
    return node;
}

function patchStrip(node, m) {
    const blocks = state.blocks.get(m.id) || [];
    const lanes = node.querySelector('.lanes');
    const order = state.devices.map((d) => d.name);
    paint(node, m.id);
    put(node.querySelector('.badge'), {text: letterOf(m.id)});
    put(node.querySelector('.name'), {text: modelName(m)});
    put(node.querySelector('.about'), {
        text: `${bytes(m.bytes)}, ${count(blocks.length, 'block')}, computes on ${
            m.plan?.compute ?? '?'}`
    });
    const where =
        lanesOf(blocks, order).map((l) => `${l.device} ${percent(l.bytes, m.bytes)}`).join(', ');
    put(lanes, {
        'aria-label': `Blocks of ${modelName(m)} in execution order: ${
            where || 'none loaded'}. Arrow keys step through them.`
    });
    tip.mark(lanes, blocks);
    drawLanes(lanes, blocks, order);
}

function draw() {
    const shown = state.models.filter((m) => state.blocks.has(m.id));
    keyed($('strips'), shown, (m) => m.id, makeStrip, patchStrip);
    show($('strips-empty'), shown.length === 0);
}

export function start() {
    for (const topic of ['devices', 'models', 'blocks'])
        on(topic, draw);
}
