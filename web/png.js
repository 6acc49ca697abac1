/* png: the workflow in a PNG's text chunks (tEXt, zTXt, iTXt), read piece by piece: pixels and
 * other texts are skipped, not loaded. Numbers in the file meet a limit before they size
 * anything. */

const MAGIC = [137, 80, 78, 71, 13, 10, 26, 10];
const LIMIT = {
    file: 512 * 2 ** 20,
    text: 16 * 2 ** 20,
    chunks: 100000
};
const KEYWORD = 80; /* bytes at most, the zero behind it included */

const latin1 = new TextDecoder('latin1');
const utf8 = new TextDecoder('utf-8');

async function inflate(bytes) {
    const reader =
        new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')).getReader();
    const parts = [];
    let n = 0;
    for (;;) {
        const {done, value} = await reader.read();
        if (done)
            break;
        n += value.length;
        if (n > LIMIT.text)
            throw new Error('a text in the picture is too large');
        parts.push(value);
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/* The text of a chunk, behind its keyword; null when it is malformed. */
async function readText(type, rest) {
    if (type === 'tEXt')
        return latin1.decode(rest);
    if (type === 'zTXt')
        return rest[0] === 0 ? latin1.decode(await inflate(rest.subarray(1))) : null;
    const compressed = rest[0] === 1; /* iTXt: flag, method, language, translated keyword, text */
    rest = rest.subarray(2);
    for (let i = 0; i < 2; i++) {
        const zero = rest.indexOf(0);
        if (zero < 0)
            return null;
        rest = rest.subarray(zero + 1);
    }
    return utf8.decode(compressed ? await inflate(rest) : rest);
}

/* {prompt: the API workflow's text or null, editor: there is one for the editor}; the first of a
 * name counts. Throws when it is no PNG, or cut short. */
export async function workflowOfPng(file) {
    if (file.size > LIMIT.file)
        throw new Error('the picture is too large');
    const bytesAt = async (at, n) => new Uint8Array(await file.slice(at, at + n).arrayBuffer());
    const magic = await bytesAt(0, 8);
    if (MAGIC.some((b, i) => magic[i] !== b))
        throw new Error('this is no PNG');
    const found = {prompt: null, editor: false};
    for (let at = 8, n = 0; n < LIMIT.chunks; n++) {
        const head = await bytesAt(at, 8);
        if (head.length < 8)
            throw new Error('the picture is cut short');
        const length = new DataView(head.buffer).getUint32(0);
        const type = latin1.decode(head.subarray(4));
        if (type === 'IEND')
            break;
        if (length > file.size - at - 12)
            throw new Error('the picture is cut short');
        if (['tEXt', 'zTXt', 'iTXt'].includes(type)) {
            const start = await bytesAt(at + 8, Math.min(length, KEYWORD));
            const keyword = latin1.decode(start.subarray(0, start.indexOf(0)));
            found.editor = found.editor || keyword === 'workflow';
            if (keyword === 'prompt' && found.prompt === null && length <= LIMIT.text)
                found.prompt = await readText(type,
                    await bytesAt(at + 8 + keyword.length + 1, length - keyword.length - 1));
        }
        at += 12 + length;
    }
    return found;
}
