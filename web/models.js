/* models: every model the server knows: state, where its bytes are, how long it stays, and the
 * ways to change that. */
import * as api from './api.js';
import {loadDevices, loadModels} from './data.js';
import {paint} from './devices.js';
import {confirm} from './dialog.js';
import {$, button, el, keyed, put, show} from './dom.js';
import {bytes, count, percent} from './format.js';
import {use} from './later.js';
import {tookPlace} from './free.js';
import {letterOf, modelById, modelName, on, state} from './store.js';
import {trouble} from './toast.js';

const RETENTIONS = [
    ['auto', 'Goes with a free when nothing is marked eject, when no prompt names it any more, ' +
        'or when room is needed'],
    ['keep', 'A free leaves it where it is'],
    ['eject', 'Goes with the next free, after a prompt that used it, ' +
        'and before auto ones otherwise'],
];

/* Changes under way, model id -> {retention, unload}: what was asked for is shown until the server
 * has said what became of it. Controls are not disabled meanwhile: the focus would leave them. */
const asked = new Map();

const waits = () => (state.queue.running ? 'waits for the running prompt' : 'under way');

function ask(id, what) {
    asked.set(id, {...asked.get(id), ...what});
    draw();
}

const reload = () => Promise.all([loadModels(), loadDevices()]);

function answered(id, name) {
    const {[name]: _, ...rest} = asked.get(id) || {};
    if (Object.keys(rest).length)
        asked.set(id, rest);
    else
        asked.delete(id);
    draw();
}

/* One request at a time; the last wish counts. */
async function retain(m, retention) {
    const busy = asked.get(m.id)?.retention !== undefined;
    ask(m.id, {retention});
    if (busy)
        return;
    let sent;
    do {
        sent = asked.get(m.id).retention;
        try {
            await api.slowPatch(`/berth/models/${m.id}`, {retention: sent});
        } catch (e) {
            trouble(`${modelName(m)} stays ${m.retention}`, e);
        }
        await reload();
    } while (sent !== asked.get(m.id).retention);
    answered(m.id, 'retention');
}

async function unload(m) {
    if (!m.resident || asked.get(m.id)?.unload)
        return;
    const kept = m.retention === 'keep';
    const text = `Unload ${modelName(m)} (${bytes(m.resident)})?${
        kept ? ' It is marked keep: this goes against that mark.' : ''}`;
    if (!await confirm(text, kept ? 'Unload it anyway' : 'Unload'))
        return;
    ask(m.id, {unload: true});
    try {
        tookPlace(await api.slowRemove(`/berth/models/${m.id}${kept ? '?force=1' : ''}`));
    } catch (e) {
        trouble(`${modelName(m)} was not unloaded`, e);
    }
    await reload();
    answered(m.id, 'unload');
}

const openPlan = (id) =>
    use('plan', 'The plan editor', (plan) => plan.openPlan(modelById(id)));

function makeModel({id}) {
    const radio = (value) => el('input', {
        type: 'radio',
        name: `retention-${id}`,
        value,
        data: {test: 'retention'},
        on: {change: () => retain(modelById(id), value)},
    });
    const radios = RETENTIONS.map(
        ([value, title]) => el('label', {class: 'inline', title}, radio(value), value));
    return el('article', {class: 'model', data: {test: 'model', model: id}},
        el('div', {class: 'model-line'}, el('span', {class: 'badge', 'aria-hidden': 'true'}),
            el('strong', {class: 'name'}), el('span', {class: 'state', data: {test: 'state'}}),
            el('span', {class: 'spring'}), el('span', {class: 'num', data: {test: 'bytes'}})),
        el('p', {class: 'about quiet num'}), el('p', {class: 'about plan-text'}, el('code', {})),
        el('p', {class: 'about asked', role: 'status', data: {test: 'asked'}}),
        el('div', {class: 'model-line'},
            el('fieldset', {class: 'retention'}, el('legend', {text: 'Retention'}), ...radios),
            el('span', {class: 'spring'}),
            button('Plan…', 'plan', () => openPlan(id), {class: 'small'}),
            button('Unload', 'unload', () => unload(modelById(id)), {class: 'small'})));
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
    const name = modelName(m), wish = asked.get(m.id);
    const q = (s) => node.querySelector(s);
    put(node, {'aria-label': name, 'aria-busy': String(Boolean(wish))});
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
    for (const r of node.querySelectorAll('input[type=radio]'))
        r.checked = r.value === (wish?.retention ?? m.retention);
    put(q('[data-test="plan"]'), {'aria-label': `Change the plan of ${name}`});
    put(q('[data-test="unload"]'), {'aria-label': `Unload ${name}`});
    put(q('[data-test="unload"]'),
        {'aria-disabled': m.resident && !wish?.unload ? null : 'true'});
    const wishes = [wish?.retention, wish?.unload ? 'unload' : undefined].filter(Boolean);
    put(q('.asked'), {text: wishes.length ? `${wishes.join(', ')}: ${waits()}` : ''});
    show(q('.asked'), wishes.length > 0);
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
    on('queue', draw); /* what waits for a prompt says so */
}
