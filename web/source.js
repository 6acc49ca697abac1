/* source: the picture that drawing begins with, whole or behind a mask. Fetched when it is
 * wanted. */
import * as api from './api.js';
import {resetSize, setSize, sizeNow} from './compose.js';
import {$, button, el, options, put, show} from './dom.js';
import {field, fieldError, makeField, number, setIfThere} from './fields.js';
import {later} from './later.js';
import {choicesOf} from './workflow.js';

const SIDE_MOST = 2048; /* of a photograph that is sent to the server */
const ALPHA_LOOK = 512; /* pixels a side in which transparency is looked for */
const NONE = '';

let chosen = null; /* {image, width, height} of the picture that is shown */
let mask = null;   /* the module mask.js, once it was wanted */
let sent = null;   /* {version, image}: the mask that is on the server */
let busy = null;   /* what is being sent or loaded */
let turn = 0;      /* counts pictures: only the last one's answer counts */
let sized = null;  /* {was, sides}: width and height before the picture and by it */
let why = '';      /* the picture that is chosen cannot be used */

const how = () => $('more-source').querySelector('input[name=source-how]:checked').value;

/* ---- files to the server ---- */

async function upload(blob, name, subfolder) {
    const form = new FormData();
    form.append('image', blob, name);
    form.append('type', 'input');
    form.append('subfolder', subfolder);
    const made = await api.upload('/upload/image', form);
    return made.subfolder ? `${made.subfolder}/${made.name}` : made.name;
}

/* Kinds that the server reads and browsers do not. */
const SERVERS = /\.(tiff?|p[bgpn]m)$/i;

/* PNGs go as they are, and so does what only the server can read. Photographs are turned as they
 * were taken, made smaller, and become PNGs, so that the server sees what the page shows. */
async function toSend(file, name) {
    const start = new Uint8Array(await file.slice(0, 4).arrayBuffer());
    const png = `${name.replace(/\.[^.]*$/, '') || 'picture'}.png`;
    if (start[0] === 137 && start[1] === 80)
        return [file, png];
    const image = await createImageBitmap(file).catch(() => null);
    if (!image && SERVERS.test(name))
        return [file, name];
    if (!image)
        throw new Error(`${name} is no picture that the browser can read.`);
    const by = Math.min(1, SIDE_MOST / Math.max(image.width, image.height));
    const canvas = el('canvas', {
        width: Math.max(1, Math.round(image.width * by)),
        height: Math.max(1, Math.round(image.height * by))
    });
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    return [await new Promise((resolve) => canvas.toBlob(resolve, 'image/png')), png];
}

/* ---- the picture ---- */

function hasAlpha(img) {
    const by = Math.min(1, ALPHA_LOOK / Math.max(img.naturalWidth, img.naturalHeight));
    const width = Math.ceil(img.naturalWidth * by), height = Math.ceil(img.naturalHeight * by);
    const at = el('canvas', {width, height}).getContext('2d');
    at.drawImage(img, 0, 0, width, height);
    const {data} = at.getImageData(0, 0, width, height);
    for (let i = 3; i < data.length; i += 4)
        if (data[i] < 255)
            return true;
    return false;
}

/* The picture's own shape, in steps of 8 and no larger than the model is made for. */
function fitSize(width, height) {
    leaveSize();
    const was = sizeNow(), most = was.sides[0] * was.sides[1] * 1.5;
    const by = most > 0 && width * height > most ? Math.sqrt(most / 1.5 / (width * height)) : 1;
    const sides = [width, height].map((n) => Math.max(16, Math.round(n * by / 8) * 8));
    setSize(...sides);
    sized = {was, sides};
}

/* Back to the size before the picture, unless somebody chose another since. */
function leaveSize() {
    if (sized && String(sizeNow().sides) === String(sized.sides))
        resetSize(sized.was);
    sized = null;
}

