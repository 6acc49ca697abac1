/* parts: text encoders and VAE of a diffusion model that comes without them. Fetched when one is
 * chosen. Which kinds are wanted, and which file is which, is what the server says of each file. */
import * as api from './api.js';
import {$, el, options, put, show} from './dom.js';
import {field, fieldError, makeField, setIfThere} from './fields.js';
import {choicesOf} from './workflow.js';

const ASKED_MOST = 40; /* files of a folder that are asked about */

const fieldsOf = (set) => [...set.encoders.map((k, i) => `encoder${i + 1}`), 'vae'];

let set = null; /* {type, encoders, channels, rank} of the chosen model; null: none that runs */
let why = '';   /* there is none */
const known = new Map(); /* folder/name -> what the file holds, or the promise of it */

function holds(folder, name) {
    const key = `${folder}/${name}`;
    if (!known.has(key))
        known.set(key,
            api.get(api.metadataUrl(folder, name)).then((m) => m?.['berth.networks'] || {}, () => {
                known.delete(key); /* another time, then */
                return {};
            }));
    return known.get(key);
}

function build() {
    const one = (name, label) => makeField(name, label, el('select'), 'wide');
    $('parts').replaceChildren(
        one('encoder1', 'Text encoder'), one('encoder2', 'Second text encoder'), one('vae', 'VAE'));
}

/* A file that was asked for, else the one that is chosen if it is what is wanted, else the first
 * that is. */
async function choose(name, folder, names, right, wanted) {
    const select = field(name);
    options(select, names);
    if (wanted && setIfThere(select, wanted))
        return true;
    const asked = names.slice(0, ASKED_MOST);
    const what = await Promise.all(asked.map((n) => holds(folder, n)));
    const good = asked.filter((n, i) => right(what[i]));
    if (good.length && !good.includes(select.value))
        [select.value] = good;
    return good.length > 0;
}

let turn = 0;

/* For a model that holds these networks; asks which files there are each time: they come and go.
 * wanted: {encoder1, encoder2, vae}, names to choose where they are there. */
export async function open(networks, wanted = {}) {
    const mine = ++turn;
    if (!$('parts').children.length)
        build();
    set = networks?.diffusion || null;
    show($('parts'), Boolean(set));
    why = networks ? 'Berth cannot run this file: it is no model that it knows.' :
                     'The server did not say what this file is.';
    fieldError('model', set ? '' : why);
    if (!set)
        return;
    const names = fieldsOf(set);
    for (const name of ['encoder1', 'encoder2', 'vae']) {
        fieldError(name, '');
        show(field(name).closest('.field'), names.includes(name));
    }
    set.encoders.forEach((kind, i) => put($('parts').querySelector(`[for=f-encoder${i + 1}]`),
        {text: `Text encoder (${kind})`}));
    const [gguf, plain, vaes] = await Promise.all([
        api.get('/object_info/CLIPLoaderGGUF'), api.get('/models/text_encoders'),
        api.get('/models/vae')
    ]);
    if (mine !== turn)
        return;
    /* That loader, where there is one, lists all of them. */
    const encoders = choicesOf(gguf?.CLIPLoaderGGUF, 'clip_name') || plain;
    const isKind = (kind) => (f) => f.text?.length === 1 && f.text[0] === kind;
    const found = await Promise.all([
        ...set.encoders.map((kind, i) => choose(`encoder${i + 1}`, 'text_encoders', encoders,
            isKind(kind), wanted[`encoder${i + 1}`])),
        choose('vae', 'vae', vaes,
            (f) => f.vae?.channels === set.channels && f.vae.rank === set.rank, wanted.vae)
    ]);
    if (mine === turn)
        names.forEach(
            (name, i) => fieldError(name, found[i] ? '' : missing(name, set.encoders[i])));
}

const missing = (name, kind) => (name === 'vae' ?
        'No VAE for this model was found in models/vae.' :
        `No ${kind} text encoder was found in models/text_encoders.`);

export function close() {
    turn++;
    set = null;
    fieldError('model', '');
    show($('parts'), false);
}

/* What a reload keeps. */
export const keep = () =>
    Object.fromEntries((set ? fieldsOf(set) : []).map((n) => [n, field(n).value]));

/* {encoders, type, vae}; null when something is missing, and then its field says so. */
export function read() {
    if (!set) {
        fieldError('model', why);
        return null;
    }
    const names = fieldsOf(set), empty = names.filter((n) => !field(n).value);
    for (const name of empty)
        fieldError(name, 'Choose a file');
    if (empty.length)
        return null;
    return {
        type: set.type,
        encoders: names.slice(0, -1).map((n) => field(n).value),
        vae: field('vae').value
    };
}
