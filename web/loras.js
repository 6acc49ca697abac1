/* loras: the list of LoRAs in the prompt box, applied from top to bottom. Fetched when it is
 * opened. */
import * as api from './api.js';
import {$, button, el, options, show} from './dom.js';
import {field, makeField, number, setIfThere} from './fields.js';
import {trouble} from './toast.js';

let names = [];
let rows = 0; /* ever made: their fields have numbers */

async function refresh() {
    try {
        names = await api.get('/models/loras');
    } catch (e) {
        if (e.status !== 0)
            trouble('The list of LoRAs could not be loaded', e);
    }
    for (const select of $('loras').querySelectorAll('select'))
        options(select, names);
    show($('loras-none'), names.length === 0);
    $('btn-lora').disabled = names.length === 0;
}

function add({name, strength = 1} = {}) {
    const row = ++rows;
    const select = el('select');
    options(select, names);
    if (name !== undefined && !setIfThere(select, name))
        return null;
    const remove = button('✕', 'lora-remove', () => {
        item.remove();
        $('btn-lora').focus();
    }, {class: 'small icon', 'aria-label': 'Remove this LoRA', title: 'Remove this LoRA'});
    const item = el('li', {data: {test: 'lora', row}},
        makeField(`lora${row}`, 'LoRA', select, 'grow'),
        makeField(`strength${row}`, 'Strength',
            el('input', {type: 'number', min: -100, max: 100, step: 0.05, value: strength}), 'few'),
        remove);
    select.addEventListener('focus', refresh);
    $('loras').append(item);
    return select;
}

/* Once; resolves when rows can be added. */
let opened = null;
export function open() {
    opened = opened || (async () => {
        $('more-loras').append(el('ul', {id: 'loras'}),
            el('p', {id: 'loras-none', class: 'quiet hint', hidden: true,
                text: 'No LoRA was found in models/loras.'}),
            button('Add a LoRA', 'lora-add', () => add()?.focus(),
                {id: 'btn-lora', class: 'small'}));
        await refresh();
    })();
    return opened;
}

/* Takes over a list of {name, strength}; gives the names that are not here. */
export async function set(list) {
    await open();
    $('loras').replaceChildren();
    return list.filter((l) => !add(l)).map((l) => l.name);
}

/* What a reload keeps: as it stands in the fields. */
export const keep = () => [...($('loras')?.children || [])].map((li) => ({
    name: field(`lora${li.dataset.row}`).value,
    strength: field(`strength${li.dataset.row}`).value
}));

/* [{name, strength, row}]; strength is null where the field says what is wrong. */
export const read = () => [...($('loras')?.children || [])].map(({dataset: {row}}) => ({
    row,
    name: field(`lora${row}`).value,
    strength: number(`strength${row}`, false)
}));
