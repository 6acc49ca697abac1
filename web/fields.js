/* fields: the fields of the prompt box, by name: `steps` is #f-steps, what is wrong with it is in
 * #err-steps. Parts that are fetched later make theirs with makeField(). */
import {$, el, put, show} from './dom.js';

export const field = (name) => $(`f-${name}`);

export function fieldError(name, text) {
    put($(`err-${name}`), {text: text || ''});
    show($(`err-${name}`), Boolean(text));
    put(field(name), {'aria-invalid': text ? 'true' : null});
    const folded = text ? field(name).closest('details') : null;
    if (folded)
        folded.open = true;
}

/* A label, the control (its id follows from the name) and the place for its error. */
export function makeField(name, label, control, size = 'half') {
    put(control, {id: `f-${name}`, 'aria-describedby': `err-${name}`});
    return el('div', {class: `field ${size}`}, el('label', {for: `f-${name}`, text: label}),
        control, el('p', {id: `err-${name}`, class: 'field-error', hidden: true}));
}

/* May a field have this value? */
export const fits = (input, v, whole) => Number.isFinite(v) && (!whole || Number.isInteger(v)) &&
    v >= Number(input.min) && v <= Number(input.max);
/* Sides come in steps of 8: a latent pixel is so wide. */
export const off = (input, v) => (v - Number(input.min)) % Number(input.step);

/* The number in a field; null when it is none, and then the field says what is wanted. */
export function number(name, whole) {
    const input = field(name), v = Number(input.value);
    if (input.value.trim() === '' || !fits(input, v, whole)) {
        fieldError(
            name, `${whole ? 'A whole number' : 'A number'} from ${input.min} to ${input.max}`);
        return null;
    }
    const over = whole ? off(input, v) : 0;
    if (over) {
        const low = v - over;
        const near = [low, low + Number(input.step)].filter((n) => n <= Number(input.max));
        fieldError(name, `In steps of ${input.step}: ${near.join(' or ')}`);
        return null;
    }
    return v;
}

export function setIfThere(select, value) {
    const there = [...select.options].some((o) => o.value === value);
    if (there)
        select.value = value;
    return there;
}
