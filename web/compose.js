/* compose: the prompt box. Fields become a workflow (build.js) and a prompt; what the server finds
 * wrong is shown at the field it came from. The tab keeps the fields over a reload. */
import * as api from './api.js';
import {$, button, el, options, put, show} from './dom.js';
import {field, fieldError, fits, number, off, setIfThere} from './fields.js';
import {later} from './later.js';
import {on, state} from './store.js';
import {submit} from './submit.js';
import {goOn, toast, trouble} from './toast.js';
import {choicesOf, nodeErrors, randomSeed} from './workflow.js';

const SEED_MOST = 2n ** 64n - 1n;
const EXAMPLES_MOST = 6;
const EXAMPLE_LONG = 2000; /* characters */

/* Parts of the form that most pages never need: null until they do. */
let parts = null, loras = null, source = null;
const need = {
    parts: async () => (parts = parts || await later('parts')),
    loras: async () => (loras = loras || await later('loras')),
    source: async () => (source = source || await later('source')),
};
async function openPart(part) {
    try {
        await (await need[part]()).open();
    } catch (e) {
        trouble('This part could not be loaded', e);
    }
}

/* ---- what a reload keeps ---- */

const KEY = 'berth.form';
const KEPT = ['model', 'seed', 'steps', 'cfg', 'guidance', 'sampler', 'scheduler', 'width',
    'height', 'batch', 'prompt', 'negative'];
const LISTS = ['model', 'sampler', 'scheduler'];

let left = kept(); /* until the lists, too, say so again */

/* Fields that somebody changed since a model was chosen: another model's settings leave them alone
 * once. */
const TUNED = ['steps', 'cfg', 'guidance', 'width', 'height', 'sampler', 'scheduler'];
const edited = new Set(Array.isArray(left?.edited) ? left.edited : []);

