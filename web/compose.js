/* compose: the prompt box. Fields become a workflow (workflow.js) and a prompt; what the server
 * finds wrong is shown at the field it came from. The tab keeps the fields over a reload. */
import * as api from './api.js';
import {$, button, options, put, show} from './dom.js';
import {on, state} from './store.js';
import {submit} from './submit.js';
import {toast, trouble} from './toast.js';
import {build, choicesOf, FIELD_OF, nodeErrors, randomSeed} from './workflow.js';

const FIELDS =
    ['model', 'seed', 'steps', 'cfg', 'sampler', 'scheduler', 'width', 'height', 'batch'];
const SEED_MOST = 2n ** 64n - 1n;
const EXAMPLES_MOST = 6;
const EXAMPLE_LONG = 2000; /* characters */

const field = (name) => $(`f-${name}`);

/* ---- choices ---- */

function setIfThere(select, value) {
    if ([...select.options].some((o) => o.value === value))
        select.value = value;
}

/* ---- what a reload keeps ---- */

const KEY = 'berth.form';
const KEPT = [...FIELDS, 'prompt', 'negative'];
const LISTS = ['model', 'sampler', 'scheduler'];

let left = kept(); /* until the lists, too, say so again */

/* Fields that somebody changed since a model was chosen: another model's settings leave them alone
 * once. */
const TUNED = ['steps', 'cfg', 'width', 'height', 'sampler', 'scheduler'];
const edited = new Set(Array.isArray(left?.edited) ? left.edited : []);

function keep() {
    try {
        const s = Object.fromEntries(KEPT.map((name) => [name, field(name).value]));
        sessionStorage.setItem(KEY, JSON.stringify(
            {...s, random: $('f-seed-random').checked, edited: [...edited]}));
    } catch { /* a browser that keeps nothing */
    }
}

/* What this tab's form said when it was left; null: nothing yet, or not ours. */
function kept() {
    try {
        const s = JSON.parse(sessionStorage.getItem(KEY));
        return typeof s?.prompt === 'string' ? s : null;
    } catch {
        return null;
    }
}

/* Fields at once, lists when there is something to choose from. */
function restoreFields(s) {
    for (const name of KEPT)
        if (field(name).matches('input, textarea') && typeof s[name] === 'string')
            field(name).value = s[name];
    $('f-seed-random').checked = s.random !== false;
    $('more-negative').open = Boolean(s.negative);
}

/* At the start, after a reconnect, and when somebody goes to choose: models come and go. */
export async function loadChoices() {
    try {
        const [models, info] =
            await Promise.all([api.get('/models/checkpoints'), api.get('/object_info/KSampler')]);
        const before = field('model').value;
        options(field('model'), models);
        for (const [name, input] of [['sampler', 'sampler_name'], ['scheduler', 'scheduler']])
            options(field(name), choicesOf(info.KSampler, input) || []);
        show($('empty-models'), models.length === 0);
        $('btn-submit').disabled = models.length === 0;
        for (const name of left ? LISTS : [])
            setIfThere(field(name), left[name]);
        const same = left !== null && field('model').value === left.model;
        left = null;
        if (models.length && field('model').value !== before)
            await loadSettings(!same);
    } catch (e) {
        if (e.status !== 0)
            trouble('The lists of models and samplers could not be loaded', e);
    }
}

/* May a field have this value? */
const fits = (input, v, whole) => Number.isFinite(v) && (!whole || Number.isInteger(v)) &&
    v >= Number(input.min) && v <= Number(input.max);
/* Sides come in steps of 8: a latent pixel is so wide. */
const off = (input, v) => (v - Number(input.min)) % Number(input.step);

/* Good settings travel in the model's file, as JSON under berth.settings. */
async function settingsOfModel(name) {
    if (!name.endsWith('.safetensors'))
        return null;
    try {
        const text = (await api.get(api.metadataUrl('checkpoints', name)))?.['berth.settings'];
        const s = text ? JSON.parse(text) : null;
        return s && typeof s === 'object' ? s : null;
    } catch {
        return null; /* no metadata, or not as agreed: the fields stay */
    }
}

/* take false: the fields say already what they should, only the examples are shown. */
async function loadSettings(take = true) {
    const name = field('model').value;
    const s = await settingsOfModel(name);
    if (field('model').value !== name)
        return;
    const prompts = Array.isArray(s?.prompts) ?
        s.prompts.filter((p) => typeof p === 'string' && p.length <= EXAMPLE_LONG)
            .slice(0, EXAMPLES_MOST) :
        [];
    const write = (text) => {
        field('prompt').value = text;
        field('prompt').focus();
    };
    $('examples')
        .replaceChildren(
            ...prompts.map((text) => button(text, 'example', () => write(text), {title: text})));
    show($('examples'), prompts.length > 0);
    show($('examples-hint'), prompts.length > 0);
    if (!take)
        return;
    const free = TUNED.filter((f) => !edited.has(f));
    edited.clear();
    if (!s)
        return;
    for (const [name, whole] of [['width', true], ['height', true], ['steps', true], ['cfg', false]])
        if (free.includes(name) && typeof s[name] === 'number' && fits(field(name), s[name], whole) &&
            !(whole && off(field(name), s[name]))) {
            field(name).value = s[name];
            fieldError(name, '');
        }
    for (const [name, value] of [['sampler', s.sampler_name], ['scheduler', s.scheduler]])
        if (free.includes(name))
            setIfThere(field(name), value);
    if (typeof s.negative === 'string' && s.negative.length <= EXAMPLE_LONG && !field('negative').value)
        field('negative').value = s.negative;
    if (prompts.length && !field('prompt').value)
        field('prompt').value = prompts[0];
}

