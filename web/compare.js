/* compare: memory of devices before and after something, as pairs of small bars. */
import {el} from './dom.js';
import {bytes} from './format.js';
import {state} from './store.js';

function mini(kind, label, n, scale, data) {
    const fill = el('span', {});
    fill.style.width = `${Math.min(100, 100 * n / (scale || 1))}%`;
    return el('div', {class: `mini ${kind} num`, data: {bytes: n, ...data}},
        el('span', {text: label}), el('i', {'aria-hidden': 'true'}, fill),
        el('span', {text: bytes(n)}));
}

/* rows: [{device, before, after}]; tests: data-test of a row, of its two bars; first: what the
 * upper one is called. A bar is as long as the device's budget, or as the largest number where that
 * would be too small to see. */
export function compare(rows, tests, first = 'now') {
    const most = Math.max(...rows.flatMap((r) => [r.before, r.after]), 1);
    return el('div', {class: 'compare'}, ...rows.map((r) => {
        const budget = state.devices.find((d) => d.name === r.device)?.budget || most;
        const scale = Math.max(Math.min(budget, most * 4), r.before, r.after);
        return el('div', {
            class: 'compare-row',
            data: {test: tests.row, device: r.device, before: r.before, after: r.after}
        },
            el('b', {text: r.device}),
            mini('before', first, r.before, scale, {test: tests.before, device: r.device}),
            mini('after', 'after', r.after, scale, {test: tests.after, device: r.device}));
    }));
}
