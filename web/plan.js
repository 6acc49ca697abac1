/* plan: where a loaded model's blocks should live. What is asked for is first shown (POST
 * /berth/plan), and can be applied (PATCH) as long as the fields say the same as when it was
 * shown. */
import * as api from './api.js';
import {compare} from './compare.js';
import {loadDevices, loadModels} from './data.js';
import {paint} from './devices.js';
import * as dialog from './dialog.js';
import {$, button, el, put, show} from './dom.js';
import {bytes, percent} from './format.js';
import {modelName, state} from './store.js';
import {drawLanes} from './strips.js';
import {toast} from './toast.js';

let model = null;
let previewed = null; /* text of the request that is shown */
let asked = 0;        /* only the answer to the last request counts */

const mode = () => document.querySelector('input[name=plan-mode]:checked').value;

/* The request as the fields say it, without the model. */
function wanted() {
    const body = {
        compute: $('plan-compute').value,
        layout: document.querySelector('input[name=plan-layout]:checked').value
    };
    if (mode() === 'allocation')
        body.allocation = $('plan-allocation').value.trim();
    else if (mode() === 'virtual')
        Object.assign(body, {
            virtual_vram_gb: Number($('plan-virtual').value),
            donor_device: $('plan-donor').value
        });
    else
        body.allocation = '';
    return body;
}

function fail(text) {
    put($('plan-error'), {text});
    show($('plan-error'), Boolean(text));
    put($('plan-allocation'), {'aria-invalid': text && mode() === 'allocation' ? 'true' : null});
}

function refresh() {
    show($('plan-by-allocation'), mode() === 'allocation');
    show($('plan-by-virtual'), mode() === 'virtual');
    const same = previewed !== null && previewed === JSON.stringify(wanted());
    $('btn-plan-apply').disabled = !same;
    show($('plan-result'), same);
    put($('plan-hint'), {text: same ? 'This is what Apply will do.' : 'Look before you apply.'});
}

function options(select, names, chosen) {
    select.replaceChildren(...names.map((n) => el('option', {value: n, text: n})));
    select.value = names.includes(chosen) ? chosen : names[0];
}

/* Strings that make sense for this model on these devices. */
function examples(m) {
    const names = state.devices.map((d) => d.name);
    const card = names.find((n) => n !== 'cpu'),
          second = names.find((n) => n !== 'cpu' && n !== card);
    const half = `${Math.max(1, Math.round(m.bytes / 2 / 2 ** 20))}mb`;
    const list = [];
    if (card && names.includes('cpu'))
        list.push(`${card},${half};cpu,*`, `${card},25%;cpu,75%`);
    if (card && second)
        list.push(`${card},60%;${second},40%`, `${card},${half};${second},*`);
    list.push(`${names[0]},*`);
    return [...new Set(list)];
}

export function openPlan(m) {
    if (!m)
        return;
    model = m;
    previewed = null;
    const names = state.devices.map((d) => d.name);
    put($('plan-title'), {text: `Plan of ${modelName(m)}`});
    put($('plan-string'), {text: m.plan?.allocation ?? ''});
    $('plan-allocation').value = m.plan?.allocation ?? '';
    options($('plan-compute'), names, m.plan?.compute);
    options($('plan-donor'), names, names.includes('cpu') ? 'cpu' : names[0]);
    for (const r of document.querySelectorAll('input[name=plan-layout]'))
        r.checked = r.value === (m.plan?.layout || 'spread');
    document.querySelector('input[name=plan-mode][value=allocation]').checked = true;
    $('plan-virtual').value = (m.bytes / 2 / 2 ** 30).toPrecision(2);
    $('plan-examples')
        .replaceChildren(...examples(m).map((text) => button(text, 'plan-example', () => {
            $('plan-allocation').value = text;
            preview();
        })));
    fail('');
    refresh();
    dialog.open('dlg-plan');
    $('plan-allocation').focus();
}

function showResult(plan) {
    const now = plan.now || model.devices;
    const after = plan.after || Object.fromEntries(plan.devices.map((d) => [d.device, d.bytes]));
    const names = state.devices.map((d) => d.name).filter((n) => now[n] || after[n]);
    const rows =
        names.map((device) => ({device, before: now[device] || 0, after: after[device] || 0}));
    const lanes = el('div', {
        class: 'lanes',
        role: 'img',
        'aria-label': `Blocks in execution order: ${
            plan.devices.filter((d) => d.bytes)
                .map((d) => `${d.device} ${percent(d.bytes, plan.total_bytes)}`)
                .join(', ')}`
    });
    paint(lanes, model.id);
    drawLanes(lanes, plan.blocks.map((b) => ({...b, planned: b.device})),
        state.devices.map((d) => d.name));
    const moves = plan.moves ?? 0;
    put($('plan-result'), {data: {moves}});
    $('plan-result')
        .replaceChildren(
            el('p', {},
                el('strong', {text: moves ? `${bytes(moves)} would move` : 'Nothing would move'}),
                ` of ${bytes(plan.total_bytes)}: `, el('code', {text: plan.string})),
            compare(rows, {before: 'plan-now', after: 'plan-after'}),
            el('h3', {text: 'Blocks in execution order'}), lanes, ...(plan.notes || [
            ]).map((n) => el('p', {class: n.warning ? 'form-error' : 'quiet hint', text: n.text})));
}

async function preview() {
    const body = wanted(), text = JSON.stringify(body), turn = ++asked;
    fail('');
    try {
        const plan = await api.post('/berth/plan', {model: model.id, ...body});
        if (turn !== asked)
            return;
        showResult(plan);
        previewed = text;
    } catch (e) {
        if (turn !== asked)
            return;
        previewed = null;
        fail(e.message);
    }
    refresh();
}

async function apply() {
    $('btn-plan-apply').disabled = true;
    put($('plan-hint'), {
        text: state.queue.running ? 'A prompt runs; blocks move when it has ended.' :
                                    'Moving blocks.'
    });
    try {
        const m = await api.patch(`/berth/models/${model.id}`, wanted());
        dialog.close('dlg-plan');
        toast('done', `${modelName(model)} has a new plan`, m.plan ? m.plan.allocation : '');
    } catch (e) {
        fail(e.message);
        refresh();
    }
    loadModels();
    loadDevices();
}

export function start() {
    $('plan-form').addEventListener('input', refresh);
    $('plan-form').addEventListener('submit', (e) => {
        e.preventDefault();
        preview();
    });
    $('btn-plan-apply').addEventListener('click', apply);
    $('btn-plan-close').addEventListener('click', () => dialog.close('dlg-plan'));
}