function keep() {
    try {
        const s = Object.fromEntries(KEPT.map((name) => [name, field(name).value]));
        sessionStorage.setItem(KEY, JSON.stringify(
            {...s, random: $('f-seed-random').checked, edited: [...edited], parts: parts?.keep(),
                loras: loras?.keep(), source: source?.keep()}));
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

/* LoRAs and the picture to begin with, of a reload or another prompt; gives the names that are not
 * here. */
async function restoreMore(s) {
    const names = [];
    if (s.loras?.length || loras) {
        $('more-loras').open = Boolean(s.loras?.length);
        names.push(...await (await need.loras()).set(s.loras || []));
    }
    if (s.source || source) {
        $('more-source').open = Boolean(s.source);
        await (await need.source()).set(s.source);
    }
    return names;
}

/* ---- choices ---- */

const models = new Map(); /* value of an option -> {folder, name} */

/* The chosen model: {folder, name}. */
const chosen = () => models.get(field('model').value) ??
    {folder: 'checkpoints', name: field('model').value};

/* A checkpoint is chosen by its name alone; others have their folder in front. */
function offerModels(lists) {
    const value = (folder, name) => (folder === 'checkpoints' ? name : `${folder}:${name}`);
    const all = lists.flatMap(([, folder, names]) => names.map((name) => ({folder, name})));
    const before = [...models.keys()];
    models.clear();
    for (const m of all)
        models.set(value(m.folder, m.name), m);
    const now = [...models.keys()], select = field('model'), was = select.value;
    if (now.length === before.length && now.every((v, i) => v === before[i]))
        return; /* an open list stays as it is */
    const option = (folder) => (name) => el('option', {value: value(folder, name), text: name});
    const groups = lists.filter(([, , names]) => names.length);
    select.replaceChildren(...groups.flatMap(([label, folder, names]) => (groups.length === 1 ?
            names.map(option(folder)) :
            [el('optgroup', {label}, ...names.map(option(folder)))])));
    setIfThere(select, was);
}

/* At the start, after a reconnect, and when somebody goes to choose: models come and go. */
export async function loadChoices() {
    try {
        const [checkpoints, diffusion, gguf, info] = await Promise.all([
            api.get('/models/checkpoints'), api.get('/models/diffusion_models'),
            api.get('/object_info/UnetLoaderGGUF'), api.get('/object_info/KSampler')
        ]);
        const before = field('model').value;
        offerModels([
            ['Checkpoints', 'checkpoints', checkpoints],
            ['Diffusion models', 'diffusion_models', diffusion],
            ['Diffusion models (GGUF)', 'unet_gguf',
                choicesOf(gguf?.UnetLoaderGGUF, 'unet_name') || []]
        ]);
        for (const [name, input] of [['sampler', 'sampler_name'], ['scheduler', 'scheduler']])
            options(field(name), choicesOf(info.KSampler, input) || []);
        show($('empty-models'), models.size === 0);
        $('btn-submit').disabled = models.size === 0;
        for (const name of left ? LISTS : [])
            setIfThere(field(name), left[name]);
        const was = left, same = left !== null && field('model').value === left.model;
        const more = was ? [restoreMore(was)] : [];
        left = null;
        if (models.size && (field('model').value !== before || !networks))
            more.push(loadSettings(!same, same ? was.parts : {}));
        if (more.length) {
            settled = Promise.all(more);
            await settled;
        }
    } catch (e) {
        if (e.status !== 0)
            trouble('The lists of models and samplers could not be loaded', e);
    }
}

/* ---- settings of a model ---- */

let networks = null;            /* what the chosen file holds; null: the server has not said */
/* The fields say what suits the chosen model, and what is taken over is there. */
let settled = Promise.resolve();
let suits = {}; /* the settings that suit it */

const flux = {width: 1024, height: 1024, cfg: 1, sampler_name: 'euler', scheduler: 'simple'};
const sd = {steps: 20, cfg: 7, sampler_name: 'euler', scheduler: 'normal'};

/* What suits a family, where the file says nothing. */
const SUITS = {
    'SD1.5': {...sd, width: 512, height: 512},
    'SD2': {...sd, width: 768, height: 768},
    'SDXL': {...sd, width: 1024, height: 1024},
    'SDXL refiner': {...sd, width: 1024, height: 1024},
    'Flux': {...flux, steps: 20, guidance: 3.5},
    'Flux schnell': {...flux, steps: 4},
    'Flux.2': {...flux, steps: 20, guidance: 4},
    'Flux.2 klein': {...flux, steps: 4},
    'Z-Image': {...flux, steps: 8, sampler_name: 'res_multistep'},
    'Qwen-Image': {...flux, steps: 20, cfg: 2.5, width: 1328, height: 1328},
    'Krea 2': {...flux, steps: 8},
    'Lumina2': {...flux, steps: 25, cfg: 4, sampler_name: 'res_multistep'},
};

/* Good settings travel in the model's file, as JSON under berth.settings; what the file is is the
 * server's word. */
async function settingsOfModel({folder, name}) {
    const found = {networks: null, own: {}};
    try {
        const m = await api.get(api.metadataUrl(folder, name));
        found.networks = m?.['berth.networks'] || {};
        const own = JSON.parse(m?.['berth.settings'] || '{}');
        found.own = own && typeof own === 'object' ? own : {};
    } catch { /* no answer, or not as agreed: the fields stay */
    }
    return found;
}

const NUMBERS =
    [['width', true], ['height', true], ['steps', true], ['cfg', false], ['guidance', false]];

/* Sets fields of `free` to what s says, as far as they may have it. */
function takeSettings(s, free) {
    for (const [name, whole] of NUMBERS)
        if (free.includes(name) && typeof s[name] === 'number' &&
            fits(field(name), s[name], whole) && !(whole && off(field(name), s[name]))) {
            field(name).value = s[name];
            fieldError(name, '');
        }
    for (const [name, value] of [['sampler', s.sampler_name], ['scheduler', s.scheduler]])
        if (free.includes(name))
            setIfThere(field(name), value);
}

function showExamples(prompts) {
    const write = (text) => {
        field('prompt').value = text;
        field('prompt').focus();
    };
    $('examples')
        .replaceChildren(
            ...prompts.map((text) => button(text, 'example', () => write(text), {title: text})));
    show($('examples'), prompts.length > 0);
    show($('examples-hint'), prompts.length > 0);
}

/* take false: the fields say already what they should. wanted: names of its other files. */
async function loadSettings(take = true, wanted = {}) {
    const value = field('model').value, model = chosen();
    const {networks: held, own} = await settingsOfModel(model);
    if (field('model').value !== value)
        return;
    networks = held;
    suits = {...SUITS[networks?.diffusion?.family], ...own};
    show(field('guidance').closest('.field'), Boolean(networks?.diffusion?.guidance));
    const prompts = Array.isArray(own.prompts) ?
        own.prompts.filter((p) => typeof p === 'string' && p.length <= EXAMPLE_LONG)
            .slice(0, EXAMPLES_MOST) :
        [];
    showExamples(prompts);
    if (take) {
        const free = TUNED.filter((f) => !edited.has(f));
        edited.clear();
        takeSettings(SUITS[networks?.diffusion?.family] || {}, free);
        takeSettings(own, free);
        if (typeof own.negative === 'string' && own.negative.length <= EXAMPLE_LONG &&
            !field('negative').value)
            field('negative').value = own.negative;
        if (prompts.length && !field('prompt').value)
            field('prompt').value = prompts[0];
    }
    if (model.folder === 'checkpoints')
        parts?.close();
    else
        await (await need.parts()).open(networks, wanted);
}

const SIDES = ['width', 'height'];

/* What resetSize() goes back to. */
export const sizeNow = () => ({
    model: field('model').value,
    sides: SIDES.map((name) => field(name).value),
    edited: SIDES.map((name) => edited.has(name)),
});

/* A picture that drawing begins with has a size of its own: the next model leaves it alone. */
export function setSize(...sides) {
    SIDES.forEach((name, i) => {
        field(name).value = sides[i];
        fieldError(name, '');
        edited.add(name);
    });
}

/* The picture is gone, and its size with it. A model that was chosen since then has a say in sides
 * that nobody typed. */
export function resetSize(was) {
    setSize(...was.sides);
    const free = SIDES.filter((name, i) => !was.edited[i]);
    free.forEach((name) => edited.delete(name));
    if (field('model').value !== was.model)
        takeSettings(suits, free);
}

/* A picture from the gallery, to go on from. */
export async function drawFrom(url, name) {
    const more = await need.source();
    await more.take(await (await fetch(url)).blob(), name);
    $('more-source').scrollIntoView({block: 'nearest'});
    field('source').focus({preventScroll: true});
}

/* ---- errors ---- */

let away = false; /* the text below says that nobody answered */

function formError(text, e) {
    away = e?.status === 0;
    put($('compose-error'), {text: text || ''});
    show($('compose-error'), Boolean(text));
}

function clearErrors() {
    for (const e of document.querySelectorAll('#compose .field-error'))
        fieldError(e.id.slice('err-'.length), '');
    formError('');
}

/* The first field that is wrong gets the focus; null: none is. */
function focusWrong() {
    const wrong = document.querySelector('#compose [aria-invalid=true]');
    wrong?.focus();
    return wrong;
}

/* node_errors of our own workflow: what has a field goes there, the rest is told in one text. */
function showErrors(e, fields) {
    const rest = [];
    for (const n of nodeErrors(e)) {
        const name = fields[`${n.node}.${n.input}`];
        if (name && $(`err-${name}`))
            fieldError(name, n.text);
        else
            rest.push(`${n.kind} (node ${n.node}): ${n.text}`);
    }
    const marked = focusWrong();
    formError([
        marked && !rest.length ? 'The server refused some of the values below.' : e.message, ...rest
    ].join('\n'), e);
}

/* ---- submitting ---- */

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

/* The fields, checked, as build.js wants them; null when one is wrong. */
async function read() {
    await settled;
    const model = chosen();
    const s = {
        model,
        networks,
        prompt: field('prompt').value,
        negative: field('negative').value,
        sampler: field('sampler').value,
        scheduler: field('scheduler').value,
        seed: seed(),
        cfg: number('cfg', false),
        guidance: networks?.diffusion?.guidance ? number('guidance', false) : null,
        loras: loras?.read() || [],
    };
    for (const name of ['steps', 'width', 'height', 'batch'])
        s[name] = number(name, true);
    if (!model.name)
        fieldError('model', 'Choose a model');
    if (model.folder !== 'checkpoints')
        Object.assign(s, (await need.parts()).read());
    s.source = source ? await source.read() : null;
    return focusWrong() ? null : s;
}

/* While one is sent the button does nothing; it is not disabled, or the focus would leave it. */
let busy = false;

async function draw(event) {
    event.preventDefault();
    if (busy || $('btn-submit').disabled)
        return;
    busy = true;
    put($('btn-submit'), {'aria-disabled': 'true'});
    clearErrors();
    goOn();
    let fields = {};
    try {
        const [{build}, now] = await Promise.all([later('build'), later('now')]);
        const s = await read();
        if (s) {
            const made = build(s);
            ({fields} = made);
            now.follow((await submit(made.graph)).prompt_id, s, fields);
        }
    } catch (e) {
        showErrors(e, fields);
    }
    busy = false;
    put($('btn-submit'), {'aria-disabled': null});
}

/* Fills the fields with what another prompt used (workflow.js); what it does not say stays. */
export async function useSettings(s) {
    clearErrors();
    for (const name of ['prompt', 'negative', 'steps', 'cfg', 'guidance', 'width', 'height',
             'batch'])
        if (s[name] !== undefined)
            field(name).value = String(s[name]);
    if (s.seed !== undefined) {
        field('seed').value = String(s.seed);
        $('f-seed-random').checked = false;
    }
    for (const name of ['sampler', 'scheduler'])
        if (s[name] !== undefined)
            setIfThere(field(name), s[name]);
    if (s.negative)
        $('more-negative').open = true;
    field('prompt').focus();
    const value = [...models].find(([, m]) => m.name === s.model)?.[0];
    const missing = s.model && value === undefined ? [s.model] : [];
    const more = [restoreMore(s)];
    if (value !== undefined) {
        field('model').value = value;
        more.push(loadSettings(false, s.parts));
    }
    settled = Promise.all(more);
    missing.push(...(await settled)[0]);
    toast('info', 'Settings taken over',
        missing.length ? `Not here: ${missing.join(', ')}` : '');
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
    $('f-model').addEventListener('change', () => {
        settled = loadSettings();
    });
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
    for (const part of ['loras', 'source'])
        $(`more-${part}`).addEventListener('toggle', (e) => e.target.open && openPart(part));
    $('f-seed-random').addEventListener('change', (e) => {
        if (!e.target.checked && !field('seed').value)
            field('seed').value = String(randomSeed());
    });
    $('f-seed').addEventListener('input', () => {
        $('f-seed-random').checked = false;
    });
    loadChoices();
}
