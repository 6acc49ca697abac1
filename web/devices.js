/* devices: a bar for each device as long as its budget, and in it what lies there: every model's
 * blocks in the model's colour and with its letter, then the other tiers in patterns of their
 * own. */
import * as tip from './blocktip.js';
import {$, el, keyed, put, svg} from './dom.js';
import {bytes, percent} from './format.js';
import {letterOf, modelById, modelName, on, PALETTE, slotOf, state} from './store.js';

/* [tier, what of it no model owns, all of it], in the order in which they are drawn */
export const TIERS = [
    ['weights', 'other weights', 'weights'],
    ['pinned', 'pinned', 'pinned'],
    ['staging', 'staging', 'staging'],
    ['activations', 'activations', 'activations'],
    ['pool-idle', 'idle in the pool', 'idle in the pool'],
];
const LINE_EVERY = 5; /* pixels between lines at least; closer together they would be a grey */

/* What Berth holds on a device; and what of it somebody uses: idle memory of the pools is given
 * back as soon as another wants it. */
export const heldOf = (tiers) => Object.values(tiers || {}).reduce((n, v) => n + v, 0);
const usedOf = (tiers) => heldOf(tiers) - (tiers?.['pool-idle'] || 0);

export function paint(node, id) {
    const slot = slotOf(id);
    put(node, {data: {slot: slot % PALETTE, round: Math.min(2, Math.floor(slot / PALETTE))}});
}

/* What a device holds, left to right: [{key, tier, model, bytes, label}]. Models' weights in RAM
 * may be of the tier `weights` or `pinned`; what of both no model owns is shown for itself. */
function segmentsOf(d) {
    const list = [];
    let owned = 0;
    for (const m of state.models) {
        const n = m.devices[d.name] || 0;
        if (n)
            list.push(
                {key: `m${m.id}`, tier: 'weights', model: m.id, bytes: n, label: modelName(m)});
        owned += n;
    }
    const t = d.tiers || {};
    const pinned = t.pinned || 0;
    const rest = Math.max(0, (t.weights || 0) + pinned - owned);
    for (const [tier, label] of TIERS) {
        const n = tier === 'weights' ? (pinned ? 0 : rest) :
            tier === 'pinned'        ? (pinned ? Math.min(rest, pinned) : 0) :
                                       t[tier] || 0;
        if (n > (tier === 'weights' ?
                        d.budget / 100 :
                        d.budget / 2000)) /* a pool's rounding is not worth a colour */
            list.push({key: tier, tier, model: null, bytes: n, label});
    }
    return list;
}

const blocksOn = (id, device) => (state.blocks.get(id) || []).filter((b) => b.device === device);

function lines(node, blocks, width) {
    const old = node.querySelector('svg');
    const few = blocks.length > 1 && blocks.length * LINE_EVERY <= width;
    const signature = few ? blocks.map((b) => b.bytes).join() : '';
    if (node.dataset.lines === signature)
        return;
    node.dataset.lines = signature;
    old?.remove();
    if (!few)
        return;
    const all = blocks.reduce((n, b) => n + b.bytes, 0) || 1;
    let at = 0;
    const d = blocks.slice(0, -1)
                  .map((b) => {
                      at += b.bytes;
                      return `M${(1000 * at / all).toFixed(1)} 0V10`;
                  })
                  .join('');
    node.append(
        svg('svg', {viewBox: '0 0 1000 10', preserveAspectRatio: 'none', 'aria-hidden': 'true'},
            svg('path', {d})));
}

function makeSegment(s, device) {
    const node = el('div',
        {class: 'segment', tabindex: 0, data: {test: 'segment', tier: s.tier}},
        s.model !== null ? el('span', {'aria-hidden': 'true', text: letterOf(s.model)}) : null);
    const intro = () => {
        const m = s.model !== null ? modelById(s.model) : null;
        return m ? modelName(m) : `${s.label}: ${bytes(node.dataset.bytes)} on ${device}`;
    };
    tip.attach(node, () => (s.model === null ? [] : blocksOn(s.model, device)), intro);
    return node;
}