/* Of a file in the input folder: "name" or "folder/name". */
function urlOf(image, extra) {
    const cut = image.lastIndexOf('/');
    const subfolder = image.slice(0, Math.max(0, cut));
    return api.viewUrl({filename: image.slice(cut + 1), subfolder, type: 'input'}, extra);
}

/* As the server shows it, where the browser cannot read the file itself. */
const PREVIEW = {preview: 'webp;90'};

/* The server's own words on why it shows no picture of this name. */
async function whyNot(image) {
    const e = await api.get(urlOf(image, PREVIEW)).catch((error) => error);
    return `${image} cannot be used: ${
        e?.status === 404 ? 'it is gone.' : e?.message || 'the browser cannot show it.'}`;
}

/* Shows a picture of the server's input folder; false: it cannot be used, or another was chosen
 * meanwhile. */
async function load(image, keepSize) {
    const mine = ++turn, img = $('source-image');
    fieldError('source', why = '');
    chosen = null;
    let there = false;
    for (const extra of SERVERS.test(image) ? [PREVIEW] : [{}, PREVIEW]) {
        img.src = urlOf(image, extra);
        there = await img.decode().then(() => true, () => false);
        if (mine !== turn)
            return false;
        if (there)
            break;
    }
    if (!there) {
        show($('source-shown'), false);
        const text = await whyNot(image);
        if (mine === turn)
            fieldError('source', why = text);
        return false;
    }
    chosen = {image, width: img.naturalWidth, height: img.naturalHeight};
    sent = null;
    show($('source-shown'), true);
    Object.assign($('source-frame').style, { /* as large as there is room, small ones too */
        aspectRatio: `${chosen.width} / ${chosen.height}`,
        width: `min(100%, ${60 * chosen.width / chosen.height}vh)`
    });
    const alpha = hasAlpha(img);
    show($('source-alpha'), alpha);
    if (!alpha && how() === 'alpha')
        choose('whole');
    if (!keepSize)
        fitSize(chosen.width, chosen.height);
    await openMask(true);
    return true;
}

/* A picture from somewhere else becomes one of the input folder. */
async function send(file, name) {
    await open();
    $('more-source').open = true;
    clear(); /* whatever was chosen before is not what is wanted now */
    put($('btn-source'), {'aria-busy': 'true', text: 'Sending'});
    try {
        const image = await upload(...await toSend(file, name), '');
        await refresh();
        setIfThere(field('source'), image);
        await load(image);
    } catch (e) {
        fieldError('source', why = `${e.message} Choose another, or none.`);
        field('source').selectedIndex = -1;
    }
    put($('btn-source'), {'aria-busy': null, text: 'Choose a file'});
}

export const take = (file, name = file.name) => (busy = send(file, name));

function clear() {
    turn++;
    leaveSize();
    chosen = null;
    field('source').value = NONE;
    fieldError('source', why = '');
    show($('source-shown'), false);
    mask?.close();
}

/* ---- what of it is redrawn ---- */

function choose(value) {
    $('more-source').querySelector(`input[name=source-how][value=${value}]`).checked = true;
}

/* anew: it is another picture. What was painted on this one outlives a change of mind. */
async function openMask(anew) {
    const wanted = how() === 'paint' && chosen;
    mask = mask || (wanted ? await later('mask') : null);
    if (anew)
        mask?.close();
    if (wanted && !mask.isOpen())
        mask.open($('source-frame'), chosen.width, chosen.height);
    mask?.reveal(Boolean(wanted));
}

/* Behind a mask everything is new; of a whole picture something should be left. */
let denoiseTyped = false;
function suggest() {
    if (!denoiseTyped)
        field('denoise').value = how() === 'whole' ? 0.6 : 1;
}

/* ---- the part of the form ---- */

async function refresh() {
    const names = choicesOf((await api.get('/object_info/LoadImage'))?.LoadImage, 'image') || [];
    /* What is chosen stays, gone or not: another name beside its picture would be a lie. */
    options(field('source'), [...new Set([NONE, ...names, field('source').value])]);
    field('source').options[0].text = 'none';
    if (why && field('source').value === NONE)
        field('source').selectedIndex = -1; /* so that "none" is something to choose */
}

