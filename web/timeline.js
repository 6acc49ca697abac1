/* timeline: memory of one device over the last minutes, stacked by tier, and the streaming speed
 * beside it. Values hold until the next measurement, so areas are steps. The latest points survive
 * a reload of the tab: the server tells what is, not what was. */
import {heldOf, TIERS} from './devices.js';
import {$, button, el, keyed, put, svg} from './dom.js';
import {bytes, gbps, seconds, time} from './format.js';
import {changed, LIMITS, on, state} from './store.js';

const WIDE = 1000, HIGH = 160;
const WINDOW_MS = 10 * 60 * 1000;
const LEAST_MS = 20 * 1000;
const REDRAW_MS = 2000; /* the right edge is now */
const ROWS = 60;        /* of the table */
const KEY = 'berth.points';
const KEPT = 300; /* points that survive a reload */

let device = null; /* chosen by the user; else the first card */

function shownDevice() {
    const names = state.devices.map((d) => d.name);
    if (names.includes(device))
        return device;
    return names.find((n) => n !== 'cpu') || names[0] || null;
}

function span(now) {
    const first = state.points[0]?.time ?? now;
    return Math.min(WINDOW_MS, Math.max(LEAST_MS, now - first));
}

/* Points in the window, and the last one before it at its edge. */
function inWindow(now, width) {
    const from = now - width;
    const at = state.points.findIndex((p) => p.time > from);
    if (at < 0)
        return state.points.slice(-1).map((p) => ({...p, time: from}));
    const before = at > 0 ? [{...state.points[at - 1], time: from}] : [];
    return [...before, ...state.points.slice(at)];
}

/* An area between two stacks: value(p) above floor(p). */
function area(points, x, y, floor, value) {
    if (!points.length)
        return '';
    let top = '', bottom = '';
    points.forEach((p, i) => {
        const right = i + 1 < points.length ? x(points[i + 1].time) : WIDE;
        const a = x(p.time).toFixed(1), b = right.toFixed(1);
        top += `${i ? 'L' : 'M'}${a} ${y(floor(p) + value(p)).toFixed(1)}L${b} ${
            y(floor(p) + value(p)).toFixed(1)}`;
        bottom = `L${b} ${y(floor(p)).toFixed(1)}L${a} ${y(floor(p)).toFixed(1)}${bottom}`;
    });
    return `${top}${bottom}z`;
}

/* Tiers are told apart by pattern, too, as in the bars. */
const LINES = {
    pinned: 'M0 1H8',
    staging: 'M1 0V8',
    activations: 'M0 8L8 0',
    'pool-idle': 'M3 4H5',
};

const patterns = () => svg('defs', {},
    ...Object.entries(LINES).map(([tier, d]) => svg('pattern',
        {id: `on-${tier}`, width: 8, height: 8, patternUnits: 'userSpaceOnUse'},
        svg('path', {class: 'stripe', d}))));

function drawLegend(areas) {
    keyed($('timeline-legend'), areas, (a) => a.tier,
        (a) => el('li', {data: {test: 'timeline-tier', tier: a.tier}},
            el('span', {class: 'badge', 'aria-hidden': 'true', data: {tier: a.tier}}),
            el('span', {text: a.label})));
}

function drawChart(now, width, points, name) {
    const chart = $('timeline');
    const budget = state.devices.find((d) => d.name === name)?.budget || 0;
    const peak = points.reduce((n, p) => Math.max(n, heldOf(p.by[name])), 0);
    const near = peak === 0 || peak > budget / 2; /* then the budget itself is worth seeing */
    const scale = (near ? Math.max(budget, peak) * 1.04 : peak * 1.25) || 1;
    const x = (t) => Math.max(0, WIDE * (1 - (now - t) / width));
    const y = (n) => HIGH * (1 - n / scale);
    const areas = TIERS.map(([tier, , label], k) => {
        const floor = (p) =>
            TIERS.slice(0, k).reduce((n, [t]) => n + (p.by[name]?.[t] || 0), 0);
        const some = points.some((p) => p.by[name]?.[tier]);
        const d = some ? area(points, x, y, floor, (p) => p.by[name]?.[tier] || 0) : '';
        return {tier, label, d};
    }).filter((a) => a.d);
    drawLegend(areas);
    put(chart,
        {viewBox: `0 0 ${WIDE} ${HIGH}`, data: {points: state.points.length, device: name || ''}});
    chart.replaceChildren(
        svg('path',
            {class: 'grid', d: [1, 2, 3].map((k) => `M0 ${HIGH * k / 4}H${WIDE}`).join('')}),
        patterns(), ...areas.flatMap((a) => [
            svg('path', {class: 'area', d: a.d, data: {tier: a.tier}}),
            svg('path', {d: a.d, fill: `url(#on-${a.tier})`}, svg('title', {text: a.label})),
        ]),
        ...(budget <= scale ?
                [svg('path', {class: 'budget', d: `M0 ${y(budget).toFixed(1)}H${WIDE}`})] :
                []),
        ...state.events.map((e) => ({...e, time: e.time + state.skew}))
            .filter((e) => e.time > now - width)
            .map((e) => svg('path',
                     {class: 'event', d: `M${x(e.time).toFixed(1)} ${HIGH}V${HIGH - 9}`},
                     svg('title', {text: `${time(e.time)} ${e.text}`}))));
    const last = points.length ? heldOf(points.at(-1).by[name]) : 0;
    put(chart, {
        'aria-label': points.length ?
            `Memory of ${name} over the last ${seconds(width / 1000)}: now ${
                bytes(last)}, at most ${bytes(peak)}, budget ${bytes(budget)}` :
            'No measurements yet'
    });
    put($('timeline-from'), {text: `${seconds(width / 1000)} ago`});
    put($('timeline-peak'),
        {text: points.length ? `now ${bytes(last)} · peak ${bytes(peak)}` : ''});
    put($('timeline-top'), {text: near ? `budget ${bytes(budget)}` : bytes(scale)});
}

