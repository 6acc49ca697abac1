/* format: numbers as people read them. Bytes as everywhere in Berth: the rule of str_bytes()
 * (src/base/str.c), to the digit, so that a preview here and a receipt in a terminal agree. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/* Binary units, as many decimals as leave three digits after rounding to the nearest; 1023.9 KiB
 * reads better as 1.00 MiB. Powers of two divide exactly, and halves go up: what Math.round() does
 * and toFixed() need not. */
export function bytes(n) {
    let v = Number(n) || 0;
    if (v < 1024)
        return `${Math.round(v)} B`;
    for (let unit = 1;; unit++) {
        v /= 1024;
        const last = unit === UNITS.length - 1;
        if (v >= 1024 && !last)
            continue;
        for (const [digits, scale] of [[2, 100], [1, 10], [0, 1]]) {
            const r = Math.round(v * scale);
            if (r < 1000 || (digits === 0 && (r < 1024 || last)))
                return `${(r / scale).toFixed(digits)} ${UNITS[unit]}`;
        }
    }
}

export function percent(part, whole) {
    if (!whole)
        return '0 %';
    const p = 100 * part / whole;
    return `${p > 0 && p < 10 ? p.toFixed(1) : p.toFixed(0)} %`;
}

export function seconds(s) {
    if (!Number.isFinite(s))
        return '';
    if (s < 10)
        return `${s.toFixed(1)} s`;
    if (s < 90)
        return `${s.toFixed(0)} s`;
    const m = Math.floor(s / 60);
    return m < 60 ? `${m} min ${Math.round(s % 60)} s` : `${Math.floor(m / 60)} h ${m % 60} min`;
}

export const gbps = (v) => `${(v || 0).toFixed(1)} GB/s`;

const clock =
    new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit'});
const day = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'short'});

export const time = (ms) => clock.format(ms);
export const date = (ms) => day.format(ms);

export const count = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/* "What happened.", "with what" -> "What happened: with what" */
export const because = (what, details) =>
    what && details ? `${what.replace(/[.:\s]+$/, '')}: ${details}` : what || details || '';

/* A sentence's beginning of at most n characters. */
export function short(text, n) {
    return text.length <= n ? text : `${text.slice(0, n - 1).trimEnd()}…`;
}
