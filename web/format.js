/* format: numbers as people read them. Bytes in binary units, three digits, as `berth ps` prints
 * them. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(n) {
    let unit = 0;
    let v = Number(n) || 0;
    while (v >= 1024 && unit < UNITS.length - 1) {
        v /= 1024;
        unit++;
    }
    return `${
        unit === 0 || v >= 100 ? v.toFixed(0) :
            v >= 10            ? v.toFixed(1) :
                                 v.toFixed(2)} ${UNITS[unit]}`;
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

/* A sentence's beginning of at most n characters. */
export function short(text, n) {
    return text.length <= n ? text : `${text.slice(0, n - 1).trimEnd()}…`;
}
