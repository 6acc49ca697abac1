/* png: the texts in a PNG's chunks (tEXt, zTXt, iTXt), read piece by piece: pixels are skipped, not
 * loaded. Numbers in the file meet a limit before they size anything. */

const MAGIC = [137, 80, 78, 71, 13, 10, 26, 10];
const LIMIT = {
    file: 512 * 2 ** 20,
    text: 16 * 2 ** 20,
    chunks: 100000
};

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

/* {keyword, text} of a text chunk; null when it is malformed. */
async function readText(type, data) {
    const end = data.indexOf(0);
    if (end < 1 || end > 79)
        return null;
    const keyword = latin1.decode(data.subarray(0, end));
    let rest = data.subarray(end + 1);
    if (type === 'tEXt')
        return {keyword, text: latin1.decode(rest)};
    if (type === 'zTXt')
        return rest[0] === 0 ? {keyword, text: latin1.decode(await inflate(rest.subarray(1)))} :
                               null;
    const compressed = rest[0] === 1; /* iTXt: flag, method, language, translated keyword, text */
    rest = rest.subarray(2);
    for (let i = 0; i < 2; i++) {
        const zero = rest.indexOf(0);
        if (zero < 0)
            return null;
        rest = rest.subarray(zero + 1);
    }
    return {keyword, text: utf8.decode(compressed ? await inflate(rest) : rest)};
}

/* Map of keyword to text; the first of a name counts. Throws when it is no PNG, or cut short. */
export async function textsOfPng(file) {
    if (file.size > LIMIT.file)
        throw new Error('the picture is too large');
    const bytesAt = async (at, n) => new Uint8Array(await file.slice(at, at + n).arrayBuffer());
    const magic = await bytesAt(0, 8);
    if (MAGIC.some((b, i) => magic[i] !== b))
        throw new Error('this is no PNG');
    const found = new Map();
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
        if (['tEXt', 'zTXt', 'iTXt'].includes(type) && length <= LIMIT.text) {
            const entry = await readText(type, await bytesAt(at + 8, length));
            if (entry && !found.has(entry.keyword))
                found.set(entry.keyword, entry.text);
        }
        at += 12 + length;
    }
    return found;
}