/* Why the numbers are zero: what lies in RAM is computed with where it lies. */
function unstreamed() {
    if (!state.devices.length || state.devices.some((d) => d.kind !== 'cpu'))
        return 'nothing streamed';
    return state.devices.length > 1 ? 'pretend cards share RAM: nothing to stream' :
                                      'all is in RAM: nothing to stream';
}

function drawStream(now, width, points) {
    const s = state.stream;
    const speed = s.gb_per_s || 0;
    put($('stream-now'), {text: gbps(speed), data: {gbps: speed, active: speed > 0 ? 1 : 0}});
    put($('stream-total'), {
        text: s.bytes ? `${bytes(s.bytes)} in ${seconds(s.seconds)}, waited ${
                            seconds(s.exposed_seconds || 0)}` :
                        unstreamed(),
        title: 'Bytes copied for blocks that live elsewhere, how long that took, ' +
            'how long layers waited',
    });
    const top = Math.max(...points.map((p) => p.gbps || 0), 0.001);
    const x = (t) => Math.max(0, WIDE * (1 - (now - t) / width));
    const spark = $('stream-spark');
    put(spark, {
        viewBox: `0 0 ${WIDE} 30`,
        data: {points: points.filter((p) => p.gbps > 0).length},
        'aria-label': s.bytes ?
            `Streaming speed over the last ${seconds(width / 1000)}, at most ${gbps(top)}` :
            `No streaming: ${unstreamed()}`,
    });
    const d = area(points, x, (v) => 29 - 27 * v / top, () => 0, (p) => p.gbps || 0);
    spark.replaceChildren(svg('path', {class: 'spark', d}));
}

function choose(name) {
    device = name;
    changed('timeline');
}

function drawSwitch(name) {
    keyed($('timeline-devices'), state.devices, (d) => d.name,
        (d) => button(d.name, 'timeline-device', () => choose(d.name),
            {class: 'small', data: {device: d.name}}),
        (node, d) => put(node, {'aria-pressed': String(d.name === name)}));
}

/* For those who do not see the chart: the latest measurements, oldest last. */
function drawTable() {
    if (!$('timeline-details').open)
        return;
    const names = state.devices.map((d) => d.name);
    const head = el(
        'tr', {}, ...['Time', ...names, 'Streaming'].map((t) => el('th', {scope: 'col', text: t})));
    const rows = state.points.slice(-ROWS).reverse().map(
        (p) => el('tr', {}, el('td', {text: time(p.time)}),
            ...names.map((n) => el('td', {text: bytes(heldOf(p.by[n]))})),
            el('td', {text: gbps(p.gbps)})));
    $('timeline-text')
        .replaceChildren(el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows)));
}

function draw() {
    const now = Date.now(), width = span(now), name = shownDevice();
    const points = inWindow(now, width);
    drawSwitch(name);
    drawChart(now, width, points, name);
    drawStream(now, width, points);
    drawTable();
}

function restore() {
    try {
        const {started, points} = JSON.parse(sessionStorage.getItem(KEY));
        const fresh = points.filter(
            (p) => typeof p.time === 'number' && p.by && Date.now() - p.time < WINDOW_MS);
        state.points = [...fresh, ...state.points].slice(-LIMITS.points);
        state.started = started; /* data.js drops them if the server is another one by now */
    } catch { /* nothing kept, or not ours */
    }
}

function keep() {
    try {
        sessionStorage.setItem(
            KEY, JSON.stringify({started: state.started, points: state.points.slice(-KEPT)}));
    } catch { /* full, or forbidden: the line begins anew */
    }
}

export function start() {
    restore();
    on('timeline', draw);
    on('stream', draw);
    $('timeline-details').addEventListener('toggle', drawTable);
    addEventListener('pagehide', keep);
    setInterval(() => {
        if (!document.hidden && state.connected)
            changed('timeline');
    }, REDRAW_MS);
}