function build() {
    const file = el('input', {type: 'file', accept: 'image/*', hidden: true,
        'aria-label': 'Picture to begin with', id: 'source-file'});
    file.addEventListener('change', () => {
        const [f] = file.files;
        file.value = '';
        if (f)
            take(f);
    });
    const radio = (value, text, id) => el('label', {class: 'inline', id, hidden: Boolean(id)},
        el('input', {type: 'radio', name: 'source-how', value, checked: value === 'whole'}), text);
    const select = el('select');
    $('source').append(
        el('div', {class: 'joined end'}, makeField('source', 'Picture', select, 'grow'),
            button('Choose a file', 'source-file', () => file.click(), {id: 'btn-source'})),
        file,
        el('div', {id: 'source-shown', hidden: true},
            el('fieldset', {},
                el('legend', {text: 'Redraw'}), radio('whole', 'everything'),
                radio('paint', 'what I paint'),
                radio('alpha', 'what is transparent', 'source-alpha')),
            el('div', {id: 'source-frame'},
                el('img', {id: 'source-image', alt: 'The picture that drawing begins with'})),
            makeField('denoise', 'Denoise (1 redraws it, 0 changes nothing)',
                el('input', {type: 'number', min: 0, max: 1, step: 0.05, value: 0.6}), 'wide')));
    select.addEventListener('focus', refresh);
    select.addEventListener('change', () => {
        if (select.value === NONE)
            clear();
        else
            busy = load(select.value);
    });
    field('denoise').addEventListener('input', () => {
        denoiseTyped = true;
    });
    for (const r of $('source').querySelectorAll('[type=radio]'))
        r.addEventListener('change', () => {
            suggest();
            busy = openMask(false);
        });
}

/* Once; resolves when the list of pictures is there. */
let opened = null;
export function open() {
    if (!opened) {
        build();
        opened = refresh().catch((e) => fieldError('source', e.message));
    }
    return opened;
}

/* As it was before a reload, or in another prompt: {image, how, painted, denoise}. */
export async function set(s) {
    await open();
    sized = s?.sized || null;
    if (!s) {
        clear();
        return;
    }
    if (!setIfThere(field('source'), s.image))
        field('source').append(el('option', {value: s.image, text: s.image, selected: true}));
    choose(['paint', 'alpha'].includes(s.how) ? s.how : 'whole');
    if (s.denoise !== undefined) {
        field('denoise').value = s.denoise;
        denoiseTyped = true;
    }
    busy = load(s.image, true).then(async (there) => {
        if (!there || !s.painted || how() !== 'paint')
            return;
        await mask.restore(urlOf(s.painted));
        sent = {version: mask.version(), image: s.painted};
    }).catch(() => fieldError(mask?.isOpen() ? 'mask' : 'source',
        'Its mask is gone: paint it again.'));
    await busy;
}

export function keep() {
    const image = opened && field('source').value;
    return image ?
        {image, how: how(), painted: sent?.image, denoise: field('denoise').value, sized} :
        null;
}

/* null: no picture; undefined: something is wrong, and its field says so; else what build.js wants.
 * Sends a mask that the server has not. */
export async function read() {
    await busy;
    if (!chosen) {
        fieldError('source', why);
        return why ? undefined : null;
    }
    const denoise = number('denoise', false);
    let painted = null;
    if (how() === 'paint') {
        const version = mask.version();
        if (version === null) {
            fieldError('mask', 'Paint over what should be redrawn.');
            return undefined;
        }
        if (sent?.version !== version) {
            const name = `mask-${Date.now().toString(36)}.png`;
            sent = {version, image: await upload(await mask.blob(), name, 'clipspace')};
        }
        painted = sent.image;
    }
    return denoise === null ? undefined : {...chosen, denoise, masked: how() !== 'whole', painted};
}