/* ---- errors ---- */

function fieldError(name, text) {
    put($(`err-${name}`), {text: text || ''});
    show($(`err-${name}`), Boolean(text));
    put(field(name), {'aria-invalid': text ? 'true' : null});
}

let away = false; /* the text below says that nobody answered */

function formError(text, e) {
    away = e?.status === 0;
    put($('compose-error'), {text: text || ''});
    show($('compose-error'), Boolean(text));
}

function clearErrors() {
    FIELDS.forEach((f) => fieldError(f, ''));
    formError('');
}

/* node_errors of our own workflow: what has a field goes there, the rest is told in one text. */
function showErrors(e) {
    const rest = [];
    for (const n of nodeErrors(e))
        if (FIELD_OF[n.input])
            fieldError(FIELD_OF[n.input], n.text);
        else
            rest.push(`${n.kind} (node ${n.node}): ${n.text}`);
    const marked = FIELDS.find((f) => field(f).getAttribute('aria-invalid') === 'true');
    formError([
        marked && !rest.length ? 'The server refused some of the values below.' : e.message, ...rest
    ].join('\n'), e);
    if (marked)
        field(marked).focus();
}

/* ---- submitting ---- */

function number(name, whole) {
    const input = field(name), v = Number(input.value);
    if (input.value.trim() === '' || !fits(input, v, whole)) {
        fieldError(
            name, `${whole ? 'A whole number' : 'A number'} from ${input.min} to ${input.max}`);
        return null;
    }
    const over = whole ? off(input, v) : 0;
    if (over) {
        const near = [v - over, v - over + Number(input.step)].filter((n) => n <= Number(input.max));
        fieldError(name, `In steps of ${input.step}: ${near.join(' or ')}`);
        return null;
    }
    return v;
}

function seed() {
    if ($('f-seed-random').checked)
        field('seed').value = String(randomSeed());
    const text = field('seed').value.trim();
    if (!/^\d{1,20}$/.test(text) || BigInt(text) > SEED_MOST) {
        fieldError('seed', 'A whole number from 0 to 18446744073709551615');
        return null;
    }
    return BigInt(text);
}

/* The fields, checked; null when one is wrong. */
function read() {
    const s = {
        model: field('model').value,
        prompt: field('prompt').value,
        negative: field('negative').value,
        sampler: field('sampler').value,
        scheduler: field('scheduler').value,
        seed: seed(),
        cfg: number('cfg', false),
    };
    for (const name of ['steps', 'width', 'height', 'batch'])
        s[name] = number(name, true);
    if (!s.model)
        fieldError('model', 'Choose a model');
    const wrong = FIELDS.find((f) => field(f).getAttribute('aria-invalid') === 'true');
    if (wrong)
        field(wrong).focus();
    return wrong ? null : s;
}

/* While one is sent the button does nothing; it is not disabled, or the focus would leave it. */
let busy = false;

async function draw(event) {
    event.preventDefault();
    if (busy || $('btn-submit').disabled)
        return;
    clearErrors();
    const s = read();
    if (!s)
        return;
    busy = true;
    put($('btn-submit'), {'aria-disabled': 'true'});
    try {
        await submit(build(s));
    } catch (e) {
        showErrors(e);
    }
    busy = false;
    put($('btn-submit'), {'aria-disabled': null});
}

/* Fills the fields with what another prompt used; what it does not say stays. */
export function useSettings(s) {
    clearErrors();
    for (const name of ['prompt', 'negative', 'steps', 'cfg', 'width', 'height', 'batch'])
        if (s[name] !== undefined)
            field(name).value = String(s[name]);
    if (s.seed !== undefined) {
        field('seed').value = String(s.seed);
        $('f-seed-random').checked = false;
    }
    for (const name of ['sampler', 'scheduler', 'model'])
        if (s[name] !== undefined)
            setIfThere(field(name), s[name]);
    if (s.negative)
        $('more-negative').open = true;
    toast('info', 'Settings taken over',
        s.model && field('model').value !== s.model ? `Its model ${s.model} is not here.` : '');
    field('prompt').focus();
}

export function start() {
    $('compose').addEventListener('submit', draw);
    addEventListener('pagehide', () => left || keep());
    if (left)
        restoreFields(left);
    $('compose').addEventListener('keydown', (e) => {
        if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
            e.preventDefault();
            if (!e.repeat) /* a key that is held */
                $('compose').requestSubmit();
        }
    });
    $('f-model').addEventListener('change', () => loadSettings());
    for (const name of TUNED)
        field(name).addEventListener('input', () => edited.add(name));
    for (const name of ['width', 'height'])
        field(name).addEventListener('change', () => {
            fieldError(name, '');
            number(name, true);
        });
    on('connection', () => {
        if (state.connected && away)
            formError('');
    });
    $('f-model').addEventListener('focus', loadChoices);
    $('f-seed-random').addEventListener('change', (e) => {
        if (!e.target.checked && !field('seed').value)
            field('seed').value = String(randomSeed());
    });
    $('f-seed').addEventListener('input', () => {
        $('f-seed-random').checked = false;
    });
    loadChoices();
}
