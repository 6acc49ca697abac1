/* workflow: ComfyUI's API workflows ({id: {class_type, inputs}}): making one from the prompt box, and
 * reading settings and models out of any. */

export const RANDOM_MOST = 2 ** 50; /* seeds of ours; fields take any up to 2^64-1 */

export function randomSeed() {
    const [a, b] = crypto.getRandomValues(new Uint32Array(2));
    return BigInt(a % 2 ** 18) * 2n ** 32n + BigInt(b);
}

/* s: {model, prompt, negative, seed: BigInt, steps, cfg, sampler, scheduler, width, height, batch} */
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

/* What can be said of a graph's picture; members it does not tell are left out. */
export function settingsOf(graph) {
    const nodes = Object.values(graph);
    const sampler = nodes.find((n) => n.inputs && 'steps' in n.inputs &&
                            ('seed' in n.inputs || 'noise_seed' in n.inputs)) ||
        nodes.find((n) => n.inputs && 'seed' in n.inputs);
    const out = {};
    const set = (name, value) => {
        if (value !== undefined && value !== null)
            out[name] = value;
    };
    const text = (v) => {
        const n = upstream(graph, v, (x) => typeof plain(graph, x.inputs.text) === 'string');
        return n ? plain(graph, n.inputs.text) : undefined;
    };
    if (sampler) {
        const i = sampler.inputs;
        set('prompt', text(i.positive));
        set('negative', text(i.negative));
        set('seed', plain(graph, i.seed ?? i.noise_seed));
        set('steps', plain(graph, i.steps));
        set('cfg', plain(graph, i.cfg));
        set('sampler', plain(graph, i.sampler_name));
        set('scheduler', plain(graph, i.scheduler));
        const latent =
            upstream(graph, i.latent_image, (x) => 'width' in x.inputs && 'height' in x.inputs);
        set('width', plain(graph, latent?.inputs.width));
        set('height', plain(graph, latent?.inputs.height));
        set('batch', plain(graph, latent?.inputs.batch_size));
    } else {
        const encoder = nodes.find((n) => typeof n.inputs?.text === 'string');
        set('prompt', encoder?.inputs.text);
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
