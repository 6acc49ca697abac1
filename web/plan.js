/* plan: where a model's blocks should live, now or when it is loaded next. What is asked for is
 * first shown (POST /berth/plan), and can be applied (PATCH) as long as the fields say the same as
 * when it was shown. */
import * as api from './api.js';
import {compare} from './compare.js';
import {loadDevices, loadModels} from './data.js';
import {paint} from './devices.js';
import * as dialog from './dialog.js';
import {$, button, el, options, put, show} from './dom.js';
import {bytes, percent} from './format.js';
import {modelName, state} from './store.js';
import {drawLanes} from './strips.js';
import {toast, trouble} from './toast.js';

let model = null;
let previewed = null;  /* text of the request that is shown */
let loaded = true;     /* some of the model was in memory then */
let turn = 0;          /* counts openings and previews: only the answer to the last one counts */
let applying = false;  /* what this opening of the dialog shows is being applied */
let look = null;       /* AbortController of the preview */

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
            virtual_vram_gb: $('plan-virtual').valueAsNumber, /* NaN when it is none */
            donor_device: $('plan-donor').value
        });
    else
        body.allocation = '';
    return body;
}

/* The server calls things as the loader nodes' inputs are called; here their fields have labels. */
const LABELS = {
    expert_mode_allocations: 'Allocation',
    virtual_vram_gb: 'GiB that live elsewhere',
    donor_device: 'on this donor',
};
const inOurWords = (text) =>
    text.replace(/(^|: )(\w+): /g, (all, before, name) =>
        Object.hasOwn(LABELS, name) ? `${before}${LABELS[name]}: ` : all);

function fail(text) {
    put($('plan-error'), {text: inOurWords(text)});
    show($('plan-error'), Boolean(text));
    for (const way of ['allocation', 'virtual'])
        put($(`plan-${way}`), {'aria-invalid': text && mode() === way ? 'true' : null});
}

function refresh() {
    show($('plan-by-allocation'), mode() === 'allocation');
    show($('plan-by-virtual'), mode() === 'virtual');
    const same = previewed !== null && previewed === JSON.stringify(wanted());
    $('btn-plan-apply').disabled = !same || applying;
    $('btn-plan-preview').disabled = applying;
    show($('plan-result'), same || applying);
    put($('plan-hint'), {text: hint(same)});
}

function hint(same) {
    if (applying)
        return state.queue.running ?
            'It waits for the running prompt. Close this dialog, and it will still happen.' :
            'Moving blocks.';
    if (!same)
        return 'Look before you apply.';
    return loaded ? 'This is what Apply will do.' : 'Apply notes it for the next load.';
}

function choose(select, names, chosen) {
    options(select, names);
    select.value = names.includes(chosen) ? chosen : names[0];
}

/* Every device but the one that computes: what is there lives there already. */
function offerDonors() {
    const all = state.devices.map((d) => d.name), donor = $('plan-donor').value;
    const others = all.filter((n) => n !== $('plan-compute').value);
    const names = others.length ? others : all;
    choose($('plan-donor'), names, names.includes(donor) ? donor : 'cpu');
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
    applying = false;
    turn++;
    const names = state.devices.map((d) => d.name);
    put($('plan-title'), {text: `Plan of ${modelName(m)}`});
    put($('plan-string'), {text: m.plan?.allocation ?? ''});
    $('plan-allocation').value = m.plan?.allocation ?? '';
    choose($('plan-compute'), names, m.plan?.compute);
    offerDonors();
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
    $('plan-allocation').select(); /* what is typed replaces it */
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
    loaded = Object.keys(now).length > 0;
    const moves = plan.moves ?? 0;
    const what = moves ? `${bytes(moves)} would move` :
        loaded         ? 'Nothing would move' :
                         'Not loaded: it will lie like this when it is loaded next';
    put($('plan-result'), {data: {moves}});
    $('plan-result')
        .replaceChildren(
            el('p', {},
                el('strong', {text: what}), loaded ? ` of ${bytes(plan.total_bytes)}: ` : ': ',
                el('code', {text: plan.string})),
            compare(rows, {before: 'plan-now', after: 'plan-after'}),
            el('h3', {text: 'Blocks in execution order'}), lanes, ...(plan.notes || [
            ]).map((n) => el('p', {class: n.warning ? 'form-error' : 'quiet hint', text: n.text})));
}

async function preview() {
    if (applying)
        return;
    const body = wanted(), text = JSON.stringify(body), mine = ++turn;
    fail('');
    if (Number.isNaN(body.virtual_vram_gb)) {
        previewed = null;
        fail('How many GiB should live elsewhere? A number is wanted.');
        refresh();
        return;
    }
    look?.abort();
    look = new AbortController();
    try {
        const plan = await api.post('/berth/plan', {model: model.id, ...body}, look.signal);
        if (mine !== turn)
            return;
        showResult(plan);
        previewed = text;
    } catch (e) {
        if (mine !== turn)
            return;
        previewed = null;
        fail(e.message);
    }
    refresh();
}

/* Once sent it happens, also when the dialog is closed meanwhile, or open for another model. */
async function apply() {
    const mine = turn, m = model;
    const here = () => mine === turn && $('dlg-plan').open;
    applying = true;
    $('btn-plan-close').focus();
    refresh();
    try {
        const now = await api.slowPatch(`/berth/models/${m.id}`, wanted());
        if (here())
            dialog.close('dlg-plan');
        toast('done', `${modelName(m)} has a new plan`,
            now.plan ? now.plan.allocation + (now.resident ? '' : ', when it is loaded next') : '');
    } catch (e) {
        if (here()) {
            applying = false;
            fail(e.message);
            refresh();
        } else {
            trouble(`${modelName(m)} has the plan it had`, e);
        }
    }
    loadModels();
    loadDevices();
}

function wire() {
    $('plan-compute').addEventListener('input', offerDonors); /* before what follows looks at it */
    $('plan-form').addEventListener('input', refresh);
    $('plan-form').addEventListener('submit', (e) => {
        e.preventDefault();
        preview();
    });
    $('btn-plan-apply').addEventListener('click', apply);
    $('btn-plan-close').addEventListener('click', () => dialog.close('dlg-plan'));
    $('dlg-plan').addEventListener('close', () => look?.abort());
}

wire();
