/* workflow: ComfyUI's API workflows ({id: {class_type, inputs}}): reading settings and models out
 * of any. build.js makes them. */
import {because} from './format.js';

/* Below 2^50, so that it is easily read; fields take any up to 2^64-1. */
export function randomSeed() {
    const [a, b] = crypto.getRandomValues(new Uint32Array(2));
    return BigInt(a % 2 ** 18) * 2n ** 32n + BigInt(b);
}

/* ---- reading ---- */

/* The server looks only at nodes that an output needs: what else is in a graph may be anything. */
const isObject = (v) => v !== null && typeof v === 'object' && !Array.isArray(v);
const inputsOf = (node) => (isObject(node?.inputs) ? node.inputs : {});

const isLink = (v) =>
    Array.isArray(v) && v.length === 2 && typeof v[0] === 'string' && Number.isInteger(v[1]);

/* Inputs of the nearest node for which takes(inputs) is true, from an input up its links. A node is
 * looked at once: graphs come from files, and may have cycles or a million ways to the same
 * node. */
function upstream(graph, value, takes) {
    const seen = new Set();
    const next = [value];
    for (let i = 0; i < next.length; i++) {
        const id = isLink(next[i]) ? next[i][0] : null;
        const node = id !== null && !seen.has(id) && Object.hasOwn(graph, id) ? graph[id] : null;
        if (!node)
            continue;
        seen.add(id);
        const inputs = inputsOf(node);
        if (takes(inputs))
            return inputs;
        next.push(...Object.values(inputs).filter(isLink));
    }
    return null;
}

/* Nodes that change both conditionings at once hand the positive one on in slot 0, the negative one
 * in slot 1: goes up past them on the right side. */
function conditioning(graph, link) {
    const seen = new Set();
    while (isLink(link) && Object.hasOwn(graph, link[0]) && !seen.has(link[0])) {
        const inputs = inputsOf(graph[link[0]]);
        if (!isLink(inputs.positive) || !isLink(inputs.negative))
            break;
        seen.add(link[0]);
        link = link[1] === 1 ? inputs.negative : inputs.positive;
    }
    return link;
}

/* A value, or what a primitive it is linked to holds. */
function plain(graph, value) {
    if (!isLink(value))
        return value;
    const source = Object.hasOwn(graph, value[0]) ? graph[value[0]] : null;
    return Object.values(inputsOf(source)).find((v) => !isLink(v));
}

const MODEL_INPUT = /(^|_)(ckpt|unet|lora|vae|clip|gguf|model|control_net)_?name\d?$/;

/* [{name, input, node}] of every model file that is named. */
export function modelsIn(graph) {
    const list = [];
    for (const [node, n] of Object.entries(graph))
        for (const [input, value] of Object.entries(inputsOf(n)))
            if (typeof value === 'string' && MODEL_INPUT.test(input))
                list.push({name: value, input, node});
    return list;
}

/* Files beside the model, as the prompt box has them: LoRAs, the parts of a diffusion model, the
 * picture it began with. */
function filesOf(graph) {
    const all = Object.values(graph).map(inputsOf);
    const text = (name) => all.map((i) => i[name]).find((v) => typeof v === 'string');
    const loras = all.filter((i) => typeof i.lora_name === 'string')
        .map((i) => ({name: i.lora_name, strength: Number(i.strength_model ?? 1)}));
    const parts = {
        encoder1: text('clip_name1') ?? text('clip_name'),
        encoder2: text('clip_name2'),
        vae: text('vae_name')
    };
    const id = Object.keys(graph).find((k) => graph[k]?.class_type === 'LoadImage');
    const image = id === undefined ? null : inputsOf(graph[id]).image;
    const alpha =
        all.some((i) => Object.values(i).some((v) => isLink(v) && v[0] === id && v[1] === 1));
    const painted =
        inputsOf(Object.values(graph).find((n) => n?.class_type === 'LoadImageMask')).image;
    const source = typeof image === 'string' ? {
        image,
        painted,
        how: typeof painted === 'string' ? 'paint' : alpha ? 'alpha' : 'whole',
        denoise: all.find((i) => 'denoise' in i)?.denoise
    } : null;
    return {loras, parts, source};
}

const TEXTS = new Set(['prompt', 'negative', 'sampler', 'scheduler', 'model']);

/* What can be said of a graph's picture, in texts and numbers; members it does not tell are left
 * out. Samplers are those
 * that take a latent; with the custom sampling nodes seed, steps and guidance stand in nodes before
 * it, so each is taken from the nearest node that has it. */
export function settingsOf(graph) {
    const sampler = Object.keys(graph).find((id) => inputsOf(graph[id]).latent_image);
    const has = (name) => (inputs) => plain(graph, inputs[name]) !== undefined;
    const near = (link, name) => plain(graph, upstream(graph, link, has(name))?.[name]);
    const out = {};
    const set = (name, value) => {
        if (TEXTS.has(name) ? typeof value === 'string' : /^(number|bigint)$/.test(typeof value))
            out[name] = value;
    };
    if (sampler) {
        const at = [sampler, 0];
        const guided = upstream(graph, at, (inputs) => inputs.positive || inputs.conditioning);
        const latent =
            upstream(graph, at, (inputs) => 'width' in inputs && 'height' in inputs);
        const text = (link) => {
            const from = conditioning(graph, link);
            return near(from, 'text') ?? near(from, 'text_g');
        };
        set('prompt', text(guided?.positive || guided?.conditioning));
        set('negative', text(guided?.negative));
        set('seed', near(at, 'seed') ?? near(at, 'noise_seed'));
        set('sampler', near(at, 'sampler_name'));
        for (const name of ['steps', 'cfg', 'scheduler', 'guidance'])
            set(name, near(at, name));
        for (const [name, input] of [
                 ['width', 'width'], ['height', 'height'], ['batch', 'batch_size']])
            set(name, plain(graph, latent?.[input]));
    } else {
        set('prompt',
            Object.values(graph).map((n) => inputsOf(n).text).find((t) => typeof t === 'string'));
    }
    set('model', modelsIn(graph).find((m) => /ckpt|unet/.test(m.input))?.name);
    return Object.assign(out, filesOf(graph));
}

export const titleOf = (node) =>
    [node?._meta?.title, node?.class_type].find((t) => t && typeof t === 'string') || 'node';

/* A combo of /object_info: [[names], {...}] or ["COMBO", {options: [names]}]; null: it is none. */
export function choicesOf(definition, input) {
    const spec = definition?.input?.required?.[input] || definition?.input?.optional?.[input];
    const names = Array.isArray(spec?.[0]) ? spec[0] : spec?.[1]?.options;
    return Array.isArray(names) ? names : null;
}

/* What a refusal of POST /prompt says of nodes: [{node, kind, input, text}]. */
export function nodeErrors(e) {
    return Object.entries(e.body?.node_errors || {})
        .flatMap(([node, list]) => (list.errors || []).map((error) => ({
            node,
            kind: list.class_type,
            input: error.extra_info?.input_name,
            text: because(error.message, error.details),
        })));
}

/* Is it one? 'api', 'ui' (saved by the editor, for the editor), or null. */
export function kindOf(value) {
    if (!value || typeof value !== 'object' || Array.isArray(value))
        return null;
    if (Array.isArray(value.nodes))
        return 'ui';
    const nodes = Object.values(value);
    return nodes.length > 0 &&
            nodes.every((n) => n && typeof n === 'object' && typeof n.class_type === 'string') ?
        'api' :
        null;
}
