/* build: the fields of the prompt box as an API workflow. Fetched when the first one is drawn. */

/* Models whose latents have 16 channels or more: they take their own kind of empty one, and are
 * mostly used without a negative prompt. */
const hasWideLatents = (networks) => networks?.diffusion?.channels >= 16;
/* What makes empty latents, by their channels. */
const EMPTY = {16: 'EmptySD3LatentImage', 128: 'EmptyFlux2LatentImage'};

/* s: {model: {folder, name}, networks: what its file holds (api.md), encoders: [names], type, vae,
 *     loras: [{name, strength}], prompt, negative, seed: BigInt, steps, cfg, guidance or null,
 *     sampler, scheduler, width, height, batch,
 *     source: null or {image, width, height, denoise, masked, painted: a mask's file or null}}
 * Gives {graph, fields}: fields has which field an input came from, by "node.input". */
export function build(s) {
    const graph = {}, fields = {};
    const add = (class_type, inputs, from = {}, title) => {
        const id = String(Object.keys(graph).length + 1);
        graph[id] = {class_type, inputs, ...(title ? {_meta: {title}} : {})};
        for (const [input, name] of Object.entries(from))
            fields[`${id}.${input}`] = name;
        return (slot = 0) => [id, slot];
    };
    const {model, clip, vae} = loras(add, s, loaders(add, s));
    const text = (words, title) => add('CLIPTextEncode', {clip, text: words}, {}, title)();
    let positive = text(s.prompt, 'Prompt');
    let negative = hasWideLatents(s.networks) && !s.negative ?
        add('ConditioningZeroOut', {conditioning: positive})() :
        text(s.negative, 'Negative prompt');
    if (s.guidance !== null)
        positive = add('FluxGuidance', {conditioning: positive, guidance: s.guidance},
            {guidance: 'guidance'})();
    const start = s.source ? picture(add, s, vae, positive, negative) : empty(add, s);
    ({positive, negative} = {positive, negative, ...start.conditioning});
    const sampled = add('KSampler', {
        model,
        positive,
        negative,
        latent_image: start.latent,
        seed: s.seed,
        steps: s.steps,
        cfg: s.cfg,
        sampler_name: s.sampler,
        scheduler: s.scheduler,
        denoise: s.source ? s.source.denoise : 1,
    }, {
        seed: 'seed',
        steps: 'steps',
        cfg: 'cfg',
        sampler_name: 'sampler',
        scheduler: 'scheduler',
        denoise: 'denoise',
    });
    let images = add('VAEDecode', {samples: sampled(), vae})();
    if (start.mask)
        images = pasted(add, s, start, images);
    add('SaveImage', {images, filename_prefix: 'berth'});
    return {graph, fields};
}

const isGguf = (name) => /\.gguf$/i.test(name);

/* The nodes that open the files: {model, clip, vae}, links all. */
function loaders(add, s) {
    const {folder, name} = s.model;
    if (folder === 'checkpoints') {
        const all = add('CheckpointLoaderSimple', {ckpt_name: name}, {ckpt_name: 'model'});
        return {model: all(0), clip: all(1), vae: all(2)};
    }
    const model = folder === 'unet_gguf' ?
        add('UnetLoaderGGUF', {unet_name: name}, {unet_name: 'model'}) :
        add('UNETLoader', {unet_name: name, weight_dtype: 'default'}, {unet_name: 'model'});
    const by = s.encoders.some(isGguf) ? 'CLIPLoaderGGUF' : 'CLIPLoader';
    const [first, second] = s.encoders;
    const clip = second === undefined ?
        add(by, {clip_name: first, type: s.type}, {clip_name: 'encoder1'}) :
        add(`Dual${by}`, {clip_name1: first, clip_name2: second, type: s.type},
            {clip_name1: 'encoder1', clip_name2: 'encoder2'});
    const vae = add('VAELoader', {vae_name: s.vae}, {vae_name: 'vae'});
    return {model: model(), clip: clip(), vae: vae()};
}

function loras(add, s, {model, clip, vae}) {
    s.loras.forEach(({name, strength, row}) => {
        const lora = add('LoraLoader',
            {model, clip, lora_name: name, strength_model: strength, strength_clip: strength}, {
                lora_name: `lora${row}`,
                strength_model: `strength${row}`,
                strength_clip: `strength${row}`,
            });
        [model, clip] = [lora(0), lora(1)];
    });
    return {model, clip, vae};
}

function empty(add, s) {
    return {
        latent: add(EMPTY[s.networks?.diffusion?.channels] || 'EmptyLatentImage',
            {width: s.width, height: s.height, batch_size: s.batch},
            {width: 'width', height: 'height', batch_size: 'batch'})()
    };
}

/* A latent made from a picture, {latent, pixels, mask, conditioning}: the whole of it, or the part
 * behind a mask. Models made for inpainting see what is around it; others begin there with nothing
 * (denoise 1), or with what was there. */
function picture(add, s, vae, positive, negative) {
    const {image, masked, painted, denoise} = s.source;
    const file = add('LoadImage', {image}, {image: 'source'});
    const same = s.source.width === s.width && s.source.height === s.height;
    const scaled = (from, upscale_method) => add('ImageScale',
        {image: from, upscale_method, width: s.width, height: s.height, crop: 'center'},
        {width: 'width', height: 'height'})();
    const pixels = same ? file(0) : scaled(file(0), 'lanczos');
    const plain = () => add('VAEEncode', {pixels, vae})();
    const times = (latent) => (s.batch === 1 ?
            latent :
            add('RepeatLatentBatch', {samples: latent, amount: s.batch}, {amount: 'batch'})());
    if (!masked)
        return {latent: times(plain())};
    const full = painted ?
        add('LoadImageMask', {image: painted, channel: 'red'}, {image: 'source'})() :
        file(1); /* its transparency */
    const mask = same ?
        full :
        add('ImageToMask', {
            image: scaled(add('MaskToImage', {mask: full})(), 'bilinear'),
            channel: 'red'
        })();
    if (s.networks?.diffusion?.inpaint) {
        const told = add('InpaintModelConditioning',
            {positive, negative, vae, pixels, mask, noise_mask: true});
        return {
            latent: times(told(2)), pixels, mask,
            conditioning: {positive: told(0), negative: told(1)}
        };
    }
    const latent = denoise === 1 ?
        add('VAEEncodeForInpaint', {pixels, vae, mask, grow_mask_by: 6})() :
        add('SetLatentNoiseMask', {samples: plain(), mask})();
    return {latent: times(latent), pixels, mask};
}

/* The way through the VAE changes all of a picture a little: what is not behind the mask is taken
 * from the picture itself. */
function pasted(add, s, {pixels, mask}, images) {
    const destination = s.batch === 1 ?
        pixels :
        add('RepeatImageBatch', {image: pixels, amount: s.batch}, {amount: 'batch'})();
    return add('ImageCompositeMasked',
        {destination, source: images, x: 0, y: 0, resize_source: false, mask})();
}
