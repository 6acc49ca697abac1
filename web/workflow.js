/* workflow: ComfyUI's API workflows ({id: {class_type, inputs}}): making one from the prompt
 * box, and reading settings and models out of any. */

export const RANDOM_MOST = 2 ** 50; /* seeds of ours; fields take any up to 2^64-1 */

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

const isLink = (v) =>
    Array.isArray(v) && v.length === 2 && typeof v[0] === 'string' && Number.isInteger(v[1]);

/* The nearest node that takes(node), from an input up its links. A node is looked at once: graphs
 * come from files, and may have cycles or a million ways to the same node. */
function upstream(graph, value, takes) {
    const seen = new Set();
    const next = [value];
    for (let i = 0; i < next.length; i++) {
        const id = isLink(next[i]) ? next[i][0] : null;
        const node = id !== null && !seen.has(id) && Object.hasOwn(graph, id) ? graph[id] : null;
        if (!node?.inputs)
            continue;
        seen.add(id);
        if (takes(node))
            return node;
        next.push(...Object.values(node.inputs).filter(isLink));
    }
    return null;
}

/* Nodes that change both conditionings at once hand the positive one on in slot 0, the negative one
 * in slot 1: goes up past them on the right side. */
function conditioning(graph, link) {
    const seen = new Set();
    while (isLink(link) && Object.hasOwn(graph, link[0]) && !seen.has(link[0])) {
        const inputs = graph[link[0]].inputs;
        if (!isLink(inputs?.positive) || !isLink(inputs.negative))
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
    const source = graph[value[0]]?.inputs;
    return source ? Object.values(source).find((v) => !isLink(v)) : undefined;
}

const MODEL_INPUT = /(^|_)(ckpt|unet|lora|vae|clip|gguf|model|control_net)_?name\d?$/;

/* [{name, input, node}] of every model file that is named. */
export function modelsIn(graph) {
    const list = [];
    for (const [node, n] of Object.entries(graph))
        for (const [input, value] of Object.entries(n.inputs || {}))
            if (typeof value === 'string' && MODEL_INPUT.test(input))
                list.push({name: value, input, node});
    return list;
}

/* What can be said of a graph's picture; members it does not tell are left out. Samplers are those
 * that take a latent; with the custom sampling nodes seed, steps and guidance stand in nodes before
 * it, so each is taken from the nearest node that has it. */
export function settingsOf(graph) {
    const sampler = Object.keys(graph).find((id) => graph[id]?.inputs?.latent_image);
    const has = (name) => (n) => plain(graph, n.inputs[name]) !== undefined;
    const near = (link, name) => plain(graph, upstream(graph, link, has(name))?.inputs[name]);
    const out = {};
    const set = (name, value) => {
        if (value !== undefined && value !== null)
            out[name] = value;
    };
    if (sampler) {
        const at = [sampler, 0];
        const guided = upstream(graph, at, (n) => n.inputs.positive || n.inputs.conditioning);
        const latent = upstream(graph, at, (n) => 'width' in n.inputs && 'height' in n.inputs);
        const text = (link) => {
            const from = conditioning(graph, link);
            return near(from, 'text') ?? near(from, 'text_g');
        };
        set('prompt', text(guided?.inputs.positive || guided?.inputs.conditioning));
        set('negative', text(guided?.inputs.negative));
        set('seed', near(at, 'seed') ?? near(at, 'noise_seed'));
        set('sampler', near(at, 'sampler_name'));
        for (const name of ['steps', 'cfg', 'scheduler'])
            set(name, near(at, name));
        for (const [name, input] of [
                 ['width', 'width'], ['height', 'height'], ['batch', 'batch_size']])
            set(name, plain(graph, latent?.inputs[input]));
    } else {
        set('prompt',
            Object.values(graph).find((n) => typeof n.inputs?.text === 'string')?.inputs.text);
    }
    set('model', modelsIn(graph).find((m) => /ckpt|unet/.test(m.input))?.name);
    return out;
}

export const titleOf = (node) => node?._meta?.title || node?.class_type || 'node';

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
