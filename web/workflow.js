/* workflow: ComfyUI's API workflows ({id: {class_type, inputs}}): making one from the prompt
 * box, and reading settings and models out of any. */
import {because} from './format.js';

/* Below 2^50, so that it is easily read; fields take any up to 2^64-1. */
export function randomSeed() {
    const [a, b] = crypto.getRandomValues(new Uint32Array(2));
    return BigInt(a % 2 ** 18) * 2n ** 32n + BigInt(b);
}

/* s: {model, prompt, negative, seed: BigInt, steps, cfg, sampler, scheduler, width, height,
 * batch} */
export function build(s) {
    return {
        1: {class_type: 'CheckpointLoaderSimple', inputs: {ckpt_name: s.model}},
        2: {
            class_type: 'CLIPTextEncode',
            inputs: {clip: ['1', 1], text: s.prompt},
            _meta: {title: 'Prompt'}
        },
        3: {
            class_type: 'CLIPTextEncode',
            inputs: {clip: ['1', 1], text: s.negative},
            _meta: {title: 'Negative prompt'}
        },
        4: {
            class_type: 'EmptyLatentImage',
            inputs: {width: s.width, height: s.height, batch_size: s.batch}
        },
        5: {
            class_type: 'KSampler',
            inputs: {
                model: ['1', 0],
                positive: ['2', 0],
                negative: ['3', 0],
                latent_image: ['4', 0],
                seed: s.seed,
                steps: s.steps,
                cfg: s.cfg,
                sampler_name: s.sampler,
                scheduler: s.scheduler,
                denoise: 1,
            },
        },
        6: {class_type: 'VAEDecode', inputs: {samples: ['5', 0], vae: ['1', 2]}},
        7: {class_type: 'SaveImage', inputs: {images: ['6', 0], filename_prefix: 'berth'}},
    };
}

/* Which of our fields an input of build()'s nodes came from. */
export const FIELD_OF = {
    ckpt_name: 'model',
    seed: 'seed',
    steps: 'steps',
    cfg: 'cfg',
    sampler_name: 'sampler',
    scheduler: 'scheduler',
    width: 'width',
    height: 'height',
    batch_size: 'batch',
};

/* ---- reading ---- */

/* The server looks only at nodes that an output needs: what else is in a graph may be anything. */
const isObject = (v) => v !== null && typeof v === 'object' && !Array.isArray(v);
const inputsOf = (node) => (isObject(node?.inputs) ? node.inputs : {});

const isLink = (v) =>
    Array.isArray(v) && v.length === 2 && typeof v[0] === 'string' && Number.isInteger(v[1]);

/* Inputs of the nearest node for which takes(inputs) is true, from an input up its links. A node is looked at once: graphs
 * come from files, and may have cycles or a million ways to the same node. */
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

const TEXTS = new Set(['prompt', 'negative', 'sampler', 'scheduler', 'model']);

/* What can be said of a graph's picture, in texts and numbers; members it does not tell are left out.
 * Samplers are those
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
        for (const name of ['steps', 'cfg', 'scheduler'])
            set(name, near(at, name));
        for (const [name, input] of [
                 ['width', 'width'], ['height', 'height'], ['batch', 'batch_size']])
            set(name, plain(graph, latent?.[input]));
    } else {
        set('prompt',
            Object.values(graph).map((n) => inputsOf(n).text).find((t) => typeof t === 'string'));
    }
    set('model', modelsIn(graph).find((m) => /ckpt|unet/.test(m.input))?.name);
    return out;
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