function patchSegment(node, s, d) {
    const blocks = s.model === null ? [] : blocksOn(s.model, d.name);
    node.style.width = `${Math.min(100, 100 * s.bytes / (d.budget || 1))}%`;
    tip.mark(node, blocks);
    put(node, {
        data:
            {bytes: s.bytes, blocks: blocks.length, ...(s.model === null ? {} : {model: s.model})},
        'aria-label': `${s.label}: ${bytes(s.bytes)}, ${percent(s.bytes, d.budget)} of ${d.name}${
            blocks.length ? `, ${blocks.length} blocks; arrow keys step through them` : ''}`,
    });
    if (s.model !== null) {
        paint(node, s.model);
        lines(node, blocks, node.parentElement.clientWidth * s.bytes / (d.budget || 1));
    }
}

function makeDevice(d) {
    return el('div', {class: 'device', data: {test: 'device', device: d.name}},
        el('p', {class: 'device-line'}, el('strong', {text: d.name}),
            el('span', {class: 'quiet num device-tiers'}), el('span', {class: 'num device-used'})),
        el('div', {class: 'bar', role: 'group', data: {test: 'bar'}}));
}

function patchDevice(node, d) {
    const used = usedOf(d.tiers);
    const bar = node.querySelector('.bar');
    put(node, {data: {budget: d.budget, used}});
    put(bar, {'aria-label': `${d.name}: ${bytes(used)} of ${bytes(d.budget)} in use`});
    put(node.querySelector('strong'),
        {title: d.physical && d.physical !== d.name ? `a part of ${d.physical}` : ''});
    put(node.querySelector('.device-used'),
        {text: `${bytes(used)} of ${bytes(d.budget)} · ${percent(used, d.budget)}`});
    keyed(bar, segmentsOf(d), (s) => s.key, (s) => makeSegment(s, d.name),
        (n, s) => patchSegment(n, s, d));
    const tiers = Object.entries(d.tiers || {}).filter(([, n]) => n).map(([name,
        n]) => `${name} ${bytes(n)}`);
    put(node.querySelector('.device-tiers'), {text: tiers.join(' · '), title: tiers.join(' · ')});
}

/* A tier that was seen stays in the legend: activations come and go with every step, and everything
 * below would jump with them. */
const tiersSeen = new Set();

function drawLegend() {
    const shown = state.models.filter((m) => m.resident);
    for (const s of state.devices.flatMap(segmentsOf))
        if (s.model === null)
            tiersSeen.add(s.tier);
    const tiers = TIERS.filter(([tier]) => tiersSeen.has(tier));
    tiersSeen.delete('weights'); /* seen for a moment while a model is loaded */
    const items = [
        ...shown.map((m) => ({key: `m${m.id}`, model: m})),
        ...tiers.map(([tier, label]) => ({key: tier, tier, label}))
    ];
    keyed($('legend'), items, (i) => i.key,
        (i) => el('li', {
            data: i.model ? {test: 'legend-model', model: i.model.id} :
                            {test: 'legend-tier', tier: i.tier}
        },
            el('span', {class: 'badge', 'aria-hidden': 'true', data: i.tier ? {tier: i.tier} : {}}),
            el('span', {class: 'name'})),
        (node, i) => {
            const badge = node.firstElementChild;
            if (i.model) {
                paint(badge, i.model.id);
                put(badge, {text: letterOf(i.model.id)});
            }
            put(node.lastElementChild, {text: i.model ? modelName(i.model) : i.label});
        });
}

function draw() {
    keyed($('devices'), state.devices, (d) => d.name, makeDevice, patchDevice);
    const sum = (of) => bytes(state.devices.reduce((n, d) => n + of(d.tiers), 0));
    put($('devices-sum'),
        {text: state.devices.length ? `${sum(usedOf)} in use, ${sum(heldOf)} held` : ''});
    drawLegend();
}

export function start() {
    for (const topic of ['devices', 'models', 'blocks'])
        on(topic, draw);
}
