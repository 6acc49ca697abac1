/* models: every model the server knows: state, where its bytes are, how long it stays, and the
 * ways to change that. */
import * as api from './api.js';
import {loadDevices, loadModels} from './data.js';
import {paint} from './devices.js';
import {confirm} from './dialog.js';
import {$, button, el, keyed, put, show} from './dom.js';
import {bytes, count, percent} from './format.js';
import {tookPlace} from './free.js';
import {openPlan} from './plan.js';
import {letterOf, modelName, on, state} from './store.js';
import {trouble} from './toast.js';

const RETENTIONS = [
    ['auto', 'Goes with a free when nothing is marked eject, or when room is needed'],
    ['keep', 'A free leaves it where it is'],
    ['eject', 'Goes with the next free, and after a prompt that used it'],
];

const busy = new Set(); /* ids of models with a change under way */

/* A change acts between prompts: while one runs, the answer takes as long as it does. */
async function change(id, what, request) {
    busy.add(id);
    draw();
    try {
        return await request();
    } catch (e) {
        trouble(what, e);
        return null;
    } finally {
        busy.delete(id);
        await Promise.all([loadModels(), loadDevices()]);
        draw();
    }
}

const retain = (m, retention) => change(m.id, `${modelName(m)} stays ${m.retention}`,
    () => api.patch(`/berth/models/${m.id}`, {retention}));

async function unload(m) {
    const kept = m.retention === 'keep';
    const text = `Unload ${modelName(m)} (${bytes(m.resident)})?${
        kept ? ' It is marked keep: this goes against that mark.' : ''}`;
    if (!await confirm(text, kept ? 'Unload it anyway' : 'Unload'))
        return;
    const receipt = await change(m.id, `${modelName(m)} was not unloaded`,
        () => api.remove(`/berth/models/${m.id}${kept ? '?force=1' : ''}`));
    if (receipt)
        tookPlace(receipt);
}

function current(id) {
    return state.models.find((m) => m.id === id);
}

function makeModel({id}) {
    const radio = (value) => el('input', {
        type: 'radio',
        name: `retention-${id}`,
        value,
        data: {test: 'retention'},
        on: {change: () => retain(current(id), value)},
    });
    const radios = RETENTIONS.map(
        ([value, title]) => el('label', {class: 'inline', title}, radio(value), value));
    return el('article', {class: 'model', data: {test: 'model', model: id}},
        el('div', {class: 'model-line'}, el('span', {class: 'badge', 'aria-hidden': 'true'}),
            el('strong', {class: 'name'}), el('span', {class: 'state', data: {test: 'state'}}),
            el('span', {class: 'spring'}), el('span', {class: 'num', data: {test: 'bytes'}})),
        el('p', {class: 'about quiet num'}), el('p', {class: 'about plan-text'}, el('code', {})),
        el('div', {class: 'model-line'},
            el('fieldset', {class: 'retention'}, el('legend', {text: 'Retention'}), ...radios),
            el('span', {class: 'spring'}),
            button('Plan…', 'plan', () => openPlan(current(id)), {class: 'small'}),
            button('Unload', 'unload', () => unload(current(id)), {class: 'small'})));
}

/* What is worth knowing beside the bytes: who holds it, what it cost so far. */
function aboutOf(m) {
    const on = Object.entries(m.devices).map(([d, n]) => `${d} ${bytes(n)}`).join(', ');
    const more = [
        on || 'on no device',
        m.anchors.length ? `held: ${m.anchors.map((a) => a.reason).join(', ')}` : '',
        m.uses ? 'in use' : '',
        m.demoted ? `${count(m.demoted, 'block')} had to leave their place` : '',
        m.patches ? count(m.patches, 'patch', 'patches') : '',
        `read ${bytes(m.read)}`,
        m.moved ? `moved ${bytes(m.moved)}` : '',
    ];
    return more.filter(Boolean).join(' · ');
}

function patchModel(node, m) {
    const name = modelName(m), off = busy.has(m.id);
    const q = (s) => node.querySelector(s);
    put(node, {'aria-label': name, 'aria-busy': String(off)});
    paint(q('.badge'), m.id);
    put(q('.badge'), {text: letterOf(m.id)});
    put(q('.name'), {text: name, title: m.path});
    put(q('.state'), {text: m.state, data: {state: m.state}});
    put(q('[data-test="bytes"]'), {
        text: m.resident && m.resident !== m.bytes ?
            `${bytes(m.resident)} of ${bytes(m.bytes)} · ${percent(m.resident, m.bytes)}` :
            bytes(m.bytes),
        data: {bytes: m.bytes, resident: m.resident}
    });
    put(q('p.about'), {text: aboutOf(m)});
    put(q('.plan-text code'), {text: m.plan ? `${m.plan.allocation} ${m.plan.layout}` : ''});
    put(q('legend'), {'aria-label': `Retention of ${name}`});
    for (const r of node.querySelectorAll('input[type=radio]')) {
        r.checked = r.value === m.retention;
        r.disabled = off;
    }
    put(q('[data-test="plan"]'), {'aria-label': `Change the plan of ${name}`});
    put(q('[data-test="unload"]'), {'aria-label': `Unload ${name}`});
    q('[data-test="plan"]').disabled = off;
    q('[data-test="unload"]').disabled = off || !m.resident;
}

function draw() {
    keyed($('models-list'), state.models, (m) => m.id, makeModel, patchModel);
    show($('models-empty'), state.models.length === 0);
    const resident = state.models.reduce((n, m) => n + m.resident, 0);
    put($('models-count'),
        {text: state.models.length ? `${state.models.length}, ${bytes(resident)} in memory` : ''});
}

export function start() {
    on('models', draw);
}
